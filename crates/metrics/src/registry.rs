//! All metrics.

mod beyond;
mod client;
mod kernel;
mod optional;

use crate::metric::Metric;
use crate::points::Points;
use crate::reading::Reading;
use crate::sample::Sample;

/// The tables, in the order in which metrics are written.
static TABLES: [&[Metric]; 4] =
    [client::METRICS, optional::METRICS, beyond::METRICS, kernel::METRICS];

/// All metrics there are.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    TABLES.iter().copied().flatten()
}

/// The figures of what was read, in the order of [`all`]. Metrics of what was not read are left
/// out; of what the runtime does not tell there is a reason.
pub fn samples(reading: &Reading<'_>) -> Vec<Sample> {
    let mut out = Vec::with_capacity(128);
    for metric in all() {
        (metric.source)(reading, &mut Points { metric, out: &mut out });
    }
    out
}
