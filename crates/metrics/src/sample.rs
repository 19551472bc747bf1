//! A metric of one process at one moment.

use crate::histogram::Histogram;
use crate::metric::Metric;
use crate::number::Number;
use inspect::metrics::Unknown;
use std::sync::Arc;

/// Quantiles of values that the source keeps itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Share (0 to 1) and value.
    pub quantiles: Vec<(f64, f64)>,
    /// All values together.
    pub sum: f64,
    /// How many there were.
    pub count: u64,
}

/// What a metric was.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// One figure.
    Number(Number),
    /// Quantiles.
    Summary(Summary),
    /// Counts by bounds.
    Histogram(Histogram),
}

/// One metric of one process, or why it is not known.
#[derive(Clone, Debug)]
pub struct Sample {
    /// What it is.
    pub metric: &'static Metric,
    /// What tells it from others of the same metric and process.
    pub labels: Vec<(&'static str, Arc<str>)>,
    /// What it was.
    pub value: Result<Value, Unknown>,
}

/// A line of the exposition format: a figure with what is put behind the name and one more label.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// `_sum`, `_count`, `_bucket`, or nothing.
    pub suffix: &'static str,
    /// `quantile` or `le`, and its value.
    pub label: Option<(&'static str, String)>,
    /// The figure.
    pub number: Number,
}

impl Value {
    /// The lines that say it, in the order in which the format has them.
    pub fn lines(&self) -> Vec<Line> {
        let line = |suffix, number| Line { suffix, label: None, number };
        match self {
            Self::Number(number) => vec![line("", *number)],
            Self::Summary(summary) => {
                let quantile = |&(share, value): &(f64, f64)| Line {
                    suffix: "",
                    label: Some(("quantile", Number::Real(share).to_string())),
                    number: Number::Real(value),
                };
                let mut lines: Vec<Line> = summary.quantiles.iter().map(quantile).collect();
                lines.push(line("_sum", Number::Real(summary.sum)));
                lines.push(line("_count", Number::Integer(summary.count)));
                lines
            }
            Self::Histogram(histogram) => {
                let bucket = |bound: f64, count| Line {
                    suffix: "_bucket",
                    label: Some(("le", Number::Real(bound).to_string())),
                    number: Number::Integer(count),
                };
                let mut lines: Vec<Line> =
                    histogram.buckets.iter().map(|&(bound, count)| bucket(bound, count)).collect();
                lines.push(bucket(f64::INFINITY, histogram.count));
                lines.push(line("_sum", Number::Real(histogram.sum)));
                lines.push(line("_count", Number::Integer(histogram.count)));
                lines
            }
        }
    }
}
