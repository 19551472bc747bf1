//! A thread that sends, and the queue to it.

use crate::delivery::{Delivery, Shared};
use crate::settings::Settings;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// How long it goes on when nothing more is taken.
pub(crate) const LAST: Duration = Duration::from_secs(5);

/// The queue's side.
pub(crate) struct Line<T> {
    queue: Option<mpsc::Sender<T>>,
    /// When to give up, once nothing more is taken.
    until: watch::Sender<Option<Instant>>,
    thread: Option<JoinHandle<()>>,
    pub(crate) shared: Arc<Shared>,
}

impl<T: Send + 'static> Line<T> {
    /// Starts a thread of that name, which does `run` with what is queued, `most` at the most. Without a thread
    /// nothing is taken, and that is told.
    pub(crate) fn start(
        name: &str,
        settings: &Arc<Settings>,
        most: usize,
        run: impl FnOnce(Delivery, mpsc::Receiver<T>) + Send + 'static,
    ) -> Self {
        let (queue, queued) = mpsc::channel(most);
        let (until, deadline) = watch::channel(None);
        let shared = Arc::new(Shared::default());
        let delivery = Delivery::new(settings, &shared, deadline);
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || run(delivery, queued));
        if let Err(error) = &thread {
            shared.tell(format!("no thread to send by: {error}"));
        }
        Self { queue: Some(queue), until, thread: thread.ok(), shared }
    }

    /// Where to put what is to be sent, until nothing more is taken.
    pub(crate) fn queue(&self) -> Option<&mpsc::Sender<T>> {
        self.queue.as_ref()
    }

    /// Takes nothing more: what waits is sent for a while from now on, and nobody need wait for that.
    pub(crate) fn close(&mut self) {
        if self.queue.take().is_some() {
            self.until.send_replace(Some(Instant::now() + LAST));
        }
    }

    /// Whether nothing is sent any more.
    pub(crate) fn is_over(&self) -> bool {
        self.queue.is_none() && self.is_dead()
    }

    /// Closes, and waits for the thread.
    pub(crate) fn finish(&mut self) {
        self.close();
        // It ends when the queue does; a panic there is a failure like another.
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            self.shared.tell("the sending thread failed");
        }
    }

    /// The last failure; that nothing is sent any more although more may come is one.
    pub(crate) fn error(&self) -> Option<String> {
        let told = self.shared.told();
        if self.queue.is_none() || self.thread.is_none() || !self.is_dead() {
            return told;
        }
        let reason = told.map_or(String::new(), |told| format!(": {told}"));
        Some(format!("the sending thread has ended{reason}"))
    }

    fn is_dead(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}
