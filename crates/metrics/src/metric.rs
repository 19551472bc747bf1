//! What a metric is.

use crate::points::Points;
use crate::reading::Reading;

/// Types of the Prometheus exposition format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, but for a restart.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Quantiles computed at the source.
    Summary,
    /// Counts by upper bounds.
    Histogram,
}

impl Kind {
    /// As in a `# TYPE` line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Summary => "summary",
            Self::Histogram => "histogram",
        }
    }
}

/// Units of values, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// Seconds since 1970.
    UnixSeconds,
    /// Percent.
    Percent,
    /// A share, 0 to 1.
    Ratio,
    /// A number of things, or a fact that is so (1) or not (0).
    Count,
}

/// Instruments of OpenTelemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instrument {
    /// Only grows.
    Counter,
    /// A sum that goes up and down.
    UpDownCounter,
    /// A figure that is no sum: a share, or whether something is so.
    Gauge,
    /// Counts by bounds.
    Histogram,
}

/// A metric as OpenTelemetry's semantic conventions (1.43) have it.
#[derive(Clone, Copy, Debug)]
pub struct Otel {
    /// Name.
    pub name: &'static str,
    /// Unit in UCUM.
    pub unit: &'static str,
    /// Instrument.
    pub instrument: Instrument,
    /// Attributes that all points of this metric have.
    pub attributes: &'static [(&'static str, &'static str)],
    /// Labels of points and the attributes they become.
    pub labels: &'static [(&'static str, &'static str)],
    /// A value that stands for none, for which the conventions want no point.
    pub absent: Option<u64>,
}

/// A row of the registry.
#[derive(Debug)]
pub struct Metric {
    /// Name, by Prometheus's conventions.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// Unit.
    pub unit: Unit,
    /// Help text.
    pub help: &'static str,
    /// The same by OpenTelemetry's conventions.
    pub otel: Option<Otel>,
    pub(crate) source: fn(&Reading<'_>, &mut Points<'_>),
}

type Source = fn(&Reading<'_>, &mut Points<'_>);

pub(crate) const fn counter(
    name: &'static str,
    unit: Unit,
    help: &'static str,
    source: Source,
) -> Metric {
    Metric { name, kind: Kind::Counter, unit, help, otel: None, source }
}

pub(crate) const fn gauge(
    name: &'static str,
    unit: Unit,
    help: &'static str,
    source: Source,
) -> Metric {
    Metric { name, kind: Kind::Gauge, unit, help, otel: None, source }
}

pub(crate) const fn summary(
    name: &'static str,
    unit: Unit,
    help: &'static str,
    source: Source,
) -> Metric {
    Metric { name, kind: Kind::Summary, unit, help, otel: None, source }
}

pub(crate) const fn histogram(
    name: &'static str,
    unit: Unit,
    help: &'static str,
    source: Source,
) -> Metric {
    Metric { name, kind: Kind::Histogram, unit, help, otel: None, source }
}

impl Metric {
    pub(crate) const fn sum(self, name: &'static str, unit: &'static str) -> Self {
        self.otel(name, unit, Instrument::Counter)
    }

    pub(crate) const fn up_down(self, name: &'static str, unit: &'static str) -> Self {
        self.otel(name, unit, Instrument::UpDownCounter)
    }

    pub(crate) const fn distribution(self, name: &'static str, unit: &'static str) -> Self {
        self.otel(name, unit, Instrument::Histogram)
    }

    const fn otel(
        mut self,
        name: &'static str,
        unit: &'static str,
        instrument: Instrument,
    ) -> Self {
        let (attributes, labels): (&[_], &[_]) = (&[], &[]);
        self.otel = Some(Otel { name, unit, instrument, attributes, labels, absent: None });
        self
    }

    pub(crate) const fn attributes(
        mut self,
        attributes: &'static [(&'static str, &'static str)],
    ) -> Self {
        if let Some(otel) = &mut self.otel {
            otel.attributes = attributes;
        }
        self
    }

    pub(crate) const fn labels(mut self, labels: &'static [(&'static str, &'static str)]) -> Self {
        if let Some(otel) = &mut self.otel {
            otel.labels = labels;
        }
        self
    }

    pub(crate) const fn absent(mut self, value: u64) -> Self {
        if let Some(otel) = &mut self.otel {
            otel.absent = Some(value);
        }
        self
    }
}
