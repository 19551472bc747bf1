//! One traced thread.

use super::sys::{self, Registers, Waited};
use crate::Error;
use std::io;
use std::time::{Duration, Instant};

/// Longest pause between two looks at a thread that should stop.
const MAX_PAUSE: Duration = Duration::from_millis(1);

/// How often a thread is asked that the kernel does not let us trace, [`MAX_PAUSE`] apart.
const SEIZE_ATTEMPTS: u32 = 5;

/// A thread that we trace.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) state: State,
}

/// What we know a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Running,
    /// Stands where a detach resumes it as if nothing had been.
    Stopped,
    /// Stands after an execve that we did not wait for.
    Execed,
    Gone,
}

impl Thread {
    /// Starts to trace `tid`; `Ok(None)` when it is gone, a zombie, or runs no code of the program.
    pub(super) fn seize(pid: u32, tid: u32) -> Result<Option<Self>, Error> {
        let mut attempt = 1;
        loop {
            match sys::seize(tid) {
                Ok(()) => return Ok(Some(Self { pid, tid, state: State::Running })),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
                Err(_) if super::access::is_zombie(pid, tid) => return Ok(None),
                Err(_) if super::access::is_worker(pid, tid) => return Ok(None),
                // The leader, dying in an execve, is refused as the dead are. When its state is
                // looked at, the thread that called execve may have its place, and is alive.
                Err(_) if attempt < SEIZE_ATTEMPTS => std::thread::sleep(MAX_PAUSE),
                Err(error) => return Err(super::access::why_refused(pid, tid, error)),
            }
            attempt += 1;
        }
    }

    /// Asks it to stop.
    pub(super) fn interrupt(&mut self) -> Result<(), Error> {
        match sys::interrupt(self.tid) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                self.state = State::Gone;
                Ok(())
            }
            result => result.map_err(|e| Error::io(format!("stop thread {}", self.tid), e)),
        }
    }

    /// Looks once whether an interrupted thread has come to a stop; true when there is nothing
    /// more to wait for. A signal on its way is delivered first: the tracer may die in any
    /// stop, and in that one the kernel would deliver it as well.
    pub(super) fn look(&mut self) -> Result<bool, Error> {
        if self.state != State::Running {
            return Ok(true);
        }
        match self.event()? {
            Waited::Running => return Ok(false),
            Waited::Interrupted | Waited::GroupStop => self.state = State::Stopped,
            Waited::Exec => self.state = State::Execed,
            Waited::Gone => self.state = State::Gone,
            Waited::Syscall => self.go_on(0)?,
            Waited::Signal(signal) => self.go_on(signal)?,
        }
        Ok(self.state != State::Running)
    }

    /// What happened since the last look.
    fn event(&self) -> Result<Waited, Error> {
        let is_leader = self.tid == self.pid;
        let event = sys::wait(self.tid, !is_leader)
            .map_err(|e| Error::io(format!("wait for thread {}", self.tid), e))?;
        if event == Waited::Running && is_leader && super::access::is_zombie(self.pid, self.tid) {
            return Ok(Waited::Gone);
        }
        Ok(event)
    }

    fn go_on(&mut self, signal: i32) -> Result<(), Error> {
        match sys::resume(self.tid, signal) {
            // Killed meanwhile: the next wait says so.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            result => result.map_err(|e| Error::io(format!("resume thread {}", self.tid), e)),
        }
    }

    /// Waits for the next event of the thread, whatever it is.
    pub(super) fn wait_event(&self, limit: Duration) -> Result<Waited, Error> {
        let deadline = Instant::now() + limit;
        let mut pause = Pause::default();
        loop {
            let event = self.event()?;
            if event != Waited::Running {
                return Ok(event);
            }
            if Instant::now() >= deadline {
                return Err(super::access::unstoppable(self.pid, self.tid, limit));
            }
            pause.rest();
        }
    }

    /// Thread id.
    pub(crate) fn tid(&self) -> u32 {
        self.tid
    }

    /// Whether it stands.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state == State::Stopped
    }

    /// Its registers; `None` when it was killed meanwhile.
    pub(crate) fn registers(&self) -> Result<Option<Registers>, Error> {
        unless_killed(sys::registers(self.tid))
            .map_err(|e| Error::io(format!("read registers of thread {}", self.tid), e))
    }

    /// Sets its registers.
    pub(crate) fn set_registers(&self, registers: &Registers) -> Result<(), Error> {
        unless_killed(sys::set_registers(self.tid, registers))
            .map(|_| ())
            .map_err(|e| Error::io(format!("set registers of thread {}", self.tid), e))
    }

    /// Lets it go, untraced. One that has not stopped can't be let go: the end of the tracing
    /// thread does it.
    pub(super) fn detach(&mut self) {
        if matches!(self.state, State::Stopped | State::Execed) {
            // It fails when the thread was killed, and then there is nothing to let go.
            let _ = sys::detach(self.tid, 0);
            self.state = State::Gone;
        }
    }
}

fn unless_killed<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        other => other.map(Some),
    }
}

/// Pauses that grow from nothing to [`MAX_PAUSE`]: most threads stop within microseconds.
#[derive(Debug, Default)]
pub(super) struct Pause {
    turns: u32,
}

impl Pause {
    pub(super) fn rest(&mut self) {
        self.turns = self.turns.saturating_add(1);
        if self.turns < 4 {
            std::thread::yield_now();
        } else {
            let pause = Duration::from_micros(10 << (self.turns / 4).min(7));
            std::thread::sleep(pause.min(MAX_PAUSE));
        }
    }
}
