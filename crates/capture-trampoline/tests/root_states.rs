//! Targets in every state: stopped, traced by others, forking, replacing themselves, panicking.

mod support;

use capture::Capture as _;
use capture_trampoline::TrampolineCapture;
use std::error::Error as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{Subject, read_to_end};
use testkit::{Fixture, Mode, Running, newest, oldest};
use wire::{RecordKind, SiteKind};

const LIMIT: Duration = Duration::from_secs(60);

fn status(pid: u32, field: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(":\t"));
    line.unwrap_or_default().to_owned()
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what} takes too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Attaches to a stopped program. A thread of it may stand in the code of the capture before, which it leaves
/// when it runs: until then an attach is refused with that reason.
fn attach_stopped(subject: &Subject, running: &Running) -> TrampolineCapture {
    let start = Instant::now();
    loop {
        let error = match subject.attach(running.pid()) {
            Ok(capture) => return capture,
            Err(error) => error,
        };
        let reason = error.source().map(ToString::to_string).unwrap_or_default();
        assert!(reason.contains("still in use there: try again"), "{error}: {reason}");
        assert!(start.elapsed() < Duration::from_secs(30), "{reason}");
        running.signal("CONT");
        std::thread::sleep(Duration::from_millis(20));
        running.signal("STOP");
        wait_until("SIGSTOP", || status(running.pid(), "State").starts_with('T'));
    }
}

#[test]
fn root_a_stopped_target_stays_stopped() {
    let path = Fixture::build("spin", &newest(), Mode::Exe);
    let subject = Subject::new(&path, &["main.*"]);
    let mut running = Running::held(&path, &["-for", "0", "-g", "2"]);
    running.go();
    running.signal("STOP");
    let pid = running.pid();
    wait_until("SIGSTOP", || status(pid, "State").starts_with('T'));
    for _ in 0..3 {
        let mut capture = attach_stopped(&subject, &running);
        wait_until("the stop after the attach", || status(pid, "State").starts_with('T'));
        capture.detach().unwrap();
        wait_until("the stop after the detach", || status(pid, "State").starts_with('T'));
    }
    running.signal("CONT");
    wait_until("the last thread is out of the code", || {
        let left = capture_trampoline::remove_leftovers(pid).unwrap();
        left.is_none_or(|removal| removal.left_bytes == 0)
    });
    subject.assert_clean(pid);
    running.close_stdin();
    assert_eq!(running.wait_for("done", LIMIT)["wrong"], 0);
    assert!(running.wait(LIMIT).success());
}

#[test]
fn root_another_tracer_is_named_and_left_alone() {
    let path = Fixture::build("spin", &newest(), Mode::Exe);
    let subject = Subject::new(&path, &["main.*"]);
    let mut running = Running::held(&path, &["-rounds", "50"]);
    let pid = running.pid();
    let mut strace = Command::new("strace")
        .args(["-f", "-o", "/dev/null", "-p", &pid.to_string()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("strace", || status(pid, "TracerPid") == strace.id().to_string());
    let error = subject.attach(pid).map(|_| ()).unwrap_err().to_string();
    let tracer = strace.id();
    assert_eq!(
        error,
        format!(
            "no permission to trace process {pid}: \
             process {tracer} (strace) traces it already; end that first"
        )
    );
    strace.kill().unwrap();
    strace.wait().unwrap();
    subject.assert_clean(pid);
    running.go();
    assert!(running.wait(LIMIT).success());
}

#[test]
fn root_children_run_on_and_an_execve_ends_the_capture() {
    for toolchain in [newest(), oldest()] {
        let path = Fixture::build("forkexec", &toolchain, Mode::Exe);
        let subject = Subject::new(&path, &["main.*", "os.*", "os/exec.*"]);
        let mut running = Running::held(&path, &["-children", "5", "-exec"]);
        let mut capture = subject.attach(running.pid()).unwrap();
        running.go();
        let seen = read_to_end(&mut capture, &subject.plan, LIMIT);
        assert!(running.wait(LIMIT).success(), "{}", running.stderr());
        // The copy ends at once: on a busy machine its end may be all that is seen.
        let end = [RecordKind::Exec, RecordKind::ProcessExit];
        assert!(matches!(seen.other[..], [RecordKind::Process, last] if end.contains(&last)));
        assert_eq!(seen.count("main.spawn", SiteKind::Entry), 5);
        assert_eq!(seen.count("main.replace", SiteKind::Entry), 1);
        assert_eq!(seen.count("main.replace", SiteKind::Return), 0);
        let children = running.stdout().matches("\"type\":\"child\"").count();
        assert_eq!(children, 6, "{}", running.stdout());
        capture.detach().unwrap();
    }
}

#[test]
fn root_programs_do_what_they_do_untraced() {
    let programs: [(&str, &[&str]); 3] =
        [("panics", &["-mode", "all"]), ("growth", &[]), ("goroutines", &["-n", "2000"])];
    for toolchain in [newest(), oldest()] {
        for (name, args) in programs {
            let path = Fixture::build(name, &toolchain, Mode::Exe);
            let subject = Subject::new(&path, &["main.*", "runtime.*", "fmt.*", "sync.*"]);
            let untraced = run(&path, args, None);
            let traced = run(&path, args, Some(&subject));
            assert_eq!(traced, untraced, "{name} {}", toolchain.version);
        }
    }
}

/// What a program says it did, garbage collections at every opportunity.
fn run(path: &std::path::Path, args: &[&str], subject: Option<&Subject>) -> String {
    let mut command = Command::new(path);
    command.arg("-wait").args(args).env("GOGC", "5");
    let mut running = Running::spawn(command);
    running.wait_for("ready", LIMIT);
    let capture = subject.map(|subject| subject.attach(running.pid()).unwrap());
    running.go();
    if let (Some(mut capture), Some(subject)) = (capture, subject) {
        read_to_end(&mut capture, &subject.plan, LIMIT);
    }
    let status = running.wait(LIMIT);
    assert!(status.success(), "{status}: {}", running.stderr());
    running.wait_line(LIMIT, |line| line.contains("\"done\""))
}
