//! Where programs with the preloaded library ask to be watched.
//!
//! The socket's threads ask the supervisor, which alone knows services and plans; a plan is made where there is none
//! yet. Whoever waits longer than [`PATIENCE`] is sent away, and gets what an attach can do.

use capture_trampoline::preload::{Agent, Injected, Options, Planned, Program, Server};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

/// How long a program may be kept waiting for its plan; it waits a second at the most.
const PATIENCE: Duration = Duration::from_millis(700);

/// What the socket's threads tell.
pub enum Visit {
    /// A program asks what it is to carry.
    Asks(Asking),
    /// One carries it.
    Carries(Box<Injected>),
    /// One that was to carry something does not.
    Failed {
        /// Which.
        pid: u32,
        /// Why.
        reason: String,
    },
}

/// A program that waits.
pub struct Asking {
    /// Its process.
    pub pid: u32,
    since: Instant,
    answer: SyncSender<Option<Arc<Planned>>>,
}

impl Asking {
    /// Whether it is still worth an answer.
    pub fn waits(&self) -> bool {
        self.since.elapsed() < PATIENCE
    }

    /// Says what it is to carry, or that it is nothing.
    pub fn answer(self, planned: Option<Arc<Planned>>) {
        // It may have gone.
        _ = self.answer.send(planned);
    }
}

/// The socket, and what its threads tell.
pub struct Door {
    server: Server,
    visits: Receiver<Visit>,
    /// Readable when somebody came.
    bell: Arc<OwnedFd>,
}

impl Door {
    /// Listens at `path`.
    ///
    /// Errors: as [`Server::start`], and that there are no descriptors left.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let (visits, taken) = channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let options = Options { path: path.to_owned(), ..Options::default() };
        let server = Server::start(options, Arc::new(Keeper { visits, bell: Arc::clone(&bell) }))?;
        Ok(Self { server, visits: taken, bell })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.server.path()
    }

    /// Who came since the last look; does not wait.
    pub fn visits(&self) -> Vec<Visit> {
        // First: who comes from here on rings again.
        _ = rustix::io::read(&self.bell, &mut [0; 8]);
        self.visits.try_iter().collect()
    }

    /// Programs that asked, that were served, and that got nothing.
    pub fn counts(&self) -> (u64, u64, u64) {
        let counts = self.server.counts();
        let without = counts.declined + counts.failed + counts.nonsense + counts.refused;
        (counts.injected + without, counts.injected, without)
    }
}

impl AsFd for Door {
    /// Readable when somebody came.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

struct Keeper {
    visits: Sender<Visit>,
    bell: Arc<OwnedFd>,
}

impl Keeper {
    /// `None` when the agent is about to end.
    fn tell(&self, visit: Visit) -> Option<()> {
        self.visits.send(visit).ok()?;
        _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        Some(())
    }
}

impl Agent for Keeper {
    fn decide(&self, program: &Program) -> Option<Arc<Planned>> {
        let (answer, answered) = sync_channel(1);
        let asking = Asking { pid: program.pid(), since: Instant::now(), answer };
        self.tell(Visit::Asks(asking))?;
        answered.recv_timeout(PATIENCE).ok().flatten()
    }

    fn injected(&self, injected: Injected) {
        _ = self.tell(Visit::Carries(Box::new(injected)));
    }

    fn failed(&self, program: &Program, reason: &str) {
        _ = self.tell(Visit::Failed { pid: program.pid(), reason: reason.to_owned() });
    }
}
