//! Sending spans and metrics.

use super::loaded::Loaded;
use agent::status::ExportStatus;
use otlp::{Exported, Exporter, Measured, MetricsExporter, Origin, Sampler};
use output::Clock;
use sensors::Span;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where both are sent, where they are.
#[derive(Clone, Default)]
pub struct Exporters(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    now: Pair,
    /// Those before changes of the configuration, which send what waits as it said before.
    ending: Vec<Pair>,
    /// What came of those before.
    past: Vec<ExportStatus>,
}

#[derive(Default)]
struct Pair {
    spans: Option<Exporter>,
    metrics: Option<MetricsExporter>,
}

/// Pairs that may be ending: each has two threads, for some seconds.
const ENDING: usize = 4;
/// One line for each place is enough for people, and the sums stay.
const PLACES: usize = 8;

impl Exporters {
    /// Sends as a configuration says from now on; what waits is sent as it said before, which nothing waits for.
    pub fn set(&self, loaded: &Loaded, clock: Clock) {
        let spans = loaded.spans.clone().map(|settings| Exporter::start(settings, clock));
        let metrics = loaded.metrics.clone().map(MetricsExporter::start);
        let mut inner = self.lock();
        let mut old = std::mem::replace(&mut inner.now, Pair { spans, metrics });
        old.close();
        inner.ending.push(old);
        inner.settle();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a span.
    pub fn span(&self, span: Span, origin: &Arc<Origin>) {
        if let Some(exporter) = &mut self.lock().now.spans {
            exporter.span_of(span, origin);
        }
    }

    /// Whether metrics are sent.
    pub fn has_metrics(&self) -> bool {
        self.lock().now.metrics.is_some()
    }

    /// Sends a round of metrics.
    pub fn round(&self, round: Vec<Measured>) {
        if let Some(exporter) = &mut self.lock().now.metrics {
            exporter.round(round);
        }
    }

    /// What came of all so far.
    pub fn statuses(&self) -> Vec<ExportStatus> {
        self.lock().statuses()
    }

    /// Sends what waits, for a while.
    pub fn finish(&self) {
        let mut inner = self.lock();
        // All at once: the time that each has runs from here.
        inner.now.close();
        let Inner { now, ending, .. } = &mut *inner;
        ending.iter_mut().chain([now]).for_each(Pair::finish);
    }
}

impl Pair {
    fn close(&mut self) {
        self.spans.iter_mut().for_each(Exporter::close);
        self.metrics.iter_mut().for_each(MetricsExporter::close);
    }

    fn is_over(&self) -> bool {
        self.spans.iter().all(Exporter::is_over)
            && self.metrics.iter().all(MetricsExporter::is_over)
    }

    fn finish(&mut self) {
        self.spans.iter_mut().for_each(|exporter| _ = exporter.finish());
        self.metrics.iter_mut().for_each(|exporter| _ = exporter.finish());
    }

    fn statuses(&self) -> impl Iterator<Item = ExportStatus> {
        let spans = self.spans.as_ref().map(|it| status("spans", it.exported()));
        let metrics = self.metrics.as_ref().map(|it| status("metrics", it.exported()));
        spans.into_iter().chain(metrics)
    }
}

impl Inner {
    /// Forgets who is over, but for what came of it; waits where too many are not.
    fn settle(&mut self) {
        while self.ending.len() > ENDING || self.ending.first().is_some_and(Pair::is_over) {
            let mut pair = self.ending.remove(0);
            pair.finish();
            pair.statuses().for_each(|status| add(&mut self.past, status));
        }
        let keep = self.past.len().saturating_sub(PLACES);
        self.past.drain(..keep);
    }

    fn statuses(&self) -> Vec<ExportStatus> {
        let mut statuses = self.past.clone();
        for now in self.ending.iter().chain([&self.now]).flat_map(Pair::statuses) {
            add(&mut statuses, now);
        }
        statuses
    }
}

/// Adds what came of one to what came of others that sent the same to the same place.
fn add(statuses: &mut Vec<ExportStatus>, now: ExportStatus) {
    let same = |old: &&mut ExportStatus| old.what == now.what && old.endpoint == now.endpoint;
    match statuses.iter_mut().find(same) {
        Some(old) => {
            old.delivered += now.delivered;
            old.unsampled += now.unsampled;
            old.dropped += now.dropped;
            old.failed += now.failed;
            old.error = now.error;
        }
        None => statuses.push(now),
    }
}

fn status(what: &str, exported: Exported) -> ExportStatus {
    let Exported { name, delivered, unsampled, dropped, failed, error } = exported;
    ExportStatus {
        what: what.to_owned(),
        endpoint: name,
        delivered,
        unsampled,
        dropped,
        failed,
        error,
    }
}

/// What spans of a process are told to come from, and which of its traces are sent.
pub fn origin(service: &agent::Service, name: &str, loaded: &Loaded) -> Origin {
    let settings = loaded.spans.as_ref().or(loaded.metrics.as_ref());
    let own = settings.map(|settings| settings.resource.clone()).unwrap_or_default();
    let rest = own.into_iter().filter(|(key, _)| key != "service.name");
    let sampler = match &service.sampling {
        Some(sampling) => Sampler::named(Some(&sampling.name), sampling.argument.as_deref()).0,
        None => settings.map(|settings| settings.sampler).unwrap_or_default(),
    };
    let named = ("service.name".to_owned(), name.to_owned());
    Origin { resource: std::iter::once(named).chain(rest).collect(), sampler }
}
