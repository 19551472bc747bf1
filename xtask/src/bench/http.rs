//! What a server pays per request, and what its clients notice.

use std::time::Duration;

use anyhow::{Context, ensure};
use testkit::Running;

use super::Rounds;
use super::setup::{LIMIT, Programs, cpu_ns, end, lost_share};

/// What is asked for: an answer that is computed, one from a goroutine, one that is an error.
const PATHS: &str = "/sum?n=10,/order?id=1,/order?id=9";

/// A way of running the server: its name, backend and patterns.
type Way = (&'static str, Option<&'static str>, &'static [&'static str]);

/// The ways that are compared, each once in a round.
const WAYS: [Way; 3] = [
    ("untraced", None, &[]),
    ("trampoline", Some("trampoline"), &["main.*", "net/http.*"]),
    ("uprobe_one", Some("uprobe"), &["main.handleSum"]),
];

/// Loads: requests, pause of each of four workers in between, and the name.
const LOADS: [(&str, &str, &str); 2] = [("paced", "3000", "2ms"), ("full", "6000", "0s")];

/// A server on loopback that lives through all rounds.
pub struct Server {
    running: Running,
    address: String,
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

    /// Requests in all, and median and 99th percentile of their time, microseconds.
    pub fn load(
        &self,
        programs: &Programs,
        n: &str,
        pause: &str,
    ) -> anyhow::Result<(f64, f64, f64)> {
        let args = ["-addr", &self.address, "-n", n, "-c", "4", "-pause", pause, "-paths", PATHS];
        let mut load = Running::start(&programs.load, &args);
        load.wait(LIMIT);
        let done = load.wait_for("done", Duration::from_secs(1));
        ensure!(done["failures"] == 0, "requests failed: {done}");
        let number = |key: &str| done[key].as_f64().with_context(|| format!("no {key}"));
        Ok((number("requests")?, number("p50_ns")? / 1e3, number("p99_ns")? / 1e3))
    }
}

/// One round: each way under each load. Where the round begins moves from round to round, so
/// that no way always follows the same other.
pub fn round(
    programs: &Programs,
    server: &Server,
    number: usize,
    rounds: &mut Rounds,
) -> anyhow::Result<()> {
    let pid = server.running.pid();
    for (load, requests, pause) in LOADS {
        for way in 0..WAYS.len() {
            let (name, backend, patterns) = WAYS[(way + number) % WAYS.len()];
            let key = |what: &str| format!("http.{load}.{name}.{what}");
            let patterns: Vec<String> = patterns.iter().map(|&it| it.to_owned()).collect();
            let capture = backend.map(|backend| programs.attach(backend, pid, &patterns).0);
            let own =
                |capture: &Option<Running>| capture.as_ref().map_or(Ok(0.0), |it| cpu_ns(it.pid()));
            let (before, own_before) = (cpu_ns(pid)?, own(&capture)?);
            let (asked, p50, p99) = server.load(programs, requests, pause)?;
            let spent = cpu_ns(pid)? - before;
            let own_spent = own(&capture)? - own_before;
            rounds.add(key("server_cpu_us"), spent / asked / 1e3);
            rounds.add(key("p50_us"), p50);
            rounds.add(key("p99_us"), p99);
            if let Some(capture) = capture {
                let summary = end(capture)?;
                rounds.add(key("gospect_cpu_us"), own_spent / asked / 1e3);
                rounds.add(key("lost_share"), lost_share(&summary));
                let count = |what: &str| summary[what].as_f64().unwrap_or(0.0);
                let made = count("entries") + count("exits") + count("lost");
                rounds.add(key("records_per_request"), made / asked);
                rounds.add(key("functions"), count("functions"));
            }
        }
        for name in ["trampoline", "uprobe_one"] {
            rounds.add_ratio(
                format!("http.{load}.{name}/untraced.server_cpu"),
                &format!("http.{load}.{name}.server_cpu_us"),
                &format!("http.{load}.untraced.server_cpu_us"),
            );
        }
    }
    Ok(())
}
