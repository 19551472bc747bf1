//! Sends spans, in batches.

use crate::connector::Connector;
use crate::delivery::Delivery;
use crate::error::Error;
use crate::line::Line;
use crate::request::request;
use crate::sampler::Sampler;
use crate::send::Message;
use crate::settings::Settings;
use output::Clock;
use sensors::Span;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::time::{Instant, timeout_at};

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
            write!(f, "; {dropped} spans were dropped, since too many were waiting")?;
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

/// What spans come from, where not all come from the same.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Origin {
    /// Attributes of the resource, in place of those of the settings.
    pub resource: Vec<(String, String)>,
    /// Which traces are sent, in place of what the settings say.
    pub sampler: Sampler,
}

/// A span on its way.
pub(crate) type Sourced = (Span, Option<Arc<Origin>>);

/// Sends spans.
pub struct Exporter {
    settings: Arc<Settings>,
    line: Line<Sourced>,
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
        let most = settings.batching.queue.max(1);
        let run = move |delivery, spans| Sending { clock, delivery }.run(spans);
        let line = Line::start("otlp", &settings, most, run);
        Self { settings, line, unsampled: 0, dropped: 0 }
    }

    /// Takes a span, if it is of a trace that is sampled and there is room.
    pub fn span(&mut self, span: Span) {
        self.take((span, None));
    }

    /// The same for a span that comes from somewhere else than the settings say.
    pub fn span_of(&mut self, span: Span, origin: &Arc<Origin>) {
        self.take((span, Some(Arc::clone(origin))));
    }

    fn take(&mut self, sourced: Sourced) {
        let Some(queue) = self.line.queue() else { return };
        let (span, origin) = &sourced;
        let sampler = origin.as_ref().map_or(&self.settings.sampler, |origin| &origin.sampler);
        if !sampler.takes(span.context.trace, span.sampled_by_parent) {
            self.unsampled += 1;
            return;
        }
        match queue.try_send(sourced) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Closed(_)) => self.dropped += 1,
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

    /// What became of spans so far.
    pub fn exported(&self) -> Exported {
        Exported {
            name: self.settings.to_string(),
            delivered: self.line.shared.delivered.load(Ordering::Relaxed),
            unsampled: self.unsampled,
            dropped: self.dropped,
            failed: self.line.shared.failed.load(Ordering::Relaxed),
            error: self.line.error(),
        }
    }
}

/// The thread's side.
struct Sending {
    clock: Clock,
    delivery: Delivery,
}

impl Sending {
    fn run(mut self, spans: mpsc::Receiver<Sourced>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(self.take(spans)),
            Err(error) => self.delivery.shared.tell(format!("no runtime to send by: {error}")),
        }
    }

    async fn take(&mut self, mut spans: mpsc::Receiver<Sourced>) {
        let mut sender = match self.delivery.sender() {
            Ok(sender) => sender,
            Err(error) => return self.delivery.shared.tell(error.to_string()),
        };
        while let Some(first) = spans.recv().await {
            let mut batch = vec![first];
            let full = Instant::now() + self.delivery.settings.batching.delay;
            while batch.len() < self.delivery.settings.batching.batch {
                match timeout_at(full, spans.recv()).await {
                    Ok(Some(span)) => batch.push(span),
                    Ok(None) | Err(_) => break,
                }
            }
            let request = request(&batch, &self.clock, &self.delivery.settings.resource);
            let count = batch.len() as u64;
            drop(batch);
            self.delivery.send(&mut sender, &Message::Spans(request), count).await;
        }
    }
}
