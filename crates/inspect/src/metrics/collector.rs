//! The garbage collector.

use super::histogram::TimeHistogram;
use super::unknown::Value;

/// What the collector did and aims at (`runtime.memstats`, `gcController`, `work`).
#[derive(Clone, Debug, PartialEq)]
pub struct Collector {
    /// Collections completed (`MemStats.NumGC`).
    pub cycles: Value<u64>,
    /// Of these, ones that the program asked for (`NumForcedGC`).
    pub forced_cycles: Value<u64>,
    /// When the last one ended, in nanoseconds since 1970 (`LastGC`); 0 before the first.
    pub last_ns: Value<u64>,
    /// All pauses together, in nanoseconds (`PauseTotalNs`).
    pub pause_total_ns: Value<u64>,
    /// The most recent pauses.
    pub pauses: Value<Pauses>,
    /// Pauses since the start (`/gc/pauses`, `/sched/pauses/total/gc`); up to Go 1.21 the two
    /// pauses of a cycle each, and what is told from Go 1.22 on is the same.
    pub pause_histogram: Value<TimeHistogram>,
    /// Share of all CPU time available to the program since its start that the collector
    /// used, 0 to 1 (`GCCPUFraction`); renewed by each cycle.
    pub cpu_fraction: Value<f64>,
    /// CPU time by use, as of the last cycle (since Go 1.20).
    pub cpu: Value<CpuTimes>,
    /// What the collector does now.
    pub phase: Value<GcPhase>,
    /// `GOGC` in percent; -1 is off (`/gc/gogc:percent` has it as an unsigned number then).
    pub gogc_percent: Value<i32>,
    /// `GOMEMLIMIT` in bytes; `i64::MAX` is none.
    pub memory_limit: Value<u64>,
    /// The size of the heap that ends the next cycle, in bytes (`NextGC`, `/gc/heap/goal`);
    /// beyond all memory when neither `GOGC` nor a limit sets one.
    pub heap_goal: Value<u64>,
    /// Bytes that the last collection found reachable (`/gc/heap/live`).
    pub heap_marked: Value<u64>,
    /// Bytes the collector believes to be in use now, unswept ones left out (`heapLive`).
    pub heap_live: Value<u64>,
}

/// What the collector does (`gcphase`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GcPhase {
    /// Nothing, or sweeping.
    Off,
    /// Marking beside the program.
    Mark,
    /// Ending the marking, the program stopped.
    MarkTermination,
}

impl GcPhase {
    /// Lower-case name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Mark => "mark",
            Self::MarkTermination => "mark termination",
        }
    }
}

/// One pause: since Go 1.10 both stops of a cycle together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// Nanoseconds.
    pub ns: u64,
    /// When it ended, in nanoseconds since 1970.
    pub end_ns: u64,
}

/// The most recent pauses (at most 256), newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pauses(pub Vec<Pause>);

impl Pauses {
    /// Minimum, quartiles and maximum in nanoseconds, as `runtime/debug.ReadGCStats` computes
    /// them for `go_gc_duration_seconds`; all 0 when there was no pause.
    pub fn quantiles(&self) -> [u64; 5] {
        let mut sorted: Vec<u64> = self.0.iter().map(|pause| pause.ns).collect();
        sorted.sort_unstable();
        std::array::from_fn(|quarter| {
            let index = (sorted.len() * quarter / 4).min(sorted.len().saturating_sub(1));
            sorted.get(index).copied().unwrap_or(0)
        })
    }
}

/// CPU time in nanoseconds since the start, as of the end of the last cycle
/// (`runtime.cpuStats`, `/cpu/classes/...`). The runtime derives it from clocks: it is
/// more than what was on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Goroutines that had to help marking.
    pub gc_assist_ns: u64,
    /// Threads given to marking.
    pub gc_dedicated_ns: u64,
    /// Marking in otherwise idle processors.
    pub gc_idle_ns: u64,
    /// Pauses, times all processors.
    pub gc_pause_ns: u64,
    /// All of the collector.
    pub gc_total_ns: u64,
    /// Goroutines that had to return memory.
    pub scavenge_assist_ns: u64,
    /// Returning memory in the background.
    pub scavenge_background_ns: u64,
    /// All returning of memory.
    pub scavenge_total_ns: u64,
    /// Processors without work.
    pub idle_ns: u64,
    /// The program's own code, and the rest of the runtime.
    pub user_ns: u64,
    /// Everything: `GOMAXPROCS` times the time gone by.
    pub total_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ns: &[u64]) -> [u64; 5] {
        Pauses(ns.iter().map(|&ns| Pause { ns, end_ns: 0 }).collect()).quantiles()
    }

    #[test]
    fn quantiles_are_those_of_the_runtime() {
        assert_eq!(of(&[]), [0; 5]);
        assert_eq!(of(&[7]), [7; 5]);
        assert_eq!(of(&[30, 10]), [10, 10, 30, 30, 30]);
        assert_eq!(of(&[5, 4, 3, 2, 1, 0, 6, 7]), [0, 2, 4, 6, 7]);
    }
}
