//! What a goroutine does.

/// A goroutine's status (`runtime/runtime2.go`, `_Gidle` and following), the scan bit off.
/// The numbers are the same in Go 1.19 to 1.27; 10 and 11 are new in Go 1.26.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Just allocated.
    Idle,
    /// On a run queue.
    Runnable,
    /// Executing Go code.
    Running,
    /// In a system call or C.
    Syscall,
    /// Blocked in the runtime: the wait reason says why.
    Waiting,
    /// Not in use.
    Dead,
    /// Its stack is being moved.
    CopyStack,
    /// Stopped by a preemption request of the garbage collector.
    Preempted,
    /// Waits for what can never happen (found by the collector, Go 1.26).
    Leaked,
    /// Reserved for a C thread (Go 1.26).
    DeadExtra,
    /// A number that no known version has.
    Unknown(u32),
}

/// `_Gscan`: the garbage collector holds the stack.
const SCAN: u32 = 0x1000;

impl State {
    /// From `g.atomicstatus`.
    pub fn of(status: u32) -> Self {
        match status & !SCAN {
            0 => Self::Idle,
            1 => Self::Runnable,
            2 => Self::Running,
            3 => Self::Syscall,
            4 => Self::Waiting,
            6 => Self::Dead,
            8 => Self::CopyStack,
            9 => Self::Preempted,
            10 => Self::Leaked,
            11 => Self::DeadExtra,
            other => Self::Unknown(other),
        }
    }

    /// Lower-case name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Runnable => "runnable",
            Self::Running => "running",
            Self::Syscall => "syscall",
            Self::Waiting => "waiting",
            Self::Dead => "dead",
            Self::CopyStack => "copystack",
            Self::Preempted => "preempted",
            Self::Leaked => "leaked",
            Self::DeadExtra => "deadextra",
            Self::Unknown(_) => "unknown",
        }
    }

    /// All names there are.
    pub const NAMES: [&'static str; 11] = [
        "idle",
        "runnable",
        "running",
        "syscall",
        "waiting",
        "dead",
        "copystack",
        "preempted",
        "leaked",
        "deadextra",
        "unknown",
    ];

    /// Whether there is a goroutine: descriptors of ended ones stay in the list.
    pub(crate) fn is_alive(self) -> bool {
        !matches!(self, Self::Dead | Self::DeadExtra)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scan_bit_changes_nothing() {
        for status in 0..16 {
            assert_eq!(State::of(status), State::of(status | SCAN));
            assert!(State::NAMES.contains(&State::of(status).name()));
        }
        assert_eq!(State::of(5), State::Unknown(5));
    }
}
