//! Which goroutines are the runtime's own (`isSystemGoroutine`, runtime/traceback.go).

use crate::state::State;

/// Functions of the runtime that run user goroutines.
const USER: [&str; 3] = ["runtime.main", "runtime.corostart", "runtime.handleAsyncEvent"];

/// Goroutines that are the runtime's own except while they run finalizers or cleanups; up to
/// Go 1.24 the first name, later the others.
const CALLERS: [&str; 3] = ["runtime.runfinq", "runtime.runFinalizers", "runtime.runCleanups"];

/// What those wait for when they have nothing to run. The runtime keeps flags for this;
/// where they are is not known in stripped executables, and what the goroutine does says it.
const NOTHING_TO_RUN: [&str; 2] = ["finalizer wait", "cleanup wait"];

/// Whether a goroutine started at function `start` is one of the runtime's own.
pub(crate) fn is_system(start: &str, state: State, reason: Option<&str>) -> bool {
    if USER.contains(&start) {
        return false;
    }
    if CALLERS.contains(&start) {
        return state != State::Waiting || reason.is_none_or(|r| NOTHING_TO_RUN.contains(&r));
    }
    start.starts_with("runtime.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finalizers_that_block_are_user_code() {
        let is = |start, reason| is_system(start, State::Waiting, Some(reason));
        assert!(is("runtime.runfinq", "finalizer wait"));
        assert!(!is("runtime.runfinq", "chan receive"));
        assert!(is("runtime.runCleanups", "cleanup wait"));
        assert!(is("runtime.bgsweep", "GC sweep wait"));
        assert!(!is("runtime.main", "select"));
        assert!(!is("main.main.func1", "select"));
    }
}
