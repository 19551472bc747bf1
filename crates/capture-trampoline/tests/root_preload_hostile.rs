//! A hostile program on the socket harms neither the agent nor other programs. A binary of its own, since
//! descriptors of the whole process are counted.

#[path = "support/agent.rs"]
mod agent;
#[path = "support/packets.rs"]
mod packets;
mod support;

use agent::Stage;
use handover::{FromAgent, Hello, MAX_PACKET, Span};
use packets::{become_nobody, connected, receive, say, send};
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use support::Subject;
use testkit::{Fixture, Mode, newest};
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
    let before = open_descriptors();
    // Nothing; garbage; half a packet; too much; what an agent says; what is no executable, or not its own.
    drop(connected(&socket_path));
    for packet in [&[0xff; 64][..], b"gosp", &[0; 1], &[0x67; MAX_PACKET + 500]] {
        let socket = connected(&socket_path);
        send(&socket, packet, &[]);
        receive(&socket);
    }
    say(&connected(&socket_path), FromAgent::Go, &[]);
    for wrong in [null.as_fd(), pipe.as_fd(), other.as_fd(), directory.as_fd()] {
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
