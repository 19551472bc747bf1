//! Where spans are sent, and what is sent with them: what is given and what OTEL_* variables say.

use crate::failure::usage;
use std::fmt;
use std::time::Duration;

/// Of OTLP over HTTP (OpenTelemetry's "OTLP exporter" specification).
const PORT: u16 = 4318;
const PATH: &str = "/v1/traces";
const TIMEOUT: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Host or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path that is posted to.
    pub path: String,
    /// Headers of each request (OTEL_EXPORTER_OTLP_HEADERS).
    pub headers: Vec<(String, String)>,
    /// How long one request may take (OTEL_EXPORTER_OTLP_TIMEOUT).
    pub timeout: Duration,
    /// Attributes of what the spans come from (OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME).
    pub resource: Vec<(String, String)>,
}

impl Endpoint {
    /// `url` is a base, `http://HOST[:PORT][/PATH]`, to which `/v1/traces` is added. `variable` looks up
    /// an environment variable, `service` is the name where none says one.
    pub fn new(
        url: &str,
        service: &str,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Self> {
        let malformed = |what: &str| usage(format!("malformed --otlp `{url}`: {what}"));
        let Some(rest) = url.strip_prefix("http://") else {
            return Err(malformed("write http://HOST[:PORT][/PATH]; TLS and gRPC are not spoken"));
        };
        let (authority, base) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, digits)) if !digits.contains(']') => {
                (host, digits.parse().map_err(|_| malformed("no port after the colon"))?)
            }
            _ => (authority, PORT),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(malformed("no host"));
        }
        let either = |name: &str| {
            variable(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"))
                .or_else(|| variable(&format!("OTEL_EXPORTER_OTLP_{name}")))
        };
        let timeout = either("TIMEOUT").and_then(|ms| ms.parse().ok());
        let mut resource = pairs(&variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
        let named = variable("OTEL_SERVICE_NAME").filter(|name| !name.is_empty());
        let has_name = resource.iter().any(|(key, _)| key == "service.name");
        if let Some(name) = named.or_else(|| (!has_name).then(|| service.to_owned())) {
            resource.retain(|(key, _)| key != "service.name");
            resource.insert(0, ("service.name".to_owned(), name));
        }
        Ok(Self {
            host: host.to_owned(),
            port,
            path: format!("{}{PATH}", base.trim_end_matches('/')),
            headers: pairs(&either("HEADERS").unwrap_or_default()),
            timeout: timeout.map_or(TIMEOUT, Duration::from_millis),
            resource,
        })
    }

    /// Host and port as they stand in a URL.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.path)
    }
}

/// `key=value,key=value`, percent-encoded (W3C Baggage). What is malformed is left out.
fn pairs(text: &str) -> Vec<(String, String)> {
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

    fn endpoint(url: &str, set: &[(&str, &str)]) -> anyhow::Result<Endpoint> {
        let find = |name: &str| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Endpoint::new(url, "shop", &find)
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn what_is_given_and_what_the_environment_says() {
        let plain = Endpoint {
            host: "collector".to_owned(),
            port: 4318,
            path: "/v1/traces".to_owned(),
            headers: Vec::new(),
            timeout: TIMEOUT,
            resource: vec![pair("service.name", "shop")],
        };
        assert_eq!(endpoint("http://collector", &[]).unwrap(), plain);
        let set = [
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x = y,malformed,bad=%zz"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "9000"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "250"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,region=eu"),
        ];
        let told = endpoint("http://[::1]:99/base/", &set).unwrap();
        let expected = Endpoint {
            host: "::1".to_owned(),
            port: 99,
            path: "/base/v1/traces".to_owned(),
            headers: vec![pair("api-key", "a b"), pair("x", "y")],
            timeout: Duration::from_millis(250),
            resource: vec![pair("service.name", "other"), pair("region", "eu")],
        };
        assert_eq!(told, expected);
        let named = endpoint("http://c", &[set[3], ("OTEL_SERVICE_NAME", "mine")]).unwrap();
        assert_eq!(named.resource, [pair("service.name", "mine"), pair("region", "eu")]);
        for url in ["collector:4318", "https://c", "http://", "http://c:x", "http://:1"] {
            assert!(endpoint(url, &[]).is_err(), "{url}");
        }
    }
}
