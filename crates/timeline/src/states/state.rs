//! What a goroutine does, and what that counts as.

/// `_Gscan`: the garbage collector holds the stack (`runtime/runtime2.go`).
const SCAN: u32 = 0x1000;

/// A goroutine's status (`runtime/runtime2.go`, `_Gidle` and following) without the scan bit. The
/// numbers are the same in Go 1.19 to 1.27; 10 and 11 are new in Go 1.26.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State(pub u32);

/// What time in a state is added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On a thread, in Go code.
    Running,
    /// On a run queue.
    Runnable,
    /// Blocked in the runtime.
    Waiting,
    /// In a system call or C.
    Syscall,
    /// A moment of the runtime's own: its stack is moved, or the collector stopped it.
    Other,
    /// There is no goroutine.
    None,
}

impl State {
    /// On a run queue.
    pub const RUNNABLE: Self = Self(1);
    /// Executing Go code.
    pub const RUNNING: Self = Self(2);
    /// In a system call or C.
    pub const SYSCALL: Self = Self(3);
    /// Blocked in the runtime.
    pub const WAITING: Self = Self(4);
    /// Not in use.
    pub const DEAD: Self = Self(6);

    /// Names by number; empty where no version has the state.
    const NAMES: [&str; 12] = [
        "idle",
        "runnable",
        "running",
        "syscall",
        "waiting",
        "",
        "dead",
        "",
        "copystack",
        "preempted",
        "leaked",
        "deadextra",
    ];

    /// From `g.atomicstatus`.
    pub fn of(status: u32) -> Self {
        Self(status & !SCAN)
    }

    /// By its lower-case name.
    pub fn by_name(name: &str) -> Option<Self> {
        let number = Self::NAMES.iter().position(|known| !name.is_empty() && *known == name)?;
        u32::try_from(number).ok().map(Self)
    }

    /// All names there are.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(|name| !name.is_empty())
    }

    /// Lower-case name; `unknown` for a number that no known version has.
    pub fn name(self) -> &'static str {
        let name = usize::try_from(self.0).ok().and_then(|number| Self::NAMES.get(number));
        name.copied().filter(|name| !name.is_empty()).unwrap_or("unknown")
    }

    /// What its time counts as.
    pub fn kind(self) -> Kind {
        match self.0 {
            1 => Kind::Runnable,
            2 => Kind::Running,
            3 => Kind::Syscall,
            // A leaked goroutine waits for what never happens.
            4 | 10 => Kind::Waiting,
            0 | 6 | 11 => Kind::None,
            _ => Kind::Other,
        }
    }

    /// Whether there is a goroutine.
    pub fn is_alive(self) -> bool {
        self.kind() != Kind::None
    }
}

/// Wait reasons under which the runtime lets a goroutine look blocked although its thread works
/// for it: it stops the world, or helps the collector (`isWaitingForSuspendG`,
/// runtime/runtime2.go, Go 1.24; the same reasons in older versions).
const PSEUDO: [&str; 10] = [
    "GC assist marking",
    "GC mark termination",
    "GC worker (active)",
    "flushing proc caches",
    "garbage collection",
    "garbage collection scan",
    "page trace flush",
    "stopping the world",
    "trace goroutine status",
    "trace proc status",
];

/// Waits that end in running without a stay on a run queue: a coroutine is switched to.
const SWITCHED: &str = "coroutine";

/// Whether a goroutine that waits for this runs in truth.
pub(crate) fn is_pseudo(reason: &str) -> bool {
    PSEUDO.contains(&reason)
}

/// Whether this wait may end in running.
pub(crate) fn is_switched(reason: &str) -> bool {
    reason == SWITCHED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_agree() {
        for number in 0..16 {
            let state = State::of(number | SCAN);
            assert_eq!(state, State(number));
            let found = State::by_name(state.name());
            assert_eq!(found.is_some(), state.name() != "unknown", "{number}");
            assert!(found.is_none_or(|found| found == state));
        }
        assert_eq!(State::by_name(""), None);
        assert_eq!(State::names().count(), 10);
    }
}
