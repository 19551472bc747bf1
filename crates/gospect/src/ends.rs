//! How the processes of `--exe` end. They are nobody's children here, and named by no option.

use process::Process;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;

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
