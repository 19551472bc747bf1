//! A process over time: the last observation, and what it gives together with the one before.

use crate::observation::{Go, Observation};
use crate::trend::Trend;

/// A process as it is shown.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub now: Observation,
    /// When it was observed, nanoseconds of any clock that does not jump.
    at_ns: u64,
    /// CPU time per time, percent of one CPU.
    pub cpu: Option<f64>,
    /// Collections per second.
    pub gc_rate: Option<f64>,
    /// Bytes allocated per second.
    pub alloc_rate: Option<f64>,
    pub heap: Trend,
    pub cpus: Trend,
}

impl Row {
    pub(crate) fn new(now: Observation, at_ns: u64) -> Self {
        let mut row = Self {
            now,
            at_ns,
            cpu: None,
            gc_rate: None,
            alloc_rate: None,
            heap: Trend::default(),
            cpus: Trend::default(),
        };
        row.remember();
        row
    }

    /// Takes in the next observation of the same process.
    pub(crate) fn observe(&mut self, next: Observation, at_ns: u64) {
        let seconds = at_ns.saturating_sub(self.at_ns) as f64 / 1e9;
        if seconds <= 0.0 {
            return;
        }
        let before = std::mem::replace(&mut self.now, next);
        let percent = (self.now.cpu_seconds - before.cpu_seconds) / seconds * 100.0;
        self.cpu = Some(percent.max(0.0));
        let rate = |of: fn(&Go) -> Option<u64>| {
            let (then, now) = (of(before.go.as_ref()?)?, of(self.now.go.as_ref()?)?);
            // A counter that went back is another program's: it begins anew.
            Some(now.checked_sub(then)? as f64 / seconds)
        };
        self.gc_rate = rate(|go| go.cycles);
        self.alloc_rate = rate(|go| go.allocated);
        self.at_ns = at_ns;
        self.remember();
    }

    fn remember(&mut self) {
        if let Some(live) = self.go(|go| go.heap_live) {
            self.heap.push(live);
        }
        if let Some(cpu) = self.cpu {
            self.cpus.push((cpu * 10.0) as u64);
        }
    }

    /// A figure of the runtime.
    pub(crate) fn go<T>(&self, of: impl Fn(&Go) -> Option<T>) -> Option<T> {
        of(self.now.go.as_ref()?)
    }
}
