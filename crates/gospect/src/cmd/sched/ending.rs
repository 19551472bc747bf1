//! What ends a capture.

use super::engine::Running;
use crate::args::SchedArgs;
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
    /// Ctrl-C, SIGTERM or SIGHUP.
    Asked,
    /// `--duration` is over.
    Duration,
    /// `--max-overhead` is passed.
    Overhead,
    /// The launched command, or every process attached to, is gone.
    TargetsGone,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "a signal",
            Self::Duration => "--duration was over",
            Self::Overhead => "--max-overhead was passed",
            Self::TargetsGone => "nothing was left to watch",
        })
    }
}

/// Watches for the end.
pub struct Ending {
    deadline: Option<Instant>,
    launched: bool,
    max_overhead: Option<f64>,
    warned: bool,
    /// Whether the person was told that the command got the Ctrl-C.
    told: bool,
    /// Cost and time at the last look at the overhead.
    mark: (u64, Instant),
}

impl Ending {
    /// A watch for the capture that starts now.
    pub fn new(args: &SchedArgs, launched: bool) -> Self {
        let now = Instant::now();
        Self {
            deadline: args.capture.duration.and_then(|span| now.checked_add(span.0)),
            launched,
            max_overhead: args.capture.max_overhead,
            warned: args.tell.quiet,
            told: args.tell.quiet,
            mark: (0, now),
        }
    }

    /// Whether the capture ends now, and why.
    pub fn check(&mut self, running: &mut Running<'_>) -> anyhow::Result<Option<Reason>> {
        if running.signals.detach_asked(self.launched) {
            return Ok(Some(Reason::Asked));
        }
        if running.signals.interrupts() > 0 && !std::mem::replace(&mut self.told, true) {
            sink::say("Ctrl-C is the command's; a second one ends the watching and lets it run on");
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(Some(Reason::Duration));
        }
        if self.overhead_passed(running) {
            return Ok(Some(Reason::Overhead));
        }
        Ok(running.targets_gone()?.then_some(Reason::TargetsGone))
    }

    fn overhead_passed(&mut self, running: &mut Running<'_>) -> bool {
        let (cost_before, time_before) = self.mark;
        let elapsed = time_before.elapsed();
        if elapsed < SETTLE {
            return false;
        }
        let cost_ns = running.cost_ns();
        self.mark = (cost_ns, Instant::now());
        let pct = 100.0 * cost_ns.saturating_sub(cost_before) as f64 / elapsed.as_nanos() as f64;
        if pct >= WARN_PCT && !std::mem::replace(&mut self.warned, true) {
            sink::say(format!(
                "watching costs the target about {pct:.0}% of a CPU now; --max-overhead PCT sets a \
                 limit"
            ));
        }
        let passed = self.max_overhead.is_some_and(|limit| pct > limit);
        if passed {
            running.notes.push(format!(
                "stopped at about {pct:.0}% of a CPU, over the limit of --max-overhead"
            ));
        }
        passed
    }
}
