//! What is done to a process is done while it stands, all of it.

use crate::Error;
use crate::memory::TargetMemory;
use crate::ptrace::{self, Stopped, on_own_thread};
use crate::step;
use std::time::Duration;

/// How long one attempt to stop a process may take. Threads that wait for a vfork child are the
/// reason for more than one: all others stand meanwhile.
const STOP_LIMITS: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1600),
];

/// Between two attempts.
const STOP_PAUSE: Duration = Duration::from_millis(50);

/// Does `work` while every thread of the process stands and nobody else runs in its memory; gives
/// its result and how long that took.
///
/// What is known about the process is known about the memory that `memory` was opened on: when
/// the process has another one by now, nothing is done to it.
pub(super) fn while_stopped<T: Send>(
    memory: &TargetMemory,
    mut work: impl FnMut(&mut Stopped) -> Result<T, Error> + Send,
) -> Result<(T, Duration), Error> {
    let pid = memory.pid();
    let mut last = Error::Gone(pid);
    for limit in STOP_LIMITS {
        let work = &mut work;
        // Threads that did not stop in time are let go by the end of the tracing thread.
        let attempt = on_own_thread(move || {
            let mut stopped = match Stopped::stop(pid, limit) {
                Ok(stopped) => stopped,
                Err(error @ Error::Unstoppable { .. }) => return Ok(Err(error)),
                Err(error) => return Err(error),
            };
            step::at("stopped");
            if !memory.is_current() {
                return Err(memory.gone());
            }
            if let Some(other) = ptrace::memory_relative(pid) {
                return Ok(Err(ptrace::shared_memory(pid, other)));
            }
            let result = work(&mut stopped)?;
            Ok(Ok((result, stopped.resume())))
        })?;
        match attempt {
            Ok(done) => return Ok(done),
            Err(error) => last = error,
        }
        std::thread::sleep(STOP_PAUSE);
    }
    Err(last)
}
