//! What is said of goroutines.

use super::state::State;
use std::sync::Arc;

/// Which goroutine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Who {
    /// Process.
    pub pid: u32,
    /// Goroutine.
    pub goid: u64,
}

/// Where a goroutine comes from; 0 is "not known" in each field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Return address of the `go` statement's call (avma).
    pub gopc: u64,
    /// First instruction of its function (avma).
    pub startpc: u64,
    /// The goroutine that executed the statement.
    pub parent: u64,
}

/// One change of a goroutine's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// When, nanoseconds on the capture's clock.
    pub ts_ns: u64,
    /// Whose state.
    pub who: Who,
    /// The thread that changed it.
    pub tid: u32,
    /// State before.
    pub from: State,
    /// State afterwards.
    pub to: State,
    /// What it waits for from now on, or waited for until now.
    pub reason: Option<Arc<str>>,
    /// Since when it was in `from`, as far as it was watched.
    pub since_ns: u64,
    /// The goroutine that changed it, when it was another one: who woke it, or made it.
    pub by: Option<u64>,
    /// Whether that one is followed since before, or was until it ended a moment ago: then the
    /// events have a stay of it at that time.
    pub by_is_followed: bool,
    /// Where the goroutine comes from.
    pub origin: Origin,
}

/// Time by what it was spent on, nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Running Go code.
    pub running_ns: u64,
    /// Waiting for a processor.
    pub runnable_ns: u64,
    /// In system calls and C.
    pub syscall_ns: u64,
    /// In other states of the runtime's.
    pub other_ns: u64,
    /// During losses: nobody knows.
    pub unknown_ns: u64,
    /// Waiting, by the number of the reason.
    pub waiting: Vec<(u8, u64)>,
}

impl Times {
    /// All of it.
    pub fn total_ns(&self) -> u64 {
        let [a, b, c] = [self.running_ns, self.runnable_ns, self.syscall_ns];
        let parts = [a, b, c, self.other_ns, self.unknown_ns, self.waiting_ns()];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// Waiting, for whatever.
    pub fn waiting_ns(&self) -> u64 {
        self.waiting.iter().fold(0, |sum, (_, ns)| sum.saturating_add(*ns))
    }

    /// Adds waiting time.
    pub fn wait(&mut self, reason: u8, ns: u64) {
        match self.waiting.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, sum)) => *sum = sum.saturating_add(ns),
            None => self.waiting.push((reason, ns)),
        }
    }

    /// Adds other times to these.
    pub fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.running_ns, other.running_ns),
            (&mut self.runnable_ns, other.runnable_ns),
            (&mut self.syscall_ns, other.syscall_ns),
            (&mut self.other_ns, other.other_ns),
            (&mut self.unknown_ns, other.unknown_ns),
        ];
        for (sum, ns) in pairs {
            *sum = sum.saturating_add(ns);
        }
        other.waiting.iter().for_each(|(reason, ns)| self.wait(*reason, *ns));
    }
}

/// One goroutine as far as it was seen: told when it ends, and at the end for those that live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Which.
    pub who: Who,
    /// Where it comes from.
    pub origin: Origin,
    /// When it was made; `None` when it was there before.
    pub born_ns: Option<u64>,
    /// When it ended; `None` when it lives, or ended unseen.
    pub ended_ns: Option<u64>,
    /// Since when its time is counted: its birth, or the capture's begin.
    pub from_ns: u64,
    /// Until when its time is counted.
    pub to_ns: u64,
    /// Its state at the end of that time.
    pub state: State,
    /// What it waits for there; only when it waits.
    pub reason: Option<Arc<str>>,
    /// Since when it is in that state.
    pub since_ns: u64,
    /// Changes of its state.
    pub changes: u64,
    /// What it spent its time on.
    pub times: Times,
}

/// A stay of which only the begin was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// Whose.
    pub who: Who,
    /// What it was in at first.
    pub state: State,
    /// Since when.
    pub from_ns: u64,
    /// From here on it is known again what it does.
    pub to_ns: u64,
    /// Where the goroutine comes from.
    pub origin: Origin,
}

/// What the records say, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A state changed.
    Change(Change),
    /// Records were lost: what a goroutine did for a while nobody knows.
    Unknown(Unknown),
    /// A goroutine ended, or the capture did.
    Lifetime(Box<Lifetime>),
    /// Records were lost on `cpu` between two times.
    Gap {
        /// CPU or ring.
        cpu: u16,
        /// Time of the last record before, 0 if none.
        from_ns: u64,
        /// Time of the first record after.
        to_ns: u64,
        /// How many.
        lost: u32,
    },
    /// A process is gone; its goroutines have been told of.
    ProcessExit {
        /// Process.
        pid: u32,
        /// Time, nanoseconds on the capture's clock.
        ts_ns: u64,
    },
}

impl Event {
    /// A gap as the other half of this crate tells it.
    pub(crate) fn of_gap(gap: &crate::Event) -> Option<Self> {
        match *gap {
            crate::Event::Gap { cpu, from_ns, to_ns, lost } => {
                Some(Self::Gap { cpu, from_ns, to_ns, lost })
            }
            _ => None,
        }
    }
}
