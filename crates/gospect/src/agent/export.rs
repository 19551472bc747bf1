//! Sending spans and metrics.

use super::loaded::Loaded;
use agent::status::ExportStatus;
use otlp::{Exported, Exporter, Measured, MetricsExporter, Origin, Sampler};
use output::Clock;
use sensors::Span;
use std::sync::{Arc, Mutex, PoisonError};

/// Where both are sent, where they are.
#[derive(Clone, Default)]
pub struct Exporters(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    spans: Option<Exporter>,
    metrics: Option<MetricsExporter>,
    /// What came of those before the last change of the configuration.
    past: Vec<ExportStatus>,
}

impl Exporters {
    /// Sends as a configuration says from now on; what waits is sent as it said before.
    pub fn set(&self, loaded: &Loaded, clock: Clock) {
        let spans = loaded.spans.clone().map(|settings| Exporter::start(settings, clock));
        let metrics = loaded.metrics.clone().map(MetricsExporter::start);
        let mut old = {
            let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Inner {
                spans: std::mem::replace(&mut inner.spans, spans),
                metrics: std::mem::replace(&mut inner.metrics, metrics),
                past: Vec::new(),
            }
        };
        old.finish();
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.past.extend(old.statuses());
        // One line for each place is enough for people, and the sums stay.
        let keep = inner.past.len().saturating_sub(8);
        inner.past.drain(..keep);
    }

    /// Sends a span.
    pub fn span(&self, span: Span, origin: &Arc<Origin>) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(exporter) = &mut inner.spans {
            exporter.span_of(span, origin);
        }
    }

    /// Whether metrics are sent.
    pub fn has_metrics(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).metrics.is_some()
    }

    /// Sends a round of metrics.
    pub fn round(&self, round: Vec<Measured>) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(exporter) = &mut inner.metrics {
            exporter.round(round);
        }
    }

    /// What came of all so far.
    pub fn statuses(&self) -> Vec<ExportStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).statuses()
    }

    /// Sends what waits, for a while.
    pub fn finish(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).finish();
    }
}

impl Inner {
    fn finish(&mut self) {
        self.spans.iter_mut().for_each(|exporter| _ = exporter.finish());
        self.metrics.iter_mut().for_each(|exporter| _ = exporter.finish());
    }

    fn statuses(&self) -> Vec<ExportStatus> {
        let mut statuses = self.past.clone();
        let spans = self.spans.as_ref().map(|it| ("spans", it.exported()));
        let metrics = self.metrics.as_ref().map(|it| ("metrics", it.exported()));
        for (what, exported) in spans.into_iter().chain(metrics) {
            let now = status(what, exported);
            let same =
                |old: &&mut ExportStatus| old.what == now.what && old.endpoint == now.endpoint;
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
        statuses
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
