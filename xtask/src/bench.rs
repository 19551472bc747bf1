//! `bench`: what tracing costs, both backends in one run.
//!
//! The machine's noise comes and goes in seconds, so the ways that are compared take turns:
//! a round runs each once, ratios are made within a round, and what is reported is the median
//! of the rounds with its 95% interval. Every round's value is kept in `bench/latest.json`.

mod attach;
mod calls;
mod http;
mod setup;
mod states;
mod statistics;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;
use serde_json::{Value, json};

use crate::{root, say};

/// How much to measure.
#[derive(clap::Args)]
pub struct Args {
    /// Rounds of calls and of the server.
    #[arg(long, default_value_t = 12)]
    rounds: usize,
    /// Rounds of attaching to 1,000 and 10,000 functions, and of starting.
    #[arg(long, default_value_t = 6)]
    attach_rounds: usize,
    /// Only this part (repeatable).
    #[arg(long = "part")]
    parts: Vec<Part>,
    /// A gospect that is built already, instead of a release build of this tree.
    #[arg(long)]
    gospect: Option<PathBuf>,
    /// Where the results go.
    #[arg(long, default_value = "bench/latest.json")]
    output: PathBuf,
}

/// What can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Nanoseconds of a traced call.
    Calls,
    /// CPU and latency of a server.
    Http,
    /// Attaching and letting go.
    Attach,
    /// From exec to main.main.
    Start,
    /// Every change of state of every goroutine.
    States,
}

/// The values of all rounds so far, by key.
#[derive(Default)]
pub struct Rounds(BTreeMap<String, Vec<f64>>);

impl Rounds {
    fn add(&mut self, key: String, value: f64) {
        self.0.entry(key).or_default().push(value);
    }

    /// Adds the ratio of this round's values of two keys.
    fn add_ratio(&mut self, key: String, above: &str, below: &str) {
        let last = |key: &str| self.0.get(key).and_then(|values| values.last().copied());
        if let (Some(above), Some(below)) = (last(above), last(below)) {
            self.add(key, above / below);
        }
    }
}

/// Measures, prints the table, writes the results, after every round: a run that was stopped
/// has left what it had.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let programs = setup::Programs::build(args.gospect.as_deref())?;
    let wants = |part: Part| args.parts.is_empty() || args.parts.contains(&part);
    let mut rounds = Rounds::default();
    let path = root().join(&args.output);
    let keep = |rounds: &Rounds| write(&path, rounds, &programs.go);
    if wants(Part::Calls) {
        for _ in 0..args.rounds {
            calls::round(&programs, &mut rounds)?;
            keep(&rounds)?;
        }
    }
    if wants(Part::Http) {
        let server = http::Server::start(&programs)?;
        for number in 0..args.rounds {
            http::round(&programs, &server, number, &mut rounds)?;
            keep(&rounds)?;
        }
    }
    if wants(Part::Attach) {
        let choices = attach::choices(&programs)?;
        for _ in 0..args.attach_rounds {
            attach::round(&programs, &choices, &mut rounds)?;
            keep(&rounds)?;
        }
    }
    if wants(Part::Start) {
        for _ in 0..args.attach_rounds {
            attach::start_round(&programs, &mut rounds);
            keep(&rounds)?;
        }
    }
    if wants(Part::States) {
        let server = http::Server::start(&programs)?;
        for number in 0..args.rounds {
            states::ping_round(&programs, &mut rounds)?;
            states::http_round(&programs, &server, number, &mut rounds)?;
            keep(&rounds)?;
        }
    }
    say(format_args!("{:52} {:>12}  {:>25}  rounds", "", "median", "95% interval"));
    for (key, values) in &rounds.0 {
        if let Some(it) = statistics::estimate(values) {
            let interval = format!("{} … {}", number(it.low), number(it.high));
            say(format_args!("{key:52} {:>12}  {interval:>25}  {}", number(it.median), it.rounds));
        }
    }
    Ok(())
}

/// As many digits as say something.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

fn write(path: &PathBuf, rounds: &Rounds, go: &str) -> anyhow::Result<()> {
    let mut results = serde_json::Map::new();
    for (key, values) in &rounds.0 {
        let estimate = statistics::estimate(values);
        results.insert(key.clone(), json!({"estimate": estimate, "rounds": values}));
    }
    let all = json!({"machine": machine(go), "results": results});
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).context("failed to make the folder of the results")?;
    }
    let text = serde_json::to_string_pretty(&all)? + "\n";
    fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
}

/// What the figures depend on.
fn machine(go: &str) -> Value {
    let file = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let model = file("/proc/cpuinfo")
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map(|(_, model)| model.to_owned());
    let commit = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    json!({
        "cpu": model,
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "kernel": file("/proc/sys/kernel/osrelease").trim(),
        "load_average": file("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>(),
        "go": go,
        "commit": commit.ok().map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned()),
    })
}
