//! Figures by OpenTelemetry's data model: those of the registry that have a name there, and any others.

use crate::metric::Instrument;
use crate::sample::{Sample, Value};
use crate::{Number, Unit};
use std::borrow::Cow;

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tag {
    /// A text.
    Text(String),
    /// A number.
    Int(i64),
    /// Yes or no.
    Bool(bool),
}

/// Attributes, by name.
pub type Tags = Vec<(&'static str, Tag)>;

/// A metric with all of its points.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Name, with dots.
    pub name: Cow<'static, str>,
    /// Unit in UCUM.
    pub unit: &'static str,
    /// What it is.
    pub help: &'static str,
    /// Instrument.
    pub instrument: Instrument,
    /// Points.
    pub points: Vec<FigurePoint>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub struct FigurePoint {
    /// What tells it from the others.
    pub tags: Tags,
    /// A number or a histogram.
    pub value: Value,
}

impl Figure {
    /// One of a name, without points.
    pub fn new(
        name: impl Into<Cow<'static, str>>,
        unit: &'static str,
        help: &'static str,
        instrument: Instrument,
    ) -> Self {
        Self { name: name.into(), unit, help, instrument, points: Vec::new() }
    }

    /// With one more point.
    #[must_use]
    pub fn with(mut self, tags: Tags, number: impl Into<Number>) -> Self {
        self.points.push(FigurePoint { tags, value: Value::Number(number.into()) });
        self
    }

    /// Its name by Prometheus's conventions: with the unit, and `_total` behind what only grows.
    pub fn prometheus_name(&self) -> String {
        let mut name: String =
            self.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let unit = match self.unit {
            "s" => "seconds",
            "ms" => "milliseconds",
            "By" => "bytes",
            "%" => "percent",
            "1" if self.instrument != Instrument::Counter => "ratio",
            _ => "",
        };
        if !unit.is_empty() && !name.ends_with(unit) {
            name.push('_');
            name.push_str(unit);
        }
        if self.instrument == Instrument::Counter {
            name.push_str("_total");
        }
        name
    }
}

/// The figures of a process that OpenTelemetry's conventions name, in the order of the registry. What is not
/// known has no point.
pub fn figures(samples: &[Sample]) -> Vec<Figure> {
    let mut figures: Vec<Figure> = Vec::new();
    for sample in samples {
        let (Some(otel), Ok(value)) = (&sample.metric.otel, &sample.value) else { continue };
        if is_absent(value, otel.absent) || matches!(value, Value::Summary(_)) {
            continue;
        }
        let text = |value: &str| Tag::Text(value.to_owned());
        let mut tags: Tags =
            otel.attributes.iter().map(|(name, value)| (*name, text(value))).collect();
        for (label, value) in &sample.labels {
            let named = otel.labels.iter().find(|(name, _)| name == label);
            tags.extend(named.map(|(_, name)| (*name, text(value))));
        }
        let point = FigurePoint { tags, value: scaled(value, sample.metric.unit, otel.unit) };
        match figures.iter_mut().find(|figure| figure.name == otel.name) {
            Some(figure) => figure.points.push(point),
            None => {
                let mut figure =
                    Figure::new(otel.name, otel.unit, sample.metric.help, otel.instrument);
                figure.points.push(point);
                figures.push(figure);
            }
        }
    }
    figures
}

fn is_absent(value: &Value, absent: Option<u64>) -> bool {
    match (value, absent) {
        (Value::Number(Number::Integer(value)), Some(absent)) => *value == absent,
        (Value::Number(Number::Real(value)), Some(absent)) => *value == absent as f64,
        _ => false,
    }
}

/// Shares of one are percent where the conventions want that.
fn scaled(value: &Value, unit: Unit, wanted: &str) -> Value {
    match value {
        Value::Number(number) if unit == Unit::Ratio && wanted == "%" => {
            Value::Number(Number::Real(number.as_f64() * 100.0))
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reading;
    use process::{NetworkBytes, Usage};

    #[test]
    fn what_has_a_name_there_comes_with_all_its_points() {
        let network = Some(NetworkBytes { received: 5, sent: 7 });
        let usage = Usage { threads: 3, resident_bytes: 4096, network, ..Usage::default() };
        let reading = Reading { usage: Some(&usage), ..Reading::default() };
        let figures = figures(&crate::samples(&reading));
        let find = |name: &str| figures.iter().find(|figure| figure.name == name).unwrap();
        let io = find("process.network.io");
        assert_eq!((io.points.len(), io.instrument), (2, Instrument::Counter));
        assert_eq!(io.prometheus_name(), "process_network_io_bytes_total");
        let threads = find("process.thread.count");
        assert_eq!(threads.points[0].value, Value::Number(Number::Integer(3)));
        assert_eq!(threads.prometheus_name(), "process_thread_count");
        assert_eq!(find("process.memory.usage").prometheus_name(), "process_memory_usage_bytes");
        assert!(figures.iter().all(|figure| !figure.name.starts_with("go.")));
    }

    #[test]
    fn names_get_their_unit_once() {
        let name = |name: &'static str, unit, instrument| {
            Figure::new(name, unit, "", instrument).prometheus_name()
        };
        let histogram = Instrument::Histogram;
        assert_eq!(
            name("http.server.request.duration", "s", histogram),
            "http_server_request_duration_seconds"
        );
        assert_eq!(name("x.cpu.seconds", "s", Instrument::Counter), "x_cpu_seconds_total");
        assert_eq!(name("x.share", "1", Instrument::UpDownCounter), "x_share_ratio");
        assert_eq!(name("x.count", "{thing}", Instrument::Counter), "x_count_total");
    }
}
