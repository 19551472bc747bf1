//! What is seen of a process at one moment.

/// Goroutines by state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct States {
    /// On a run queue.
    pub runnable: u64,
    /// Executing.
    pub running: u64,
    /// In system calls or C.
    pub syscall: u64,
    /// Waiting.
    pub waiting: u64,
    /// In another state.
    pub other: u64,
    /// What those waiting wait for, most frequent first.
    pub reasons: Vec<(String, u64)>,
}

/// The Go runtime; what it does not tell is `None`. Sizes are bytes, counters since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Go {
    /// Heap in use as the collector sees it.
    pub heap_live: Option<u64>,
    /// Heap that ends the next cycle; `None` also when nothing sets one.
    pub heap_goal: Option<u64>,
    /// Memory obtained from the system.
    pub sys: Option<u64>,
    /// The limit set for memory.
    pub memory_limit: Option<u64>,
    /// `GOGC`; `None` also when it is off.
    pub gogc_percent: Option<u64>,
    /// Allocated, counter.
    pub allocated: Option<u64>,
    /// Collections, counter.
    pub cycles: Option<u64>,
    /// What the collector does.
    pub phase: Option<&'static str>,
    /// Share of all CPU time that the collector used, 0 to 1.
    pub gc_cpu: Option<f64>,
    /// Recent pauses in nanoseconds, newest first.
    pub pauses: Vec<u64>,
    /// Goroutines.
    pub goroutines: Option<u64>,
    /// By state, when they were counted.
    pub states: Option<States>,
    /// All run queues.
    pub run_queue: Option<u64>,
    /// Median and 99th percentile of the times goroutines were runnable before they ran, nanoseconds, upper bounds.
    pub latency: Option<(u64, u64)>,
    /// `GOMAXPROCS`.
    pub processors: Option<u64>,
    /// Processors that run.
    pub processors_running: Option<u64>,
    /// Threads of the runtime that are parked.
    pub threads_idle: Option<u64>,
}

/// A process at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// Process id.
    pub pid: u32,
    /// Tells it from another process with this id: its start.
    pub start: u64,
    /// Path of its executable.
    pub exe: String,
    /// The service it belongs to.
    pub service: String,
    /// Its version of Go.
    pub go_version: Option<String>,
    /// Why its runtime is not read.
    pub restricted: Option<String>,
    /// CPU time, seconds since its start.
    pub cpu_seconds: f64,
    /// Memory in RAM, bytes.
    pub resident: u64,
    /// Threads, as the kernel counts them.
    pub threads: u64,
    /// Open file descriptors.
    pub open_fds: Option<u64>,
    /// The runtime.
    pub go: Option<Go>,
}
