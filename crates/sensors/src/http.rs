//! HTTP by OpenTelemetry's semantic conventions (version 1.27 and later, stable since 1.23).

use crate::catalog::Field;
use crate::fields::Values;
use crate::header;
use crate::mask;
use crate::span::{Attribute, Name};
use crate::url;
use std::borrow::Cow;

/// Attributes and what is missing of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) known: Vec<(Name, Attribute)>,
    pub(crate) unavailable: Vec<(Name, String)>,
}

impl Attributes {
    /// None yet, and room for those that a request mostly has.
    fn of_request() -> Self {
        Self { known: Vec::with_capacity(16), unavailable: Vec::new() }
    }

    pub(crate) fn text(&mut self, name: &'static str, text: impl Into<Cow<'static, str>>) {
        self.known.push((name.into(), Attribute::Text(text.into())));
    }

    pub(crate) fn int(&mut self, name: &'static str, number: i64) {
        self.known.push((name.into(), Attribute::Int(number)));
    }

    /// It has none of that name, for this reason.
    pub(crate) fn lack(&mut self, name: impl Into<Name>, reason: impl Into<String>) {
        self.unavailable.push((name.into(), reason.into()));
    }

    /// The value, or nothing and the reason.
    pub(crate) fn take<T>(&mut self, name: &'static str, value: Result<T, &str>) -> Option<T> {
        match value {
            Ok(value) => Some(value),
            Err(reason) => {
                self.lack(name, reason);
                None
            }
        }
    }
}

/// Versions of HTTP.
const PROTOCOLS: [&str; 4] = ["1.1", "2", "1.0", "3"];

const PROTOCOL: &str = "network.protocol.version";
const METHOD: &str = "http.request.method";
pub(crate) const ORIGINAL: &str = "http.request.method_original";
pub(crate) const STATUS: &str = "http.response.status_code";
pub(crate) const ROUTE: &str = "http.route";
pub(crate) const RESPONSE_SIZE: &str = "http.response.body.size";
const REQUEST_SIZE: &str = "http.request.body.size";

/// Methods that the conventions know (RFC 9110 and PATCH).
const METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// Adds the method, and gives what a span's name begins with.
fn method(values: &Values<'_>, attributes: &mut Attributes) -> &'static str {
    let Some(method) = attributes.take(METHOD, values.text(Field::Method)) else {
        return "HTTP";
    };
    // A client's request without one is a GET.
    let known = if method.is_empty() { "GET" } else { &*method };
    if let Some(known) = METHODS.iter().find(|name| **name == known) {
        attributes.text(METHOD, *known);
        return known;
    }
    attributes.text(METHOD, "_OTHER");
    attributes.text(ORIGINAL, method.into_owned());
    "HTTP"
}

/// Host and port of `host:port`, of either alone, and of IPv6 addresses in brackets.
fn host_and_port(text: &str) -> (&str, Option<i64>) {
    let port = |text: &str| text.parse::<u16>().ok().map(i64::from);
    if let Some(rest) = text.strip_prefix('[')
        && let Some((host, rest)) = rest.split_once(']')
    {
        return (host, rest.strip_prefix(':').and_then(port));
    }
    match text.rsplit_once(':') {
        Some((host, digits)) if !host.contains(':') => (host, port(digits)),
        _ => (text, None),
    }
}

/// Adds an address and, when there is one, a port.
pub(crate) fn endpoint(
    text: &str,
    names: [&'static str; 2],
    default_port: Option<i64>,
    attributes: &mut Attributes,
) {
    let (host, port) = host_and_port(text);
    if host.is_empty() {
        return;
    }
    attributes.text(names[0], host.to_owned());
    if let Some(port) = port.or(default_port) {
        attributes.int(names[1], port);
    }
}

fn request_size(values: &Values<'_>, attributes: &mut Attributes) {
    let length = attributes.take(REQUEST_SIZE, values.int(Field::Length));
    // None, or not known.
    if let Some(length) = length.filter(|length| *length > 0) {
        attributes.int(REQUEST_SIZE, length);
    }
}

fn query(values: &Values<'_>, attributes: &mut Attributes) {
    // Not read unless it is asked for: that is no reason.
    if let Ok(query) = values.text(Field::Query)
        && !query.is_empty()
    {
        attributes.text("url.query", mask::query(&query));
    }
}

/// What a request tells a server, and what the name of its span begins with.
pub(crate) fn server_request(values: &Values<'_>) -> (&'static str, Attributes) {
    let mut attributes = Attributes::of_request();
    let name = method(values, &mut attributes);
    if let Some(path) = attributes.take("url.path", values.text(Field::Path)) {
        attributes.text("url.path", path.into_owned());
    }
    query(values, &mut attributes);
    if let Some(is_there) = attributes.take("url.scheme", values.is_there(Field::Tls)) {
        attributes.text("url.scheme", if is_there { "https" } else { "http" });
    }
    if let Some(host) = attributes.take("server.address", values.text(Field::Host)) {
        endpoint(&host, ["server.address", "server.port"], None, &mut attributes);
    }
    if let Some(protocol) = attributes.take(PROTOCOL, values.text(Field::Protocol)) {
        let version = protocol.strip_prefix("HTTP/").unwrap_or(&protocol);
        // HTTP/2.0 is how Go writes what is called 2.
        let version = version.strip_suffix(".0").filter(|major| *major >= "2").unwrap_or(version);
        match PROTOCOLS.iter().find(|known| **known == version) {
            Some(known) => attributes.text(PROTOCOL, *known),
            None => attributes.text(PROTOCOL, version.to_owned()),
        }
    }
    // A socket of Unix without a name is written like that: nothing is known of it.
    let peer = attributes.take("client.address", values.text(Field::Peer));
    if let Some(peer) = peer.filter(|peer| peer != "@") {
        endpoint(&peer, ["client.address", "client.port"], None, &mut attributes);
        let names = ["network.peer.address", "network.peer.port"];
        endpoint(&peer, names, None, &mut attributes);
    }
    request_size(values, &mut attributes);
    header::add(values, &mut attributes);
    (name, attributes)
}

/// What a client's request tells, and the name of its span.
pub(crate) fn client_request(values: &Values<'_>) -> (&'static str, Attributes) {
    let mut attributes = Attributes::of_request();
    let name = method(values, &mut attributes);
    let default_port = match values.text(Field::Scheme).as_deref() {
        Ok("http") => Some(80),
        Ok("https") => Some(443),
        _ => None,
    };
    if let Some(host) = attributes.take("server.address", values.text(Field::Host)) {
        endpoint(&host, ["server.address", "server.port"], default_port, &mut attributes);
    }
    if let Some(full) = attributes.take("url.full", url::full(values)) {
        attributes.text("url.full", full);
    }
    request_size(values, &mut attributes);
    header::add(values, &mut attributes);
    (name, attributes)
}

/// The path in a ServeMux's pattern, `[METHOD ][HOST]/[PATH]`: what is called a route.
pub(crate) fn route(pattern: &str) -> &str {
    let path = match pattern.split_once([' ', '\t']) {
        Some((_, path)) => path.trim_start_matches([' ', '\t']),
        None => pattern,
    };
    path.find('/').map_or(path, |slash| &path[slash..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_the_path_of_a_pattern() {
        let cases = [
            ("/a/{id}", "/a/{id}"),
            ("GET /a/{id}", "/a/{id}"),
            ("POST  example.com/b/{rest...}", "/b/{rest...}"),
            ("example.com/", "/"),
            ("/{$}", "/{$}"),
        ];
        for (pattern, path) in cases {
            assert_eq!(route(pattern), path, "{pattern}");
        }
    }

    #[test]
    fn hosts_and_ports_of_every_form() {
        let cases = [
            ("example.com", ("example.com", None)),
            ("example.com:8080", ("example.com", Some(8080))),
            ("127.0.0.1:80", ("127.0.0.1", Some(80))),
            ("[::1]:443", ("::1", Some(443))),
            ("[::1]", ("::1", None)),
            ("::1", ("::1", None)),
            ("a:99999", ("a", None)),
            (":8080", ("", Some(8080))),
            ("", ("", None)),
        ];
        for (text, expected) in cases {
            assert_eq!(host_and_port(text), expected, "{text}");
        }
    }
}
