//! The agent's port: `/metrics` for Prometheus, `/status` as JSON, `/healthz`.

use super::monitor::Monitor;
use anyhow::Context as _;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
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
    let service = service_fn(|request| respond(request, monitor.clone()));
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
) -> Result<Response<Full<Bytes>>, Infallible> {
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
            let text = "gospect agent: /metrics for Prometheus, /status as JSON, /healthz\n";
            return Ok(response(StatusCode::OK, TEXT, text));
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
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
