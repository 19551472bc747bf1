//! Requests of Debian's caddy as spans: what they cost it, on both backends.

use std::process::Command;

use anyhow::ensure;
use testkit::Running;

use super::Rounds;
use super::caddy::{Caddy, Load};
use super::setup::{BACKENDS, LIMIT, Programs, cpu_ns, end, lost_share};

/// Loads of four connections: the name, requests, and the pause of each connection behind an answer. As fast
/// as can be, all three programs compete for the CPUs, and what caddy spends on a request hangs on what the others
/// leave it; with a pause the same is asked of it in the same time, traced or not.
const LOADS: [(&str, u32, &str); 2] = [("full", 20_000, "0s"), ("paced", 6_000, "1ms")];
const AT_ONCE: u32 = 4;

/// A caddy that lives through all rounds: what one process pays is compared with what the same one pays
/// without gospect.
pub struct Watched<'a> {
    caddy: &'a Caddy,
    address: String,
    running: Running,
}

impl<'a> Watched<'a> {
    /// Starts it and asks it so much that its heap has found its size.
    pub fn start(programs: &Programs, caddy: &'a Caddy) -> anyhow::Result<Self> {
        let (running, address) = caddy.serve()?;
        let watched = Self { caddy, address, running };
        watched.ask(programs, LOADS[0])?;
        Ok(watched)
    }

    /// Asks, and gives caddy's CPU per request in microseconds and the median time of a request.
    fn ask(
        &self,
        programs: &Programs,
        (_, wanted, pause): (&str, u32, &str),
    ) -> anyhow::Result<(f64, f64)> {
        let before = cpu_ns(self.running.pid())?;
        let Load { requests, p50_us } =
            self.caddy.ask(programs, &self.address, wanted, AT_ONCE, pause)?;
        ensure!(requests == f64::from(wanted), "{requests} requests of {wanted}");
        Ok(((cpu_ns(self.running.pid())? - before) / requests / 1e3, p50_us))
    }

    /// One round: under each load each backend once, untraced before and after it, so that a machine that gets
    /// slower or faster meanwhile does not count. The backends take turns in being first.
    pub fn round(
        &self,
        programs: &Programs,
        number: usize,
        rounds: &mut Rounds,
    ) -> anyhow::Result<()> {
        LOADS.iter().try_for_each(|&load| self.round_of(load, programs, number, rounds))
    }

    fn round_of(
        &self,
        load: (&str, u32, &str),
        programs: &Programs,
        number: usize,
        rounds: &mut Rounds,
    ) -> anyhow::Result<()> {
        let (name, requests, _) = load;
        let plain = |rounds: &mut Rounds| -> anyhow::Result<f64> {
            let (cpu_us, p50_us) = self.ask(programs, load)?;
            rounds.add(format!("spans.{name}.untraced.cpu_us"), cpu_us);
            rounds.add(format!("spans.{name}.untraced.p50_us"), p50_us);
            Ok(cpu_us)
        };
        let mut before = plain(rounds)?;
        for turn in 0..BACKENDS.len() {
            let backend = BACKENDS[(turn + number) % BACKENDS.len()];
            let key = |what: &str| format!("spans.{name}.{backend}.{what}");
            let pid = self.running.pid().to_string();
            let args = ["spans", "--backend", backend, "--format", "json", "-p", &pid];
            let gospect = Running::start(&programs.gospect, &args);
            gospect.wait_error_line(LIMIT, |line| line.contains("watching"));
            let own_before = cpu_ns(gospect.pid())?;
            let (cpu_us, p50_us) = self.ask(programs, load)?;
            let own_us = (cpu_ns(gospect.pid())? - own_before) / f64::from(requests) / 1e3;
            let summary = end(gospect)?;
            // None is missing, unless records were lost.
            let lost = lost_share(&summary);
            ensure!(lost > 0.0 || summary["spans"] == requests, "{backend}: {summary}");
            let after = plain(rounds)?;
            rounds.add(key("cpu_us"), cpu_us);
            rounds.add(key("p50_us"), p50_us);
            rounds.add(key("gospect_cpu_us"), own_us);
            rounds.add(key("lost_share"), lost);
            rounds.add(key("/untraced.cpu"), cpu_us / ((before + after) / 2.0));
            before = after;
        }
        Ok(())
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        // It ends with the benchmark; that it has ended already is no failure.
        let kill = format!("kill -TERM {}", self.running.pid());
        let _ = Command::new("sh").args(["-c", &kill]).status();
        self.running.wait(LIMIT);
    }
}
