//! What service a process belongs to.

use process::Process;
use std::path::Path;

/// Characters kept of a name.
const MAX_CHARS: usize = 255;

/// As OpenTelemetry's SDKs find it (`OTEL_SERVICE_NAME`, then `service.name` of
/// `OTEL_RESOURCE_ATTRIBUTES`), else the name of the executable.
pub fn service_of(process: &Process, exe: &str) -> String {
    let variable = |name| process.variable(name).ok().flatten().filter(|value| !value.is_empty());
    let name = variable("OTEL_SERVICE_NAME")
        .or_else(|| attribute(&variable("OTEL_RESOURCE_ATTRIBUTES")?, "service.name"))
        .unwrap_or_else(|| {
            let path = exe.strip_suffix(" (deleted)").unwrap_or(exe);
            Path::new(path)
                .file_name()
                .map_or_else(|| path.to_owned(), |name| name.to_string_lossy().into_owned())
        });
    name.chars().take(MAX_CHARS).collect()
}

/// The value of a key of `key=value,…`, with its percent-encoding undone.
fn attribute(list: &str, key: &str) -> Option<String> {
    let value = list.split(',').find_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        (name.trim() == key).then(|| value.trim())
    })?;
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        match (first, tail.get(..2).and_then(code)) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned()).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_and_decoded() {
        let list = "a=1, service.name = my%20shop%2 ,service.names=x";
        assert_eq!(attribute(list, "service.name").as_deref(), Some("my shop%2"));
        assert_eq!(attribute("service.name=", "service.name"), None);
        assert_eq!(attribute("", "service.name"), None);
    }
}
