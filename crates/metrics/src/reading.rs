//! What was read of a process.

use inspect::metrics::{GoroutineStates, RuntimeMetrics, Value};
use process::Usage;

/// What was read of one process at (nearly) one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading<'a> {
    /// The version of Go, as its executable says it.
    pub go_version: Option<&'a str>,
    /// The Go runtime; `None` when it is none or cannot be read.
    pub runtime: Option<&'a RuntimeMetrics>,
    /// Goroutines by state; `None` when they were not counted.
    pub states: Option<&'a Value<GoroutineStates>>,
    /// What the kernel counts.
    pub usage: Option<&'a Usage>,
}
