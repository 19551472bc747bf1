//! The tracer dies, at every step of the protocol and at random moments; the target does not.
#![allow(clippy::print_stderr, reason = "the tracer that dies says where")]

mod support;

use capture::Capture as _;
use capture_trampoline::{
    MAPPING_NAME, TrampolineCapture, has_leftovers, remove_leftovers, set_step_hook,
};
use process::{held_exec, spawn_held};
use rustix::process::{Pid, Signal, getpid, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::{Subject, read_to_end};
use testkit::{Fixture, Mode, Running, newest, soak_rounds};
use wire::SiteKind;

const HELD: &str = "--held-for-test";
const TRACER: &str = "--tracer-for-test";
const REPLACED_TRACER: &str = "--replaced-tracer-for-test";
const LIMIT: Duration = Duration::from_secs(120);
const PATTERNS: [&str; 1] = ["main.*"];

/// Steps left until we die.
static STEPS: AtomicU64 = AtomicU64::new(u64::MAX);

fn die_at_the_last(name: &'static str) {
    eprintln!("step: {name}");
    if STEPS.fetch_sub(1, Ordering::SeqCst) == 1 {
        kill_process(getpid(), Signal::KILL).unwrap();
        std::thread::sleep(LIMIT);
    }
}

/// `TRACER attach|launch STEPS EXE PID|ARG…`: one capture, dead after so many steps.
fn tracer(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let mut text = || args.next().unwrap().into_string().unwrap();
    let (way, steps, exe) = (text(), text().parse().unwrap(), PathBuf::from(text()));
    let rest: Vec<String> = args.map(|arg| arg.into_string().unwrap()).collect();
    let subject = Subject::new(&exe, &PATTERNS);
    set_step_hook(die_at_the_last);
    let mut held = None;
    let mut capture = if way == "attach" {
        let pid = rest[0].parse().unwrap();
        STEPS.store(steps, Ordering::SeqCst);
        subject.attach(pid).unwrap()
    } else {
        let argv: Vec<OsString> =
            std::iter::once(exe.into()).chain(rest.iter().map(OsString::from)).collect();
        let mut child = spawn_held(Path::new("/proc/self/exe"), HELD, &argv, None).unwrap();
        let pid = child.pid();
        STEPS.store(steps, Ordering::SeqCst);
        let request = subject.request(pid);
        let capture =
            TrampolineCapture::launch(&request, subject.options(), || child.release(), |_| ())
                .unwrap();
        held = Some(child);
        capture
    };
    capture.poll(Duration::from_millis(5), &mut |_| {}).unwrap();
    capture.detach().unwrap();
    if let Some(mut child) = held {
        assert!(child.wait().unwrap().success());
    }
    ExitCode::SUCCESS
}

fn tracer_command(way: &str, steps: u64, exe: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(TRACER).arg(way).arg(steps.to_string()).arg(exe);
    command.stdin(Stdio::null());
    command
}

fn attach_command(steps: u64, exe: &Path, pid: u32) -> Command {
    let mut command = tracer_command("attach", steps, exe);
    command.arg(pid.to_string());
    command
}

/// Which steps of a whole capture to die at: the first, the middle and the last of each name.
fn steps_of(command: &mut Command) -> Vec<u64> {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    let mut places: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (index, name) in text.lines().filter_map(|l| l.strip_prefix("step: ")).enumerate() {
        places.entry(name).or_default().push(index as u64 + 1);
    }
    let chosen = |steps: &Vec<u64>| [steps[0], steps[steps.len() / 2], steps[steps.len() - 1]];
    let steps: BTreeSet<u64> = places.values().flat_map(chosen).collect();
    assert!(places.len() >= 10, "{places:?}");
    steps.into_iter().collect()
}

fn dies_at(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        // Fewer steps than the first time: threads were where none had to be moved.
        return "nowhere".to_owned();
    }
    assert_eq!(output.status.signal(), Some(9), "{text}");
    text.lines().last().unwrap_or_default().to_owned()
}

fn root_a_running_target_survives_each_step(path: &Path) {
    let subject = Subject::new(path, &PATTERNS);
    let mut target = Running::held(path, &["-for", "0", "-g", "3"]);
    target.go();
    let pid = target.pid();
    let command = |steps| attach_command(steps, path, pid);
    let steps = steps_of(&mut command(u64::MAX / 2));
    let mut left = 0;
    for step in steps {
        let place = dies_at(&mut command(step));
        assert!(target.is_running(), "died with the tracer: step {step}, {place}");
        if let Some(removal) = remove_leftovers(pid).unwrap_or_else(|e| panic!("{place}: {e}")) {
            assert_eq!(removal.foreign, 0, "{place}");
            left += removal.left_bytes;
        }
        assert_nothing_left(pid, &place);
        assert!(subject.different_bytes(pid).is_empty(), "step {step}, {place}");
    }
    assert_eq!(left, 0);
    assert!(remove_leftovers(pid).unwrap().is_none());
    steps_of(&mut command(u64::MAX / 2));
    subject.assert_clean(pid);
    finish(target);
}

/// No area, no control page that stands alone, no descriptor.
fn assert_nothing_left(pid: u32, place: &str) {
    assert!(
        !has_leftovers(pid),
        "{place}: {}",
        std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap()
    );
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    for descriptor in descriptors {
        let link = std::fs::read_link(descriptor.unwrap().path()).unwrap_or_default();
        assert!(!link.to_string_lossy().contains(MAPPING_NAME), "{place}: {}", link.display());
    }
}

/// What a tracer that dies while it maps has left is known, however little it is.
fn root_each_beginning_is_taken_out(path: &Path) {
    let subject = Subject::new(path, &PATTERNS);
    let mut target = Running::held(path, &["-for", "0", "-g", "3"]);
    target.go();
    let pid = target.pid();
    let command = |steps| attach_command(steps, path, pid);
    for name in ["control mapped", "memfd made", "code mapped", "rings mapped", "mapped"] {
        // Threads that are awake make the number of steps before differ.
        let died = (0..20).any(|_| {
            let step = step_named(&mut command(u64::MAX / 2), name);
            let place = dies_at(&mut command(step));
            if place != format!("step: {name}") {
                _ = remove_leftovers(pid).unwrap();
                return false;
            }
            assert!(target.is_running(), "died with the tracer: {place}");
            assert!(has_leftovers(pid), "{place}");
            let removal = remove_leftovers(pid).unwrap().expect("something is there");
            assert_eq!((removal.foreign, removal.left_bytes), (0, 0), "{place}");
            assert_nothing_left(pid, &place);
            true
        });
        assert!(died, "no tracer died at: {name}");
    }
    subject.assert_clean(pid);
    finish(target);
}

/// Which step of a whole capture has the name first.
fn step_named(command: &mut Command, name: &str) -> u64 {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    let mut steps = text.lines().filter_map(|line| line.strip_prefix("step: "));
    steps.position(|step| step == name).unwrap() as u64 + 1
}

fn root_a_running_target_survives_random_moments(path: &Path) {
    let subject = Subject::new(path, &PATTERNS);
    let mut target = Running::held(path, &["-for", "0", "-g", "3"]);
    target.go();
    let pid = target.pid();
    // A linear congruence will do for moments.
    let mut random = 12345u64;
    for round in 0..soak_rounds(40) {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mut command = attach_command(u64::MAX / 2, path, pid);
        let mut tracer = command.stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(20_000 + (random >> 40) % 200_000));
        tracer.kill().unwrap();
        tracer.wait().unwrap();
        assert!(target.is_running(), "died with the tracer, round {round}");
        // What is left is removed by `detach`, or by the next attach, or another one dies first.
        match round % 3 {
            0 => assert_eq!(
                subject.attach(pid).and_then(|mut c| c.detach()).err().map(|e| e.to_string()),
                None
            ),
            1 => _ = remove_leftovers(pid).unwrap(),
            _ => continue,
        }
        subject.assert_clean(pid);
        assert_nothing_left(pid, "after a random moment");
    }
    remove_leftovers(pid).unwrap();
    assert!(subject.different_bytes(pid).is_empty());
    finish(target);
}

/// Steps between stops, where the target may end or become another program.
const FREE: [&str; 4] = ["checked", "opened", "patched all", "restored"];

/// Where, which process, and how: `exec` or `end`.
static REPLACED: OnceLock<(String, u32, String)> = OnceLock::new();

/// Makes the target replace itself or kills it, and comes back when that has happened.
fn replace_at(name: &'static str) {
    let Some((wanted, pid, how)) = REPLACED.get() else { return };
    if name != wanted {
        return;
    }
    let signal = if how == "exec" { Signal::USR1 } else { Signal::KILL };
    kill_process(Pid::from_raw(*pid as i32).unwrap(), signal).unwrap();
    let start = Instant::now();
    // What has ended has no arguments any more.
    let is_new = || {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        line.windows(4).any(|word| word == b"-new") || line.is_empty()
    };
    while !is_new() {
        assert!(start.elapsed() < LIMIT, "no execve");
        std::thread::sleep(Duration::from_millis(1));
    }
    // Threads of the new program sleep where calls are borrowed.
    std::thread::sleep(Duration::from_millis(20));
}

/// `REPLACED_TRACER EXE PID WHERE HOW`: one capture; says what came of it.
fn replaced_tracer(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let mut text = || args.next().unwrap().into_string().unwrap();
    let (exe, pid) = (PathBuf::from(text()), text().parse().unwrap());
    let subject = Subject::new(&exe, &PATTERNS);
    REPLACED.set((text(), pid, text())).unwrap();
    set_step_hook(replace_at);
    let result = subject.attach(pid).and_then(|mut capture| capture.detach());
    eprintln!("result: {}", result.map_or_else(|error| format!("{error:?}"), |()| "fine".into()));
    ExitCode::SUCCESS
}

/// What is known about a program must not be done to the one that follows it in the process.
fn root_a_program_that_replaces_another_is_left_alone() {
    let path = Fixture::build("odd", &newest(), Mode::Exe);
    for (place, how) in FREE.into_iter().flat_map(|place| [(place, "exec"), (place, "end")]) {
        let mut target = Running::held(&path, &["-do", "exec"]);
        target.go();
        target.wait_for("odd", LIMIT);
        let pid = target.pid();
        let mut command = Command::new("/proc/self/exe");
        command.arg(REPLACED_TRACER).arg(&path).arg(pid.to_string()).args([place, how]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{place}: {text}");
        // From the removal's first step on there is nothing to complain of.
        // A process that is still ending takes the last write of an attach.
        let expected: &[&str] = match (place, how) {
            ("restored", _) => &["fine"],
            (_, "exec") => &["Replaced"],
            ("patched all", _) => &["ProcessGone", "fine"],
            _ => &["ProcessGone"],
        };
        assert!(expected.iter().any(|word| text.contains(word)), "{place} {how}: {text}");
        if how == "end" {
            assert_eq!(target.wait(LIMIT).signal(), Some(9));
            continue;
        }
        assert!(target.is_running(), "{place}: {}", target.stderr());
        Subject::new(&path, &PATTERNS).assert_clean(pid);
        finish(target);
    }
}

fn finish(mut target: Running) {
    target.close_stdin();
    let done = target.wait_for("done", LIMIT);
    assert_eq!(done["wrong"], 0, "{done}");
    assert!(target.wait(LIMIT).success());
}

fn root_a_launched_target_survives_each_step(path: &Path) {
    let out = std::env::temp_dir().join(format!("survive-{}", std::process::id()));
    let command = |steps| {
        let mut command = tracer_command("launch", steps, path);
        command.args(["-rounds", "20"]).stdout(File::create(&out).unwrap());
        command
    };
    let steps = steps_of(&mut command(u64::MAX / 2));
    for step in steps {
        let place = dies_at(&mut command(step));
        let start = Instant::now();
        // The target outlives its parent, so its output tells how it ended.
        loop {
            let text = std::fs::read_to_string(&out).unwrap();
            if text.contains("\"wrong\":0") {
                break;
            }
            let late = start.elapsed() > Duration::from_secs(10);
            assert!(!late, "no result after: step {step}, {place}: {text}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    std::fs::remove_file(&out).unwrap();
}

fn root_a_launched_program_is_seen_from_its_start(path: &Path) {
    let subject = Subject::new(path, &["main.*", "runtime.main"]);
    let argv: Vec<OsString> =
        [path.as_os_str(), "-rounds".as_ref(), "3".as_ref(), "-g".as_ref(), "1".as_ref()]
            .map(OsString::from)
            .into();
    let mut child = spawn_held(Path::new("/proc/self/exe"), HELD, &argv, None).unwrap();
    let request = subject.request(child.pid());
    let mut capture =
        TrampolineCapture::launch(&request, subject.options(), || child.release(), |_| ()).unwrap();
    let (pid, report) = capture.reports().next().unwrap();
    assert_eq!((pid, report.was_exposed), (child.pid(), false));
    let seen = read_to_end(&mut capture, &subject.plan, LIMIT);
    assert!(child.wait().unwrap().success());
    let entries =
        ["runtime.main", "main.main", "main.round", "main.scale", "main.fib"].map(|name| {
            assert!(
                !capture
                    .refused()
                    .iter()
                    .any(|(&f, _)| { subject.plan.functions[f as usize].name == name })
            );
            seen.count(name, SiteKind::Entry)
        });
    assert_eq!(entries, [1, 1, 4, 32, 4 * 465]);
    assert_eq!(capture.counters().unwrap().lost, 0);
}

fn root_a_living_tracer_is_named(path: &Path) {
    let subject = Subject::new(path, &PATTERNS);
    let mut target = Running::held(path, &["-rounds", "100"]);
    let mut capture = subject.attach(target.pid()).unwrap();
    let own = Pid::as_raw(Some(getpid()));
    let expected = format!(
        "no permission to trace process {}: process {own} has trampolines in it already; end that first",
        target.pid()
    );
    let error = subject.attach(target.pid()).map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), expected);
    capture.detach().unwrap();
    subject.assert_clean(target.pid());
    target.go();
    finish(target);
}

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(arg) if arg == HELD => {
            return ExitCode::from(u8::try_from(held_exec(args)).unwrap_or(1));
        }
        Some(arg) if arg == TRACER => return tracer(args),
        Some(arg) if arg == REPLACED_TRACER => return replaced_tracer(args),
        _ => {}
    }
    let path = Fixture::build("spin", &newest(), Mode::Exe);
    let pie = Fixture::build("spin", &newest(), Mode::Pie);
    for mode in [Mode::Exe, Mode::Pie, Mode::CgoPie] {
        let path = Fixture::build("spin", &newest(), mode);
        root_a_launched_program_is_seen_from_its_start(&path);
    }
    root_a_living_tracer_is_named(&path);
    root_a_program_that_replaces_another_is_left_alone();
    root_each_beginning_is_taken_out(&path);
    root_a_running_target_survives_each_step(&path);
    root_a_running_target_survives_random_moments(&pie);
    root_a_launched_target_survives_each_step(&path);
    ExitCode::SUCCESS
}
