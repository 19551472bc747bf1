//! The thread that sends, and the queue to it.

use crate::connector::Connector;
use crate::error::Error;
use crate::request::request;
use crate::send::{Sender, Sent};
use crate::settings::Settings;
use output::Clock;
use sensors::Span;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

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
/// The first pause before a batch is sent again; each further one is twice as long, and each is between
/// half and one and a half of that, so that senders do not come back all at once.
const PAUSE: Duration = Duration::from_millis(250);

/// What became of spans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Where to.
    pub name: String,
    /// Delivered.
    pub delivered: u64,
    /// Left out by the sampler.
    pub unsampled: u64,
    /// Not taken, since too many were waiting.
    pub dropped: u64,
    /// Sent in vain.
    pub failed: u64,
    /// The last failure.
    pub error: Option<String>,
}

impl fmt::Display for Exported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, delivered, unsampled, dropped, failed, error } = self;
        write!(f, "{delivered} spans sent to {name}")?;
        if *unsampled > 0 {
            write!(f, "; {unsampled} spans are of traces that are not sampled")?;
        }
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

/// What the sending thread tells.
#[derive(Default)]
struct Shared {
    delivered: AtomicU64,
    failed: AtomicU64,
    error: Mutex<Option<String>>,
}

impl Shared {
    fn tell(&self, error: impl Into<String>) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.into());
    }

    fn told(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Sends spans.
pub struct Exporter {
    settings: Arc<Settings>,
    queue: Option<mpsc::Sender<Span>>,
    /// When to give up, once the capture is over.
    until: watch::Sender<Option<Instant>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
    unsampled: u64,
    dropped: u64,
}

impl Exporter {
    /// Whether one can be started; nothing is sent.
    ///
    /// # Errors
    /// What is wrong with certificates and keys.
    pub fn check(settings: &Settings) -> Result<(), Error> {
        Connector::new(settings).map(drop)
    }

    /// Starts sending. Without a thread for it nothing is taken, and that is told.
    pub fn start(settings: Settings, clock: Clock) -> Self {
        let settings = Arc::new(settings);
        let (queue, spans) = mpsc::channel(QUEUE);
        let (until, deadline) = watch::channel(None);
        let shared = Arc::new(Shared::default());
        let sending = Sending {
            settings: Arc::clone(&settings),
            clock,
            shared: Arc::clone(&shared),
            until: deadline,
        };
        let thread = std::thread::Builder::new().name("otlp".to_owned());
        let thread = thread.spawn(move || sending.run(spans));
        if let Err(error) = &thread {
            shared.tell(format!("no thread to send by: {error}"));
        }
        let thread = thread.ok();
        Self { settings, queue: Some(queue), until, thread, shared, unsampled: 0, dropped: 0 }
    }

    /// Takes a span, if it is of a trace that is sampled and there is room.
    pub fn span(&mut self, span: Span) {
        let Some(queue) = &self.queue else { return };
        if !self.settings.sampler.takes(span.context.trace, span.sampled_by_parent) {
            self.unsampled += 1;
            return;
        }
        match queue.try_send(span) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Closed(_)) => self.dropped += 1,
        }
    }

    /// Sends what waits, for a while, and tells what became of all.
    pub fn finish(&mut self) -> Exported {
        self.until.send_replace(Some(Instant::now() + LAST));
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // It ends when the queue does; a panic there is a failure like another.
            if thread.join().is_err() {
                self.shared.tell("the sending thread failed");
            }
        }
        Exported {
            name: self.settings.to_string(),
            delivered: self.shared.delivered.load(Ordering::Relaxed),
            unsampled: self.unsampled,
            dropped: self.dropped,
            failed: self.shared.failed.load(Ordering::Relaxed),
            error: self.shared.told(),
        }
    }
}

/// The thread's side.
struct Sending {
    settings: Arc<Settings>,
    clock: Clock,
    shared: Arc<Shared>,
    until: watch::Receiver<Option<Instant>>,
}

impl Sending {
    fn run(mut self, spans: mpsc::Receiver<Span>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(self.take(spans)),
            Err(error) => self.shared.tell(format!("no runtime to send by: {error}")),
        }
    }

    async fn take(&mut self, mut spans: mpsc::Receiver<Span>) {
        let sender = Connector::new(&self.settings)
            .and_then(|connector| Sender::new(&self.settings, connector));
        let mut sender = match sender {
            Ok(sender) => sender,
            Err(error) => return self.shared.tell(error.to_string()),
        };
        while let Some(first) = spans.recv().await {
            let mut batch = vec![first];
            let full = Instant::now() + DELAY;
            while batch.len() < BATCH {
                match timeout_at(full, spans.recv()).await {
                    Ok(Some(span)) => batch.push(span),
                    Ok(None) | Err(_) => break,
                }
            }
            self.send(&mut sender, &batch).await;
        }
    }

    async fn send(&mut self, sender: &mut Sender, batch: &[Span]) {
        let request = request(batch, &self.clock, &self.settings.resource);
        let count = batch.len() as u64;
        let (mut pause, patience) = (PAUSE, Instant::now() + PATIENCE);
        let error = loop {
            let (error, after) = match sender.send(&self.settings, &request).await {
                Sent::Taken { rejected, told } => {
                    let rejected = rejected.min(count);
                    self.shared.delivered.fetch_add(count - rejected, Ordering::Relaxed);
                    self.shared.failed.fetch_add(rejected, Ordering::Relaxed);
                    if let Some(told) = told {
                        self.shared.tell(told);
                    }
                    return;
                }
                Sent::Refused(error) => break error,
                Sent::Again { error, after } => (error, after),
            };
            let wait = after.unwrap_or_default().max(jittered(pause));
            if !self.waited(wait, patience).await {
                break error;
            }
            pause *= 2;
        };
        self.shared.failed.fetch_add(count, Ordering::Relaxed);
        self.shared.tell(format!("{}: {error}", self.settings));
    }

    /// Waits, unless that takes longer than there is time.
    async fn waited(&mut self, wait: Duration, patience: Instant) -> bool {
        let end = Instant::now() + wait;
        loop {
            let until = self.until.borrow_and_update().map_or(patience, |end| end.min(patience));
            if end > until {
                return false;
            }
            // Woken when the capture ends meanwhile: there may be less time now.
            let left = end.saturating_duration_since(Instant::now());
            match timeout(left, self.until.changed()).await {
                Err(_) => return true,
                Ok(Ok(())) => {}
                // Nobody waits for what becomes of it.
                Ok(Err(_)) => return false,
            }
        }
    }
}

/// Between half and one and a half of a pause.
fn jittered(pause: Duration) -> Duration {
    let random = RandomState::new().hash_one(pause) >> 11;
    pause.mul_f64(0.5 + random as f64 / (1_u64 << 53) as f64)
}
