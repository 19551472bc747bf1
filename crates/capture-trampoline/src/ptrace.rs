//! Stopping a process, all of it, and acting in its name while it stands.
//!
//! A trace belongs to the thread that started it: everything here is to be used by one thread,
//! and the types are not `Send`. A process is traced only while something is done to it; in
//! between it runs untraced, and debuggers may come and go.

mod access;
mod borrowed;
mod launch;
mod relatives;
mod start_frame;
mod stopped;
mod sys;
mod thread;

pub(crate) use access::{check as check_access, shared_memory};
pub(crate) use borrowed::{Borrowed, Called, find_syscall};
pub(crate) use launch::AboutToExec;
pub(crate) use relatives::find as memory_relative;
pub(crate) use stopped::Stopped;
pub(crate) use sys::Registers;

use crate::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Nice value of a tracing thread.
const PRIORITY: i32 = -15;

/// How long the end of a thread may take.
const END_LIMIT: Duration = Duration::from_secs(2);

/// Does `work` in a thread of its own. The kernel ties a trace to the tracing thread, and what it
/// still traces when it ends is let go, also what could not be stopped.
pub(crate) fn on_own_thread<T: Send>(
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    let tid = AtomicU32::new(0);
    let work = || {
        tid.store(rustix::thread::gettid().as_raw_nonzero().get() as u32, Ordering::Relaxed);
        // While the target stands, nobody should be waited for who is not needed. Where this is not
        // allowed it takes its turn; the thread ends soon either way.
        let _ = rustix::process::setpriority_process(None, PRIORITY);
        work()
    };
    let joined = std::thread::scope(|scope| scope.spawn(work).join());
    wait_for_end(tid.into_inner());
    match joined {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// A thread can be joined a moment before the kernel lets go what it traced (kernel/exit.c,
/// do_exit: exit_mm before exit_notify); until then nobody else can trace it. It has when the thread is not
/// listed any more.
fn wait_for_end(tid: u32) {
    let listed = format!("/proc/self/task/{tid}");
    let deadline = Instant::now() + END_LIMIT;
    while std::fs::exists(&listed).unwrap_or(false) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_micros(50));
    }
}

#[cfg(test)]
mod tests;
