//! Stopping a process, all of it, and acting in its name while it stands.
//!
//! A trace belongs to the thread that started it: everything here is to be used by one thread,
//! and the types are not `Send`. A process is traced only while something is done to it; in
//! between it runs untraced, and debuggers may come and go.

mod access;
mod borrowed;
mod launch;
mod start_frame;
mod stopped;
mod sys;
mod thread;

pub(crate) use access::check as check_access;
pub(crate) use borrowed::{Borrowed, Called, find_syscall};
pub(crate) use launch::AboutToExec;
pub(crate) use stopped::Stopped;
pub(crate) use sys::Registers;

use crate::Error;

/// Nice value of a tracing thread.
const PRIORITY: i32 = -15;

/// Does `work` in a thread of its own. The kernel ties a trace to the tracing thread, and what it
/// still traces when it ends is let go, also what could not be stopped.
pub(crate) fn on_own_thread<T: Send>(
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    let work = || {
        // While the target stands, nobody should be waited for who is not needed. Where this is not
        // allowed it takes its turn; the thread ends soon either way.
        let _ = rustix::process::setpriority_process(None, PRIORITY);
        work()
    };
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

#[cfg(test)]
mod tests;
