//! Patches that rest for a while: taken out without the code that they lead to, and put back.
//!
//! Threads that are in that code go on there and come back into the text behind the patch, as after a removal.
//! To put a patch back is to put it in for the first time, but for the code, which is there.

use super::scan::Wanted;
use super::stop::while_stopped;
use super::target::{ROUNDS, STALLED, Work};
use super::text::{self, Direction, TextPatch};
use crate::Error;
use crate::memory::TargetMemory;
use process::Process;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// What became of patches that were to be put back.
pub(super) struct Put {
    /// In, or in an unknown state when there is an error.
    pub(super) done: Vec<TextPatch>,
    /// Out: something may still return into their bytes.
    pub(super) waiting: Vec<TextPatch>,
    /// Whether none is waiting.
    pub(super) result: Result<bool, Error>,
}

/// Takes patches out, sorted by address. False when somebody's bytes stand over one of them.
pub(super) fn take_out(
    memory: &TargetMemory,
    patches: &[TextPatch],
    stops: &mut Vec<Duration>,
) -> Result<bool, Error> {
    if patches.is_empty() {
        return Ok(true);
    }
    let (written, stop) =
        while_stopped(memory, |_| text::write(memory, patches.iter(), Direction::Out))?;
    stops.push(stop);
    Ok(written.foreign == 0)
}

/// Puts patches back, in as few stops as there can be.
pub(super) fn put_back(
    process: &Process,
    memory: &TargetMemory,
    mut waiting: Vec<TextPatch>,
    stops: &mut Vec<Duration>,
) -> Put {
    waiting.sort_unstable_by_key(|patch| patch.start);
    let (mut done, mut stalled) = (Vec::new(), 0);
    for round in 0..ROUNDS {
        if waiting.is_empty() || stalled == STALLED {
            break;
        }
        std::thread::sleep(Duration::from_millis(5) * round as u32);
        let work = Work {
            process,
            memory,
            hook: None,
            patches: &waiting,
            wanted: Wanted::inside(waiting.iter()),
            // A thread in the midst of one is waited for.
            relocated: &|_| None,
            has_begun: AtomicBool::new(false),
        };
        let (busy, stop) = match while_stopped(memory, |stopped| work.patch(stopped)) {
            Ok(((busy, _), stop)) => (busy, stop),
            Err(error) => {
                if work.has_begun.into_inner() {
                    done.append(&mut waiting);
                }
                return Put { done, waiting, result: Err(error) };
            }
        };
        stops.push(stop);
        let (later, now): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|patch| busy.contains(&patch.function));
        stalled = if now.is_empty() { stalled + 1 } else { 0 };
        done.extend(now);
        waiting = later;
    }
    let result = Ok(waiting.is_empty());
    Put { done, waiting, result }
}
