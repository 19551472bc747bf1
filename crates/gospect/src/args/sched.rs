//! The command line of `sched`.

use super::{CaptureArgs, TellArgs};
use crate::duration::Span;
use clap::{Args, ValueEnum, ValueHint};
use std::path::PathBuf;

/// How goroutine states look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum StatesFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object a line
    Json,
    /// A timeline for ui.perfetto.dev
    Perfetto,
}

/// What sums are by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum StatesBy {
    /// The goroutine
    Goid,
    /// The statement that started it
    #[default]
    Site,
    /// What was waited for
    Reason,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The filters choose stays: time of a goroutine in a state. A change is shown when the stay that it\n\
    ends, or without --min the one that it begins, is chosen; sums are of chosen stays.\n\n\
    Examples:\n  \
    gospect sched -p 4242 --duration 10s\n  \
    gospect sched -p 4242 --events --state waiting --min 100ms\n  \
    gospect sched --format perfetto -o trace.json -- ./server"
)]
pub struct SchedArgs {
    #[command(flatten)]
    pub capture: CaptureArgs,
    /// Every change as it comes, instead of sums at the end
    #[arg(long)]
    pub events: bool,
    /// What the sums are by [default: site]
    #[arg(long, value_enum)]
    pub by: Option<StatesBy>,
    /// Only these goroutines (repeatable, or a,b)
    #[arg(long, value_name = "GOID", value_delimiter = ',')]
    pub goid: Vec<u64>,
    /// Only time in this state (running, runnable, waiting, syscall …; repeatable, or a,b)
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    pub state: Vec<String>,
    /// Only waits for this (glob over the whole reason, or /regex/; repeatable)
    #[arg(long, value_name = "REASON")]
    pub reason: Vec<String>,
    /// Only time in a state that lasted as long
    #[arg(long, value_name = "T")]
    pub min: Option<Span>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: StatesFormat,
    #[command(flatten)]
    pub tell: TellArgs,
    /// The executable, without -p, --exe and CMD
    #[arg(value_name = "EXE", value_hint = ValueHint::FilePath)]
    pub binary: Option<PathBuf>,
    /// Command to start and watch to its end
    #[arg(last = true, value_name = "CMD", num_args = 1.., allow_hyphen_values = true)]
    pub command: Option<Vec<std::ffi::OsString>>,
}
