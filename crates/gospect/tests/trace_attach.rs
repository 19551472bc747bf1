//! Which processes are traced and how a capture ends: attaching, `--exe`, namespaces and
//! signals. Needs root.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{
    Directory, LIMIT, Trace, calls, count_of, expect_line, fixture, functions, gospect, interrupt,
    is_alive, json_lines, number, path_text, start_trace, until, wait_attached,
};
use serde_json::Value;
use testkit::Running;

// Signals.

#[test]
fn root_terminate_and_hang_up_detach_at_once() {
    let dir = Directory::new();
    for signal in ["TERM", "HUP"] {
        let mut target = Running::held(&fixture("sleepy"), &["-g", "2"]);
        let file = dir.file(signal);
        let pid = target.pid().to_string();
        let options = ["-u", "main.outer", "-u", "main.inner", "--drain", "50s", "-p", &pid];
        let mut tracer = start_trace(&file, &options);
        wait_attached(&tracer);
        target.go();
        target.wait_for("parked", LIMIT);
        let start = Instant::now();
        tracer.signal(signal);
        gospect().finish(&mut tracer).expect_code(0);
        assert!(start.elapsed() < Duration::from_secs(20), "it drained on SIG{signal}");
        let lines = json_lines(&file);
        assert_eq!(calls(&lines).len(), 4, "{lines:?}");
        assert_eq!(lines.last().expect("a summary")["open"], 4);
        assert!(target.is_running(), "the target goes on");
        target.close_stdin();
        assert!(target.wait(LIMIT).success(), "{}", target.stderr());
    }
}

#[test]
fn root_draining_lets_open_calls_finish_and_a_second_interrupt_ends_it() {
    let dir = Directory::new();
    for finishes in [true, false] {
        let mut target = Running::held(&fixture("sleepy"), &["-g", "2", "-n", "3"]);
        let file = dir.file("out");
        let pid = target.pid().to_string();
        let select = functions(&["main.outer", "main.inner", "main.tick"]);
        let how = ["-v", "--drain", "50s", "-p", &pid];
        let mut tracer = start_trace(&file, &[&select[..], &how].concat());
        wait_attached(&tracer);
        target.go();
        target.wait_for("parked", LIMIT);
        tracer.signal("INT");
        tracer.wait_error_line(LIMIT, |line| line.contains("captured until Ctrl-C"));
        target.go();
        target.wait_for("tick", LIMIT);
        let begun = Instant::now();
        if finishes {
            target.close_stdin();
        } else {
            tracer.signal("INT");
        }
        gospect().finish(&mut tracer).expect_code(0);
        assert!(begun.elapsed() < Duration::from_secs(20), "it waited for nothing");
        let lines = json_lines(&file);
        let ends: BTreeSet<String> = lines
            .iter()
            // The process may end before main.outer returns.
            .filter(|line| line["type"] == "call" && line["func"] != "main.outer")
            .map(|call| format!("{} {}", call["func"], call["exit"]).replace('"', ""))
            .collect();
        let end = if finishes { "return" } else { "open" };
        let want = format!("main.inner {end}");
        assert_eq!(ends, BTreeSet::from([want]), "ticks began while it drained");
        target.close_stdin();
        assert!(target.wait(LIMIT).success(), "{}", target.stderr());
    }
}

/// A launched `interrupted` under a gospect that leads a process group of its own.
fn launch_interrupted(file: &Path, code: &str) -> (Running, u64) {
    let program = fixture("interrupted");
    let line = ["trace", "--format", "json", "-o", path_text(file), "-u", "main.onSignal", "--"];
    let mut command =
        gospect().command(&[&line[..], &[path_text(&program), "-code", code]].concat());
    command.process_group(0);
    let tracer = Running::spawn(command);
    let pid = number(&tracer.wait_for("ready", LIMIT)["pid"]);
    (tracer, pid)
}

fn wait_signal(tracer: &Running, count: u64) {
    tracer.wait_line(LIMIT, |line| line.contains(&format!("\"count\":{count},")));
}

#[test]
fn root_started_with_nohup_a_hang_up_changes_nothing() {
    let dir = Directory::new();
    let file = dir.file("out");
    let mut target = Running::start(&fixture("sleepy"), &["-g", "1", "-n", "3"]);
    target.wait_for("parked", LIMIT);
    let pid = target.pid().to_string();
    let line = ["trace", "--format", "json", "-o", path_text(&file), "-u", "main.tick", "-p", &pid];
    let mut command = Command::new("nohup");
    command.arg(env!("CARGO_BIN_EXE_gospect")).args(gospect().line(&line));
    let mut tracer = Running::spawn(command);
    wait_attached(&tracer);
    tracer.signal("HUP");
    target.go();
    target.wait_for("tick", LIMIT);
    let (output, lines) = interrupt(&mut tracer, &file);
    output.expect_code(0);
    assert_eq!(calls(&lines).len(), 3, "{}", output.story());
    target.close_stdin();
    assert!(target.wait(LIMIT).success());
}

#[test]
fn root_the_first_interrupt_is_the_commands() {
    let dir = Directory::new();
    let file = dir.file("out");
    let (mut tracer, _) = launch_interrupted(&file, "3");
    tracer.signal_group("INT");
    wait_signal(&tracer, 1);
    assert!(tracer.is_running(), "gospect goes on");
    tracer.close_stdin();
    let output = gospect().finish(&mut tracer);
    output.expect_code(0);
    let lines = json_lines(&file);
    assert_eq!(calls(&lines).len(), 1);
    assert_eq!(lines.last().expect("a summary")["target_exit"], 3);
}

#[test]
fn root_a_command_that_an_interrupt_kills_ends_the_capture() {
    let program = fixture("sleepy");
    let line = ["trace", "--format", "json", "-u", "main.outer", "--", path_text(&program)];
    let mut command = gospect().command(&line);
    command.process_group(0);
    let mut tracer = Running::spawn(command);
    tracer.wait_for("parked", LIMIT);
    tracer.signal_group("INT");
    let output = gospect().finish(&mut tracer);
    output.expect_code(4);
    let summary = output.summary();
    assert_eq!((&summary["target_signal"], &summary["target_exit"]), (&2.into(), &130.into()));
    assert_eq!(summary["open"], 3, "{summary}");
}

#[test]
fn root_the_second_interrupt_detaches_and_the_command_runs_on() {
    let dir = Directory::new();
    let file = dir.file("out");
    let (mut tracer, pid) = launch_interrupted(&file, "0");
    for count in [1, 2] {
        tracer.signal_group("INT");
        wait_signal(&tracer, count);
        if count == 1 {
            // Two signals that wait at the same time are one.
            tracer.wait_error_line(LIMIT, |line| line.contains("Ctrl-C is the command's"));
        }
    }
    until("gospect ends", || !tracer.is_running());
    assert!(is_alive(pid), "the command runs on");
    let lines = json_lines(&file);
    let summary = lines.last().expect("a summary");
    assert_eq!(summary["type"], "summary");
    assert_eq!(summary["target_exit"], Value::Null, "it has not ended");
    tracer.close_stdin();
    tracer.wait_for("done", LIMIT);
    gospect().finish(&mut tracer).expect_code(0);
}

#[test]
fn root_a_command_outlives_gospect() {
    let dir = Directory::new();
    for signal in ["TERM", "HUP", "KILL"] {
        let file = dir.file(signal);
        let (mut tracer, pid) = launch_interrupted(&file, "0");
        tracer.signal_group("INT");
        wait_signal(&tracer, 1);
        tracer.signal(signal);
        until("gospect ends", || !tracer.is_running());
        assert!(is_alive(pid), "the command runs on after SIG{signal}");
        // It still does what was probed.
        send(pid, "INT");
        wait_signal(&tracer, 2);
        tracer.close_stdin();
        tracer.wait_for("done", LIMIT);
        let output = gospect().finish(&mut tracer);
        let status = (output.code, output.signal);
        if signal == "KILL" {
            assert_eq!(status, (None, Some(9)));
        } else {
            assert_eq!(status, (Some(0), None), "{}", output.story());
            assert_eq!(calls(&json_lines(&file)).len(), 1);
        }
    }
}

/// By the shell's own `kill`: the program comes with procps, which small systems lack.
fn send(pid: u64, signal: &str) {
    let script = format!("kill -{signal} {pid}");
    let status = Command::new("sh").args(["-c", &script]).status();
    assert!(status.expect("sh").success(), "SIG{signal} to {pid}");
}

#[test]
fn root_a_command_that_dies_by_a_signal_exits_with_4() {
    let dir = Directory::new();
    let file = dir.file("out");
    let (mut tracer, pid) = launch_interrupted(&file, "0");
    send(pid, "KILL");
    gospect().finish(&mut tracer).expect_code(4);
    let lines = json_lines(&file);
    let summary = lines.last().expect("a summary");
    assert_eq!((&summary["target_signal"], &summary["target_exit"]), (&9.into(), &137.into()));
    // Never called, and 4 beats 3.
    assert_eq!(summary["calls"], 0);
}

#[test]
fn root_the_death_of_a_process_attached_to_exits_with_4() {
    let mut panicking = Running::held(&fixture("fatal"), &["-value", "int"]);
    let trace = Trace::attach(&["-u", "main.inner"], panicking.pid(), || {
        panicking.go();
        panicking.wait(LIMIT);
    });
    trace.output.expect_code(4);
    assert_eq!(trace.of_type("panic").len(), 1);
    assert_eq!(trace.summary()["target_signal"], Value::Null, "it exited with a status");

    let killed = Running::start(&fixture("sleepy"), &["-g", "1"]);
    killed.wait_for("parked", LIMIT);
    let pid = killed.pid().to_string();
    let mut tracer = gospect().start(&["trace", "--format", "json", "-u", "main.tick", "-p", &pid]);
    wait_attached(&tracer);
    killed.signal("KILL");
    let output = gospect().finish(&mut tracer);
    output.expect_code(4);
    assert_eq!(output.summary()["target_signal"], 9);
    assert!(output.summary()["notes"].to_string().contains("died by signal 9"));
}

/// The pid of a directory of `/proc` that is a kernel thread's: the child of number 2.
fn kernel_thread(entry: std::io::Result<fs::DirEntry>) -> Option<String> {
    let pid = entry.ok()?.file_name().into_string().ok()?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let no_file = fs::read_link(format!("/proc/{pid}/exe")).is_err();
    (no_file && rest.split(' ').nth(1) == Some("2")).then_some(pid)
}

#[test]
fn root_a_process_that_is_gone_or_going_does_no_harm() {
    let zombie = Running::start(Path::new("/bin/true"), &["x"]);
    until("it ends", || !is_alive(zombie.pid().into()));
    let pid = zombie.pid().to_string();
    let output = gospect().run(&["trace", "-u", "main.*", "-p", &pid]);
    expect_line(&output, 1, &[&pid]);
    // In a container there may be no kernel thread to see.
    for pid in fs::read_dir("/proc").expect("/proc").filter_map(kernel_thread).take(1) {
        expect_line(&gospect().run(&["trace", "-u", "main.*", "-p", &pid]), 1, &["kernel thread"]);
    }
    // Ends at any moment of the attach.
    for delay_ms in [0, 5, 20, 60, 120, 200] {
        let mut target = Running::held(&fixture("counts"), &["-n", "5"]);
        let pid = target.pid().to_string();
        let mut tracer =
            gospect().start(&["trace", "--format", "json", "-u", "main.work", "-p", &pid]);
        std::thread::sleep(Duration::from_millis(delay_ms));
        target.go();
        target.wait(LIMIT);
        let output = gospect().finish(&mut tracer);
        match output.code {
            Some(0) => assert_eq!(output.summary()["lost"], 0, "{}", output.story()),
            Some(3) => assert_eq!(output.summary()["calls"], 0, "{}", output.story()),
            _ => expect_line(&output, 1, &[&format!("process {pid}")]),
        }
        for word in ["panicked", "libbpf", "os error"] {
            assert!(!output.stderr.contains(word), "{}", output.story());
        }
    }
}

// Which processes.

#[test]
fn root_only_the_named_processes_are_seen() {
    let dir = Directory::new();
    let mut all: Vec<Running> =
        (0..3).map(|_| Running::held(&fixture("counts"), &["-n", "500", "-g", "4"])).collect();
    let pids: Vec<u32> = all.iter().map(Running::pid).collect();
    for named in [format!("{},{}", pids[0], pids[1])] {
        let file = dir.file("out");
        let select = ["-u", "main.work", "-u", "main.leaf", "-p", &named];
        let mut tracer = start_trace(&file, &select);
        wait_attached(&tracer);
        for target in &mut all {
            target.go();
            assert!(target.wait(LIMIT).success());
        }
        // Both named ones are gone: there is nothing left to wait for.
        gospect().finish(&mut tracer).expect_code(0);
        let lines = json_lines(&file);
        for (pid, want) in [(pids[0], 500), (pids[1], 500), (pids[2], 0)] {
            for func in ["main.work", "main.leaf"] {
                assert_eq!(count_of(&lines, pid, func), want, "{func} of {pid} in {pids:?}");
            }
        }
        let summary = lines.last().expect("a summary");
        assert_eq!((&summary["processes"], &summary["lost"]), (&2.into(), &0.into()));
        assert!(summary["notes"].to_string().contains("gone"), "{summary}");
    }
}

#[test]
fn root_processes_of_two_executables_are_traced_together() {
    let dir = Directory::new();
    let file = dir.file("out");
    let mut one = Running::held(&fixture("counts"), &["-n", "50"]);
    let mut two = Running::held(&fixture("inlined"), &["-n", "7"]);
    let (first, second) = (one.pid().to_string(), two.pid().to_string());
    let select = ["-u", "main.work", "-u", "main.host", "-p", &first, "--pid", &second];
    let mut tracer = start_trace(&file, &select);
    wait_attached(&tracer);
    for target in [&mut one, &mut two] {
        target.go();
        target.wait(LIMIT);
    }
    gospect().finish(&mut tracer).expect_code(0);
    let lines = json_lines(&file);
    assert_eq!(count_of(&lines, one.pid(), "main.work"), 50);
    assert_eq!(count_of(&lines, two.pid(), "main.host"), 7);
    assert_eq!(lines.last().expect("a summary")["calls"], 57);
}

#[test]
fn root_an_executable_without_a_match_does_not_stop_the_other() {
    let dir = Directory::new();
    let file = dir.file("out");
    let mut one = Running::held(&fixture("counts"), &["-n", "50"]);
    let two = Running::held(&fixture("inlined"), &[]);
    let pids = format!("{},{}", one.pid(), two.pid());
    let mut tracer = start_trace(&file, &["-u", "main.work", "-p", &pids]);
    wait_attached(&tracer);
    one.go();
    one.wait_for("done", LIMIT);
    let (output, lines) = interrupt(&mut tracer, &file);
    output.expect_code(0);
    assert_eq!(count_of(&lines, one.pid(), "main.work"), 50);
    let notes = lines.last().expect("a summary")["notes"].to_string();
    assert!(notes.contains("not traced") && notes.contains("inlined"), "{notes}");
    // Nothing in either of them is a refusal.
    let pids = two.pid().to_string();
    gospect().run(&["trace", "-u", "main.nowhere", "-p", &pids]).expect_code(3);
}

#[test]
fn root_every_thread_is_seen() {
    let mut target = Running::held(&fixture("migrate"), &[]);
    let pid = target.pid();
    let select = functions(&["main.hop", "main.rest"]);
    let trace = Trace::attach(&select, pid, || {
        target.go();
        target.wait_for("done", LIMIT);
    });
    trace.output.expect_code(0);
    let done = target.wait_for("done", LIMIT);
    for (func, count) in done["calls"].as_object().expect("calls") {
        assert_eq!(trace.calls_of(func).len() as u64, number(count), "{func}");
    }
    let tids: BTreeSet<u64> =
        trace.of_type("call").iter().map(|call| number(&call["tid"])).collect();
    assert!(tids.len() > 1, "it did move: {done}");
}

#[test]
fn root_a_deleted_executable_is_traced() {
    let dir = Directory::new();
    let program = dir.copy(&fixture("counts"), "deleted");
    let mut target = Running::held(&program, &["-n", "40"]);
    fs::remove_file(&program).expect("it is there");
    let pid = target.pid().to_string();
    gospect().run(&["info", "-p", &pid]).expect_code(0);
    let trace = Trace::attach(&["-u", "main.work"], target.pid(), || {
        target.go();
        target.wait_for("done", LIMIT);
    });
    trace.output.expect_code(0);
    trace.expect_sound();
    assert_eq!(trace.calls_of("main.work").len(), 40);
    assert!(target.wait(LIMIT).success());
}

/// Starts `script` in a shell inside new namespaces.
fn unshared(options: &[&str], script: &str, program: &Path) -> Running {
    let mut command = Command::new("unshare");
    command.args(options).args(["sh", "-ec", script, "sh", path_text(program)]);
    let running = Running::spawn(command);
    running.wait_for("ready", LIMIT);
    running
}

#[test]
fn root_a_process_of_another_mount_namespace_is_traced() {
    let dir = Directory::new();
    fs::create_dir(dir.file("empty")).expect("a directory");
    dir.copy(&fixture("counts"), "inside");
    let script = format!(
        "mount -t tmpfs none {0}; cp \"$1\" {0}/only-inside; exec {0}/only-inside -wait -n 30",
        path_text(&dir.file("empty"))
    );
    let mut target = unshared(&["-m"], &script, &dir.file("inside"));
    assert!(!dir.file("empty/only-inside").exists(), "it is seen from inside only");
    let trace = Trace::attach(&["-u", "main.work"], target.pid(), || {
        target.go();
        target.wait_for("done", LIMIT);
    });
    trace.output.expect_code(0);
    trace.expect_sound();
    assert_eq!(trace.calls_of("main.work").len(), 30);
    assert!(target.wait(LIMIT).success());
}

#[test]
fn root_a_process_of_another_pid_namespace_is_traced() {
    let script = "\"$1\" -wait -n 30; true";
    let mut target = unshared(&["-p", "-f"], script, &fixture("counts"));
    // unshare, its shell (process 1 in there), and the fixture.
    let children = |pid: u32| -> u32 {
        let path = format!("/proc/{pid}/task/{pid}/children");
        fs::read_to_string(path).expect("its children").trim().parse().expect("one child")
    };
    let pid = children(children(target.pid()));
    let inside = number(&target.wait_for("ready", LIMIT)["pid"]);
    assert_ne!(u64::from(pid), inside, "it has another id inside");
    let trace = Trace::attach(&["-u", "main.work"], pid, || {
        target.go();
        target.wait_for("done", LIMIT);
    });
    trace.output.expect_code(0);
    trace.expect_sound();
    let seen = trace.calls_of("main.work");
    assert_eq!(seen.len(), 30);
    assert!(seen.iter().all(|call| call["pid"] == pid), "ids are those of our namespace");
    target.wait(LIMIT);
}
