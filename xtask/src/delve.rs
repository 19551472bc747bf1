//! `delve`: the values that gospect reads beside those that delve reads at the same points of
//! the same programs; results in docs/delve.json.

mod client;
mod compare;

use anyhow::{Context, ensure};
use client::{Delve, Stop};
use compare::{IS_RESULT, Tally};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{Fixture, Mode, Toolchain, newest, toolchain};

use crate::{root, say};

/// What to compare.
#[derive(clap::Args)]
pub struct Args {
    /// The delve to compare with: `go install github.com/go-delve/delve/cmd/dlv@latest`.
    #[arg(long, default_value = "dlv")]
    dlv: String,
    /// Go version of the fixtures, else the newest.
    #[arg(long = "go")]
    version: Option<String>,
    /// The gospect to compare, else one that is built for it.
    #[arg(long)]
    gospect: Option<PathBuf>,
}

/// Fixture and the functions in it that log what they are given.
const SUBJECTS: [(&str, &str); 2] = [("values", "main.takes*"), ("args", "main.*")];

/// Functions that log for the others, and call themselves in doing so.
const LOGGING: [&str; 9] = ["log", "in", "out", "list", "show", "face", "items", "bare", "main"];

/// Results that delve errs for: at the return their slot on the stack holds what they were before the deferred function
/// changed them; the caller gets what the register has, and that is what the program logs.
const STALE_IN_DELVE: [(&str, &str); 1] = [("main.deferred", "result")];

/// Compares all and writes the result.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let go = args.version.as_deref().map_or_else(newest, toolchain);
    let gospect = match &args.gospect {
        Some(path) => path.clone(),
        None => build_gospect()?,
    };
    let said = Command::new(&args.dlv).arg("version").output().context("failed to run delve")?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let version = said.lines().find_map(|line| line.strip_prefix("Version: ")).unwrap_or("?");
    let mut results = BTreeMap::new();
    let mut differ = 0;
    for (name, pattern) in SUBJECTS {
        for mode in [Mode::Exe, Mode::NoOpt] {
            let tally = compare(args, &gospect, &go, name, pattern, mode)?;
            let unread: u64 = tally.unread_by_gospect.values().sum();
            say(format_args!(
                "{name} {mode}: {} agree, {} differ, {} not read by delve, {unread} not by gospect, {} not compared",
                tally.agree,
                tally.differ.len(),
                tally.unread_by_delve,
                tally.not_compared
            ));
            differ += tally.differ.len();
            results.insert(format!("{name} {mode}"), tally);
        }
    }
    let record = json!({ "delve": version, "go": go.version, "programs": results });
    let path = root().join("docs/delve.json");
    fs::write(&path, serde_json::to_string_pretty(&record)? + "\n")
        .context("failed to write docs/delve.json")?;
    ensure!(differ == 0, "{differ} values differ");
    Ok(())
}

fn build_gospect() -> anyhow::Result<PathBuf> {
    let mut build = Command::new("cargo");
    build.args(["build", "-q", "-p", "gospect"]).current_dir(root());
    ensure!(build.status().context("failed to run cargo")?.success(), "gospect does not build");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root().join("target"), PathBuf::from);
    Ok(target.join("debug/gospect"))
}

fn compare(
    args: &Args,
    gospect: &Path,
    go: &Toolchain,
    name: &str,
    pattern: &str,
    mode: Mode,
) -> anyhow::Result<Tally> {
    let program = Fixture::build(name, go, mode);
    let calls = traced(gospect, &program, pattern)?;
    let mut delve = Delve::start(&args.dlv, &program)?;
    let mut known: Vec<&str> = calls.keys().map(String::as_str).collect();
    known.sort_unstable();
    // Some pass addresses that nothing can be read at.
    let is_subject = |name: &str| {
        !name.contains("takesBad") && !LOGGING.iter().any(|own| name == format!("main.{own}"))
    };
    known.retain(|name| is_subject(name));
    for function in &known {
        delve.watch(function)?;
    }
    let mut tally = Tally::default();
    let mut entered: HashMap<String, usize> = HashMap::new();
    while let Some(Stop { function, is_entry, is_return }) = delve.next_stop()? {
        let Some(calls) = calls.get(&function) else { continue };
        let number = entered.entry(function.clone()).or_default();
        *number += usize::from(is_entry);
        let call = calls.get(number.saturating_sub(1));
        let call = call.with_context(|| format!("call {number} of {function} was not traced"))?;
        let parts = [("args", 0, is_entry), ("results", IS_RESULT, is_return)];
        for (part, flag, _) in parts.into_iter().filter(|(.., is_here)| *is_here) {
            let traced = call[part].as_array().map_or(&[][..], Vec::as_slice);
            for value in delve.values()? {
                let name = value["name"].as_str().unwrap_or_default();
                // Of blank ones Go 1.27 describes a place that nothing was written to.
                if value["flags"].as_u64().unwrap_or(0) & IS_RESULT != flag
                    || name.starts_with("~p")
                {
                    continue;
                }
                if STALE_IN_DELVE.contains(&(function.as_str(), name)) {
                    continue;
                }
                if let Some(own) = traced.iter().find(|own| own["name"] == value["name"]) {
                    let path = format!("{function}#{number} {}", value["name"]);
                    tally.value(&value, own, &path);
                }
            }
        }
    }
    Ok(tally)
}

/// The calls of a whole run, by function, in order.
fn traced(
    gospect: &Path,
    program: &Path,
    pattern: &str,
) -> anyhow::Result<HashMap<String, Vec<Value>>> {
    let out = std::env::temp_dir().join(format!("gospect-delve-{}.jsonl", std::process::id()));
    let run = Command::new(gospect)
        .args(["trace", "--backend", "trampoline", "--format", "json", "-u", pattern, "-o"])
        .arg(&out)
        .arg("--")
        .arg(program)
        .output()
        .context("failed to run gospect")?;
    ensure!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let text = fs::read_to_string(&out)?;
    fs::remove_file(&out)?;
    let mut calls: HashMap<String, Vec<Value>> = HashMap::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line)?;
        if line["type"] == "call" {
            let name = line["func"].as_str().context("no name")?.to_owned();
            calls.entry(name).or_default().push(line);
        }
    }
    for calls in calls.values_mut() {
        calls.sort_by_key(|call| call["start_ns"].as_u64());
    }
    Ok(calls)
}
