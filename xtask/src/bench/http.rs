//! What a server pays per request, and what its clients notice.

use std::time::Duration;

use anyhow::{Context, ensure};
use testkit::Running;

use super::Rounds;
use super::setup::{LIMIT, Programs, cpu_ns, end, lost_share};

/// What is asked for: an answer that is computed, one from a goroutine, one that is an error.
const PATHS: &str = "/sum?n=10,/order?id=1,/order?id=9";

/// A way of running the server: its name, backend and patterns.
type Way = (&'static str, &'static str, &'static [&'static str]);

/// The ways that are compared, each once in a round.
const WAYS: [Way; 2] = [
    ("trampoline", "trampoline", &["main.*", "net/http.*"]),
    ("uprobe_one", "uprobe", &["main.handleSum"]),
];

/// Loads: requests, pause of each of four workers in between, and the name.
const LOADS: [(&str, &str, &str); 2] = [("paced", "1500", "2ms"), ("full", "6000", "0s")];

/// A server on loopback that lives through all rounds.
pub struct Server {
    running: Running,
    address: String,
}

/// What one load cost.
pub struct Cost {
    /// CPU of the server per request, microseconds.
    pub cpu_us: f64,
    /// Median of the requests' times, microseconds.
    pub p50_us: f64,
    /// 99th percentile of them, microseconds.
    pub p99_us: f64,
    /// Requests in all.
    pub asked: f64,
}

impl Server {
    /// Starts it and asks it so much that its heap has found its size.
    pub fn start(programs: &Programs) -> anyhow::Result<Self> {
        let running = Running::start(&programs.server, &["-addr", "127.0.0.1:0"]);
        let line = running.wait_for("listening", Duration::from_secs(10));
        let address = line["addr"].as_str().context("no address")?.to_owned();
        let server = Self { running, address };
        server.load(programs, "4000", "0s")?;
        Ok(server)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Asks so much, and tells what it cost.
    pub fn load(&self, programs: &Programs, n: &str, pause: &str) -> anyhow::Result<Cost> {
        let args = ["-addr", &self.address, "-n", n, "-c", "4", "-pause", pause, "-paths", PATHS];
        let before = cpu_ns(self.pid())?;
        let mut load = Running::start(&programs.load, &args);
        load.wait(LIMIT);
        let spent = cpu_ns(self.pid())? - before;
        let done = load.wait_for("done", Duration::from_secs(1));
        ensure!(done["failures"] == 0, "requests failed: {done}");
        let number = |key: &str| done[key].as_f64().with_context(|| format!("no {key}"));
        let asked = number("requests")?;
        Ok(Cost {
            cpu_us: spent / asked / 1e3,
            p50_us: number("p50_ns")? / 1e3,
            p99_us: number("p99_ns")? / 1e3,
            asked,
        })
    }
}

impl Cost {
    fn add(&self, key: &dyn Fn(&str) -> String, rounds: &mut Rounds) {
        rounds.add(key("server_cpu_us"), self.cpu_us);
        rounds.add(key("p50_us"), self.p50_us);
        rounds.add(key("p99_us"), self.p99_us);
    }
}

/// One round: each way under each load, untraced before and after it, so that a machine that
/// gets slower or faster meanwhile does not count. The ways take turns in being first.
pub fn round(
    programs: &Programs,
    server: &Server,
    number: usize,
    rounds: &mut Rounds,
) -> anyhow::Result<()> {
    for (load, requests, pause) in LOADS {
        let plain = |rounds: &mut Rounds| -> anyhow::Result<f64> {
            let cost = server.load(programs, requests, pause)?;
            cost.add(&|what| format!("http.{load}.untraced.{what}"), rounds);
            Ok(cost.cpu_us)
        };
        let mut before = plain(rounds)?;
        for way in 0..WAYS.len() {
            let (name, backend, patterns) = WAYS[(way + number) % WAYS.len()];
            let key = |what: &str| format!("http.{load}.{name}.{what}");
            let patterns: Vec<String> = patterns.iter().map(|&it| it.to_owned()).collect();
            let gospect = programs.attach(backend, server.pid(), &patterns).0;
            let own_before = cpu_ns(gospect.pid())?;
            let cost = server.load(programs, requests, pause)?;
            let own_spent = cpu_ns(gospect.pid())? - own_before;
            let summary = end(gospect)?;
            let after = plain(rounds)?;
            cost.add(&key, rounds);
            rounds.add(
                format!("http.{load}.{name}/untraced.server_cpu"),
                cost.cpu_us / ((before + after) / 2.0),
            );
            before = after;
            rounds.add(key("gospect_cpu_us"), own_spent / cost.asked / 1e3);
            rounds.add(key("lost_share"), lost_share(&summary));
            let count = |what: &str| summary[what].as_f64().unwrap_or(0.0);
            let made = count("entries") + count("exits") + count("lost");
            rounds.add(key("records_per_request"), made / cost.asked);
            rounds.add(key("functions"), count("functions"));
            let delivered = made - count("lost");
            rounds.add(key("gospect_ns_per_record"), own_spent / delivered.max(1.0));
        }
    }
    Ok(())
}
