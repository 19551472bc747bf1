//! Whom a program has to put up with: no agent, a silent one, one that lies, one that it must not trust.

#[path = "support/agent.rs"]
mod agent;
#[path = "support/packets.rs"]
mod packets;
mod support;

use agent::{Directory, preloaded};
use handover::{FromAgent, FromProgram, JUMP, Offer, Patch, Span};
use packets::{become_nobody, listener, receive, say, send};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::net::{accept, listen};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testkit::{Fixture, Mode, Running, newest};

/// Much longer than a program waits, and still no hang.
const SOON: Duration = Duration::from_secs(20);

fn spin() -> PathBuf {
    Fixture::build("spin", &newest(), Mode::Pie)
}

/// Waits for a program that has to work as if nobody had looked at it.
fn assert_works(mut running: Running) {
    let done = running.wait_for("done", SOON);
    assert!(running.wait(SOON).success());
    assert_eq!(done["wrong"], 0);
}

#[test]
fn without_an_agent_programs_start_as_ever() {
    let (spin, directory) = (spin(), Directory::new());
    let absent = directory.path().join("none/agent.sock");
    // Nothing there; a directory without a socket; a socket without a listener.
    let stale = directory.path().join("stale");
    std::fs::create_dir(&stale).unwrap();
    let stale = stale.join("agent.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    let long = PathBuf::from("/".to_owned() + &"x".repeat(300));
    let paths =
        [&absent, &directory.socket(), &stale, &long, &PathBuf::from("relative/agent.sock")];
    for path in paths {
        for _ in 0..20 {
            assert_works(Running::spawn(preloaded(&spin, &["-rounds", "1"], path)));
        }
    }
}

#[test]
fn an_agent_that_says_nothing_holds_nobody_for_long() {
    let (spin, directory) = (spin(), Directory::new());
    let listener = listener(&directory);
    let begun = Instant::now();
    let running = Running::spawn(preloaded(&spin, &["-rounds", "1"], &directory.socket()));
    let silent = accept(&listener).unwrap();
    let (packet, fds) = receive(&silent);
    assert!(matches!(FromProgram::read(&packet), Some(FromProgram::Hello(_))));
    assert_eq!(fds.len(), 1);
    assert_works(running);
    // It waits, though not for ever, and says that it does no longer.
    assert!(begun.elapsed() > Duration::from_millis(500), "{:?}", begun.elapsed());
    assert!(begun.elapsed() < SOON);
    let (packet, _) = receive(&silent);
    assert!(matches!(FromProgram::read(&packet), Some(FromProgram::Failed(_))), "{packet:x?}");
}

/// A program that asks an agent played here.
struct Asking {
    running: Running,
    socket: OwnedFd,
    bias: u64,
    text: Span,
}

impl Asking {
    fn new(program: &Path, directory: &Directory, listener: &OwnedFd) -> Self {
        let command = preloaded(program, &["-rounds", "1"], &directory.socket());
        let running = Running::spawn(command);
        let socket = accept(listener).unwrap();
        let (packet, _) = receive(&socket);
        let Some(FromProgram::Hello(hello)) = FromProgram::read(&packet) else { panic!() };
        Self { running, socket, bias: hello.bias, text: hello.text }
    }

    /// Code below the text, rings and control page below that: as good an offer as any.
    fn offer(&self) -> Offer {
        let end = (self.text.start - (1 << 22)) & !0xfff;
        let span = |start, len| Span { start, len };
        Offer {
            bias: self.bias,
            control: end - 0x5000,
            rings: span(end - 0x4000, 0x3000),
            code: span(end - 0x1000, 0x1000),
            patches: 1,
            hooks: 0,
        }
    }
}

fn memfd(contents: &[u8], seals: SealFlags) -> File {
    let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
    let mut file = File::from(memfd_create("test", flags).unwrap());
    file.write_all(contents).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

const CONSTANT: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::WRITE);
const SIZED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// A jump over the program's very first instructions, into breakpoints: were it in place when the program
/// begins, that would die.
fn fatal_patch(program: &Path, asking: &Asking) -> Patch {
    let file = File::open(program).unwrap();
    let mut entry = [0; 8];
    file.read_exact_at(&mut entry, 24).unwrap();
    let address = u64::from_le_bytes(entry) + asking.bias;
    // Go's own linker puts text at the file's beginning.
    let offset = address - asking.text.start;
    let mut original = [0; 5];
    file.read_exact_at(&mut original, offset).unwrap();
    let distance = asking.offer().code.start.wrapping_sub(address + 5) as i32;
    let [a, b, c, d] = distance.to_le_bytes();
    Patch { offset: offset as u32, original, replacement: [JUMP, a, b, c, d] }
}

/// What an agent may send.
struct Fds {
    code: File,
    rings: File,
    open_code: File,
    short_rings: File,
}

impl Fds {
    fn new() -> Self {
        Self {
            code: memfd(&[0xcc; 0x1000], CONSTANT),
            rings: memfd(&[0; 0x3000], SIZED),
            open_code: memfd(&[0xcc; 0x1000], SIZED),
            short_rings: memfd(&[0; 0x2000], SIZED),
        }
    }
}

/// One thing that is wrong with an offer.
enum Lie {
    Offer(fn(&mut Offer)),
    Patch(fn(&mut Patch)),
    Fds(for<'a> fn(&'a Fds, &mut Vec<BorrowedFd<'a>>)),
}

const LIES: [(&str, Lie); 13] = [
    ("no descriptors", Lie::Fds(|_, fds| fds.clear())),
    ("two descriptors", Lie::Fds(|_, fds| fds.truncate(2))),
    ("four descriptors", Lie::Fds(|all, fds| fds.push(all.code.as_fd()))),
    ("code that can be written", Lie::Fds(|all, fds| fds[0] = all.open_code.as_fd())),
    ("rings of another length", Lie::Fds(|all, fds| fds[1] = all.short_rings.as_fd())),
    ("descriptors in another order", Lie::Fds(|_, fds| fds.swap(0, 2))),
    ("another program", Lie::Offer(|offer| offer.bias += 0x1000)),
    ("more patches than there are", Lie::Offer(|offer| offer.patches = 1000)),
    ("code over the program", Lie::Offer(|offer| offer.code.start += 1 << 22)),
    ("areas where none can be", Lie::Offer(|offer| offer.control = 0x7fff_ffff_f000)),
    ("other bytes", Lie::Patch(|patch| patch.original[0] ^= 1)),
    ("a jump elsewhere", Lie::Patch(|patch| patch.replacement[4] ^= 0x20)),
    ("a place outside", Lie::Patch(|patch| patch.offset = 0x7fff_0000)),
];

#[test]
fn a_program_takes_nothing_that_is_not_right() {
    let (spin, directory) = (spin(), Directory::new());
    let listener = listener(&directory);
    let all = Fds::new();
    for (name, lie) in LIES {
        let asking = Asking::new(&spin, &directory, &listener);
        let (mut offer, mut patch) = (asking.offer(), fatal_patch(&spin, &asking));
        match lie {
            Lie::Offer(change) => change(&mut offer),
            Lie::Patch(change) => change(&mut patch),
            Lie::Fds(_) => {}
        }
        let patches = memfd(&patch.write(), CONSTANT);
        let mut fds = vec![all.code.as_fd(), all.rings.as_fd(), patches.as_fd()];
        if let Lie::Fds(change) = lie {
            change(&all, &mut fds);
        }
        say(&asking.socket, FromAgent::Offer(offer), &fds);
        assert_works(asking.running);
        // It says so, or has hung up at once.
        let (packet, _) = receive(&asking.socket);
        let answer = FromProgram::read(&packet);
        assert!(packet.is_empty() || matches!(answer, Some(FromProgram::Failed(_))), "{name}");
    }
}

/// An agent that dies, lies or sleeps when everything is in place.
#[test]
fn a_program_takes_out_what_nobody_confirms() {
    let (spin, directory) = (spin(), Directory::new());
    let listener = listener(&directory);
    let all = Fds::new();
    let ends: [fn(&OwnedFd); 3] = [
        |socket| rustix::net::shutdown(socket, rustix::net::Shutdown::Both).unwrap(),
        |socket| send(socket, b"no packet of ours", &[]),
        |_| {},
    ];
    for end in ends {
        let asking = Asking::new(&spin, &directory, &listener);
        let patches = memfd(&fatal_patch(&spin, &asking).write(), CONSTANT);
        let fds = [all.code.as_fd(), all.rings.as_fd(), patches.as_fd()];
        say(&asking.socket, FromAgent::Offer(asking.offer()), &fds);
        let (packet, _) = receive(&asking.socket);
        let answer = FromProgram::read(&packet);
        assert!(matches!(answer, Some(FromProgram::Done { patches: 1, pages: 1 })), "{answer:?}");
        // Its very first instruction is a jump to a breakpoint now.
        end(&asking.socket);
        assert_works(asking.running);
    }
}

/// And with the last word it would have died.
#[test]
fn what_is_confirmed_stays() {
    let (spin, directory) = (spin(), Directory::new());
    let listener = listener(&directory);
    let all = Fds::new();
    let mut asking = Asking::new(&spin, &directory, &listener);
    let patches = memfd(&fatal_patch(&spin, &asking).write(), CONSTANT);
    let fds = [all.code.as_fd(), all.rings.as_fd(), patches.as_fd()];
    say(&asking.socket, FromAgent::Offer(asking.offer()), &fds);
    receive(&asking.socket);
    say(&asking.socket, FromAgent::Go, &[]);
    use std::os::unix::process::ExitStatusExt as _;
    assert_eq!(asking.running.wait(SOON).signal(), Some(5), "SIGTRAP");
}

#[test]
fn root_code_of_other_users_is_not_taken() {
    let (spin, directory) = (spin(), Directory::new());
    // Another user listens, in a directory of root's.
    let socket = listener(&directory);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            become_nobody();
            listen(&socket, 64).unwrap();
        });
    });
    let running = Running::spawn(preloaded(&spin, &["-rounds", "1"], &directory.socket()));
    assert_works(running);
    let (packet, fds) = receive(&accept(&socket).unwrap());
    assert!(packet.is_empty() && fds.is_empty(), "it was told something");

    // Root listens, in a directory of another user's or one that others can write to.
    let closed = |directory: &Directory| {
        let listener = listener(directory);
        let running = Running::spawn(preloaded(&spin, &["-rounds", "1"], &directory.socket()));
        assert_works(running);
        rustix::io::ioctl_fionbio(&listener, true).unwrap();
        assert!(accept(&listener).is_err(), "it has connected");
    };
    let others = Directory::new();
    std::os::unix::fs::chown(others.path(), Some(65534), None).unwrap();
    closed(&others);
    let open = Directory::new();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(open.path(), mode).unwrap();
    closed(&open);
}
