//! A process all of whose threads stand.

use super::thread::{Pause, State, Thread};
use super::{access, sys};
use crate::Error;
use std::collections::BTreeSet;
use std::fs;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

/// Listings of threads before we call a process one that makes threads faster than we stop them.
const MAX_LISTINGS: usize = 64;

/// A stopped process. Dropping it lets every thread go on, untraced.
#[derive(Debug)]
pub(crate) struct Stopped {
    pid: u32,
    threads: Vec<Thread>,
    since: Instant,
    /// The kernel ties a trace to the tracing thread.
    not_send: PhantomData<*const ()>,
}

impl Stopped {
    /// Stops every thread of `pid`. All are running again when it fails.
    ///
    /// Threads born meanwhile are found by listing again: once all known threads stand and no other
    /// is listed, nobody is left to make one.
    pub(crate) fn stop(pid: u32, limit: Duration) -> Result<Self, Error> {
        let since = Instant::now();
        let deadline = since + limit;
        let mut stopped = Self { pid, threads: Vec::new(), since, not_send: PhantomData };
        let mut known = BTreeSet::new();
        for _ in 0..MAX_LISTINGS {
            let before = stopped.threads.len();
            for tid in list_threads(pid)? {
                if known.insert(tid) {
                    stopped.add(tid)?;
                }
            }
            if stopped.threads.len() == before {
                return stopped.checked();
            }
            stopped.settle(deadline, limit)?;
        }
        Err(Error::Unsuitable { pid, reason: "it makes threads faster than they stop".to_owned() })
    }

    /// Takes over a thread that stands after its execve, the only one of its process.
    pub(super) fn after_exec(thread: Thread) -> Self {
        Self {
            pid: thread.pid,
            threads: vec![thread],
            since: Instant::now(),
            not_send: PhantomData,
        }
    }

    fn add(&mut self, tid: u32) -> Result<(), Error> {
        if let Some(mut thread) = Thread::seize(self.pid, tid)? {
            thread.interrupt()?;
            self.threads.push(thread);
        }
        Ok(())
    }

    /// Waits until every thread stands or is gone.
    fn settle(&mut self, deadline: Instant, limit: Duration) -> Result<(), Error> {
        let mut pause = Pause::default();
        loop {
            let mut waiting = None;
            for thread in &mut self.threads {
                if !thread.look()? {
                    waiting = Some(thread.tid);
                }
            }
            let Some(tid) = waiting else { return Ok(()) };
            if Instant::now() >= deadline {
                return Err(access::unstoppable(self.pid, tid, limit));
            }
            pause.rest();
        }
    }

    fn checked(self) -> Result<Self, Error> {
        if self.threads.iter().any(|thread| thread.state == State::Execed) {
            return Err(Error::Replaced(self.pid));
        }
        if !self.threads.iter().any(Thread::is_stopped) {
            return Err(Error::Gone(self.pid));
        }
        Ok(self)
    }

    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The threads that stand.
    pub(crate) fn threads(&self) -> impl Iterator<Item = &Thread> {
        self.threads.iter().filter(|t| matches!(t.state, State::Stopped | State::Execed))
    }

    /// The same, to be changed.
    pub(super) fn threads_mut(&mut self) -> impl Iterator<Item = &mut Thread> {
        self.threads.iter_mut().filter(|t| matches!(t.state, State::Stopped | State::Execed))
    }

    /// Lifts seccomp for one thread as long as it is traced; says whether there was something to
    /// lift.
    pub(super) fn suspend_seccomp(&self, tid: u32) -> Result<bool, Error> {
        if !access::has_seccomp(self.pid, tid) {
            return Ok(false);
        }
        sys::suspend_seccomp(tid).map_err(|error| access::seccomp_stays(self.pid, &error))?;
        Ok(true)
    }

    /// How long it stands so far.
    pub(crate) fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// Lets every thread go on, untraced; gives how long the process stood.
    pub(crate) fn resume(self) -> Duration {
        let since = self.since;
        drop(self);
        since.elapsed()
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for thread in &mut self.threads {
            thread.detach();
        }
    }
}

/// Ids of the threads of `pid`; empty when it is gone.
fn list_threads(pid: u32) -> Result<Vec<u32>, Error> {
    let entries = match fs::read_dir(format!("/proc/{pid}/task")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(Error::Gone(pid)),
        Err(error) => return Err(Error::io(format!("list the threads of process {pid}"), error)),
    };
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}
