//! `/metrics` over HTTP, for Prometheus to scrape.

use super::say_restricted;
use crate::failure::Outcome;
use crate::http::{self, Answer};
use crate::monitor::{Fleet, Wants, rows};
use crate::signals::Signals;
use crate::sink;
use anyhow::Context as _;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections at a time; others wait in the kernel's queue.
const CONNECTIONS: usize = 8;

/// How often signals are looked for.
const POLL: Duration = Duration::from_millis(100);

/// When to stop.
pub struct Until<'a> {
    /// Signals.
    pub signals: &'a Signals,
    /// The time given.
    pub end: Option<Instant>,
}

impl Until<'_> {
    fn is_over(&self) -> bool {
        self.signals.detach_asked(false) || self.end.is_some_and(|end| Instant::now() >= end)
    }
}

/// What answers come from.
pub struct Source {
    fleet: Fleet,
    wants: Wants,
    quiet: bool,
    told: HashMap<u32, String>,
}

impl Source {
    /// The processes to read.
    pub fn new(fleet: Fleet, wants: Wants, quiet: bool) -> Self {
        Self { fleet, wants, quiet, told: HashMap::new() }
    }

    fn scrape(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        self.fleet.round(self.wants, &mut |watched, read| all.push(rows(watched, &read)));
        let mut told = HashMap::new();
        for process in &all {
            let Some(reason) = &process.restricted else { continue };
            if !self.quiet && self.told.get(&process.pid) != Some(reason) {
                say_restricted(process.pid, &process.exe, reason);
            }
            told.insert(process.pid, reason.clone());
        }
        self.told = told;
        let mut text = Vec::new();
        // Writing to memory does not fail.
        let _ = output::write_exposition(&all, &mut text);
        text
    }
}

/// Serves until it is over.
pub fn serve(address: SocketAddr, source: Source, until: &Until<'_>) -> anyhow::Result<Outcome> {
    // One thread for connections and one for reading: scrapes that come together go one by one.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(1)
        .build()
        .context("failed to start the server")?;
    let quiet = source.quiet;
    let source = Arc::new(Mutex::new(source));
    runtime.block_on(async {
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("failed to listen on {address}"))?;
        if !quiet {
            sink::say(format_args!("serving http://{}/metrics", listener.local_addr()?));
        }
        accept(&listener, &source, until).await;
        anyhow::Ok(())
    })?;
    // A scrape that is on its way is not waited for.
    runtime.shutdown_background();
    Ok(Outcome::Done)
}

async fn accept(listener: &TcpListener, source: &Arc<Mutex<Source>>, until: &Until<'_>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    while !until.is_over() {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await.ok()?;
            match listener.accept().await {
                Ok((stream, _)) => Some((stream, place)),
                Err(_) => {
                    // Too many files open, mostly: it passes.
                    tokio::time::sleep(POLL).await;
                    None
                }
            }
        };
        if let Ok(Some((stream, place))) = tokio::time::timeout(POLL, next).await {
            tokio::spawn(answer(stream, place, Arc::clone(source)));
        }
    }
}

async fn answer(stream: TcpStream, place: OwnedSemaphorePermit, source: Arc<Mutex<Source>>) {
    http::serve(stream, |path| respond(path, Arc::clone(&source))).await;
    drop(place);
}

async fn respond(path: String, source: Arc<Mutex<Source>>) -> Answer {
    match path.as_str() {
        "/metrics" => {
            let scrape = move || source.lock().unwrap_or_else(PoisonError::into_inner).scrape();
            Answer::read(output::CONTENT_TYPE, tokio::task::spawn_blocking(scrape).await.ok())
        }
        "/" => Answer::text("gospect: metrics of Go programs are at /metrics\n"),
        _ => Answer::nothing("nothing here: see /metrics\n"),
    }
}
