//! A test that plays the agent, and programs that are started with the library.
#![allow(dead_code, reason = "each test binary uses its part")]

use crate::support::{Seen, Subject};
use capture_trampoline::preload::{Agent, Injected, Options, Planned, Program, Server};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::Running;

/// What an agent has been told.
pub enum Told {
    Injected(Box<Injected>),
    Failed(u32, String),
}

/// Gives the same to every program of one file, and nothing to others.
pub struct Player {
    planned: Option<Arc<Planned>>,
    /// File names of programs that were declined.
    pub declined: Mutex<Vec<String>>,
    told: Mutex<Sender<Told>>,
}

impl Agent for Player {
    fn decide(&self, program: &Program) -> Option<Arc<Planned>> {
        let planned = self.planned.as_ref()?;
        let other = binary::Executable::open(program.executable().clone());
        if other.is_ok_and(|other| other.build_id() == planned.executable().build_id()) {
            return Some(Arc::clone(planned));
        }
        self.declined.lock().unwrap().push(program.command_line().join(" "));
        None
    }

    fn injected(&self, injected: Injected) {
        let _ = self.told.lock().unwrap().send(Told::Injected(Box::new(injected)));
    }

    fn failed(&self, program: &Program, reason: &str) {
        let told = Told::Failed(program.pid(), reason.to_owned());
        let _ = self.told.lock().unwrap().send(told);
    }
}

/// An agent that listens in a directory of its own.
pub struct Stage {
    pub directory: Directory,
    player: Arc<Player>,
    pub server: Server,
    told: Receiver<Told>,
}

impl Stage {
    /// Serves the subject's programs, or declines all.
    pub fn new(subject: Option<&Subject>, ring_bytes: usize) -> Self {
        Self::at(Directory::new(), subject, ring_bytes)
    }

    /// The same in a given directory.
    pub fn at(directory: Directory, subject: Option<&Subject>, ring_bytes: usize) -> Self {
        let planned = subject.map(|subject| {
            let plan = Arc::new(subject.plan.clone());
            let executable = Arc::clone(&subject.executable);
            let planned = Planned::new(executable, plan, ring_bytes, BTreeSet::new()).unwrap();
            // On a loaded machine a program may not have the patience.
            planned.warm().unwrap();
            Arc::new(planned)
        });
        let (send, told) = channel();
        let player = Player { planned, declined: Mutex::default(), told: Mutex::new(send) };
        let player = Arc::new(player);
        let options = Options { path: directory.socket(), ..Options::default() };
        let server = Server::start(options, player.clone()).unwrap();
        Self { directory, player, server, told }
    }

    pub fn planned(&self) -> &Planned {
        self.player.planned.as_ref().unwrap()
    }

    /// A command that runs with the library and finds this agent.
    pub fn command(&self, program: &Path, args: &[&str]) -> Command {
        preloaded(program, args, &self.directory.socket())
    }

    /// Starts a program until it has its code. On a loaded machine it may have waited in vain.
    pub fn start(&self, program: &Path, args: &[&str]) -> (Running, Box<Injected>) {
        for _ in 0..20 {
            let running = Running::spawn(self.command(program, args));
            match self.told.recv_timeout(Duration::from_secs(30)) {
                Ok(Told::Injected(injected)) => return (running, injected),
                Ok(Told::Failed(_, reason)) if reason.contains("waited no longer") => {}
                Ok(Told::Failed(pid, reason)) => panic!("process {pid}: {reason}"),
                Err(_) => {}
            }
        }
        panic!("no program came; {:?}", self.server.counts());
    }

    /// The next program that has its code; those that waited in vain are passed over.
    pub fn injected(&self) -> Box<Injected> {
        loop {
            match self.told.recv_timeout(Duration::from_secs(30)) {
                Ok(Told::Injected(injected)) => return injected,
                Ok(Told::Failed(_, reason)) if reason.contains("waited no longer") => {}
                Ok(Told::Failed(pid, reason)) => panic!("process {pid}: {reason}"),
                Err(_) => panic!("no program came; {:?}", self.server.counts()),
            }
        }
    }

    /// The next program that has none, and why.
    pub fn failed(&self) -> String {
        match self.told.recv_timeout(Duration::from_secs(30)) {
            Ok(Told::Failed(_, reason)) => reason,
            Ok(Told::Injected(injected)) => panic!("process {} has code", injected.program.pid()),
            Err(_) => panic!("no program came; {:?}", self.server.counts()),
        }
    }
}

/// A command that runs with the library and looks for an agent at `socket`.
pub fn preloaded(program: &Path, args: &[&str], socket: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(args).env("LD_PRELOAD", library()).env("GOSPECT_AGENT_SOCKET", socket);
    command
}

/// The library, where everybody can read it.
pub fn library() -> &'static Path {
    Path::new(gospect_preload::PATH)
}

/// A directory that goes with the test.
pub struct Directory {
    path: PathBuf,
    is_borrowed: bool,
}

impl Directory {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("gospect-preload-{}-{next}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { path, is_borrowed: false }
    }

    /// One that is somebody else's.
    pub fn borrowed(path: &Path) -> Self {
        Self { path: path.to_owned(), is_borrowed: true }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn socket(&self) -> PathBuf {
        self.path.join("agent.sock")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if !self.is_borrowed {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Records until the program has ended.
pub fn read_to_end(injected: &mut Injected, limit: Duration) -> Seen {
    let plan = Arc::clone(injected.planned.plan());
    crate::support::read_to_end(&mut injected.capture, &plan, limit)
}
