//! Where a row of the registry puts its figures.

use crate::histogram::Histogram;
use crate::metric::Metric;
use crate::number::Number;
use crate::reading::Reading;
use crate::sample::{Sample, Value};
use inspect::metrics::{self, RuntimeMetrics, TimeHistogram, Unknown};
use std::sync::Arc;

/// Takes the figures of one metric.
pub struct Points<'a> {
    pub(crate) metric: &'static Metric,
    pub(crate) out: &'a mut Vec<Sample>,
}

impl Points<'_> {
    /// A point: what tells it from others, and the figure or why there is none.
    pub(crate) fn point(&mut self, labels: &[(&'static str, &str)], value: Result<Value, Unknown>) {
        let labels = labels.iter().map(|&(name, value)| (name, Arc::from(value))).collect();
        self.out.push(Sample { metric: self.metric, labels, value });
    }

    /// A known figure.
    pub(crate) fn number(&mut self, labels: &[(&'static str, &str)], number: impl Into<Number>) {
        self.point(labels, Ok(Value::Number(number.into())));
    }

    /// A figure that the kernel may not tell.
    pub(crate) fn kernel(&mut self, number: Option<impl Into<Number>>) {
        if let Some(number) = number {
            self.number(&[], number);
        }
    }

    /// A figure of the runtime.
    pub(crate) fn go(
        &mut self,
        reading: &Reading<'_>,
        of: fn(&RuntimeMetrics) -> &metrics::Value<u64>,
    ) {
        if let Some(runtime) = reading.runtime {
            let value = of(runtime).clone();
            self.point(&[], value.map(|value| Value::Number(value.into())));
        }
    }

    /// A figure computed from several of the runtime's.
    pub(crate) fn computed(
        &mut self,
        reading: &Reading<'_>,
        labels: &[(&'static str, &str)],
        of: fn(&RuntimeMetrics) -> metrics::Value<Number>,
    ) {
        if let Some(runtime) = reading.runtime {
            self.point(labels, of(runtime).map(Value::Number));
        }
    }

    /// A histogram of times of the runtime.
    pub(crate) fn times(
        &mut self,
        reading: &Reading<'_>,
        of: fn(&RuntimeMetrics) -> &metrics::Value<TimeHistogram>,
    ) {
        if let Some(runtime) = reading.runtime {
            let value = of(runtime).as_ref().map_err(Unknown::clone).map(Histogram::of_times);
            self.point(&[], value.map(Value::Histogram));
        }
    }
}
