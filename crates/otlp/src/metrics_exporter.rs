//! Sends metrics, in rounds.

use crate::delivery::Delivery;
use crate::exporter::Exported;
use crate::line::Line;
use crate::metrics::{Measured, request};
use crate::send::Message;
use crate::settings::Settings;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc;

/// Rounds waiting at the most: sums lose nothing by a round that is left out.
const QUEUE: usize = 4;

/// Sends rounds of metrics.
pub struct MetricsExporter {
    settings: Arc<Settings>,
    line: Line<Vec<Measured>>,
    dropped: u64,
}

impl MetricsExporter {
    /// Starts sending. Without a thread for it nothing is taken, and that is told.
    pub fn start(settings: Settings) -> Self {
        let settings = Arc::new(settings);
        let line = Line::start("otlp-metrics", &settings, QUEUE, run);
        Self { settings, line, dropped: 0 }
    }

    /// Takes a round, if there is room.
    pub fn round(&mut self, round: Vec<Measured>) {
        let points: u64 = round.iter().map(Measured::points).sum();
        let Some(queue) = self.line.queue().filter(|_| points > 0) else { return };
        if queue.try_send(round).is_err() {
            self.dropped += points;
        }
    }

    /// What became of points so far.
    pub fn exported(&self) -> Exported {
        Exported {
            name: self.settings.to_string(),
            delivered: self.line.shared.delivered.load(Ordering::Relaxed),
            unsampled: 0,
            dropped: self.dropped,
            failed: self.line.shared.failed.load(Ordering::Relaxed),
            error: self.line.error(),
        }
    }

    /// Takes nothing more: what waits is sent for a while from now on, and nobody need wait for that.
    pub fn close(&mut self) {
        self.line.close();
    }

    /// Whether nothing is sent any more.
    pub fn is_over(&self) -> bool {
        self.line.is_over()
    }

    /// Sends what waits, for a while, and tells what became of all.
    pub fn finish(&mut self) -> Exported {
        self.line.finish();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::LAST;
    use crate::variables::Signal;
    use metrics::{Figure, Instrument};
    use std::net::TcpListener;
    use std::time::Duration;

    /// One that takes connections and says nothing does not keep anybody who wants to end: all that waits is given up
    /// together, and counted.
    #[test]
    fn a_collector_that_never_answers_is_not_waited_for_in_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let patient = |name: &str| (name == "OTEL_EXPORTER_OTLP_TIMEOUT").then(|| "600000".into());
        let settings = Settings::of(Signal::Metrics, Some(&url), None, "test", &patient).unwrap();
        let mut exporter = MetricsExporter::start(settings);
        let round = || Measured { figures: vec![figure()], ..Measured::default() };
        exporter.round(vec![round()]);
        // The first one is on its way.
        let _silent = listener.accept().unwrap();
        for _ in 0..QUEUE {
            exporter.round(vec![round()]);
        }
        let begun = std::time::Instant::now();
        exporter.close();
        assert!(!exporter.is_over());
        // What comes too late is nobody's.
        exporter.round(vec![round()]);
        let exported = exporter.finish();
        assert!(begun.elapsed() < LAST + Duration::from_secs(60), "{:?}", begun.elapsed());
        assert!(exporter.is_over());
        assert_eq!((exported.delivered, exported.failed), (0, 1 + QUEUE as u64));
        let error = exported.error.unwrap();
        assert!(error.ends_with("no answer before the end"), "{error}");
    }

    fn figure() -> Figure {
        Figure::new("x", "1", "help", Instrument::Gauge).with(Vec::new(), 1_u64)
    }
}
