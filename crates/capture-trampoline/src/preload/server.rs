//! Listening, for whoever comes and not for too many at a time.

use super::Agent;
use super::conversation::{End, Line, deadline, speak};
use super::peer::{Credentials, Peer};
use crate::Error;
use crate::clock::{Clock, why_unusable};
use process::FileIdentity;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with,
};
use std::collections::HashMap;
use std::fs::{DirBuilder, Permissions};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Programs that may wait to be heard; more of them try again for a while.
const BACKLOG: i32 = 1024;

/// How and where to listen.
#[derive(Clone, Debug)]
pub struct Options {
    /// The socket. Its directory is made if there is none, for its owner alone to write in.
    pub path: PathBuf,
    /// Permissions of the socket: who may write to it may ask.
    pub mode: u32,
    /// Programs that are spoken with at a time; the others wait. A quarter of the places is root's.
    pub connections: usize,
    /// Those of them that may be one user's, who is not root: when there are more, the latest are sent
    /// away.
    pub per_user: usize,
    /// How long one may take.
    pub limit: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            path: PathBuf::from(handover::SOCKET),
            mode: 0o666,
            connections: 128,
            per_user: 16,
            limit: Duration::from_secs(1),
        }
    }
}

/// How conversations have ended so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Programs that have their code.
    pub injected: u64,
    /// Programs that were to get none.
    pub declined: u64,
    /// Programs that were to get some, and have none.
    pub failed: u64,
    /// Whoever said nothing, or nonsense.
    pub nonsense: u64,
    /// Whoever came while their user had as many connections as one may have, or while other users than
    /// root had all that are not root's.
    pub refused: u64,
}

/// Listens until it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
    /// Which file that was.
    identity: Option<FileIdentity>,
}

struct Shared {
    agent: Arc<dyn Agent>,
    options: Options,
    listener: OwnedFd,
    /// Readable when it is to end.
    wake: OwnedFd,
    is_ended: AtomicBool,
    clock: Mutex<Clock>,
    /// Conversations by user.
    open: Mutex<HashMap<u32, usize>>,
    counts: [AtomicU64; 5],
}

impl Server {
    /// Begins to listen.
    ///
    /// Errors: somebody listens there already, the place cannot be used, or the time stamp counter tells no
    /// time.
    pub fn start(options: Options, agent: Arc<dyn Agent>) -> Result<Self, Error> {
        if let Some(have) = why_unusable() {
            return Err(Error::io("serve preloaded programs", std::io::Error::other(have)));
        }
        let listener = listen_at(&options)?;
        let identity = identity(&options.path);
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = eventfd(0, flags).map_err(|e| Error::io("make an event", e))?;
        let path = options.path.clone();
        let shared = Arc::new(Shared {
            agent,
            options,
            listener,
            wake,
            is_ended: AtomicBool::new(false),
            clock: Mutex::new(Clock::new()),
            open: Mutex::default(),
            counts: Default::default(),
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("preload".to_owned())
            .spawn(move || accept_all(&own))
            .map_err(|e| Error::io("start a thread", e))?;
        Ok(Self { shared, thread: Some(thread), path, identity })
    }

    /// How conversations have ended so far.
    pub fn counts(&self) -> Counts {
        let [injected, declined, failed, nonsense, refused] =
            self.shared.counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        Counts { injected, declined, failed, nonsense, refused }
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_ended.store(true, Ordering::Relaxed);
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // Somebody may have taken the name away, and another agent it since.
        if self.identity.is_some() && self.identity == identity(&self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<FileIdentity> {
    path.symlink_metadata().ok().map(|meta| FileIdentity::from(&meta))
}

/// Permissions of a directory that others than its owner may write to.
const WRITABLE_BY_OTHERS: u32 = 0o022;

fn listen_at(options: &Options) -> Result<OwnedFd, Error> {
    let path = &options.path;
    let failed = |e: std::io::Error| Error::io(format!("listen at {}", path.display()), e);
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(failed)?;
    check_directory(directory).map_err(failed)?;
    let address = SocketAddrUnix::new(path).map_err(|e| failed(e.into()))?;
    if path.symlink_metadata().is_ok_and(|meta| meta.file_type().is_socket()) {
        // A name that an earlier agent left. A living one answers, or is too busy to; what somebody else listens
        // at in another way is not ours to take.
        let probe = socket().map_err(failed)?;
        if connect(&probe, &address) != Err(Errno::CONNREFUSED) {
            return Err(failed(std::io::ErrorKind::AddrInUse.into()));
        }
        std::fs::remove_file(path).map_err(failed)?;
    }
    let listener = socket().map_err(failed)?;
    bind(&listener, &address).map_err(|e| failed(e.into()))?;
    allow(path, options.mode).map_err(failed)?;
    listen(&listener, BACKLOG).map_err(|e| failed(e.into()))?;
    Ok(listener)
}

/// Refuses a directory in which others could put something in the socket's place. Programs would not trust
/// it either (`docs/preload.md`).
fn check_directory(directory: &Path) -> std::io::Result<()> {
    let meta = std::fs::metadata(directory)?;
    let is_ours = meta.uid() == 0 || meta.uid() == rustix::process::geteuid().as_raw();
    if meta.is_dir() && is_ours && meta.mode() & WRITABLE_BY_OTHERS == 0 {
        return Ok(());
    }
    Err(std::io::Error::other(format!(
        "{} is no directory that only root or the agent's user may write to (chown, chmod go-w)",
        directory.display()
    )))
}

/// Sets the permissions of the socket there, and of nothing that a link leads to.
fn allow(path: &Path, mode: u32) -> std::io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = open(path, flags, Mode::empty())?;
    let own = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    if !std::fs::metadata(&own)?.file_type().is_socket() {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    std::fs::set_permissions(own, Permissions::from_mode(mode))
}

fn socket() -> Result<OwnedFd, std::io::Error> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Takes who comes, each on a thread of their own, while there are not too many.
fn accept_all(shared: &Arc<Shared>) {
    while !shared.is_ended.load(Ordering::Relaxed) {
        if shared.open_count() >= shared.options.connections {
            // The others wait in the kernel's queue, and not here.
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let mut fds = [
            PollFd::new(&shared.listener, PollFlags::IN),
            PollFd::new(&shared.wake, PollFlags::IN),
        ];
        if poll(&mut fds, None).is_err() {
            continue;
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match accept_with(&shared.listener, flags) {
            Ok(socket) => welcome(shared, socket),
            // No descriptors left, for a moment.
            Err(Errno::MFILE | Errno::NFILE) => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(_) => {}
        }
    }
}

fn welcome(shared: &Arc<Shared>, socket: OwnedFd) {
    let Ok(who) = Credentials::of(&socket) else {
        shared.count(End::Nonsense);
        return;
    };
    // Before anything is looked up: whoever is sent away costs no more than that.
    let Some(place) = Seat::take(shared, who.uid) else {
        shared.add(REFUSED);
        return;
    };
    let line = Line { socket, deadline: deadline(shared.options.limit) };
    let speaker = std::thread::Builder::new().name("preload".to_owned()).spawn(move || {
        let shared = &place.shared;
        let end = match Peer::of(&line.socket, who) {
            Ok(peer) => speak(&line, &*shared.agent, &shared.clock(), peer),
            Err(_) => End::Nonsense,
        };
        shared.count(end);
    });
    if speaker.is_err() {
        shared.add(REFUSED);
    }
}

const REFUSED: usize = 4;

impl Shared {
    fn count(&self, end: End) {
        self.add(match end {
            End::Injected => 0,
            End::Declined => 1,
            End::Failed => 2,
            End::Nonsense => 3,
        });
    }

    fn add(&self, index: usize) {
        if let Some(count) = self.counts.get(index) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A clock that was looked at now: each capture goes on with its own.
    fn clock(&self) -> Clock {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.refine();
        clock.clone()
    }

    /// Conversations now.
    fn open_count(&self) -> usize {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

/// One of the places for conversations.
struct Seat {
    shared: Arc<Shared>,
    uid: u32,
}

impl Seat {
    fn take(shared: &Arc<Shared>, uid: u32) -> Option<Self> {
        let Options { connections, per_user, .. } = shared.options;
        let mut open = shared.open.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = open.values().sum();
        let own = open.get(&uid).copied().unwrap_or_default();
        // Whoever has many user ids has not all places.
        if uid != 0 && (own >= per_user || all >= connections - connections / 4) {
            return None;
        }
        open.insert(uid, own + 1);
        Some(Self { shared: Arc::clone(shared), uid })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut open = self.shared.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = open.get_mut(&self.uid) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                open.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preload::{Injected, Planned, Program};

    struct Nobody;

    impl Agent for Nobody {
        fn decide(&self, _: &Program) -> Option<Arc<Planned>> {
            None
        }

        fn injected(&self, _: Injected) {}

        fn failed(&self, _: &Program, _: &str) {}
    }

    #[test]
    fn a_socket_that_another_agent_has_made_since_stays() {
        let name = format!("gospect-socket-{}", std::process::id());
        let path = std::env::temp_dir().join(name).join("agent.sock");
        let start = || {
            Server::start(Options { path: path.clone(), ..Options::default() }, Arc::new(Nobody))
        };
        let first = start().expect("a socket");
        assert!(start().is_err());
        std::fs::remove_file(&path).expect("the socket");
        let second = start().expect("another one");
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
        std::fs::remove_dir(path.parent().expect("a directory")).expect("the directory");
    }
}
