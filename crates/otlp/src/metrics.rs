//! Figures as messages of the protocol (`ExportMetricsServiceRequest`).

use crate::request::scope;
use metrics::{Figure, FigurePoint, Histogram, Instrument, Number, Tag, Value};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyOf;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as NumberOf;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram as HistogramOf, HistogramDataPoint, Metric,
    NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

/// Figures of one process, or of the agent itself, at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Attributes of what they are of.
    pub resource: Vec<(String, Tag)>,
    /// Since when sums count, Unix time in nanoseconds.
    pub start_unix_ns: u64,
    /// When they were read.
    pub unix_ns: u64,
    /// The figures.
    pub figures: Vec<Figure>,
}

impl Measured {
    /// How many points there are.
    pub fn points(&self) -> u64 {
        self.figures.iter().map(|figure| figure.points.len() as u64).sum()
    }
}

/// One request with all of them.
pub(crate) fn request(round: &[Measured]) -> ExportMetricsServiceRequest {
    let resource_metrics = round.iter().map(|measured| ResourceMetrics {
        resource: Some(Resource {
            attributes: measured.resource.iter().map(|(name, tag)| pair(name, tag)).collect(),
            ..Resource::default()
        }),
        scope_metrics: vec![ScopeMetrics {
            scope: Some(scope()),
            metrics: measured.figures.iter().map(|figure| metric(figure, measured)).collect(),
            ..ScopeMetrics::default()
        }],
        ..ResourceMetrics::default()
    });
    ExportMetricsServiceRequest { resource_metrics: resource_metrics.collect() }
}

fn metric(figure: &Figure, measured: &Measured) -> Metric {
    let cumulative = AggregationTemporality::Cumulative as i32;
    let numbers = || -> Vec<NumberDataPoint> {
        figure.points.iter().filter_map(|point| number(point, measured)).collect()
    };
    let data = match figure.instrument {
        Instrument::Gauge => Data::Gauge(Gauge { data_points: numbers() }),
        Instrument::Counter | Instrument::UpDownCounter => Data::Sum(Sum {
            data_points: numbers(),
            aggregation_temporality: cumulative,
            is_monotonic: figure.instrument == Instrument::Counter,
        }),
        Instrument::Histogram => Data::Histogram(HistogramOf {
            data_points: figure.points.iter().filter_map(|it| histogram(it, measured)).collect(),
            aggregation_temporality: cumulative,
        }),
    };
    Metric {
        name: figure.name.to_string(),
        description: figure.help.to_owned(),
        unit: figure.unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn number(point: &FigurePoint, measured: &Measured) -> Option<NumberDataPoint> {
    let Value::Number(number) = &point.value else { return None };
    let value = match *number {
        // The protocol has signed numbers only.
        Number::Integer(value) => match i64::try_from(value) {
            Ok(value) => NumberOf::AsInt(value),
            Err(_) => NumberOf::AsDouble(value as f64),
        },
        Number::Real(value) => NumberOf::AsDouble(value),
    };
    Some(NumberDataPoint {
        attributes: pairs(point),
        start_time_unix_nano: measured.start_unix_ns,
        time_unix_nano: measured.unix_ns,
        value: Some(value),
        ..NumberDataPoint::default()
    })
}

fn histogram(point: &FigurePoint, measured: &Measured) -> Option<HistogramDataPoint> {
    let Value::Histogram(Histogram { buckets, sum, count }) = &point.value else { return None };
    // Here each bucket counts what is in it; there, what is up to its bound.
    let mut below = 0;
    let mut counts: Vec<u64> = buckets
        .iter()
        .map(|&(_, up_to)| {
            let own = up_to.saturating_sub(below);
            below = below.max(up_to);
            own
        })
        .collect();
    counts.push(count.saturating_sub(below));
    Some(HistogramDataPoint {
        attributes: pairs(point),
        start_time_unix_nano: measured.start_unix_ns,
        time_unix_nano: measured.unix_ns,
        count: *count,
        sum: Some(*sum),
        bucket_counts: counts,
        explicit_bounds: buckets.iter().map(|(bound, _)| *bound).collect(),
        ..HistogramDataPoint::default()
    })
}

fn pairs(point: &FigurePoint) -> Vec<KeyValue> {
    point.tags.iter().map(|(name, tag)| pair(name, tag)).collect()
}

fn pair(key: &str, tag: &Tag) -> KeyValue {
    let value = match tag {
        Tag::Text(text) => AnyOf::StringValue(text.clone()),
        Tag::Int(number) => AnyOf::IntValue(*number),
        Tag::Bool(yes) => AnyOf::BoolValue(*yes),
    };
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_become_points() {
        let histogram = Histogram { buckets: vec![(1.0, 2), (5.0, 3)], sum: 20.0, count: 4 };
        let point = FigurePoint { tags: Vec::new(), value: Value::Histogram(histogram) };
        let mut took = Figure::new("took", "s", "How long.", Instrument::Histogram);
        took.points.push(point);
        let tags = vec![("a", Tag::Int(1)), ("b", Tag::Text("x".to_owned()))];
        let measured = Measured {
            resource: vec![("service.name".to_owned(), Tag::Text("shop".to_owned()))],
            start_unix_ns: 5,
            unix_ns: 9,
            figures: vec![
                Figure::new("n", "{thing}", "", Instrument::Counter).with(tags, 7),
                Figure::new("share", "1", "", Instrument::Gauge).with(Vec::new(), 0.5),
                took,
            ],
        };
        assert_eq!(measured.points(), 3);
        let json = serde_json::to_value(request(&[measured])).unwrap();
        let from = &json["resourceMetrics"][0];
        assert_eq!(from["resource"]["attributes"][0]["value"]["stringValue"], "shop");
        let metrics = &from["scopeMetrics"][0]["metrics"];
        let sum = &metrics[0]["sum"];
        assert_eq!(
            (&sum["isMonotonic"], &sum["aggregationTemporality"]),
            (&true.into(), &2.into())
        );
        assert_eq!(sum["dataPoints"][0]["attributes"][0]["key"], "a");
        assert_eq!(metrics[1]["gauge"]["dataPoints"][0]["asDouble"], 0.5);
        let point = &metrics[2]["histogram"]["dataPoints"][0];
        assert_eq!(point["explicitBounds"], serde_json::json!([1.0, 5.0]));
        assert_eq!(point["bucketCounts"], serde_json::json!(["2", "1", "1"]));
        assert_eq!((&point["count"], &point["sum"]), (&"4".into(), &20.0.into()));
    }
}
