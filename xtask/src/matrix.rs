//! `matrix`: the core suite for every Go version and build mode.
//!
//! The suite reads `GOSPECT_TEST_GO` and `GOSPECT_TEST_MODE`; a cell is one run of it. The
//! result file is written after every cell, so a run that was stopped goes on where it was.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use testkit::{Mode, Toolchain, toolchains};

use crate::{root, say};

/// The backend whose suites have no suffix in the results.
const UPROBE: &str = "uprobe";

/// What to run.
#[derive(clap::Args)]
pub struct Args {
    /// Only this Go version (repeatable).
    #[arg(long = "go")]
    versions: Vec<String>,
    /// Only this build mode (repeatable).
    #[arg(long = "mode")]
    modes: Vec<Mode>,
    /// Integration test of the gospect crate that is run per cell: trace_core, sched_core, spans_core,
    /// spans_grpc_core, goroutines_core (which captures nothing: no backend); about
    /// values, where there is debug information: trace_nested, trace_values, trace_random.
    #[arg(long, default_value = "trace_core")]
    suite: String,
    /// Capture backend: uprobe, trampoline.
    #[arg(long, default_value = UPROBE)]
    backend: String,
    /// Rounds that suites about requests compare, instead of the few that they have by themselves.
    #[arg(long)]
    rounds: Option<u32>,
    /// Run cells again that have a result.
    #[arg(long)]
    again: bool,
    /// Run cells again in which a test failed.
    #[arg(long)]
    failed: bool,
    /// Build gospect and the suite as they are released.
    #[arg(long)]
    release: bool,
    /// Stop before a cell when this many seconds are over.
    #[arg(long)]
    seconds: Option<u64>,
}

/// How one cell came out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Cell {
    passed: u32,
    failed: u32,
    seconds: u64,
    /// Rounds, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rounds: Option<u32>,
    /// Names of the tests that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    failures: Vec<String>,
}

/// `docs/matrix.json`.
#[derive(Default, Serialize, Deserialize)]
struct Results {
    /// By suite (`/trampoline` behind it for that backend), Go version and mode.
    cells: BTreeMap<String, BTreeMap<String, BTreeMap<String, Cell>>>,
    /// Cells of the product without a result, as `suite version mode`.
    untested: Vec<String>,
}

/// Runs what has no result yet.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let path = root().join("docs/matrix.json");
    let mut results = match fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).context("docs/matrix.json is damaged")?,
        Err(_) => Results::default(),
    };
    let all = toolchains();
    let suite = build_suite(&args.suite, args.release)?;
    let name = match args.backend.as_str() {
        UPROBE => args.suite.clone(),
        other => format!("{}/{other}", args.suite),
    };
    let modes = modes_of(&args.suite);
    let begin = Instant::now();
    let mut failed = 0;
    for toolchain in all.iter().filter(|it| wanted(&args.versions, &it.version)) {
        for &mode in modes.iter().filter(|it| wanted(&args.modes, *it)) {
            let known = results.get(&name, toolchain, mode);
            let is_due = |cell: &Cell| args.again || (args.failed && cell.failed > 0);
            if known.is_some_and(|cell| !is_due(cell)) {
                continue;
            }
            if args.seconds.is_some_and(|limit| begin.elapsed().as_secs() >= limit) {
                break;
            }
            let cell = run_cell(&suite, args, toolchain, mode)?;
            say(format_args!(
                "{:8} {:14} {} passed, {} failed, {} s  {}",
                toolchain.version,
                mode.label(),
                cell.passed,
                cell.failed,
                cell.seconds,
                cell.failures.join(" ")
            ));
            failed += cell.failed;
            results.set(&name, toolchain, mode, cell);
            results.note_untested(&name, &all, modes);
            fs::write(&path, serde_json::to_string_pretty(&results)? + "\n")
                .context("failed to write docs/matrix.json")?;
        }
    }
    say(format_args!("{} cells without a result", results.untested.len()));
    ensure!(failed == 0, "{failed} tests failed");
    Ok(())
}

/// Whether a choice of nothing, which means all, or of some holds `it`.
fn wanted<T: PartialEq>(chosen: &[T], it: &T) -> bool {
    chosen.is_empty() || chosen.contains(it)
}

/// The build modes that a suite is for.
fn modes_of(suite: &str) -> &'static [Mode] {
    match suite {
        "trace_nested" | "trace_values" | "trace_random" => &Mode::WITH_VALUES,
        _ => &Mode::ALL,
    }
}

impl Results {
    fn get(&self, suite: &str, toolchain: &Toolchain, mode: Mode) -> Option<&Cell> {
        self.cells.get(suite)?.get(&toolchain.version)?.get(mode.label())
    }

    fn set(&mut self, suite: &str, toolchain: &Toolchain, mode: Mode, cell: Cell) {
        let versions = self.cells.entry(suite.to_owned()).or_default();
        let modes = versions.entry(toolchain.version.clone()).or_default();
        modes.insert(mode.label().to_owned(), cell);
    }

    /// Notes the cells of `suite` without a result; what is noted of others stays.
    fn note_untested(&mut self, suite: &str, all: &[Toolchain], modes: &[Mode]) {
        let missing = all
            .iter()
            .flat_map(|toolchain| modes.iter().map(move |mode| (toolchain, *mode)))
            .filter(|(toolchain, mode)| self.get(suite, toolchain, *mode).is_none())
            .map(|(toolchain, mode)| format!("{suite} {} {mode}", toolchain.version));
        let missing: Vec<String> = missing.collect();
        let own = format!("{suite} ");
        self.untested.retain(|cell| !cell.starts_with(&own));
        self.untested.extend(missing);
    }
}

/// Builds the integration test and gives its path.
fn build_suite(suite: &str, release: bool) -> anyhow::Result<PathBuf> {
    let out = Command::new("cargo")
        .args(["test", "-p", "gospect", "--no-run", "--message-format=json", "--test", suite])
        .args(release.then_some("--release"))
        .current_dir(root())
        .output()
        .context("failed to run cargo")?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    for line in String::from_utf8_lossy(&out.stdout).lines() {
        let message: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
        if message["target"]["name"] == suite
            && let Some(path) = message["executable"].as_str()
        {
            return Ok(PathBuf::from(path));
        }
    }
    bail!("cargo named no binary for the test {suite}")
}

fn run_cell(
    suite: &PathBuf,
    args: &Args,
    toolchain: &Toolchain,
    mode: Mode,
) -> anyhow::Result<Cell> {
    let begin = Instant::now();
    let out = Command::new(suite)
        .env("GOSPECT_TEST_GO", &toolchain.version)
        .env("GOSPECT_TEST_MODE", mode.label())
        .env("GOSPECT_TEST_BACKEND", &args.backend)
        .envs(args.rounds.map(|rounds| ("GOSPECT_TEST_ROUNDS", rounds.to_string())))
        .current_dir(root().join("crates/gospect"))
        .output()
        .context("failed to run the suite")?;
    let text = String::from_utf8_lossy(&out.stdout);
    let closing = text
        .lines()
        .find(|line| line.starts_with("test result:"))
        .with_context(|| format!("the suite did not finish:\n{text}"))?;
    let count = |word: &str| -> anyhow::Result<u32> {
        let mut parts = closing.split([';', '.']).map(str::trim);
        let part = parts.find(|part| part.ends_with(word)).context("no count")?;
        Ok(part.trim_end_matches(word).trim().parse()?)
    };
    let failures = text
        .lines()
        .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
        .map(str::to_owned)
        .collect();
    let (passed, failed) = (count("passed")?, count("failed")?);
    ensure!(passed + failed > 0, "the suite {} ran no test", suite.display());
    let seconds = begin.elapsed().as_secs();
    Ok(Cell { passed, failed, seconds, rounds: args.rounds, failures })
}
