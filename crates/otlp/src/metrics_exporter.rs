//! The thread that sends metrics, and the queue to it.

use crate::delivery::{Delivery, Shared};
use crate::exporter::{Exported, LAST};
use crate::metrics::{Measured, request};
use crate::send::Message;
use crate::settings::Settings;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Rounds waiting at the most: sums lose nothing by a round that is left out.
const QUEUE: usize = 4;

/// Sends rounds of metrics.
pub struct MetricsExporter {
    settings: Arc<Settings>,
    queue: Option<mpsc::Sender<Vec<Measured>>>,
    until: watch::Sender<Option<Instant>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
    dropped: u64,
}

impl MetricsExporter {
    /// Starts sending. Without a thread for it nothing is taken, and that is told.
    pub fn start(settings: Settings) -> Self {
        let settings = Arc::new(settings);
        let (queue, rounds) = mpsc::channel(QUEUE);
        let (until, deadline) = watch::channel(None);
        let shared = Arc::new(Shared::default());
        let delivery = Delivery {
            settings: Arc::clone(&settings),
            shared: Arc::clone(&shared),
            until: deadline,
        };
        let thread = std::thread::Builder::new().name("otlp-metrics".to_owned());
        let thread = thread.spawn(move || run(delivery, rounds));
        if let Err(error) = &thread {
            shared.tell(format!("no thread to send by: {error}"));
        }
        Self { settings, queue: Some(queue), until, thread: thread.ok(), shared, dropped: 0 }
    }

    /// Takes a round, if there is room.
    pub fn round(&mut self, round: Vec<Measured>) {
        let points: u64 = round.iter().map(Measured::points).sum();
        let Some(queue) = self.queue.as_ref().filter(|_| points > 0) else { return };
        if queue.try_send(round).is_err() {
            self.dropped += points;
        }
    }

    /// What became of points so far.
    pub fn exported(&self) -> Exported {
        Exported {
            name: self.settings.to_string(),
            delivered: self.shared.delivered.load(Ordering::Relaxed),
            unsampled: 0,
            dropped: self.dropped,
            failed: self.shared.failed.load(Ordering::Relaxed),
            error: self.shared.told(),
        }
    }

    /// Sends what waits, for a while, and tells what became of all.
    pub fn finish(&mut self) -> Exported {
        self.until.send_replace(Some(Instant::now() + LAST));
        self.queue = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            self.shared.tell("the sending thread failed");
        }
        self.exported()
    }
}

fn run(mut delivery: Delivery, mut rounds: mpsc::Receiver<Vec<Measured>>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return delivery.shared.tell(format!("no runtime to send by: {error}")),
    };
    runtime.block_on(async {
        let mut sender = match delivery.sender() {
            Ok(sender) => sender,
            Err(error) => return delivery.shared.tell(error.to_string()),
        };
        while let Some(round) = rounds.recv().await {
            let count = round.iter().map(Measured::points).sum();
            let message = Message::Metrics(request(&round));
            drop(round);
            delivery.send(&mut sender, &message, count).await;
        }
    });
}
