//! Runtime metrics of a Go program, read from its memory: what `runtime.ReadMemStats`,
//! `runtime/metrics` and the Prometheus Go client would tell from inside, without stopping
//! the program or asking it.
//!
//! [`MetricsPlan::prepare`] gathers, once per executable, where the runtime's global variables
//! may be and where their fields are. [`MetricsPlan::confirm`] holds the candidates against the
//! memory of one process, once per process; only what passes is read later.
//! [`MetricsPlan::sample`] reads the figures. Each is a [`Value`]: the figure, or a typed
//! reason why it is not known.
//!
//! Nothing is stopped, so counters move while they are read. What must belong together (the
//! heap's statistics) is read in one piece and read again when it does not fit together.
//!
//! What a thread allocated from the spans it caches is counted by the runtime only when the
//! span is exchanged or a collection begins. `runtime/metrics` and the Prometheus client
//! show the counters as they are, and so do we; `runtime.ReadMemStats` stops the world and
//! flushes first. [`Options::unflushed`] reads the difference.

mod checks;
mod collector;
mod confirmed;
mod goal;
mod heap;
mod histogram;
mod layout;
mod machine;
mod memory;
mod pieces;
mod plan;
mod processors;
mod reader;
mod scheduler;
mod states;
mod sums;
mod threads;
mod unflushed;
mod unknown;

pub use collector::{Collector, CpuTimes, GcPhase, Pause, Pauses};
pub use confirmed::{Confirmed, Found};
pub use histogram::{Bucket, TimeHistogram};
pub use memory::{Memory, SizeClass, Unflushed};
pub use plan::MetricsPlan;
pub use scheduler::{GoroutineStates, Processors, Scheduler};
pub use unknown::{Unknown, Value};

/// What to read beyond what is cheap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether [`Memory::unflushed`] is read: up to 136 spans per processor of the scheduler.
    pub unflushed: bool,
}

/// What a sample cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Calls of the memory's read function.
    pub reads: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Times that something was read again because it changed meanwhile.
    pub again: u64,
}

/// All figures at (nearly) one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeMetrics {
    /// Goroutines, threads, run queues.
    pub scheduler: Scheduler,
    /// Memory of the heap and of the runtime.
    pub memory: Memory,
    /// The garbage collector.
    pub collector: Collector,
    /// Calls from Go to C since the start (`runtime.NumCgoCall`, `/cgo/go-to-c-calls`).
    pub cgo_calls: Value<u64>,
    /// What reading cost.
    pub effort: Effort,
}
