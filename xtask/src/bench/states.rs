//! What it costs a program that every state change of its goroutines is recorded.

use anyhow::Context;
use serde_json::Value;
use testkit::Running;

use super::http::Server;
use super::setup::{BACKENDS, LIMIT, Programs, end, objects, summary};
use super::{Rounds, statistics};

/// Round trips of a burst: so few that the rings hold their records.
const BURST: &str = "2000";
/// A uprobe costs so much that fewer say as much.
const BURST_UPROBE: &str = "1000";
/// Requests of a load, and the pause of each of four workers in between.
const LOAD: (&str, &str) = ("4000", "1ms");

/// One round: two goroutines answer each other, on one and on two processors.
pub fn ping_round(programs: &Programs, rounds: &mut Rounds) -> anyhow::Result<()> {
    for procs in ["1", "2"] {
        let key = |way: &str, what: &str| format!("states.ping.{procs}p.{way}.{what}");
        let mut plain = Running::start(&programs.pingpong, &args(BURST, procs));
        plain.wait(LIMIT);
        rounds.add(key("untraced", "cpu_ns"), cost(&plain.stdout())?);
        for backend in BACKENDS {
            let burst = if backend == "uprobe" { BURST_UPROBE } else { BURST };
            let mut command: Vec<String> =
                ["sched", "--backend", backend, "--format", "json", "--"]
                    .map(str::to_owned)
                    .to_vec();
            command.push(programs.pingpong.to_string_lossy().into_owned());
            command.extend(args(burst, procs).map(str::to_owned));
            let mut gospect = Running::start(&programs.gospect, &command);
            gospect.wait(LIMIT);
            rounds.add(key(backend, "cpu_ns"), cost(&gospect.stdout())?);
            let summary = summary(&gospect)?;
            rounds.add(key(backend, "lost_share"), lost_share(&summary));
            rounds.add_ratio(
                key(backend, "/untraced.cpu"),
                &key(backend, "cpu_ns"),
                &key("untraced", "cpu_ns"),
            );
        }
    }
    Ok(())
}

/// One round: a server untraced and under each backend. Where it begins moves from round to
/// round, so that no way always follows the same other.
pub fn http_round(
    programs: &Programs,
    server: &Server,
    number: usize,
    rounds: &mut Rounds,
) -> anyhow::Result<()> {
    let ways = [None, Some(BACKENDS[0]), Some(BACKENDS[1])];
    let pid = server.pid();
    let key = |way: &str, what: &str| format!("states.http.{way}.{what}");
    for place in 0..ways.len() {
        let backend = ways[(place + number) % ways.len()];
        let capture = backend.map(|backend| programs.watch(backend, pid));
        let name = backend.unwrap_or("untraced");
        let cost = server.load(programs, LOAD.0, LOAD.1)?;
        rounds.add(key(name, "server_cpu_us"), cost.cpu_us);
        rounds.add(key(name, "p50_us"), cost.p50_us);
        rounds.add(key(name, "p99_us"), cost.p99_us);
        if let Some(capture) = capture {
            let summary = end(capture)?;
            rounds.add(key(name, "lost_share"), lost_share(&summary));
            let changes = summary["changes"].as_f64().unwrap_or(0.0);
            rounds.add(key(name, "changes_per_request"), changes / cost.asked);
        }
    }
    for backend in BACKENDS {
        rounds.add_ratio(
            key(backend, "/untraced.server_cpu"),
            &key(backend, "server_cpu_us"),
            &key("untraced", "server_cpu_us"),
        );
    }
    Ok(())
}

fn args<'a>(burst: &'a str, procs: &'a str) -> [&'a str; 8] {
    ["-n", burst, "-procs", procs, "-rounds", "21", "-pause", "40ms"]
}

/// CPU nanoseconds of a round trip, the median of the bursts but the first, which warms up.
fn cost(out: &str) -> anyhow::Result<f64> {
    let costs: Vec<f64> = objects(out)
        .filter(|line| line["type"] == "cost" && line["round"].as_u64() > Some(0))
        .filter_map(|line: Value| line["cpu_ns"].as_f64())
        .collect();
    Ok(statistics::estimate(&costs).context("no cost of a round trip")?.median)
}

/// The share of the records that were made and not delivered, from a summary.
fn lost_share(summary: &Value) -> f64 {
    let count = |key: &str| summary[key].as_f64().unwrap_or(0.0);
    let made = count("records") + count("lost");
    if made > 0.0 { count("lost") / made } else { 0.0 }
}
