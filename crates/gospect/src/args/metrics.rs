//! The command lines of `metrics` and `top`.

use super::Color;
use crate::duration::Span;
use clap::{Args, ValueEnum, ValueHint};
use std::net::SocketAddr;
use std::path::PathBuf;

/// How metrics look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum MetricsFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object a line
    Json,
    /// Prometheus's text exposition format
    Prometheus,
}

/// Which processes to watch.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Watch these processes (repeatable, or a,b)
    #[arg(short, long = "pid", value_name = "PID", value_delimiter = ',')]
    pub pids: Vec<u32>,
    /// Watch every process that runs this file, now or later
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub exe: Option<PathBuf>,
    /// Watch every Go program, those that start later too
    #[arg(long)]
    pub all: bool,
    /// Count goroutines by state where there are at most so many: each is looked at
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub states_up_to: u64,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Names, types and help texts are those of the Prometheus Go client, so that dashboards made for it work.\n\
    Of a process that is no Go program, or whose memory can not be read, there are the process_ metrics and\n\
    the reason, said once.\n\n\
    Examples:\n  \
    gospect metrics -p 4242\n  \
    gospect metrics --exe ./server --interval 10s --format json\n  \
    gospect metrics --all --listen 127.0.0.1:9464"
)]
pub struct MetricsArgs {
    #[command(flatten)]
    pub watch: WatchArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: MetricsFormat,
    /// Read again and again, with this time between
    #[arg(long, value_name = "T")]
    pub interval: Option<Span>,
    /// Stop after this time (10s, 500ms, 2m)
    #[arg(long, value_name = "T")]
    pub duration: Option<Span>,
    /// Serve /metrics over HTTP; there is no access control: be careful with other addresses than loopback's
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["format", "interval", "output"],
          num_args = 0..=1, default_missing_value = "127.0.0.1:9464", require_equals = false)]
    pub listen: Option<SocketAddr>,
    /// Write to a file instead of stdout; in Prometheus's format it is replaced as a whole each time
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// No summary, no reasons
    #[arg(short, long)]
    pub quiet: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Keys: arrows pick a process and the column to sort by, Enter shows its goroutines in groups, ? the\n\
    others, q quits.\n\n\
    Examples:\n  \
    gospect top --all\n  \
    gospect top -p 4242 --interval 500ms"
)]
pub struct TopArgs {
    #[command(flatten)]
    pub watch: WatchArgs,
    /// Time between two readings
    #[arg(long, value_name = "T", default_value = "1s")]
    pub interval: Span,
    /// Stop after this time (10s, 500ms, 2m)
    #[arg(long, value_name = "T")]
    pub duration: Option<Span>,
    /// When to colour
    #[arg(long, value_enum, default_value_t)]
    pub color: Color,
}
