//! The agent's port: the status page at `/`, the same as JSON at `/status`, `/metrics` for Prometheus, `/healthz`.

use super::monitor::Monitor;
use agent::page;
use anyhow::Context as _;
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
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Connections at a time; others wait in the kernel's queue.
const CONNECTIONS: usize = 16;
/// How long a client may take to ask.
const ASKING: Duration = Duration::from_secs(5);
/// How long a connection may take as a whole. One request is answered on each.
const CONNECTION: Duration = Duration::from_secs(30);
/// After a connection that could not be taken: too many files open, mostly.
const PAUSE: Duration = Duration::from_millis(100);

const TEXT: &str = "text/plain; charset=utf-8";

/// The server; it ends when this is dropped.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    over: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Listens on `address` and answers from a thread of its own.
    pub fn start(address: SocketAddr, monitor: Monitor) -> anyhow::Result<Self> {
        let context = || format!("failed to listen on {address}");
        let listener = std::net::TcpListener::bind(address).with_context(context)?;
        listener.set_nonblocking(true).with_context(context)?;
        let address = listener.local_addr().with_context(context)?;
        // One thread for connections and one for reading: scrapes that come together go one by one.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(1)
            .build()
            .context("failed to start the server")?;
        let (over, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("server".to_owned()).spawn(move || {
            runtime.block_on(async {
                let Ok(listener) = TcpListener::from_std(listener) else { return };
                tokio::select! {
                    () = accept(&listener, &monitor) => {}
                    _ = ended => {}
                }
            });
            // A scrape that is on its way is not waited for.
            runtime.shutdown_background();
        })?;
        Ok(Self { address, over: Some(over), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.over.take());
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

async fn accept(listener: &TcpListener, monitor: &Monitor) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(answer(stream, place, monitor.clone()))),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn answer(stream: TcpStream, place: OwnedSemaphorePermit, monitor: Monitor) {
    let is_own = stream.local_addr().is_ok_and(|own| own.ip().to_canonical().is_loopback());
    let service = service_fn(|request| respond(request, monitor.clone(), is_own));
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(ASKING)
        .keep_alive(false)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(stream), service);
    // What goes wrong on a connection is its client's to see.
    let _ = tokio::time::timeout(CONNECTION, connection).await;
    drop(place);
}

async fn respond(
    request: Request<Incoming>,
    monitor: Monitor,
    is_own: bool,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let host = request.headers().get(HOST).map(HeaderValue::as_bytes);
    if is_own && !host.is_none_or(names_this_machine) {
        let text = "ask for it as localhost or by address\n";
        return Ok(response(StatusCode::MISDIRECTED_REQUEST, TEXT, text));
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, "GET it\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(response);
    }
    let (kind, text) = match request.uri().path() {
        "/healthz" => return Ok(response(StatusCode::OK, TEXT, "ok\n")),
        "/metrics" => {
            let text = tokio::task::spawn_blocking(move || monitor.exposition()).await;
            (output::CONTENT_TYPE, text.ok())
        }
        "/status" => {
            let text = tokio::task::spawn_blocking(move || {
                serde_json::to_vec(&monitor.status(true)).unwrap_or_default()
            });
            ("application/json", text.await.ok())
        }
        "/" => {
            let text = tokio::task::spawn_blocking(move || page::html(&monitor.status(true)));
            ("text/html; charset=utf-8", text.await.ok().map(String::into_bytes))
        }
        "/page.css" => return Ok(response(StatusCode::OK, "text/css; charset=utf-8", page::STYLE)),
        "/page.js" => {
            return Ok(response(StatusCode::OK, "text/javascript; charset=utf-8", page::SCRIPT));
        }
        _ => return Ok(response(StatusCode::NOT_FOUND, TEXT, "nothing here: see /\n")),
    };
    Ok(match text {
        Some(text) => response(StatusCode::OK, kind, text),
        None => response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "failed to read\n"),
    })
}

fn response(
    status: StatusCode,
    kind: &'static str,
    text: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, page::CONTENT_SECURITY_POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
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
