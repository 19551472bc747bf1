//! What ends a capture.

use super::engine::Running;
use crate::args::TraceArgs;
use crate::sink;
use std::fmt;
use std::time::{Duration, Instant};

/// Share of one CPU at which the person is warned.
const WARN_PCT: f64 = 10.0;
/// The estimate needs this long to mean something.
const SETTLE: Duration = Duration::from_secs(1);

/// Why a capture ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Ctrl-C.
    Interrupted,
    /// SIGTERM or SIGHUP.
    Terminated,
    /// `--duration` is over.
    Duration,
    /// `--limit` is reached.
    Limit,
    /// `--max-overhead` is passed.
    Overhead,
    /// The launched command, or every process attached to, is gone.
    TargetsGone,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interrupted => "Ctrl-C",
            Self::Terminated => "SIGTERM or SIGHUP",
            Self::Duration => "--duration was over",
            Self::Limit => "--limit was reached",
            Self::Overhead => "--max-overhead was passed",
            Self::TargetsGone => "nothing was left to trace",
        })
    }
}

impl Reason {
    /// Whether open trees may still finish.
    pub fn drains(self) -> bool {
        matches!(self, Self::Interrupted | Self::Duration | Self::Limit | Self::Overhead)
    }
}

/// Watches for the end.
pub struct Ending {
    deadline: Option<Instant>,
    launched: bool,
    max_overhead: Option<f64>,
    warned: bool,
    quiet: bool,
    /// Whether the person was told that the command got the Ctrl-C.
    told: bool,
    /// Cost and time at the last look at the overhead.
    mark: (u64, Instant),
}

impl Ending {
    /// A watch for the capture that starts now.
    pub fn new(args: &TraceArgs, launched: bool) -> Self {
        let now = Instant::now();
        Self {
            deadline: args.capture.duration.and_then(|span| now.checked_add(span.0)),
            launched,
            max_overhead: args.capture.max_overhead,
            warned: args.show.tell.quiet,
            quiet: args.show.tell.quiet,
            told: false,
            mark: (0, now),
        }
    }

    /// Whether the capture ends now, and why.
    pub fn check(&mut self, running: &mut Running<'_>) -> anyhow::Result<Option<Reason>> {
        if running.signals.terminated() {
            return Ok(Some(Reason::Terminated));
        }
        if running.signals.detach_asked(self.launched) {
            return Ok(Some(Reason::Interrupted));
        }
        if running.signals.interrupts() > 0 && !self.told && !self.quiet {
            self.told = true;
            sink::say("Ctrl-C is the command's; a second one ends the tracing and lets it run on");
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(Some(Reason::Duration));
        }
        if running.sessions.iter().any(|session| session.is_done()) {
            return Ok(Some(Reason::Limit));
        }
        if self.overhead_passed(running) {
            return Ok(Some(Reason::Overhead));
        }
        if targets_gone(running)? {
            return Ok(Some(Reason::TargetsGone));
        }
        Ok(None)
    }

    fn overhead_passed(&mut self, running: &mut Running<'_>) -> bool {
        let (cost_before, time_before) = self.mark;
        let elapsed = time_before.elapsed();
        if elapsed < SETTLE {
            return false;
        }
        let cost_ns: u64 = running.sessions.iter().map(|session| session.cost_ns()).sum();
        self.mark = (cost_ns, Instant::now());
        let pct = 100.0 * cost_ns.saturating_sub(cost_before) as f64 / elapsed.as_nanos() as f64;
        if pct >= WARN_PCT && !self.warned {
            self.warned = true;
            sink::say(format!(
                "tracing costs the target about {pct:.0}% of a CPU now; fewer functions cost less, \
                 --max-overhead PCT sets a limit"
            ));
        }
        if self.max_overhead.is_some_and(|limit| pct > limit) {
            running.notes.push(format!(
                "stopped at about {pct:.0}% of a CPU, over the limit of --max-overhead"
            ));
            return true;
        }
        false
    }
}

/// Whether nothing is left to trace.
fn targets_gone(running: &mut Running<'_>) -> anyhow::Result<bool> {
    if let Some(child) = &mut running.child {
        return Ok(child.try_wait()?.is_some());
    }
    if running.attached.is_empty() {
        return Ok(false);
    }
    let sessions = &running.sessions;
    Ok(running.attached.iter().all(|process| {
        !process.is_alive() || sessions.iter().any(|session| session.has_exited(process.pid()))
    }))
}
