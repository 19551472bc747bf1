//! The OTEL_* variables, as the specification reads them: an empty one is none.

/// Looks up variables.
pub(crate) struct Variables<'a> {
    look_up: &'a dyn Fn(&str) -> Option<String>,
}

impl<'a> Variables<'a> {
    pub(crate) fn new(look_up: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { look_up }
    }

    pub(crate) fn get(&self, name: &str) -> Option<String> {
        (self.look_up)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// Of the exporter: what is said of traces, else what is said of all signals.
    pub(crate) fn exporter(&self, name: &str) -> Option<String> {
        self.get(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"))
            .or_else(|| self.get(&format!("OTEL_EXPORTER_OTLP_{name}")))
    }
}

/// `key=value,key=value`, percent-encoded (W3C Baggage). What is malformed is left out.
pub(crate) fn pairs(text: &str) -> Vec<(String, String)> {
    let pair = |item: &str| {
        let (key, value) = item.split_once('=')?;
        let (key, value) = (decoded(key.trim())?, decoded(value.trim())?);
        (!key.is_empty()).then_some((key, value))
    };
    text.split(',').filter_map(pair).collect()
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_percent_encoded_and_malformed_ones_are_left_out() {
        let found = pairs("api-key=a%20b, x = y,malformed,bad=%zz,=none,cut=%4");
        let expected = [("api-key", "a b"), ("x", "y")];
        let found: Vec<(&str, &str)> = found.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(found, expected);
    }
}
