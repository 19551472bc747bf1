//! Which processes there are, and which begin.

use agent::status::DiscoveryStatus;
use process::ExecEvents;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// How often all processes are looked at when the kernel tells of new programs.
const RARELY: Duration = Duration::from_secs(30);
/// How often when it does not.
const OFTEN: Duration = Duration::from_secs(1);

/// Finds processes.
pub struct Discovery {
    events: Result<ExecEvents, String>,
    last: Option<Instant>,
    count: u64,
}

/// What is to be looked at.
pub enum Look {
    /// These processes have begun to run a program.
    At(BTreeSet<u32>),
    /// All there are.
    AtAll(BTreeSet<u32>),
}

impl Discovery {
    /// By the kernel's events, where it tells them.
    pub fn start() -> Self {
        // For tests, and for kernels that say yes and tell nothing.
        let forced = std::env::var("GOSPECT_FORCE").unwrap_or_default();
        let events = match forced.split(',').any(|word| word == "no-exec-events") {
            true => Err("GOSPECT_FORCE says so".to_owned()),
            false => ExecEvents::listen().map_err(|error| error.to_string()),
        };
        Self { events, last: None, count: 0 }
    }

    /// Waits until there is something to look at, or `also` is readable, at most `timeout`.
    pub fn wait(own: Option<&Self>, also: Option<BorrowedFd<'_>>, timeout: Duration) {
        let timeout = Timespec::try_from(timeout).ok();
        let events = own.and_then(|own| own.events.as_ref().ok()).map(AsFd::as_fd);
        let fds = events.into_iter().chain(also);
        let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        _ = poll(&mut fds, timeout.as_ref());
    }

    /// What is to be looked at now.
    pub fn look(&mut self) -> Look {
        let execs = self.events.as_ref().map(ExecEvents::take).unwrap_or_default();
        self.count += execs.pids.len() as u64;
        let pause = if self.events.is_ok() { RARELY } else { OFTEN };
        let is_due = self.last.is_none_or(|last| last.elapsed() >= pause);
        if !is_due && !execs.overflowed {
            return Look::At(execs.pids);
        }
        self.last = Some(Instant::now());
        Look::AtAll(all())
    }

    /// All processes are looked at next time.
    pub fn restart(&mut self) {
        self.last = None;
    }

    /// How it is done.
    pub fn status(&self) -> DiscoveryStatus {
        let (way, reason) = match &self.events {
            Ok(_) => ("exec_events", None),
            Err(why) => ("polling", Some(why.clone())),
        };
        DiscoveryStatus { way: way.to_owned(), reason, events: self.count }
    }
}

/// Ids of all processes but ours.
fn all() -> BTreeSet<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| pid != std::process::id()).collect()
}
