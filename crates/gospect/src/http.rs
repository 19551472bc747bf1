//! Answers over HTTP: one on each connection, from whoever connects.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::time::Duration;
use tokio::net::TcpStream;

/// How long a client may take to ask.
const ASKING: Duration = Duration::from_secs(5);
/// How long a connection may take as a whole.
const CONNECTION: Duration = Duration::from_secs(30);

/// What plain text is called.
const TEXT: &str = "text/plain; charset=utf-8";

/// What a path is answered with.
pub struct Answer {
    status: StatusCode,
    kind: &'static str,
    body: Bytes,
}

impl Answer {
    /// What was asked for, of a type of content.
    pub fn new(kind: &'static str, body: impl Into<Bytes>) -> Self {
        Self { status: StatusCode::OK, kind, body: body.into() }
    }

    /// A text.
    pub fn text(text: &'static str) -> Self {
        Self::new(TEXT, text)
    }

    /// What was read elsewhere, or that this failed.
    pub fn read(kind: &'static str, body: Option<impl Into<Bytes>>) -> Self {
        let failed = || Self::refusal(StatusCode::INTERNAL_SERVER_ERROR, "failed to read\n");
        body.map_or_else(failed, |body| Self::new(kind, body))
    }

    /// There is nothing at this path; `text` says where there is something.
    pub fn nothing(text: &'static str) -> Self {
        Self::refusal(StatusCode::NOT_FOUND, text)
    }

    fn refusal(status: StatusCode, text: &'static str) -> Self {
        Self { status, ..Self::text(text) }
    }

    fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        for (name, value) in [
            (CONTENT_TYPE, self.kind),
            (CONTENT_SECURITY_POLICY, agent::page::CONTENT_SECURITY_POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            (CACHE_CONTROL, "no-store"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        response
    }
}

/// Answers the one request of a connection by its path.
pub async fn serve<F>(stream: TcpStream, answer: impl Fn(String) -> F)
where
    F: Future<Output = Answer>,
{
    let is_own = stream.local_addr().is_ok_and(|own| own.ip().to_canonical().is_loopback());
    let service = service_fn(|request: Request<Incoming>| {
        let refusal = refusal(&request, is_own);
        // Nothing happens yet.
        let answer = answer(request.uri().path().to_owned());
        async {
            let answer = match refusal {
                Some(refusal) => refusal,
                None => answer.await,
            };
            Ok::<_, Infallible>(answer.into_response())
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(ASKING)
        .keep_alive(false)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(stream), service);
    // What goes wrong on a connection is its client's to see.
    let _ = tokio::time::timeout(CONNECTION, connection).await;
}

/// Why a request is not answered, whatever it asks for.
fn refusal(request: &Request<Incoming>, is_own: bool) -> Option<Answer> {
    let host = request.headers().get(HOST).map(HeaderValue::as_bytes);
    if is_own && !host.is_none_or(names_this_machine) {
        let text = "ask for it as localhost or by address\n";
        return Some(Answer::refusal(StatusCode::MISDIRECTED_REQUEST, text));
    }
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    (!is_read).then(|| Answer::refusal(StatusCode::METHOD_NOT_ALLOWED, "GET it\n"))
}

/// Whether a `Host` is one by which a person reaches a port of loopback. A page of elsewhere that a browser here
/// has open can have its own name lead to this machine (DNS rebinding), and would read what it is answered.
fn names_this_machine(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let is_port = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) => name,
        _ => host,
    };
    let inner = name.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
    let is_localhost = |name: &str| {
        let name = name.to_ascii_lowercase();
        name == "localhost" || name.ends_with(".localhost")
    };
    match inner {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => name.parse::<std::net::Ipv4Addr>().is_ok() || is_localhost(name),
    }
}

#[cfg(test)]
mod tests {
    use super::names_this_machine;

    #[test]
    fn names_of_elsewhere_do_not_reach_loopback() {
        for own in [
            "127.0.0.1",
            "127.0.0.1:9463",
            "[::1]:9463",
            "[::1]",
            "localhost:9463",
            "LOCALHOST",
            "a.localhost",
        ] {
            assert!(names_this_machine(own.as_bytes()), "{own}");
        }
        for other in [
            "",
            "evil.example:9463",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[evil]",
            "::1:x",
        ] {
            assert!(!names_this_machine(other.as_bytes()), "{other}");
        }
        assert!(!names_this_machine(b"\xff"));
    }
}
