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
}

impl Delivery {
    /// A sender by the settings, within a runtime.
    pub(crate) fn sender(&self) -> Result<Sender, Error> {
        let connector = Connector::new(&self.settings)?;
        Sender::new(&self.settings, connector)
    }

    /// Sends a message of so many spans or points.
    pub(crate) async fn send(&mut self, sender: &mut Sender, request: &Message, count: u64) {
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
