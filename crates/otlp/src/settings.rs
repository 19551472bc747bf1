//! Where spans are sent, how, and what is sent with them: what is given and what OTEL_* variables say
//! ("OpenTelemetry Protocol Exporter" and "SDK environment variables" of the specification, 1.50).

use crate::batching::Batching;
use crate::error::Error;
use crate::sampler::Sampler;
use crate::variables::{Signal, Variables, pairs};
use hyper::header::{HeaderName, HeaderValue};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);

/// What is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC, port 4317.
    Grpc,
    /// Protobuf over HTTP, port 4318.
    #[default]
    HttpProtobuf,
    /// JSON over HTTP, port 4318.
    HttpJson,
}

impl Protocol {
    const fn port(self) -> u16 {
        match self {
            Self::Grpc => 4317,
            Self::HttpProtobuf | Self::HttpJson => 4318,
        }
    }
}

impl FromStr for Protocol {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        match name {
            "grpc" => Ok(Self::Grpc),
            "http/protobuf" => Ok(Self::HttpProtobuf),
            "http/json" => Ok(Self::HttpJson),
            _ => Err(Error::Protocol(name.to_owned())),
        }
    }
}

/// A certificate of one's own, and its key: PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The certificate, and those between it and the root.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// What is spoken (OTEL_EXPORTER_OTLP_PROTOCOL).
    pub protocol: Protocol,
    /// Whether by TLS.
    pub secure: bool,
    /// Host or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path that is posted to; of gRPC nothing.
    pub path: String,
    /// Headers of each request (OTEL_EXPORTER_OTLP_HEADERS).
    pub headers: Vec<(String, String)>,
    /// How long one request may take (OTEL_EXPORTER_OTLP_TIMEOUT).
    pub timeout: Duration,
    /// Whether requests are compressed by gzip (OTEL_EXPORTER_OTLP_COMPRESSION).
    pub gzip: bool,
    /// PEM file of whom to trust, instead of whom the system does (OTEL_EXPORTER_OTLP_CERTIFICATE).
    pub certificate: Option<PathBuf>,
    /// How to show who one is (OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and _CLIENT_KEY).
    pub identity: Option<Identity>,
    /// Attributes of what the spans come from (OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME).
    pub resource: Vec<(String, String)>,
    /// Which traces are sent (OTEL_TRACES_SAMPLER).
    pub sampler: Sampler,
    /// How many spans are sent at a time, and when (OTEL_BSP_*).
    pub batching: Batching,
    /// Variables that were not understood, each as a sentence.
    pub warnings: Vec<String>,
}

impl Settings {
    /// `given` is a base URL that comes before those of variables, `protocol` likewise; `variable` looks up
    /// an environment variable, `service` is the name where none says one.
    ///
    /// # Errors
    /// What is no URL, no protocol or no header.
    pub fn new(
        given: Option<&str>,
        protocol: Option<Protocol>,
        service: &str,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Error> {
        Self::of(Signal::Traces, given, protocol, service, variable)
    }

    /// The same for any signal.
    ///
    /// # Errors
    /// As [`Settings::new`].
    pub fn of(
        signal: Signal,
        given: Option<&str>,
        protocol: Option<Protocol>,
        service: &str,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Error> {
        let variables = Variables::new(signal, variable);
        let protocol = match (protocol, variables.exporter("PROTOCOL")) {
            (Some(protocol), _) => protocol,
            (None, Some(name)) => name.parse()?,
            (None, None) => Protocol::default(),
        };
        let mut settings = Self { protocol, ..Self::default() };
        settings.aim(signal, given, &variables)?;
        settings.headers = headers(&variables)?;
        settings.tell_how(&variables);
        settings.resource = resource(service, &variables);
        let (sampler, warning) = Sampler::named(
            variables.get("OTEL_TRACES_SAMPLER").as_deref(),
            variables.get("OTEL_TRACES_SAMPLER_ARG").as_deref(),
        );
        settings.sampler = sampler;
        settings.warnings.extend(warning);
        settings.batching = Batching::new(&variables, &mut settings.warnings);
        Ok(settings)
    }

    /// Where to: a base, to which a path is added, or a URL of the signal, which is taken as it is.
    fn aim(
        &mut self,
        signal: Signal,
        given: Option<&str>,
        variables: &Variables<'_>,
    ) -> Result<(), Error> {
        let (url, is_base) = match (given, variables.own("ENDPOINT")) {
            (Some(given), _) => (given.to_owned(), true),
            (None, Some(url)) => (url, false),
            (None, None) => {
                let base = variables.get("OTEL_EXPORTER_OTLP_ENDPOINT");
                (base.unwrap_or_else(|| "http://localhost".to_owned()), true)
            }
        };
        let malformed = |reason| Error::Endpoint { url: url.clone(), reason };
        let is_grpc = self.protocol == Protocol::Grpc;
        let (secure, rest) = if let Some(rest) = url.strip_prefix("http://") {
            (false, rest)
        } else if let Some(rest) = url.strip_prefix("https://") {
            (true, rest)
        } else if is_grpc && !url.contains("://") {
            let insecure = variables.exporter("INSECURE");
            (!insecure.is_some_and(|value| value.eq_ignore_ascii_case("true")), &*url)
        } else {
            return Err(malformed("write http:// or https://HOST[:PORT][/PATH]"));
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, digits)) if !digits.contains(']') => {
                (host, digits.parse().map_err(|_| malformed("no port after the colon"))?)
            }
            _ => (authority, self.protocol.port()),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || host.contains(['@', '?', '#']) {
            return Err(malformed("no host"));
        }
        (self.secure, self.host, self.port) = (secure, host.to_owned(), port);
        self.path = match (is_grpc, is_base) {
            (true, _) => String::new(),
            (false, true) => format!("{}{}", path.trim_end_matches('/'), signal.path()),
            (false, false) if path.is_empty() => "/".to_owned(),
            (false, false) => path.to_owned(),
        };
        self.uri(&self.path).map_err(|_| malformed("no URL"))?;
        Ok(())
    }

    fn tell_how(&mut self, variables: &Variables<'_>) {
        self.timeout = TIMEOUT;
        if let Some(text) = variables.exporter("TIMEOUT") {
            match text.parse() {
                Ok(ms) => self.timeout = Duration::from_millis(ms),
                Err(_) => self.warnings.push(format!(
                    "OTEL_EXPORTER_OTLP_TIMEOUT is `{text}`, no number of milliseconds: {TIMEOUT:?} is taken"
                )),
            }
        }
        match variables.exporter("COMPRESSION").as_deref() {
            Some("gzip") => self.gzip = true,
            None | Some("none") => {}
            Some(other) => self.warnings.push(format!(
                "OTEL_EXPORTER_OTLP_COMPRESSION `{other}` is not known here: nothing is compressed"
            )),
        }
        self.certificate = variables.exporter("CERTIFICATE").map(PathBuf::from);
        let own = variables.exporter("CLIENT_CERTIFICATE").map(PathBuf::from);
        self.identity = match (own, variables.exporter("CLIENT_KEY").map(PathBuf::from)) {
            (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
            (None, None) => None,
            _ => {
                let told = "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and _CLIENT_KEY only help together: \
                            neither is used";
                self.warnings.push(told.to_owned());
                None
            }
        };
    }

    /// Host and port as they stand in a URL.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// The whole of a URL with that path.
    pub(crate) fn uri(&self, path: &str) -> Result<hyper::Uri, hyper::http::uri::InvalidUri> {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.authority()).parse()
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match (self.protocol, self.secure) {
            (Protocol::Grpc, false) => "grpc",
            (Protocol::Grpc, true) => "grpcs",
            (_, false) => "http",
            (_, true) => "https",
        };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

fn headers(variables: &Variables<'_>) -> Result<Vec<(String, String)>, Error> {
    let headers = pairs(&variables.exporter("HEADERS").unwrap_or_default());
    for (name, value) in &headers {
        let is_sent = HeaderName::from_str(name).is_ok() && HeaderValue::from_str(value).is_ok();
        if !is_sent {
            return Err(Error::Header(name.clone()));
        }
    }
    Ok(headers)
}

fn resource(service: &str, variables: &Variables<'_>) -> Vec<(String, String)> {
    let mut resource = pairs(&variables.get("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
    let named = variables.get("OTEL_SERVICE_NAME");
    let has_name = resource.iter().any(|(key, _)| key == "service.name");
    if let Some(name) = named.or_else(|| (!has_name).then(|| service.to_owned())) {
        resource.retain(|(key, _)| key != "service.name");
        resource.insert(0, ("service.name".to_owned(), name));
    }
    resource
}

#[cfg(test)]
mod tests;
