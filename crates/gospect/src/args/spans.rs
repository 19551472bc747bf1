//! The command line of `spans`.

use super::{Auto, CaptureArgs, TellArgs};
use clap::{Args, ValueEnum, ValueHint};
use std::path::PathBuf;

/// How requests look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SpansFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object a line
    Json,
    /// A timeline for ui.perfetto.dev
    Perfetto,
}

/// What of requests is shown.
#[derive(Clone, Debug, Default)]
pub struct SpanChoice {
    /// Queries of URLs too.
    pub queries: bool,
    /// Headers of requests too.
    pub headers: Vec<sensors::HeaderName>,
    /// Statements of databases too.
    pub statements: bool,
    /// What the time went to.
    pub times: bool,
    /// Functions whose calls are shown within spans, as `trace -u` has them.
    pub functions: Vec<String>,
    /// Functions that are not.
    pub exclude: Vec<String>,
    /// A timeline, whatever the format.
    pub timeline: bool,
    /// Where spans are sent, and not written.
    pub collector: Option<Box<otlp::Settings>>,
    /// Who takes them instead, and what functions that are no sensors' did.
    pub taker: Option<crate::spans::Taker>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Text is a tree for each request, written when all of it has ended; JSON is a span a line, as each ends.\n\n\
    Examples:\n  \
    gospect spans -p 4242\n  \
    gospect spans --exe ./server --format json -o spans.json\n  \
    gospect spans -p 4242 --functions 'main.*'\n  \
    gospect spans -p 4242 --duration 10s --format perfetto -o trace.json\n  \
    gospect spans -p 4242 --otlp http://127.0.0.1:4318\n  \
    gospect spans -p 4242 --otlp http://collector:4317 --otlp-protocol grpc\n  \
    gospect spans -- ./server -addr :8080"
)]
pub struct SpansArgs {
    #[command(flatten)]
    pub capture: CaptureArgs,
    /// Show the queries of URLs; values whose name says that they are secret (token, key, password …) are masked
    #[arg(long)]
    pub queries: bool,
    /// Show a header of requests, as in `--header X-Request-Id` (repeatable; names of 8 to 15 bytes); those that hold
    /// secrets by their name (Authorization, cookies, keys, tokens) are masked
    #[arg(long = "header", value_name = "NAME")]
    pub headers: Vec<sensors::HeaderName>,
    /// Show the text of SQL statements, their literals masked
    #[arg(long)]
    pub sql: bool,
    /// Tell of each span what its goroutine spent the time on: running, runnable, in system calls, waiting by
    /// reason, work for the collector; every change of a goroutine's state is watched for it
    #[arg(long)]
    pub time: bool,
    /// Functions whose calls are shown within the requests that make them, with their goroutines: glob over the
    /// whole name, /regex/, or a RULE (repeatable)
    #[arg(long, value_name = "PATTERN", conflicts_with = "otlp")]
    pub functions: Vec<String>,
    /// Functions to leave out of those (repeatable)
    #[arg(long, value_name = "PATTERN", requires = "functions")]
    pub exclude: Vec<String>,
    /// Capture arguments of those functions
    #[arg(long = "args", value_enum, default_value_t, requires = "functions")]
    pub arguments: Auto,
    /// Capture results of those functions
    #[arg(long, value_enum, default_value_t, requires = "functions")]
    pub results: Auto,
    /// Send the spans to a collector by OTLP: http:// or https:// with a host, and maybe port and path; without ENDPOINT to
    /// where OTEL_EXPORTER_OTLP_ENDPOINT says, else to this machine. Honours the other OTEL_EXPORTER_OTLP_*
    /// variables, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES and OTEL_TRACES_SAMPLER
    #[arg(long, value_name = "ENDPOINT", num_args = 0..=1)]
    pub otlp: Option<Option<String>>,
    /// What to speak to the collector: grpc, http/protobuf (unless OTEL_EXPORTER_OTLP_PROTOCOL says
    /// otherwise) or http/json
    #[arg(long, value_name = "PROTOCOL", requires = "otlp")]
    pub otlp_protocol: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: SpansFormat,
    #[command(flatten)]
    pub tell: TellArgs,
    /// The executable, without -p, --exe and CMD
    #[arg(value_name = "EXE", value_hint = ValueHint::FilePath)]
    pub binary: Option<PathBuf>,
    /// Command to start and watch to its end
    #[arg(last = true, value_name = "CMD", num_args = 1.., allow_hyphen_values = true)]
    pub command: Option<Vec<std::ffi::OsString>>,
}
