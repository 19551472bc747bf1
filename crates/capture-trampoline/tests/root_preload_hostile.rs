//! A hostile program on the socket harms neither the agent nor other programs. A binary of its own, since
//! descriptors of the whole process are counted.

#[path = "support/agent.rs"]
mod agent;
#[path = "support/packets.rs"]
mod packets;
mod support;

use agent::{Directory, Stage};
use capture_trampoline::preload::{Agent, Injected, Options, Planned, Program, Server};
use handover::{FromAgent, FromProgram, Hello, MAX_PACKET, Span};
use packets::{become_nobody, connected, connects_itself, receive, say, send, socket};
use rustix::fs::{Mode as FileMode, OFlags};
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::Subject;
use testkit::{Fixture, Mode, Running, newest};
use wire::SiteKind;

const LIMIT: Duration = Duration::from_secs(60);

/// Descriptors of this process that are sockets, memfds or files: what an agent might keep too many of.
fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn hello(executable: BorrowedFd<'_>, socket: &OwnedFd, ranges: &[Span], text: Span) {
    let mut buffer = vec![0; MAX_PACKET];
    let len = Hello::write(&mut buffer, 0, text, ranges.iter().copied()).unwrap();
    send(socket, &buffer[..len], &[executable]);
}

#[test]
fn root_a_hostile_program_harms_nobody() {
    let path = Fixture::build("spin", &newest(), Mode::Pie);
    let subject = Subject::new(&path, &["main.round"]);
    let stage = Stage::new(Some(&subject), 1 << 20);
    let socket_path = stage.directory.socket();
    let text = Span { start: 0x40_0000, len: 0x1000 };
    let null = File::open("/dev/null").unwrap();
    let (pipe, _end) = rustix::pipe::pipe().unwrap();
    let other = File::open("/bin/true").unwrap();
    let directory = File::open("/").unwrap();
    let own = File::open("/proc/self/exe").unwrap();
    let memory = File::open("/proc/self/mem").unwrap();
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let name = rustix::fs::open("/proc/self/exe", flags, FileMode::empty()).unwrap();
    let before = open_descriptors();
    // Nothing; garbage; half a packet; too much; what an agent says; what is no executable, or not its own.
    drop(connected(&socket_path));
    for packet in [&[0xff; 64][..], b"gosp", &[0; 1], &[0x67; MAX_PACKET + 500]] {
        let socket = connected(&socket_path);
        send(&socket, packet, &[]);
        receive(&socket);
    }
    say(&connected(&socket_path), FromAgent::Go, &[]);
    for wrong in [&null, &other, &directory, &memory].map(|file| file.as_fd()) {
        let socket = connected(&socket_path);
        hello(wrong, &socket, &[], text);
        let (packet, _) = receive(&socket);
        assert_eq!(FromAgent::read(&packet), Some(FromAgent::Decline));
    }
    // What cannot be read at all, or only waited for.
    for wrong in [pipe.as_fd(), name.as_fd()] {
        let socket = connected(&socket_path);
        hello(wrong, &socket, &[], text);
        let (packet, _) = receive(&socket);
        assert_eq!(FromAgent::read(&packet), Some(FromAgent::Decline));
    }
    // A flood of descriptors, with every packet and without a right one.
    let many: Vec<BorrowedFd<'_>> = (0..250).map(|_| null.as_fd()).collect();
    for _ in 0..20 {
        let socket = connected(&socket_path);
        send(&socket, &[0; 16], &many);
        receive(&socket);
    }
    assert_eq!(stage.server.counts().injected, 0);
    // What is no plan's gets nothing, whatever it says of itself.
    let socket = connected(&socket_path);
    hello(own.as_fd(), &socket, &[Span { start: 0, len: u64::MAX }], text);
    let (packet, _) = receive(&socket);
    assert_eq!(FromAgent::read(&packet), Some(FromAgent::Decline));
    drop(socket);

    // Another user takes all places that one may have, and more, and says nothing.
    let idle = std::thread::scope(|scope| {
        let flood = || {
            become_nobody();
            (0..100).map(|_| connected(&socket_path)).collect::<Vec<_>>()
        };
        scope.spawn(flood).join().unwrap()
    });
    let (running, mut injected) = stage.start(&path, &["-rounds", "3"]);
    let seen = agent::read_to_end(&mut injected, LIMIT);
    let done = running.wait_for("done", LIMIT);
    assert_eq!(seen.count("main.round", SiteKind::Entry), done["calls"]["main.round"]);
    assert!(stage.server.counts().refused >= 84, "{:?}", stage.server.counts());
    drop((idle, injected, running));
    let begun = Instant::now();
    while open_descriptors() > before {
        assert!(begun.elapsed() < LIMIT, "{} instead of {before}", open_descriptors());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A program of one build that the test speaks for: it has connected, runs on, and hears nothing of it.
struct Spoken {
    running: Running,
    socket: OwnedFd,
    text: Span,
    bias: u64,
}

impl Spoken {
    fn new(path: &Path, at: &Path) -> Self {
        let socket = socket();
        let mut command = Command::new(path);
        command.args(["-for", "0"]);
        connects_itself(&mut command, &socket, at);
        let running = Running::spawn(command);
        running.wait_for("ready", LIMIT);
        let source = Arc::new(process::FileSource::open(path).unwrap());
        let executable = binary::Executable::open(source).unwrap();
        let image = executable.image();
        let process = process::Process::open(running.pid()).unwrap();
        let bias = process.bias(image.base()).unwrap();
        let code = image.segments().iter().find(|s| s.kind == 1 && s.flags & 1 != 0).unwrap();
        let text = Span { start: bias.to_avma(code.address).0, len: code.file_size };
        Self { running, socket, text, bias: bias.0 }
    }

    /// What it is offered when it says that only these ranges are taken.
    fn ask(&self, ranges: &[Span]) -> (Option<FromAgent>, Vec<OwnedFd>) {
        let executable = File::open(format!("/proc/{}/exe", self.running.pid())).unwrap();
        let mut buffer = vec![0; MAX_PACKET];
        let ranges = ranges.iter().copied();
        let len = Hello::write(&mut buffer, self.bias, self.text, ranges).unwrap();
        send(&self.socket, &buffer[..len], &[executable.as_fd()]);
        let (packet, fds) = receive(&self.socket);
        (FromAgent::read(&packet), fds)
    }
}

/// Who says in another program's name that this carries code is not believed.
#[test]
fn root_nobody_takes_code_for_another_program() {
    let path = Fixture::build("spin", &newest(), Mode::Pie);
    let subject = Subject::new(&path, &["main.round"]);
    let stage = Stage::new(Some(&subject), 1 << 20);
    let spoken = Spoken::new(&path, &stage.directory.socket());
    let (offer, fds) = spoken.ask(&[]);
    assert!(matches!(offer, Some(FromAgent::Offer(_))), "{offer:?}");
    assert_eq!(fds.len(), 3);
    let mut buffer = [0; 32];
    let len = FromProgram::Done { patches: 1, pages: 1 }.write(&mut buffer).unwrap();
    send(&spoken.socket, &buffer[..len], &[]);
    let (packet, _) = receive(&spoken.socket);
    assert_eq!(FromAgent::read(&packet), Some(FromAgent::Decline));
    assert!(stage.failed().contains("does not carry"));
    subject.assert_clean(spoken.running.pid());
    assert_eq!(stage.server.counts().injected, 0);
}

/// A program that says of its memory what it likes makes the agent work for it a few times, not for ever, and costs the
/// next one nothing.
#[test]
fn root_nobody_makes_the_agent_make_code_on_and_on() {
    let path = Fixture::build("spin", &newest(), Mode::Pie);
    let subject = Subject::new(&path, &["main.round"]);
    let stage = Stage::new(Some(&subject), 1 << 20);
    let mut offered = 0;
    for number in 1..16 {
        let spoken = Spoken::new(&path, &stage.directory.socket());
        // Each time less of what lies below the program is free.
        let taken = Span { start: spoken.text.start - (number << 26), len: number << 26 };
        let (answer, _) = spoken.ask(&[taken]);
        offered += usize::from(matches!(answer, Some(FromAgent::Offer(_))));
        drop(spoken.socket);
        assert!(stage.failed().contains(if matches!(answer, Some(FromAgent::Offer(_))) {
            "waited no longer"
        } else {
            "more was made lately"
        }));
    }
    // Those that have been made, and whoever came ten seconds later.
    assert!((7..15).contains(&offered), "{offered}");
    assert_eq!(stage.planned().made(), 8);
    let (running, mut injected) = stage.start(&path, &["-rounds", "3"]);
    let seen = agent::read_to_end(&mut injected, LIMIT);
    let done = running.wait_for("done", LIMIT);
    assert_eq!(seen.count("main.round", SiteKind::Entry), done["calls"]["main.round"]);
}

/// Asks nobody anything.
struct Nobody;

impl Agent for Nobody {
    fn decide(&self, _: &Program) -> Option<Arc<Planned>> {
        None
    }

    fn injected(&self, _: Injected) {}

    fn failed(&self, _: &Program, _: &str) {}
}

/// An agent does not listen where others could take its place, and touches nothing that they point it at.
#[test]
fn root_an_agent_listens_in_directories_of_its_own() {
    let listen = |path: &Path| {
        let options = Options { path: path.to_owned(), ..Options::default() };
        Server::start(options, Arc::new(Nobody)).map(drop).map_err(|error| {
            std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default()
        })
    };
    let directory = Directory::new();
    let place = |name: &str, owner: u32, mode: u32| {
        let path = directory.path().join(name);
        std::fs::create_dir(&path).unwrap();
        chown(&path, Some(owner), None).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    assert_eq!(listen(&place("own", 0, 0o755).join("agent.sock")), Ok(()));
    for (name, owner, mode) in
        [("open", 0, 0o777), ("sticky", 0, 0o1777), ("group", 0, 0o775), ("theirs", 65534, 0o755)]
    {
        let path = place(name, owner, mode);
        let error = listen(&path.join("agent.sock")).unwrap_err();
        assert!(error.contains("only root or the agent's user may write to"), "{name}: {error}");
        // By another name it is the same directory.
        let link = directory.path().join(format!("{name}-link"));
        symlink(&path, &link).unwrap();
        assert!(listen(&link.join("agent.sock")).is_err(), "{name}");
    }
    // A link in the socket's place is nobody's leftover, and what it leads to stays as it is.
    let secret = directory.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    symlink(&secret, directory.socket()).unwrap();
    assert!(listen(&directory.socket()).is_err());
    assert_eq!(std::fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o600);
    // What others listen at in their own way is theirs.
    let stream = directory.path().join("stream.sock");
    let _theirs = std::os::unix::net::UnixListener::bind(&stream).unwrap();
    assert!(listen(&stream).is_err());
    assert!(std::os::unix::net::UnixStream::connect(&stream).is_ok());
}
