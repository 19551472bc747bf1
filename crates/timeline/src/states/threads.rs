//! Which goroutine a thread runs, where the runtime does not say: whose doing a change is.

use super::chain::Step;
use super::event::Who;
use super::state::State;
use crate::hash::KeyHash;
use std::collections::HashMap;

/// Threads that are remembered.
const MAX_THREADS: usize = 1 << 16;

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    /// The goroutine that runs on it, 0 when none does.
    on: u64,
    /// Who left it last to a coroutine, or may have by its end.
    left: u64,
}

/// The threads of all processes.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    known: HashMap<(u32, u32), Thread, KeyHash>,
}

impl Threads {
    /// Takes note of a change, and says whose doing it is; 0 for no goroutine's. `switches`: the
    /// wait that it begins or ends is one of coroutines for each other.
    ///
    /// When a coroutine is switched to, the thread has nobody, or already the one that is
    /// switched to, but it had another until just before (`coroswitch_m`, runtime/coro.go). And
    /// the timers of a synctest bubble fire while its first goroutine runs, which the runtime
    /// does not say then (`synctestRun`, runtime/synctest.go).
    pub fn pass(&mut self, who: Who, step: &Step, switches: bool) -> u64 {
        let key = (who.pid, step.tid);
        if self.known.len() >= MAX_THREADS && !self.known.contains_key(&key) {
            return step.by;
        }
        let thread = self.known.entry(key).or_default();
        let is_switch = switches && (step.old, step.new) == (State::WAITING, State::RUNNING);
        let by = match step.by {
            by if is_switch && (by == 0 || by == who.goid) => thread.left,
            0 => thread.on,
            by => by,
        };
        if step.old == State::RUNNING {
            thread.on = 0;
            if step.new == State::DEAD || (switches && step.new == State::WAITING) {
                thread.left = who.goid;
            }
        }
        if step.new == State::RUNNING {
            thread.on = who.goid;
        }
        by
    }

    /// Forgets the threads of a process.
    pub fn forget(&mut self, pid: u32) {
        self.known.retain(|(owner, _), _| *owner != pid);
    }
}
