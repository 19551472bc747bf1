//! Bringing messages to a collector: again after growing pauses, for as long as there is time, and what became of
//! them.

use crate::connector::Connector;
use crate::error::Error;
use crate::send::{Message, Sender, Sent};
use crate::settings::Settings;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// The first pause before a message is sent again; each further one is twice as long, and each is between
/// half and one and a half of that, so that senders do not come back all at once.
const PAUSE: Duration = Duration::from_millis(250);

/// For how long a collector is left alone that asks for it.
const LONGEST: Duration = Duration::from_secs(600);

/// What the sending thread tells.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) delivered: AtomicU64,
    pub(crate) failed: AtomicU64,
    error: Mutex<Option<String>>,
}

impl Shared {
    pub(crate) fn tell(&self, error: impl Into<String>) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.into());
    }

    pub(crate) fn told(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The thread's side.
pub(crate) struct Delivery {
    pub(crate) settings: Arc<Settings>,
    pub(crate) shared: Arc<Shared>,
    /// When to give up, once there is nothing more to come.
    pub(crate) until: watch::Receiver<Option<Instant>>,
    /// Until when the collector wants to be left alone.
    quiet: Option<Instant>,
}

impl Delivery {
    /// By the settings; what becomes of all is told to `shared`.
    pub(crate) fn new(
        settings: &Arc<Settings>,
        shared: &Arc<Shared>,
        until: watch::Receiver<Option<Instant>>,
    ) -> Self {
        Self { settings: Arc::clone(settings), shared: Arc::clone(shared), until, quiet: None }
    }

    /// A sender by the settings, within a runtime.
    pub(crate) fn sender(&self) -> Result<Sender, Error> {
        let connector = Connector::new(&self.settings)?;
        Sender::new(&self.settings, connector)
    }

    /// Sends a message of so many spans or points.
    pub(crate) async fn send(&mut self, sender: &mut Sender, request: &Message, count: u64) {
        if let Some(quiet) = self.quiet.take() {
            tokio::select! {
                () = sleep_until(quiet) => {}
                () = over(&mut self.until) => {}
            }
        }
        let (mut pause, patience) = (PAUSE, Instant::now() + self.settings.batching.patience);
        let error = loop {
            let sent = tokio::select! {
                // What there is no time for is not begun.
                biased;
                () = over(&mut self.until) => break "no answer before the end".to_owned(),
                sent = sender.send(&self.settings, request) => sent,
            };
            let (error, after) = match sent {
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
                // Who asks for more time than a message has gets it before the next one.
                self.quiet = after.map(|after| Instant::now() + after.min(LONGEST));
                break error;
            }
            pause *= 2;
        };
        self.shared.failed.fetch_add(count, Ordering::Relaxed);
        self.shared.tell(format!("{}: {error}", self.settings));
    }

    /// Waits, unless that takes longer than there is time.
    async fn waited(&mut self, wait: Duration, patience: Instant) -> bool {
        // A collector may say any number.
        let Some(end) = Instant::now().checked_add(wait) else { return false };
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

/// Waits until it is time to give up.
async fn over(until: &mut watch::Receiver<Option<Instant>>) {
    loop {
        let end = *until.borrow_and_update();
        let changed = match end {
            Some(end) => timeout_at(end, until.changed()).await,
            None => Ok(until.changed().await),
        };
        match changed {
            Err(_) => return,
            Ok(Ok(())) => {}
            // Whoever might have said when is gone.
            Ok(Err(_)) => match end {
                Some(end) => return sleep_until(end).await,
                None => std::future::pending().await,
            },
        }
    }
}

/// Between half and one and a half of a pause.
fn jittered(pause: Duration) -> Duration {
    let random = RandomState::new().hash_one(pause) >> 11;
    pause.mul_f64(0.5 + random as f64 / (1_u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exporter::Exporter;
    use crate::metrics::Measured;
    use crate::metrics_exporter::MetricsExporter;
    use crate::variables::Signal;
    use metrics::{Figure, Instrument};
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::time::Instant;

    /// A collector that says no to each, and for how long it wants to be left alone; counts them.
    fn busy(retry_after: &'static str) -> (String, Arc<AtomicU64>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let count = Arc::new(AtomicU64::new(0));
        let asked = Arc::clone(&count);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                _ = stream.read(&mut [0; 1 << 16]);
                asked.fetch_add(1, Ordering::SeqCst);
                let head = "HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\n";
                let rest = format!("Retry-After: {retry_after}\r\nContent-Length: 0\r\n\r\n");
                _ = stream.write_all((head.to_owned() + &rest).as_bytes());
            }
        });
        (url, count)
    }

    fn round() -> Vec<Measured> {
        let figure = Figure::new("x", "1", "help", Instrument::Gauge).with(Vec::new(), 1_u64);
        vec![Measured { figures: vec![figure], ..Measured::default() }]
    }

    /// Who asks for more time than a message has gets it: the next one waits.
    #[test]
    fn a_collector_that_wants_to_be_left_alone_is() {
        for asks in ["3600", "18446744073709551615"] {
            let (url, count) = busy(asks);
            let settings = Settings::of(Signal::Metrics, Some(&url), None, "test", &|_| None);
            let mut exporter = MetricsExporter::start(settings.unwrap());
            exporter.round(round());
            let begun = Instant::now();
            while exporter.exported().failed < 1 {
                assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", exporter.exported());
                std::thread::sleep(Duration::from_millis(10));
            }
            exporter.round(round());
            std::thread::sleep(Duration::from_millis(500));
            let exported = exporter.exported();
            assert_eq!((count.load(Ordering::SeqCst), exported.failed), (1, 1), "{exported:?}");
            let error = exported.error.unwrap();
            assert!(error.ends_with("429 Too Many Requests"), "{error}");
            // In the end nobody waits for it.
            assert_eq!(exporter.finish().failed, 2);
        }
    }

    /// That nothing is sent any more is told while the capture goes on.
    #[test]
    fn a_sending_thread_that_has_ended_is_told() {
        let (secure, host) = (true, "localhost".to_owned());
        let certificate = Some("/nothing".into());
        let settings = Settings { secure, host, certificate, ..Settings::default() };
        let clock = output::Clock { unix_offset_ns: 0, utc_offset_s: 0 };
        let exporter = Exporter::start(settings, clock);
        let begun = Instant::now();
        let told = || exporter.exported().error.unwrap_or_default();
        while !told().starts_with("the sending thread has ended") {
            assert!(begun.elapsed() < Duration::from_secs(60), "{}", told());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
