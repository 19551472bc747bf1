//! A program stopped before its first instruction.

use super::stopped::Stopped;
use super::sys::{self, Waited};
use super::thread::{State, Thread};
use crate::Error;
use std::time::{Duration, Instant};

/// A process that is about to become the program.
#[derive(Debug)]
pub(crate) struct AboutToExec {
    thread: Thread,
}

impl AboutToExec {
    /// Watches `pid`, which has one thread and runs on meanwhile.
    pub(crate) fn seize(pid: u32) -> Result<Self, Error> {
        Thread::seize(pid, pid)?.map(|thread| Self { thread }).ok_or(Error::Gone(pid))
    }

    /// Waits until it has become the program that `is_wanted` knows, and stops it before that one's
    /// first instruction (of the dynamic loader, where there is one). Others run on: the waiting
    /// child itself, when its own execve is not over yet, and wrappers.
    pub(crate) fn wait(
        mut self,
        limit: Duration,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Stopped, Error> {
        let (pid, tid) = (self.thread.pid, self.thread.tid);
        let deadline = Instant::now() + limit;
        let mut execed = false;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let continued = match self.thread.wait_event(left)? {
                Waited::Interrupted | Waited::GroupStop if execed => {
                    self.thread.state = State::Stopped;
                    return Ok(Stopped::after_exec(self.thread));
                }
                Waited::Exec if is_wanted() => {
                    // From an ordinary stop all else is as in a running program.
                    execed = true;
                    self.thread.interrupt()?;
                    sys::resume(tid, 0)
                }
                Waited::GroupStop => sys::listen(tid),
                Waited::Signal(signal) => sys::resume(tid, signal),
                Waited::Exec | Waited::Interrupted | Waited::Syscall | Waited::Running => {
                    sys::resume(tid, 0)
                }
                Waited::Gone => return Err(Error::Gone(pid)),
            };
            continued.map_err(|e| Error::io(format!("resume process {pid}"), e))?;
        }
    }
}
