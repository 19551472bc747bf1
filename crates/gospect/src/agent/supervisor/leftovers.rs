//! What an agent that was killed has left in processes.

use super::Supervisor;
use crate::agent::target::Stage;
use crate::sink;
use capture::Error;
use capture_trampoline::{has_leftovers, is_carrier, remove_leftovers};
use std::collections::BTreeSet;

impl Supervisor {
    /// Takes it out of processes that this agent leaves alone. For those that it watches [`clean`] does so.
    pub(super) fn sweep(&self, pids: &BTreeSet<u32>) {
        for &pid in pids.iter().filter(|pid| !self.targets.contains_key(pid)) {
            if !is_carrier(pid) {
                continue;
            }
            match remove_leftovers(pid) {
                // Of a gospect that lives, or out of our reach: then it stays, and drops.
                Ok(_) | Err(Error::Permission { .. }) => {}
                Err(error) if self.args.quiet => drop(error),
                Err(error) => {
                    let error = anyhow::Error::from(error);
                    sink::say(format_args!("{pid}: code of gospect stays in it: {error:#}"));
                }
            }
        }
    }

    /// A process is not watched, for this reason, and carries nothing of ours.
    pub(super) fn leave(&mut self, pid: u32, reason: String) {
        let Some(target) = self.targets.get_mut(&pid) else { return };
        if let Err(error) = clean(pid) {
            target.notes.push(error);
        }
        target.stage = Stage::Off(reason);
    }
}

/// Takes out of a process what a gospect has left there that was killed, maybe this very agent before.
///
/// # Errors
/// Why it stays, for people: a gospect that lives owns it, or it may not be traced.
pub(super) fn clean(pid: u32) -> Result<(), String> {
    if !has_leftovers(pid) {
        return Ok(());
    }
    let told = |error| format!("code of gospect is in it: {:#}", anyhow::Error::from(error));
    remove_leftovers(pid).map(drop).map_err(told)
}
