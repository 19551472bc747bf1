//! What agents of this machine say of a process: they are asked on the ports that they listen on.

use super::{Report, Status};
use crate::http_get::get;
use process::Process;
use serde_json::Value;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

const AREA: &str = "agent";
/// How long an agent may take to answer: it looks at nothing to do so.
const LIMIT: Duration = Duration::from_secs(3);
/// How long all of them together: anybody may call a program that never answers `gospect agent`.
const LIMIT_OF_ALL: Duration = Duration::from_secs(10);
/// Bytes of an answer that are read.
const MOST: usize = 64 << 20;

/// An agent that runs here.
struct Agent {
    pid: u32,
    /// Its own view of its id, which its answers carry.
    own_pid: u32,
    ports: Vec<u16>,
}

/// Reports what the agents that run here make of `process`.
pub(super) fn watched(report: &mut Report, process: &Process) {
    let agents = agents();
    if agents.is_empty() {
        return report.add(AREA, "watched by", Status::Ok, "no agent runs here");
    }
    let until = Instant::now() + LIMIT_OF_ALL;
    for agent in agents {
        let name = format!("gospect agent, process {}", agent.pid);
        match agent.ask(until) {
            Ok((address, status)) => told(report, &name, address, &status, process.pid()),
            Err(reason) => {
                report.add(AREA, "watched by", Status::Note, format!("{name}: {reason}"));
            }
        }
    }
}

fn agents() -> Vec<Agent> {
    let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut agents: Vec<Agent> = pids.filter_map(Agent::of).collect();
    agents.sort_by_key(|agent| agent.pid);
    agents
}

impl Agent {
    /// The process, if it is one.
    fn of(pid: u32) -> Option<Self> {
        if pid == std::process::id() {
            return None;
        }
        let process = Process::open(pid).ok()?;
        let line = process.command_line().ok()?;
        let (program, rest) = line.split_first()?;
        let is_named = Path::new(program).file_name().is_some_and(|name| name == "gospect");
        let command = rest.iter().find(|word| !word.starts_with('-'));
        if !is_named || command.is_none_or(|word| word != "agent") {
            return None;
        }
        let own_pid = process.namespaced_pids().ok().and_then(|pids| pids.last().copied());
        let ports = process.listening_ports();
        Some(Self { pid, own_pid: own_pid.unwrap_or(pid), ports })
    }

    /// What it says of itself, and where; it is not waited for after `until`.
    fn ask(&self, until: Instant) -> Result<(SocketAddr, Value), String> {
        if self.ports.is_empty() {
            let why = "it has no port that can be seen from here (`listen` in its configuration), and so cannot be asked";
            return Err(why.to_owned());
        }
        let mut last = String::new();
        for &port in &self.ports {
            for address in [
                SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
                SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
            ] {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err("it was not asked: there was no time left for it".to_owned());
                }
                match status_at(address, LIMIT.min(left)) {
                    Ok(status) if status["pid"] == self.own_pid => return Ok((address, status)),
                    Ok(_) => last = format!("another agent answers at {address}"),
                    Err(error) => last = format!("it does not answer at {address}: {error}"),
                }
            }
        }
        Err(last)
    }
}

fn status_at(address: SocketAddr, limit: Duration) -> Result<Value, String> {
    let answer = get(address, "/status", limit, MOST)?;
    serde_json::from_slice(&answer).map_err(|error| format!("it tells no status: {error}"))
}

/// Reports what an agent at `address` says.
fn told(report: &mut Report, agent: &str, address: SocketAddr, status: &Value, pid: u32) {
    let processes = status["processes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(process) = processes.iter().find(|process| process["pid"] == pid) else {
        let detail =
            format!("{agent}, at http://{address}/, does not watch it: no service of it takes it");
        return report.add(AREA, "watched by", Status::Note, detail);
    };
    let service = text(&process["service"]);
    let detail = format!("{agent}, at http://{address}/, as `{service}`");
    report.add(AREA, "watched by", Status::Ok, detail);
    if let Some(reason) = process["restricted"].as_str() {
        let detail = format!("only what the kernel counts is known of it: {reason}");
        report.add(AREA, "restricted", Status::Note, detail);
    }
    capture(report, process);
    for sensor in process["sensors"].as_array().into_iter().flatten() {
        self::sensor(report, sensor);
    }
    spans(report, process);
}

fn capture(report: &mut Report, process: &Value) {
    let capture = &process["capture"];
    let reason = capture["reason"].as_str().unwrap_or("not known why");
    match capture["backend"].as_str() {
        Some(backend) => {
            let (way, functions) = (text(&capture["way"]), number(&capture["functions"]));
            let detail = format!("{backend}, {way}: {functions} functions ({reason})");
            report.add(AREA, "capture", Status::Ok, detail);
        }
        None => report.add(AREA, "capture", Status::Note, format!("none: {reason}")),
    }
    for note in capture["notes"].as_array().into_iter().flatten() {
        report.add(AREA, "capture", Status::Note, text(note));
    }
}

/// Active or why not, and what came of it.
fn sensor(report: &mut Report, sensor: &Value) {
    let state = text(&sensor["state"]);
    let mut parts = vec![match sensor["reason"].as_str() {
        Some(reason) => format!("{state}: {reason}"),
        None => state.clone(),
    }];
    if state == "active" || state == "dropped" {
        if !sensor["hits"].is_null() {
            parts.push(format!("{} hits", number(&sensor["hits"])));
        }
        if let Some(percent) = sensor["cost_percent"].as_f64() {
            parts.push(format!("{percent:.2}% of a CPU"));
        }
        if sensor["spans"].is_object() {
            parts.push(outcomes(&sensor["spans"], &["made", "truncated", "unfinished"]));
        }
    }
    let status = if state == "active" || state == "off" { Status::Ok } else { Status::Note };
    report.add(AREA, &text(&sensor["name"]), status, parts.join("; "));
}

/// What became of all spans.
fn spans(report: &mut Report, process: &Value) {
    let spans = &process["spans"];
    let lost = spans["lost"].as_u64().unwrap_or_default();
    let status = if lost == 0 { Status::Ok } else { Status::Note };
    let detail = outcomes(spans, &["made", "truncated", "unfinished", "refused"]);
    report.add(AREA, "spans", status, format!("{detail}; {lost} records lost"));
}

fn outcomes(spans: &Value, names: &[&str]) -> String {
    let one = |name: &&str| format!("{} {name}", number(&spans[*name]));
    let all: Vec<String> = names.iter().map(one).collect();
    format!("spans: {}", all.join(", "))
}

fn number(value: &Value) -> String {
    value.as_u64().map_or_else(|| "an unknown number of".to_owned(), |number| number.to_string())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
