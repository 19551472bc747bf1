//! Spans to a collector by OTLP over HTTP, in JSON.
//!
//! A thread of its own batches and sends; the queue to it is bounded, and what does not fit or can
//! not be delivered is counted. What the OTEL_* variables say is read once.

mod endpoint;
mod post;

pub use endpoint::Endpoint;

use output::{Clock, otlp_request};
use post::{Sent, post};
use sensors::Span;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Spans waiting at the most (OTEL_BSP_MAX_QUEUE_SIZE).
const QUEUE: usize = 2048;
/// Spans sent at a time at the most (OTEL_BSP_MAX_EXPORT_BATCH_SIZE).
const BATCH: usize = 512;
/// How long the first span of a batch waits for others (OTEL_BSP_SCHEDULE_DELAY; 5s by default there).
const DELAY: Duration = Duration::from_secs(1);
/// How long a batch is tried.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it goes on when the capture is over.
const LAST: Duration = Duration::from_secs(5);
/// The first pause before a batch is sent again; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(250);

/// What became of spans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Where to.
    pub name: String,
    /// Delivered.
    pub delivered: u64,
    /// Not taken, since too many were waiting.
    pub dropped: u64,
    /// Sent in vain.
    pub failed: u64,
    /// The last failure.
    pub error: Option<String>,
}

impl fmt::Display for Exported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, delivered, dropped, failed, error } = self;
        write!(f, "{delivered} spans sent to {name}")?;
        if *dropped > 0 {
            write!(f, "; {dropped} spans were dropped, since {QUEUE} were waiting")?;
        }
        if *failed > 0 {
            write!(f, "; {failed} spans were not delivered")?;
        }
        match error {
            Some(error) => write!(f, ": {error}"),
            None => Ok(()),
        }
    }
}

/// What the sending thread shares.
#[derive(Default)]
struct Shared {
    delivered: AtomicU64,
    failed: AtomicU64,
    error: Mutex<Option<String>>,
    /// When to give up, once the capture is over.
    until: Mutex<Option<Instant>>,
}

/// Sends spans.
pub struct Exporter {
    queue: Option<SyncSender<Span>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
    dropped: u64,
    /// Where they go, for people.
    name: String,
}

impl Exporter {
    /// Starts sending to `endpoint`. Without a thread for it nothing is taken, and that is told.
    pub fn start(endpoint: Endpoint, clock: Clock) -> Self {
        let (queue, spans) = sync_channel(QUEUE);
        let shared = Arc::new(Shared::default());
        let name = endpoint.to_string();
        let sending = Sending { endpoint, clock, shared: Arc::clone(&shared) };
        let thread = std::thread::Builder::new().name("otlp".to_owned());
        let thread = thread.spawn(move || sending.run(&spans));
        if let Err(error) = &thread {
            *locked(&shared.error) = Some(format!("no thread to send by: {error}"));
        }
        Self { queue: Some(queue), thread: thread.ok(), shared, dropped: 0, name }
    }

    /// Takes a span, if there is room.
    pub fn span(&mut self, span: Span) {
        let Some(queue) = &self.queue else { return };
        match queue.try_send(span) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => self.dropped += 1,
        }
    }

    /// Sends what waits, for a while, and tells what became of all.
    pub fn finish(&mut self) -> Exported {
        *locked(&self.shared.until) = Some(Instant::now() + LAST);
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // It ends when the queue does; a panic there is a failure like another.
            if thread.join().is_err() {
                *locked(&self.shared.error) = Some("the sending thread failed".to_owned());
            }
        }
        Exported {
            name: self.name.clone(),
            delivered: self.shared.delivered.load(Ordering::Relaxed),
            dropped: self.dropped,
            failed: self.shared.failed.load(Ordering::Relaxed),
            error: locked(&self.shared.error).clone(),
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread's side.
struct Sending {
    endpoint: Endpoint,
    clock: Clock,
    shared: Arc<Shared>,
}

impl Sending {
    fn run(&self, spans: &Receiver<Span>) {
        while let Ok(first) = spans.recv() {
            let mut batch = vec![first];
            let full = Instant::now() + DELAY;
            while batch.len() < BATCH {
                match spans.recv_timeout(full.saturating_duration_since(Instant::now())) {
                    Ok(span) => batch.push(span),
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
                }
            }
            self.send(&batch);
        }
    }

    fn send(&self, batch: &[Span]) {
        let resource = |_| self.endpoint.resource.clone();
        let body = otlp_request(batch, &self.clock, &resource).to_string();
        let (mut pause, patience) = (PAUSE, Instant::now() + PATIENCE);
        let error = loop {
            match post(&self.endpoint, body.clone()) {
                Sent::Taken => {
                    self.shared.delivered.fetch_add(batch.len() as u64, Ordering::Relaxed);
                    return;
                }
                Sent::Refused(error) => break error,
                Sent::Again(error) => {
                    let until =
                        locked(&self.shared.until).map_or(patience, |end| end.min(patience));
                    if Instant::now() + pause > until {
                        break error;
                    }
                }
            }
            std::thread::sleep(pause);
            pause *= 2;
        };
        self.shared.failed.fetch_add(batch.len() as u64, Ordering::Relaxed);
        *locked(&self.shared.error) = Some(error);
    }
}
