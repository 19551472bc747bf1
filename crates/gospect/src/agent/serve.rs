//! The agent's port: the status page at `/`, the same as JSON at `/status`, `/metrics` for Prometheus, `/healthz`.

use super::monitor::Monitor;
use crate::http::{self, Answer};
use agent::page;
use anyhow::Context as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Connections at a time; others wait in the kernel's queue.
const CONNECTIONS: usize = 16;
/// After a connection that could not be taken: too many files open, mostly.
const PAUSE: Duration = Duration::from_millis(100);

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
    http::serve(stream, |path| respond(path, monitor.clone())).await;
    drop(place);
}

async fn respond(path: String, monitor: Monitor) -> Answer {
    match path.as_str() {
        "/healthz" => Answer::text("ok\n"),
        "/metrics" => {
            let text = tokio::task::spawn_blocking(move || monitor.exposition());
            Answer::read(output::CONTENT_TYPE, text.await.ok())
        }
        "/status" => {
            let text = tokio::task::spawn_blocking(move || {
                serde_json::to_vec(&monitor.status(true)).unwrap_or_default()
            });
            Answer::read("application/json", text.await.ok())
        }
        "/" => {
            let text = tokio::task::spawn_blocking(move || page::html(&monitor.status(true)));
            Answer::read("text/html; charset=utf-8", text.await.ok())
        }
        "/page.css" => Answer::new("text/css; charset=utf-8", page::STYLE),
        "/page.js" => Answer::new("text/javascript; charset=utf-8", page::SCRIPT),
        _ => Answer::nothing("nothing here: see /\n"),
    }
}
