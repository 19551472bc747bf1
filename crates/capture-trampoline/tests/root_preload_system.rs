//! The library in the programs of a system: `/etc/ld.so.preload` in a mount namespace, programs that are
//! none of Go's, raised rights, Debian's caddy.

#[path = "support/agent.rs"]
mod agent;
mod support;

use agent::{Directory, Stage, library};
use capture::Capture as _;
use capture_trampoline::preload::Counts;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use support::{Seen, Subject};
use testkit::{Fixture, Mode, newest};
use wire::SiteKind;

const LIMIT: Duration = Duration::from_secs(60);

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    output
}

/// A library that does nothing, with the segments that ours has.
fn empty_library(directory: &Directory) -> PathBuf {
    let (source, made) = (directory.path().join("empty.c"), directory.path().join("empty.so"));
    let text = "__attribute__((constructor)) static void none(void) {}\n\
                const char *const word = \"word\";\n";
    std::fs::write(&source, text).unwrap();
    let flags = ["-shared", "-fPIC", "-nostdlib", "-Wl,-z,now", "-Wl,-z,relro", "-o"];
    run(Command::new("cc").args(flags).args([&made, &source]));
    made
}

/// The names of the system calls of a command that loads `library`.
fn calls(directory: &Directory, library: &Path, command: &[&str]) -> Vec<String> {
    let trace = directory.path().join("trace");
    let preload = format!("LD_PRELOAD={}", library.display());
    let options = ["-f", "-qq", "-e", "signal=none", "-E", &preload, "-o"];
    run(Command::new("strace").args(options).arg(&trace).args(command));
    let text = std::fs::read_to_string(&trace).unwrap();
    let name = |line: &str| {
        let call = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        call.split('(').next().unwrap_or_default().to_owned()
    };
    // Children run at the same time as their parents; what each does is the same.
    let mut names: Vec<String> =
        text.lines().map(name).filter(|name| !name.contains("<...")).collect();
    names.sort_unstable();
    names
}

#[test]
fn root_in_other_programs_it_makes_no_system_call() {
    let directory = Directory::new();
    let empty = empty_library(&directory);
    for command in [&["/bin/true"][..], &["/usr/bin/env", "/bin/true"], &["bash", "-c", "exit 0"]] {
        let ours = calls(&directory, library(), command);
        assert!(ours.len() > 10, "{ours:?}");
        assert_eq!(ours, calls(&directory, &empty, command), "{command:?}");
    }
    // And in one of Go's it does, so that this test can fail.
    let spin = Fixture::build("spin", &newest(), Mode::Cgo);
    let command = [spin.to_str().unwrap(), "-rounds", "1"];
    let names = |library: &Path| calls(&directory, library, &command);
    let connects = |names: Vec<String>| names.iter().filter(|name| *name == "newfstatat").count();
    assert!(connects(names(library())) > connects(names(&empty)));
}

/// A shell command in a mount namespace in which every program loads the library and finds the agent of
/// `stage` where it looks by itself.
fn in_namespace(stage: &Stage, script: &str) -> Command {
    let directory = stage.directory.path().display();
    let library = library().display();
    let setup = format!(
        "set -e; mkdir -p {directory}/over; mount -t tmpfs none {directory}/over; \
         mkdir {directory}/over/upper {directory}/over/work; \
         mount -t overlay none -o lowerdir=/etc,upperdir={directory}/over/upper,\
         workdir={directory}/over/work /etc; \
         mount -t tmpfs -o mode=755 none /run; mkdir /run/gospect; mount --bind {directory} /run/gospect; \
         echo {library} >/etc/ld.so.preload; {script}"
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", &setup]);
    command
}

#[test]
fn root_every_program_of_a_system_may_load_it() {
    let path = Fixture::build("spin", &newest(), Mode::Pie);
    let subject = Subject::new(&path, &["main.round"]);
    let stage = Stage::new(Some(&subject), 1 << 20);
    let spin = path.display();
    let script = format!(
        "/bin/true; env | grep -q PATH; bash -c 'exit 0'; ls / >/dev/null; \
         env {spin} -rounds 2 >{0}/out; bash -c 'exec {spin} -rounds 2' >>{0}/out",
        stage.directory.path().display()
    );
    let output = run(&mut in_namespace(&stage, &script));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let out = std::fs::read_to_string(stage.directory.path().join("out")).unwrap();
    assert_eq!(out.matches("\"wrong\":0").count(), 2, "{out}");
    // Others have not come at all; those that did have what they asked for.
    let counts = come(&stage, 2);
    assert_eq!(counts.injected + counts.failed, 2, "{counts:?}");
    for _ in 0..counts.injected {
        let mut injected = stage.injected();
        let seen = agent::read_to_end(&mut injected, LIMIT);
        // One before its two goroutines begin.
        assert_eq!(seen.count("main.round", SiteKind::Entry), 5);
    }
}

#[test]
fn root_raised_rights_look_at_no_variable_and_trust_root_alone() {
    let path = Fixture::build("spin", &newest(), Mode::Cgo);
    let stage = Stage::new(Some(&Subject::new(&path, &["main.round"])), 1 << 20);
    let raised = stage.directory.path().join("raised");
    std::fs::copy(&path, &raised).unwrap();
    chown(&raised, Some(0), Some(1)).unwrap();
    std::fs::set_permissions(&raised, std::fs::Permissions::from_mode(0o2755)).unwrap();
    let plain = stage.directory.path().join("plain");
    std::fs::copy(&path, &plain).unwrap();
    // glibc takes variables of its own out of such a program's environment.
    let nobody = "LD_LIBRARY_PATH=/lib LD_BIND_NOW=1 LD_DEBUG= \
                  GOSPECT_AGENT_SOCKET=/nowhere/agent.sock setpriv --reuid=65534 --regid=65534 \
                  --clear-groups /run/gospect";
    for (program, comes) in [("plain", 0), ("raised", 1)] {
        let script = format!("{nobody}/{program} -rounds 1 >/dev/null");
        // The library has to be where its users can read it.
        let place = stage.directory.path().join("lib.so");
        std::fs::copy(library(), &place).unwrap();
        let script = format!("echo {} >/etc/ld.so.preload; {script}", place.display());
        let output = run(&mut in_namespace(&stage, &script));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{program}");
        come(&stage, comes);
    }
}

/// How all conversations have ended, when there have been as many as are expected, and no more.
fn come(stage: &Stage, expected: u64) -> Counts {
    let begun = Instant::now();
    loop {
        let counts = stage.server.counts();
        let Counts { injected, declined, failed, nonsense, refused } = counts;
        let all = injected + declined + failed + nonsense + refused;
        if all == expected {
            return counts;
        }
        assert!(all < expected && begun.elapsed() < LIMIT, "{counts:?} instead of {expected}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// One request over a connection of its own; gives the answer.
fn request(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[test]
fn root_debians_caddy_serves_and_is_seen() {
    const REQUESTS: u64 = 200;
    let subject = Subject::new(Path::new("/usr/bin/caddy"), &["net/http.*"]);
    // All records have room: nobody reads while a request is awaited.
    let stage = Stage::new(Some(&subject), 128 << 20);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!("127.0.0.1:{port}");
    let arguments = ["respond", "--listen", &listen, "--body", "hello"];
    let (caddy, mut injected) = stage.start(Path::new("/usr/bin/caddy"), &arguments);
    let mut seen = Seen::default();
    let begun = Instant::now();
    let mut answered = 0;
    while answered < REQUESTS {
        assert!(begun.elapsed() < LIMIT, "{answered} answers; {}", caddy.stderr());
        match request(port) {
            Some(answer) => {
                assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
                answered += 1;
            }
            // Not yet.
            None => std::thread::sleep(Duration::from_millis(20)),
        }
        let mut sink = |bytes: &[u8]| seen.add(&subject.plan, bytes);
        injected.capture.poll(Duration::ZERO, &mut sink).unwrap();
    }
    injected.capture.detach().unwrap();
    let mut sink = |bytes: &[u8]| seen.add(&subject.plan, bytes);
    while injected.capture.poll(Duration::ZERO, &mut sink).unwrap() > 0 {}
    let (_, report) = injected.capture.reports().next().unwrap();
    assert!(report.functions > 500, "{report:?}");
    assert_eq!(injected.capture.counters().unwrap().lost, 0);
    let served = seen.count("net/http.serverHandler.ServeHTTP", SiteKind::Entry);
    assert_eq!(served, REQUESTS);
    subject.assert_clean(caddy.pid());
    assert!(request(port).is_some_and(|answer| answer.ends_with("hello")));
}
