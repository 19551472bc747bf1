//! Metrics of processes: for people, as JSON Lines, and in Prometheus's exposition format.

mod amount;
mod exposition;
mod figures;
mod json;
mod text;

pub use amount::short_bytes;
pub use exposition::{CONTENT_TYPE, process_labels, write_exposition};
pub use figures::write_figures;
pub use json::{MetricsSummary, write_metrics_json};
pub use text::write_metrics_text;

use metrics::Sample;

/// The metrics of one process at one moment.
#[derive(Clone, Debug)]
pub struct ProcessMetrics {
    /// Process id.
    pub pid: u32,
    /// Path of its executable, as the kernel names it.
    pub exe: String,
    /// What the service is called that it belongs to.
    pub service: String,
    /// Its version of Go, when it is a Go program.
    pub go_version: Option<String>,
    /// Why its Go runtime was not read.
    pub restricted: Option<String>,
    /// What was read, in the order of [`metrics::all`].
    pub samples: Vec<Sample>,
}
