//! The command line as typed. `cmd` turns it into plain structs before anything is done.

mod agent;
mod conditions;
mod metrics;
mod sched;
mod spans;

pub use agent::AgentArgs;
pub use conditions::ConditionArgs;
pub use metrics::{MetricsArgs, MetricsFormat, TopArgs, WatchArgs};
pub use sched::{SchedArgs, StatesBy, StatesFormat};
pub use spans::{SpanChoice, SpansArgs, SpansFormat};

use crate::duration::Span;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use std::path::PathBuf;

/// Shows what a running Go program does, without recompiling or changing it.
#[derive(Debug, Parser)]
#[command(name = "gospect", version, about, max_term_width = 100, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Facts about a Go executable: version, modules, build, layouts
    Info(InfoArgs),
    /// Functions of a Go executable: place, signature, where it can be traced
    Funcs(FuncsArgs),
    /// Layout of a type: offsets, sizes, holes
    Types(TypesArgs),
    /// Function graph of a running Go program
    Trace(Box<TraceArgs>),
    /// Every state change of every goroutine: what runs, waits for what, and who wakes whom
    Sched(Box<SchedArgs>),
    /// Requests as they end: what a program answers and asks over HTTP, as spans of traces
    Spans(Box<SpansArgs>),
    /// Watches services as a configuration says: metrics and requests, to Prometheus and collectors
    Agent(AgentArgs),
    /// The function graph with go-ftrace's own command line
    Ftrace(Box<FtraceArgs>),
    /// Shows a file written by `--record`
    Report(Box<ReportArgs>),
    /// What every goroutine does now: state, stack, who started it; stops nothing
    Goroutines(GoroutinesArgs),
    /// Heap, collector, scheduler and process figures, once, repeated, or served to Prometheus
    Metrics(MetricsArgs),
    /// A live view of Go programs: CPU, heap, collector, goroutines
    Top(TopArgs),
    /// Removes what a killed gospect left in processes
    Detach(DetachArgs),
    /// What works on this machine and process, and why not
    Doctor(DoctorArgs),
    /// Prints a shell completion script
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Writes the manual pages
    Man {
        /// Directory to write them to
        #[arg(value_hint = ValueHint::DirPath)]
        dir: PathBuf,
    },
}

/// How results look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Which machinery captures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// The best one that is possible here; says which and why
    #[default]
    Auto,
    /// Kernel uprobes with eBPF
    Uprobe,
    /// Code written into the process
    Trampoline,
}

/// Which functions get a uprobe when no trampoline fits them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Fallback {
    /// All but those of the runtime and in assembly that only a wildcard reached
    #[default]
    Auto,
    /// All
    All,
    /// None: no BPF is used
    None,
}

/// Whether values are captured without being asked for by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Auto {
    /// All that can be read
    #[default]
    Auto,
    /// None
    None,
}

/// The executable to look at.
#[derive(Debug, Args)]
pub struct BinaryArgs {
    /// Path of the executable; left out with --pid
    #[arg(value_name = "BIN", required_unless_present = "pid", value_hint = ValueHint::FilePath)]
    pub binary: Option<PathBuf>,
    /// Look at the executable of a running process
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Separate file with the debug information
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub debug_file: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Write to a file instead of stdout
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
}

impl BinaryArgs {
    /// The positionals after the executable: with `--pid` the first one counts among them.
    pub fn further(&self, rest: &[String]) -> anyhow::Result<Vec<String>> {
        let first = match (&self.pid, &self.binary) {
            (Some(_), Some(first)) => Some(first.to_str().map(str::to_owned).ok_or_else(|| {
                crate::failure::usage(format!("`{}` is not UTF-8", first.display()))
            })?),
            _ => None,
        };
        Ok(first.into_iter().chain(rest.iter().cloned()).collect())
    }
}

#[derive(Debug, Args)]
pub struct InfoArgs {
    #[command(flatten)]
    pub binary: BinaryArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "In JSON `addr` is an address in the image, `entry` and `exits` are offsets in the file, which is\n\
    what uprobes take. `entry` lies after the stack check, where a call is seen once. Functions that exist\n\
    only inlined are listed with `addr` null.\n\n\
    Examples:\n  \
    gospect funcs ./server 'main.*'\n  \
    gospect funcs -p 4242 --callees net/http.HandlerFunc.ServeHTTP"
)]
pub struct FuncsArgs {
    #[command(flatten)]
    pub binary: BinaryArgs,
    /// Glob over the whole name, or /regex/; all functions when none is given
    #[arg(value_name = "PATTERN")]
    pub patterns: Vec<String>,
    /// List the functions that each one calls directly
    #[arg(long)]
    pub callees: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A TYPE that no type is called and that holds * or ?, or is a /regex/, lists the types whose names match.\n\n\
    Examples:\n  \
    gospect types ./server net/http.Request\n  \
    gospect types ./server 'net/http.Request.URL->Path'\n  \
    gospect types -p 4242 'main.*'"
)]
pub struct TypesArgs {
    #[command(flatten)]
    pub binary: BinaryArgs,
    /// Type and, if wanted, fields: net/http.Request.URL.Path; all type names when none is given
    #[arg(value_name = "TYPE[.FIELD…]")]
    pub types: Vec<String>,
}

/// Which process, and how results leave: common to all commands that capture.
#[derive(Debug, Args)]
pub struct CaptureArgs {
    /// Attach to a running process (repeatable, or a,b)
    #[arg(short, long = "pid", value_name = "PID", value_delimiter = ',')]
    pub pids: Vec<u32>,
    /// Every process that runs this file, now or later
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub exe: Option<PathBuf>,
    /// User that CMD runs as
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Which machinery captures
    #[arg(long, value_enum, default_value_t)]
    pub backend: Backend,
    /// Which functions get a uprobe when no trampoline fits them
    #[arg(long, value_enum, default_value_t)]
    pub fallback: Fallback,
    /// Stop after this time (10s, 500ms, 2m)
    #[arg(long, value_name = "T")]
    pub duration: Option<Span>,
    /// Write the raw records to a file for `gospect report`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub record: Option<PathBuf>,
    /// Events lost make the exit code 4
    #[arg(long)]
    pub strict: bool,
    /// Stop new hits when the estimated cost passes this share of one CPU
    #[arg(long, value_name = "PCT", value_parser = percent)]
    pub max_overhead: Option<f64>,
    /// On detach, how long open trees may take to finish
    #[arg(long, value_name = "T", default_value = "500ms")]
    pub drain: Span,
    /// Separate file with the debug information
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub debug_file: Option<PathBuf>,
    /// Size of the rings between the targets and gospect, together, in MiB [default: 8; for
    /// trampolines 16 in a program that is started and 2 in one that runs]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub ring: Option<u32>,
}

/// A share of one CPU; of several it may be more than 100.
fn percent(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.filter(|number| *number > 0.0).ok_or_else(|| "write a number above 0".to_owned())
}

/// Where results go, and how much is said besides.
#[derive(Debug, Args)]
pub struct TellArgs {
    /// Write to a file instead of stdout
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// When to colour
    #[arg(long, value_enum, default_value_t)]
    pub color: Color,
    /// No summary, no hints
    #[arg(short, long)]
    pub quiet: bool,
    /// Say more about what is done
    #[arg(short, long)]
    pub verbose: bool,
}

/// How calls look and where they go.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    #[command(flatten)]
    pub tell: TellArgs,
    /// Only trees rooted at this function
    #[arg(short = 'D', long, value_name = "NAME")]
    pub drilldown: Option<String>,
    /// Show at most this many nested calls
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub depth: Option<u32>,
    /// Hide calls shorter than this
    #[arg(long, value_name = "T")]
    pub min: Option<Span>,
    /// Stop after this many root calls
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// A table per function instead of the calls
    #[arg(long)]
    pub stat: bool,
}

/// Which functions.
#[derive(Debug, Args)]
pub struct SelectArgs {
    /// Functions to trace: glob over the whole name, /regex/, or a RULE (repeatable)
    #[arg(
        short = 'u',
        long = "uprobe-wildcards",
        visible_short_alias = 'f',
        visible_alias = "func",
        value_name = "PATTERN"
    )]
    pub functions: Vec<String>,
    /// Functions to leave out (repeatable)
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Leave out vendored packages
    #[arg(
        short = 'x',
        long,
        value_name = "BOOL",
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = clap::ArgAction::Set
    )]
    pub exclude_vendor: bool,
    /// Only functions of the executable's own module
    #[arg(long)]
    pub main_module: bool,
    /// NAME and what it reaches by direct calls, up to DEPTH levels
    #[arg(long, value_name = "NAME[:DEPTH]")]
    pub calls_of: Vec<String>,
    /// Capture arguments
    #[arg(long = "args", value_enum, default_value_t)]
    pub arguments: Auto,
    /// Capture results
    #[arg(long, value_enum, default_value_t)]
    pub results: Auto,
    /// Longest text captured of a string, bytes
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub max_string: u16,
    /// Most elements captured of a slice, an array or a map
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub max_elems: u16,
    /// Most levels captured below a value: fields, elements, what pointers lead to
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub max_depth: u8,
    /// Print the plan and do nothing
    #[arg(long)]
    pub dry_run: bool,
}

impl SelectArgs {
    /// How much of each value is captured.
    pub fn limits(&self) -> probe::Limits {
        probe::Limits {
            string_bytes: self.max_string,
            elements: self.max_elems,
            depth: self.max_depth,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gospect trace -p 4242 -u 'main.*'\n  \
    gospect trace -u 'main.*' -- ./server -addr :8080\n  \
    gospect trace -p 4242 'main.handle(req.Method, len(req.Header), items[0].Name) -> err'\n  \
    gospect trace -p 4242 -u main.handle --if 'user.ID != 0' --if-duration '> 10ms'\n  \
    gospect trace -p 4242 -u main.handle --stat --by req.Method\n  \
    gospect trace --exe ./server 'main.(*Student).String(s.age=(+16(%ax)):s64)'")]
pub struct TraceArgs {
    #[command(flatten)]
    pub capture: CaptureArgs,
    #[command(flatten)]
    pub select: SelectArgs,
    #[command(flatten)]
    pub conditions: ConditionArgs,
    #[command(flatten)]
    pub show: ShowArgs,
    /// Functions with what to read: `func(expr, …) -> (expr, …)`, or `func(name=expr:type, …)`;
    /// without -p, --exe and CMD the first one is the executable
    #[arg(value_name = "RULE")]
    pub rules: Vec<String>,
    /// Command to start and trace to its end
    #[arg(last = true, value_name = "CMD", num_args = 1.., allow_hyphen_values = true)]
    pub command: Option<Vec<std::ffi::OsString>>,
    /// Requests instead of calls: what `spans` asks for.
    #[arg(skip)]
    pub spans: Option<SpanChoice>,
}

/// go-ftrace's command line: `gospect ftrace -u PATTERN ./main [RULE…]`.
#[derive(Debug, Args)]
pub struct FtraceArgs {
    /// Functions to trace (repeatable)
    #[arg(short = 'u', long = "uprobe-wildcards", value_name = "PATTERN")]
    pub functions: Vec<String>,
    /// Leave out vendored packages
    #[arg(
        short = 'x',
        long,
        value_name = "BOOL",
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = clap::ArgAction::Set
    )]
    pub exclude_vendor: bool,
    /// Only trees rooted at this function
    #[arg(short = 'D', long, value_name = "NAME")]
    pub drilldown: Option<String>,
    /// Say more about what is done
    #[arg(short = 'd', long)]
    pub debug: bool,
    /// The executable, then the rules
    #[arg(value_name = "BINARY [RULE…]", required = true)]
    pub binary_and_rules: Vec<String>,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The recorded file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    #[command(flatten)]
    pub show: ShowArgs,
    /// Of a recording of `sched`: every change, not only sums
    #[arg(long)]
    pub events: bool,
    /// Of a recording of `sched`: what the sums are by
    #[arg(long, value_enum)]
    pub by: Option<StatesBy>,
    /// Of a recording of `sched` or `spans`: a timeline for ui.perfetto.dev
    #[arg(long, conflicts_with_all = ["events", "by"])]
    pub perfetto: bool,
    /// Events lost make the exit code 4
    #[arg(long)]
    pub strict: bool,
}

/// How goroutines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum GoroutinesFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object a line
    Json,
    /// As Go's own tracebacks, which other tools read
    Go,
}

/// What goroutines of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GroupBy {
    /// What they do
    State,
    /// What they wait for
    Reason,
    /// The statement that started them
    Site,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gospect goroutines -p 4242\n  \
    gospect goroutines -p 4242 --group site\n  \
    gospect goroutines -p 4242 --format go > goroutines.txt\n  \
    gospect goroutines --core core.4242")]
pub struct GoroutinesArgs {
    /// The process
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Read a core dump instead of a process
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub core: Option<PathBuf>,
    /// The executable of the core dump, when it is not where it was
    #[arg(value_name = "BIN", value_hint = ValueHint::FilePath)]
    pub binary: Option<PathBuf>,
    /// Count goroutines that are alike, with one of each
    #[arg(long, value_enum)]
    pub group: Option<GroupBy>,
    /// Only goroutines in this state (running, runnable, waiting, syscall …)
    #[arg(long, value_name = "STATE")]
    pub state: Option<String>,
    /// Leave stacks out
    #[arg(long)]
    pub no_stacks: bool,
    /// Show the runtime's own functions on stacks; with --format go its goroutines too
    #[arg(long)]
    pub system: bool,
    /// Separate file with the debug information
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub debug_file: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: GoroutinesFormat,
    /// Write to a file instead of stdout
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct DetachArgs {
    /// Look into these processes (repeatable, or a,b)
    #[arg(short, long = "pid", value_name = "PID", value_delimiter = ',')]
    pub pids: Vec<u32>,
    /// Look into every process
    #[arg(long)]
    pub all: bool,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Look at this process too
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Look at this executable too
    #[arg(value_name = "BIN", value_hint = ValueHint::FilePath)]
    pub binary: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn trace(args: &[&str]) -> TraceArgs {
        let cli = Cli::try_parse_from(["gospect", "trace"].iter().chain(args)).unwrap();
        let Command::Trace(args) = cli.command else { panic!("not trace") };
        *args
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn with_a_pid_every_positional_of_funcs_is_a_pattern() {
        let patterns = |args: &[&str]| {
            let cli = Cli::try_parse_from(["gospect", "funcs"].iter().chain(args)).unwrap();
            let Command::Funcs(args) = cli.command else { panic!("not funcs") };
            args.binary.further(&args.patterns).unwrap()
        };
        assert_eq!(patterns(&["./prog", "a", "b"]), ["a", "b"]);
        assert_eq!(patterns(&["-p", "1", "a", "b"]), ["a", "b"]);
        assert_eq!(patterns(&["a", "-p", "1"]), ["a"]);
        assert!(patterns(&["-p", "1"]).is_empty());
        assert!(Cli::try_parse_from(["gospect", "funcs"]).is_err());
    }

    #[test]
    fn a_trailing_command_keeps_its_own_options() {
        let args = trace(&["-u", "main.*", "main.f()", "--", "./prog", "-p", "--", "x"]);
        assert_eq!(args.rules, ["main.f()"]);
        assert_eq!(args.command.unwrap(), ["./prog", "-p", "--", "x"]);
        assert!(args.capture.pids.is_empty());
    }

    #[test]
    fn patterns_are_never_split_at_commas_and_pids_are() {
        let args = trace(&["-u", "main.F[a,b]", "-f", "main.g", "-p", "1,2", "--pid", "3"]);
        assert_eq!(args.select.functions, ["main.F[a,b]", "main.g"]);
        assert_eq!(args.capture.pids, [1, 2, 3]);
    }

    #[test]
    fn exclude_vendor_takes_a_value_only_behind_an_equals_sign() {
        assert!(trace(&["-p", "1"]).select.exclude_vendor);
        let args = trace(&["-x", "rule", "-p", "1"]);
        assert!(args.select.exclude_vendor);
        assert_eq!(args.rules, ["rule"]);
        assert!(!trace(&["-x=false", "-p", "1"]).select.exclude_vendor);
        assert!(!trace(&["--exclude-vendor=false", "-p", "1"]).select.exclude_vendor);
    }

    #[test]
    fn nothing_after_the_dashes_is_a_usage_error() {
        let error = Cli::try_parse_from(["gospect", "trace", "-u", "main.*", "--"]);
        // clap cannot see a bare `--`; the command resolves it (see cmd::trace).
        assert!(error.is_ok());
    }
}
