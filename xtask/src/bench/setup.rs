//! What the parts share: programs, captures by gospect, and what the kernel counts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use testkit::{Fixture, Mode, Running, Toolchain};

use crate::root;

/// The longest that one program of the benchmark may run.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Both backends, as `--backend` names them.
pub const BACKENDS: [&str; 2] = ["trampoline", "uprobe"];

/// The programs that are measured.
pub struct Programs {
    pub gospect: PathBuf,
    pub callcost: PathBuf,
    pub server: PathBuf,
    pub load: PathBuf,
    pub big: PathBuf,
    pub pingpong: PathBuf,
    /// Version of Go that built the fixtures.
    pub go: String,
}

impl Programs {
    /// Builds them; `gospect` is taken as it is where a path is given.
    pub fn build(gospect: Option<&Path>) -> anyhow::Result<Self> {
        let toolchain = Toolchain::at(Path::new("go"))?;
        let fixture = |name: &str| Fixture::build(name, &toolchain, Mode::Exe);
        Ok(Self {
            gospect: match gospect {
                Some(path) => path.canonicalize().context("failed to find gospect")?,
                None => release()?,
            },
            callcost: fixture("callcost"),
            server: fixture("httpserver"),
            load: fixture("httpload"),
            big: fixture("big"),
            pingpong: fixture("pingpong"),
            go: toolchain.version.clone(),
        })
    }

    /// Starts `gospect sched` on a running process and returns when it has attached.
    pub fn watch(&self, backend: &str, pid: u32) -> Running {
        let pid = pid.to_string();
        let args = ["sched", "--backend", backend, "--format", "json", "-p", &pid];
        let running = Running::start(&self.gospect, &args);
        running.wait_error_line(LIMIT, |line| line.contains("Ctrl-C ends it"));
        running
    }

    /// Starts gospect on a running process and returns when it has attached, with the
    /// milliseconds that this took by the clock.
    pub fn attach(&self, backend: &str, pid: u32, chosen: &[String]) -> (Running, f64) {
        self.attach_with(backend, pid, chosen, &[])
    }

    /// As [`Programs::attach`], with more arguments.
    pub fn attach_with(
        &self,
        backend: &str,
        pid: u32,
        chosen: &[String],
        more: &[String],
    ) -> (Running, f64) {
        let pid = pid.to_string();
        let mut args = capture(backend, chosen);
        args.extend(["--results", "none", "--args", "none", "-p", &pid].map(str::to_owned));
        args.extend_from_slice(more);
        let begin = Instant::now();
        let running = Running::start(&self.gospect, &args);
        running.wait_error_line(LIMIT, |line| line.contains("Ctrl-C ends it"));
        (running, millis(begin.elapsed()))
    }
}

/// The arguments of a capture into a table, for patterns of function names.
pub fn capture(backend: &str, chosen: &[String]) -> Vec<String> {
    let mut args: Vec<String> =
        ["trace", "--backend", backend, "--stat", "--format", "json"].map(str::to_owned).to_vec();
    args.extend(chosen.iter().flat_map(|pattern| ["-u".to_owned(), pattern.clone()]));
    args
}

/// Ends a capture as Ctrl-C does; its summary.
pub fn end(mut gospect: Running) -> anyhow::Result<Value> {
    gospect.signal("INT");
    gospect.wait(LIMIT);
    summary(&gospect)
}

/// The summary that a capture wrote at its end.
pub fn summary(gospect: &Running) -> anyhow::Result<Value> {
    let out = gospect.stdout();
    let found = objects(&out).find(|object| object["type"] == "summary");
    found.with_context(|| format!("no summary; stderr:\n{}", gospect.stderr()))
}

/// The JSON objects among the lines of `text`.
pub fn objects(text: &str) -> impl Iterator<Item = Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok())
}

/// The share of the records that were made and not delivered, from a summary.
pub fn lost_share(summary: &Value) -> f64 {
    let count = |key: &str| summary[key].as_f64().unwrap_or(0.0);
    let made = count("entries") + count("exits") + count("lost");
    if made > 0.0 { count("lost") / made } else { 0.0 }
}

/// Nanoseconds on a CPU of all threads of a process that are there now; what a thread spent
/// that has ended is missing.
/// (`/proc/PID/task/TID/schedstat`, first field; the ticks of `stat` are ten milliseconds.)
pub fn cpu_ns(pid: u32) -> anyhow::Result<f64> {
    let tasks = format!("/proc/{pid}/task");
    let mut total = 0.0;
    for task in fs::read_dir(&tasks).with_context(|| format!("failed to list {tasks}"))? {
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
        let first = text.split_whitespace().next().and_then(|it| it.parse::<f64>().ok());
        total += first.context("no time in schedstat")?;
    }
    Ok(total)
}

/// KiB of a process's own changed pages (`Private_Dirty` of smaps_rollup).
pub fn private_dirty_kib(pid: u32) -> anyhow::Result<f64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Private_Dirty:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("no Private_Dirty in {path}"))
}

/// KiB of a line of `/proc/PID/status`, named with its colon.
pub fn status_kib(pid: u32, line: &str) -> anyhow::Result<f64> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
    let number = text.lines().find_map(|it| it.strip_prefix(line)?.split_whitespace().next());
    let number = number.and_then(|it| it.parse().ok());
    number.with_context(|| format!("no {line} in {path}"))
}

/// The process that `parent` started.
pub fn child(parent: u32) -> anyhow::Result<u32> {
    let tasks = format!("/proc/{parent}/task");
    for task in fs::read_dir(&tasks).with_context(|| format!("failed to list {tasks}"))? {
        let text = fs::read_to_string(task?.path().join("children")).unwrap_or_default();
        if let Some(pid) = text.split_whitespace().next().and_then(|pid| pid.parse().ok()) {
            return Ok(pid);
        }
    }
    bail!("process {parent} has no child")
}

/// Milliseconds of a duration.
pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Builds gospect as it is released, and the library for programs that preload it.
fn release() -> anyhow::Result<PathBuf> {
    let out = Command::new("cargo")
        .args(["build", "--release", "--locked", "--message-format=json"])
        .args(["-p", "gospect", "-p", "gospect-preload"])
        .current_dir(root())
        .output()
        .context("failed to run cargo")?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    for message in objects(&String::from_utf8_lossy(&out.stdout)) {
        if message["target"]["name"] == "gospect"
            && let Some(path) = message["executable"].as_str()
        {
            return Ok(PathBuf::from(path));
        }
    }
    bail!("cargo named no gospect")
}
