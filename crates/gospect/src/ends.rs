//! How processes end: a launched command, those attached to, and those of `--exe`, which are nobody's
//! children here and named by no option.

use output::Summary;
use process::{Held, Process};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

/// How long the end of a process takes, once it began, before it is taken for an execve.
const DYING: Duration = Duration::from_millis(200);

/// Tells in `summary` how the command and the processes attached to ended that did. `gone`: all of
/// them did.
pub fn tell(
    child: Option<&mut Held>,
    attached: &[Process],
    gone: bool,
    summary: &mut Summary,
) -> anyhow::Result<()> {
    if let Some(child) = child
        && let Some(status) = child.try_wait()?
    {
        summary.target_signal = status.signal();
        summary.target_exit = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    }
    for process in attached {
        // The capture hears of an end a moment before it is complete.
        if gone {
            process.wait_exit(DYING);
        }
        if let Some(signal) = process.exit_status().and_then(|status| status.signal()) {
            tell_signal(process.pid(), signal, summary);
        }
    }
    Ok(())
}

/// Tells that a process died by a signal.
pub fn tell_signal(pid: u32, signal: i32, summary: &mut Summary) {
    summary.target_signal = Some(signal);
    summary.notes.push(format!("process {pid} died by signal {signal}"));
}

/// Processes held open at once, and ended ones remembered: a descriptor each.
const MAX: usize = 256;

/// Processes as they come and go. Of more than [`MAX`] at once the later ones go unobserved.
#[derive(Debug, Default)]
pub struct Ends {
    open: BTreeMap<u32, Process>,
    ended: Vec<Process>,
}

impl Ends {
    /// A process was seen. One that is gone already, or is in the way of the bound, is left out.
    pub fn begin(&mut self, pid: u32) {
        if self.open.len() < MAX
            && !self.open.contains_key(&pid)
            && let Ok(process) = Process::open(pid)
        {
            self.open.insert(pid, process);
        }
    }

    /// It ended. How is asked for later, when the kernel has it.
    pub fn end(&mut self, pid: u32) {
        let process = self.open.remove(&pid);
        self.ended.extend(process.filter(|_| self.ended.len() < MAX));
    }

    /// Process ids and signals of those that died by one.
    pub fn signals(&self) -> impl Iterator<Item = (u32, i32)> {
        let signal = |process: &Process| Some((process.pid(), process.exit_status()?.signal()?));
        self.ended.iter().chain(self.open.values()).filter_map(signal)
    }
}
