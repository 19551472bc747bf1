//! What an agent says of itself and of the processes it watches: the form of `/status`.
//!
//! Every object is plain data in `snake_case`; times are nanoseconds, absolute ones Unix time. A figure that is not
//! known, or not yet, is null.

mod activity;
mod own;

pub use activity::{Activity, RequestStatus, SpanStatus, TreeStatus};
pub use own::own_figures;

use crate::budget::Change;
use sensors::{Span, SpanKind};
use serde::Serialize;

/// All of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Status {
    /// gospect's version.
    pub version: String,
    /// The agent's process.
    pub pid: u32,
    /// When it began.
    pub started_unix_ns: u64,
    /// When this was said.
    pub now_unix_ns: u64,
    /// Its configuration.
    pub config: ConfigStatus,
    /// How processes are found.
    pub discovery: DiscoveryStatus,
    /// Where preloaded programs ask.
    pub preload: PreloadStatus,
    /// What it costs itself.
    pub own: OwnStatus,
    /// What became of spans and metrics that were to be sent; none when nothing is sent.
    pub exports: Vec<ExportStatus>,
    /// Processes, by id.
    pub processes: Vec<ProcessStatus>,
    /// What was decided lately, the oldest first.
    pub decisions: Vec<Decision>,
    /// Decisions since the start, also those no longer kept.
    pub decisions_made: u64,
    /// Processes that ended while too many others had ended since metrics were sent last: of their last requests no
    /// metrics tell.
    pub ended_unsent: u64,
}

/// The configuration that is in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ConfigStatus {
    /// Its file; `None` for the defaults.
    pub path: Option<String>,
    /// When it was read.
    pub loaded_unix_ns: u64,
    /// Why a newer one is not in force.
    pub error: Option<String>,
    /// Names of the services, in order; those without a name by their number.
    pub services: Vec<String>,
}

/// How processes are found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DiscoveryStatus {
    /// `exec_events` or `polling`.
    pub way: String,
    /// Why not by events.
    pub reason: Option<String>,
    /// Events seen, of processes that began to run a program.
    pub events: u64,
}

/// Where preloaded programs ask.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PreloadStatus {
    /// The socket; `None` for none.
    pub socket: Option<String>,
    /// Why it is not there although it was asked for.
    pub error: Option<String>,
    /// Programs that asked.
    pub asked: u64,
    /// Of them served.
    pub served: u64,
    /// Of them refused.
    pub refused: u64,
    /// Executables that services name and whose plans are ready before a program of them asks.
    pub ready: u64,
}

/// What the agent costs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OwnStatus {
    /// CPU time since its start, seconds.
    pub cpu_seconds: f64,
    /// CPU in the last seconds, percent of one; `None` in the first ones.
    pub cpu_percent: Option<f64>,
    /// Anonymous memory, bytes; `None` when the kernel does not tell.
    pub memory_bytes: Option<u64>,
}

/// What became of what was to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExportStatus {
    /// `spans` or `metrics`.
    pub what: String,
    /// Where to.
    pub endpoint: String,
    /// Delivered.
    pub delivered: u64,
    /// Left out by a sampler.
    pub unsampled: u64,
    /// Not taken, since too many were waiting.
    pub dropped: u64,
    /// Sent in vain.
    pub failed: u64,
    /// The last failure.
    pub error: Option<String>,
}

/// A decision, and when.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// When.
    pub unix_ns: u64,
    /// Of which process.
    pub pid: u32,
    /// Its service.
    pub service: String,
    /// What.
    #[serde(flatten)]
    pub change: Change,
}

/// A process that is watched.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProcessStatus {
    /// Its id.
    pub pid: u32,
    /// When it began.
    pub started_unix_ns: u64,
    /// Its executable.
    pub exe: String,
    /// Its command line.
    pub command: String,
    /// Its service.
    pub service: String,
    /// Its version of Go.
    pub go_version: Option<String>,
    /// Its control group.
    pub cgroup: String,
    /// The container it is in.
    pub container: Option<String>,
    /// Why only what the kernel counts is known of it.
    pub restricted: Option<String>,
    /// How its requests are watched.
    pub capture: CaptureStatus,
    /// Its sensors, those that are not active too.
    pub sensors: Vec<SensorStatus>,
    /// What became of its spans.
    pub spans: SpanCounts,
    /// What watching costs it.
    pub budget: BudgetStatus,
    /// Kinds of requests of the last minutes, the most frequent first.
    pub requests: Vec<RequestStatus>,
    /// The slowest requests of the last minutes, the slowest first.
    pub slowest: Vec<TreeStatus>,
    /// Its goroutines by what they do; `None` while they were not counted.
    pub goroutines: Option<Vec<GroupStatus>>,
    /// Metrics of the last minutes, for charts.
    pub runtime: Vec<SeriesStatus>,
}

/// How requests are watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CaptureStatus {
    /// `uprobe`, `trampoline`, or nothing.
    pub backend: Option<String>,
    /// `launch`, `attach` or `preload`.
    pub way: Option<String>,
    /// Why so, or why not.
    pub reason: Option<String>,
    /// What a person should know.
    pub notes: Vec<String>,
    /// Functions watched; `None` while none is.
    pub functions: Option<u64>,
    /// Sites in them, likewise.
    pub sites: Option<u64>,
    /// Records that came.
    pub records: u64,
    /// Records that were lost.
    pub lost: u64,
}

/// State of a sensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SensorState {
    /// It watches.
    Active,
    /// The configuration leaves it out.
    #[default]
    Off,
    /// It is given up for a while, since it costs too much.
    Dropped,
    /// There is nothing for it in this program, or it cannot watch here.
    Unavailable,
    /// It is being set up.
    Starting,
}

/// A sensor, or a function watched by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SensorStatus {
    /// Name of the group, or of the function.
    pub name: String,
    /// `sensor`, `function` or `metrics`.
    pub kind: &'static str,
    /// State.
    pub state: SensorState,
    /// Why it is not active.
    pub reason: Option<String>,
    /// Hits of its sites that came, since the process was met; `None` where there is nothing to hit.
    pub hits: Option<u64>,
    /// Estimated cost in the last second or so, percent of a CPU; `None` while that is not known.
    pub cost_percent: Option<f64>,
    /// What became of the spans of its calls; `None` where it makes none.
    pub spans: Option<SensorSpans>,
}

/// What became of the spans of one sensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SensorSpans {
    /// Made.
    pub made: u64,
    /// Made without having seen their end.
    pub unfinished: u64,
    /// Made with a value missing or cut.
    pub truncated: u64,
}

/// Name of the group of sensors that a span is of.
pub fn sensor_of(span: &Span) -> &'static str {
    let has = |name| span.attributes.iter().any(|(key, _)| *key == name);
    // Either is the same for all spans of its kind, and so never missing.
    match (span.kind, has("rpc.system"), has("db.system.name")) {
        (SpanKind::Server, true, _) => "grpc",
        (SpanKind::Client, true, _) => "grpc-client",
        (_, _, true) => "sql",
        (SpanKind::Server, ..) => "http",
        (SpanKind::Client, ..) => "http-client",
    }
}

impl SensorSpans {
    /// Counts one.
    pub fn count(&mut self, span: &Span) {
        self.made += 1;
        self.unfinished += u64::from(!span.is_finished);
        self.truncated += u64::from(!span.unavailable.is_empty());
    }
}

/// What became of spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SpanCounts {
    /// Made.
    pub made: u64,
    /// Calls that gave none, since too many were open.
    pub refused: u64,
    /// Made without having seen their end.
    pub unfinished: u64,
    /// Made with a value missing or cut.
    pub truncated: u64,
    /// Records lost on the way.
    pub lost: u64,
}

/// What watching costs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BudgetStatus {
    /// What it may, percent of a CPU.
    pub limit_percent: Option<f64>,
    /// What it does by estimate, in the last second or so; `None` while that is not known.
    pub cost_percent: Option<f64>,
    /// Since the attach, nanoseconds of CPU.
    pub cost_ns: u64,
    /// Things given up.
    pub drops: u64,
    /// Things brought back.
    pub restores: u64,
}

/// Goroutines that do the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GroupStatus {
    /// What.
    pub state: String,
    /// How many.
    pub count: u64,
}

/// A metric over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SeriesStatus {
    /// Name, by OpenTelemetry.
    pub name: String,
    /// Unit.
    pub unit: String,
    /// Unix time in nanoseconds, and the value.
    pub points: Vec<(u64, f64)>,
}
