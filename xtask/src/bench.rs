//! `bench`: what tracing costs, both backends in one run.
//!
//! The machine's noise comes and goes in seconds, so the ways that are compared take turns:
//! a round runs each once, ratios are made within a round, and what is reported is the median
//! of the rounds with its 95% interval. Every round's value is kept in `bench/latest.json`.

mod attach;
mod caddy;
mod calls;
mod compiler;
mod http;
mod preload;
mod setup;
mod spans;
mod states;
mod statistics;
mod store;
mod tables;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use serde_json::{Value, json};

use crate::{root, say};

/// The results that the repository has.
const LATEST: &str = "bench/latest.json";

/// How much to measure.
#[derive(clap::Args)]
pub struct Args {
    /// Rounds of calls and spans, and of the server: twice as many.
    #[arg(long, default_value_t = 12)]
    rounds: usize,
    /// Rounds of everything else.
    #[arg(long, default_value_t = 6)]
    other_rounds: usize,
    /// Only this (repeatable); the results of everything else stay as they are.
    #[arg(long)]
    only: Vec<Part>,
    /// Measure nothing: write the tables of docs/evaluation.md anew from the results.
    #[arg(long)]
    tables: bool,
    /// A gospect that is built already, instead of a release build of this tree.
    #[arg(long)]
    gospect: Option<PathBuf>,
    /// Where the results go; the tables of docs/evaluation.md are made from bench/latest.json only.
    #[arg(long, default_value = LATEST)]
    output: PathBuf,
}

/// What can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Nanoseconds of a traced call.
    Call,
    /// CPU and latency of a server.
    Http,
    /// Attaching and letting go.
    Attach,
    /// From exec to main.main.
    Start,
    /// Records into a file.
    Store,
    /// The Go compiler with all of its functions traced.
    Compile,
    /// Debian's caddy.
    Caddy,
    /// Every change of state of every goroutine.
    States,
    /// Requests of Debian's caddy as spans.
    Spans,
    /// Starting programs with the preloaded library.
    Preload,
}

impl Part {
    const ALL: [Self; 10] = [
        Self::Call,
        Self::Http,
        Self::Attach,
        Self::Start,
        Self::Store,
        Self::Compile,
        Self::Caddy,
        Self::States,
        Self::Spans,
        Self::Preload,
    ];

    /// What its keys begin with.
    fn prefix(self) -> &'static str {
        match self {
            Self::Call => "call.",
            Self::Http => "http.",
            Self::Attach => "attach.",
            Self::Start => "start.",
            Self::Store => "store.",
            Self::Compile => "compile.",
            Self::Caddy => "caddy.",
            Self::States => "states.",
            Self::Spans => "spans.",
            Self::Preload => "preload.",
        }
    }
}

/// The values of all rounds so far, by key.
#[derive(Default)]
pub struct Rounds(BTreeMap<String, Vec<f64>>);

impl Rounds {
    fn add(&mut self, key: String, value: f64) {
        // What is measured has no more digits than that.
        let shown = format!("{value:.6e}").parse().unwrap_or(value);
        self.0.entry(key).or_default().push(shown);
    }

    /// This round's value of a key.
    fn last(&self, key: &str) -> Option<f64> {
        self.0.get(key).and_then(|values| values.last().copied())
    }

    /// Adds the ratio of this round's values of two keys.
    fn add_ratio(&mut self, key: String, above: &str, below: &str) {
        if let (Some(above), Some(below)) = (self.last(above), self.last(below)) {
            self.add(key, above / below);
        }
    }
}

/// Measures, prints the medians, writes the results after every round (a run that was stopped
/// has left what it had) and the tables at the end.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let path = root().join(&args.output);
    if args.tables {
        return tables::update(&path);
    }
    let programs = setup::Programs::build(args.gospect.as_deref())?;
    let parts = if args.only.is_empty() { &Part::ALL[..] } else { &args.only };
    let mut results = Results::open(&path, parts, &programs.go);
    for &part in parts {
        measure(part, args, &programs, &mut results)
            .with_context(|| format!("failed to measure {part:?}"))?;
    }
    say(format_args!("{:52} {:>12}  {:>25}  rounds", "", "median", "95% interval"));
    for (key, values) in &results.rounds.0 {
        if let Some(it) = statistics::estimate(values) {
            let interval = format!("{} … {}", number(it.low), number(it.high));
            say(format_args!("{key:52} {:>12}  {interval:>25}  {}", number(it.median), it.rounds));
        }
    }
    if args.output == Path::new(LATEST) { tables::update(&path) } else { Ok(()) }
}

/// All rounds of a part.
fn measure(
    part: Part,
    args: &Args,
    programs: &setup::Programs,
    results: &mut Results,
) -> anyhow::Result<()> {
    let few = args.other_rounds;
    match part {
        Part::Call => results.repeat(args.rounds, |_, rounds| calls::round(programs, rounds)),
        Part::Http => {
            let server = http::Server::start(programs)?;
            results.repeat(2 * args.rounds, |number, rounds| {
                http::round(programs, &server, number, rounds)
            })
        }
        Part::Attach => {
            let choices = attach::choices(programs)?;
            results.repeat(few, |_, rounds| attach::round(programs, &choices, rounds))
        }
        Part::Start => results.repeat(few, |_, rounds| {
            attach::start_round(programs, rounds);
            Ok(())
        }),
        Part::Store => {
            let server = http::Server::start(programs)?;
            results.repeat(few, |_, rounds| store::round(programs, &server, rounds))
        }
        Part::Compile => {
            let compilation = compiler::Compilation::prepare()?;
            results.repeat(few, |_, rounds| compiler::round(programs, &compilation, rounds))
        }
        Part::Caddy => {
            let caddy = caddy::Caddy::find()?;
            results.repeat(few, |number, rounds| caddy::round(programs, &caddy, number, rounds))
        }
        Part::Spans => {
            let caddy = caddy::Caddy::find()?;
            let watched = spans::Watched::start(programs, &caddy)?;
            results.repeat(args.rounds, |number, rounds| watched.round(programs, number, rounds))
        }
        Part::Preload => {
            let caddy = caddy::Caddy::find()?;
            let starts = preload::Starts::prepare(programs, caddy.program())?;
            results.repeat(few, |number, rounds| starts.round(number, rounds))
        }
        Part::States => {
            let server = http::Server::start(programs)?;
            results.repeat(few, |number, rounds| {
                states::ping_round(programs, rounds)?;
                states::http_round(programs, &server, number, rounds)
            })
        }
    }
}

/// What was measured, on its way into the file.
struct Results<'a> {
    rounds: Rounds,
    path: &'a Path,
    machine: Value,
}

impl<'a> Results<'a> {
    /// Those in the file that are of other parts, which stay.
    fn open(path: &'a Path, parts: &[Part], go: &str) -> Self {
        let mut rounds = Rounds::default();
        // Without a file, or with one that nobody can read, there is nothing to keep.
        let old = fs::read_to_string(path).ok().and_then(|text| serde_json::from_str(&text).ok());
        for (key, values) in tables::rounds_of(&old.unwrap_or_default()) {
            if !parts.iter().any(|part| key.starts_with(part.prefix())) {
                rounds.0.insert(key, values);
            }
        }
        Self { rounds, path, machine: machine(go) }
    }

    /// Measures a number of times and writes what there is after each.
    fn repeat(
        &mut self,
        times: usize,
        mut round: impl FnMut(usize, &mut Rounds) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for number in 0..times {
            round(number, &mut self.rounds)?;
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> anyhow::Result<()> {
        self.machine["load_average"] = load_average();
        // A line for each key: a new run changes as many lines as there are keys.
        let mut lines = Vec::new();
        for (key, values) in &self.rounds.0 {
            let it = json!({"estimate": statistics::estimate(values), "rounds": values});
            lines.push(format!("{}: {it}", json!(key)));
        }
        let machine = &self.machine;
        let lines = lines.join(",\n");
        let text = format!("{{\"machine\": {machine},\n\"results\": {{\n{lines}\n}}}}\n");
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).context("failed to make the folder of the results")?;
        }
        fs::write(self.path, text)
            .with_context(|| format!("failed to write {}", self.path.display()))
    }
}

/// As many digits as say something.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

fn load_average() -> Value {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    json!(text.split(' ').take(3).collect::<Vec<_>>())
}

/// What the figures depend on.
fn machine(go: &str) -> Value {
    let file = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let model = file("/proc/cpuinfo")
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map(|(_, model)| model.to_owned());
    let commit =
        Command::new("git").args(["rev-parse", "--short", "HEAD"]).current_dir(root()).output();
    json!({
        "cpu": model,
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "kernel": file("/proc/sys/kernel/osrelease").trim(),
        "load_average": load_average(),
        "go": go,
        "commit": commit.ok().map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned()),
    })
}
