//! Two machineries: which one `--backend auto` takes and why, what is done in functions that
//! trampolines do not fit, and what keeps breakpoints of the kernel off jumps. Needs root.

mod common;

use common::{
    Directory, LIMIT, Trace, any_gospect, as_nobody, expect_line, fixture, json_lines, path_text,
    run, temporary, text, wait_attached,
};
use serde_json::Value;
use std::path::Path;
use testkit::Running;

/// `gospect trace options… -- program args…`, JSON in a file.
fn launch(options: &[&str], program: &Path, args: &[&str]) -> Trace {
    launch_by(any_gospect().command(&["trace"]), options, program, args)
}

/// The same by a command that is prepared so far.
fn launch_by(
    mut command: std::process::Command,
    options: &[&str],
    program: &Path,
    args: &[&str],
) -> Trace {
    let file = temporary("jsonl");
    command.args(["--format", "json", "-o", path_text(&file)]).args(options);
    command.arg("--").arg(program).args(args);
    Trace::read(run(command), &file)
}

fn notes(trace: &Trace) -> String {
    trace.summary()["notes"].to_string()
}

/// Why `function` is refused, if it is.
fn refusal(trace: &Trace, function: &str) -> Option<String> {
    let refusals = trace.summary()["refusals"].as_array().expect("refusals").clone();
    refusals.iter().find(|r| r["func"] == function).map(|r| text(&r["reason"]))
}

// --backend auto.

#[test]
fn root_auto_starts_programs_with_trampolines() {
    let select = ["-u", "main.work", "-u", "main.leaf"];
    let trace = launch(&select, &fixture("counts"), &["-n", "200"]);
    trace.output.expect_code(0);
    trace.expect_returned();
    assert_eq!(trace.summary()["backend"], "trampoline");
    let told = "gospect: tracing 2 functions by trampolines (gospect starts the program)";
    assert_eq!(trace.output.stderr.lines().next(), Some(told), "{}", trace.output.story());
    let quiet = launch(&[&select[..], &["-q"]].concat(), &fixture("counts"), &["-n", "2"]);
    assert_eq!(quiet.output.stderr, "");
}

#[test]
fn root_auto_leaves_the_code_of_running_processes_alone() {
    let mut target = Running::held(&fixture("counts"), &["-n", "20"]);
    let file = temporary("jsonl");
    let pid = target.pid().to_string();
    let line = ["trace", "--format", "json", "-o", path_text(&file), "-u", "main.work", "-p", &pid];
    let mut tracer = any_gospect().start(&line);
    let told = tracer.wait_error_line(LIMIT, |line| line.contains("tracing "));
    for word in ["1 function by uprobes", "runs already", "--backend trampoline"] {
        assert!(told.contains(word), "no {word:?} in {told}");
    }
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("its maps");
    assert!(!maps.contains("memfd:gospect-"), "{maps}");
    target.go();
    target.wait(LIMIT);
    let trace = Trace::read(any_gospect().finish(&mut tracer), &file);
    trace.output.expect_code(0);
    assert_eq!(trace.summary()["backend"], "uprobe");
    assert_eq!(trace.calls_of("main.work").len(), 20);
}

#[test]
fn root_without_bpf_auto_says_what_would_do_for_a_running_process() {
    let mut target = Running::held(&fixture("counts"), &["-n", "7"]);
    let pid = target.pid().to_string();
    let mut command = any_gospect().command(&["trace", "-u", "main.work", "-p", &pid]);
    command.env("GOSPECT_FORCE", "no-bpf");
    expect_line(&run(command), 1, &["BPF", "uprobes are not possible", "--backend trampoline"]);
    target.go();
    assert!(target.wait(LIMIT).success());

    // A program to be started needs none.
    let mut command = any_gospect().command(&["trace"]);
    command.env("GOSPECT_FORCE", "no-bpf");
    let trace = launch_by(command, &["-u", "main.work"], &fixture("counts"), &["-n", "50"]);
    trace.output.expect_code(0);
    trace.expect_sound();
    assert_eq!(trace.calls_of("main.work").len(), 50);
}

#[test]
fn root_auto_traces_what_a_user_starts_without_privileges() {
    let dir = Directory::new();
    let program = dir.copy(&fixture("counts"), "counts");
    let how = ["trace", "--backend", "auto", "--format", "json", "-u", "main.work"];
    let line = [&how[..], &["--", path_text(&program)]].concat();
    let output = as_nobody(&dir, &line);
    output.expect_code(0);
    assert_eq!(output.summary()["backend"], "trampoline");
    assert_eq!(output.calls_of("main.work").len(), 1000);
}

#[test]
fn root_auto_takes_uprobes_where_no_function_can_carry_a_trampoline() {
    let trace = launch(&["-u", "runtime.memmove"], &fixture("counts"), &["-n", "5"]);
    trace.output.expect_code(0);
    assert_eq!(trace.summary()["backend"], "uprobe");
    let (notes, told) = (notes(&trace), &trace.output.stderr);
    for said in [&notes, told] {
        assert!(said.contains("trampolines are not possible: none of the functions"), "{said}");
    }
    assert!(!trace.calls_of("runtime.memmove").is_empty());
}

/// Somebody's breakpoint stands where the signal handler has to be hooked. That shows only when the
/// program is there: uprobes come in before its first instruction nevertheless.
#[test]
fn root_auto_goes_over_to_uprobes_before_the_first_instruction() {
    let dir = Directory::new();
    let program = dir.copy(&fixture("counts"), "probed");
    let path = path_text(&program);
    let mut other = any_gospect().start(&["trace", "--exe", path, "-u", "runtime.sigtrampgo"]);
    wait_attached(&other);
    let select = ["-u", "main.main", "-u", "main.work", "-u", "main.leaf"];
    let trace = launch(&select, &program, &["-n", "300"]);
    trace.output.expect_code(0);
    trace.expect_sound();
    assert_eq!(trace.summary()["backend"], "uprobe");
    let notes = notes(&trace);
    assert!(notes.contains("trampolines are not possible"), "{notes}");
    assert!(notes.contains("differs from its file"), "{notes}");
    let calls = |name| trace.calls_of(name).len();
    assert_eq!((calls("main.main"), calls("main.work"), calls("main.leaf")), (1, 300, 300));
    other.signal("TERM");
    any_gospect().finish(&mut other);
}

#[test]
fn every_process_of_a_file_is_the_uprobe_backends() {
    let program = fixture("counts");
    let line = ["trace", "--backend", "trampoline", "--exe", path_text(&program), "-u", "main.*"];
    expect_line(&any_gospect().run(&line), 2, &["--pid", "--backend uprobe", "--exe"]);
}

// --fallback.

#[test]
fn root_functions_without_trampolines_get_uprobes_when_it_is_worth_it() {
    let program = fixture("counts");
    let of = |options: &[&str]| {
        let options = [&["-u", "main.work"], options].concat();
        let trace = launch(&options, &program, &["-n", "30"]);
        trace.output.expect_code(0);
        assert_eq!(trace.summary()["backend"], "trampoline");
        assert_eq!(trace.calls_of("main.work").len(), 30, "{options:?}");
        let moves = trace.calls_of("runtime.memmove").len();
        (refusal(&trace, "runtime.memmove"), moves > 0, notes(&trace))
    };
    // Met by a wildcard, it would be paid for by everything that moves memory.
    let (refused, seen, _) = of(&["-u", "runtime.memm*"]);
    let reason = refused.expect("a refusal");
    assert!(reason.contains("calling convention") && reason.contains("--fallback all"), "{reason}");
    assert!(!seen);
    for asked in [&["-u", "runtime.memmove"][..], &["-u", "runtime.memm*", "--fallback", "all"]] {
        let (refused, seen, notes) = of(asked);
        assert_eq!((refused, seen), (None, true), "{asked:?}");
        assert!(notes.contains("probed by uprobes"), "{notes}");
    }
    let (refused, seen, notes) = of(&["-u", "runtime.memmove", "--fallback", "none"]);
    let reason = refused.expect("a refusal");
    assert!(reason.contains("--fallback none leaves it out") && !seen, "{reason}");
    assert!(!notes.contains("uprobes"), "{notes}");
}

// Side by side.

/// The target runs until its work is right and over.
fn finish(mut target: Running) {
    let done = target.wait_for("done", LIMIT);
    assert_eq!(done["wrong"], 0, "{done}");
    assert!(target.wait(LIMIT).success(), "{}", target.stderr());
}

/// Functions that trampolines cannot serve get uprobes, but `runtime.sigtrampgo` carries a jump
/// nevertheless: a breakpoint there kills the process at its next signal.
#[test]
fn root_the_hooked_function_gets_no_uprobe() {
    let mut target = Running::held(&fixture("spin"), &["-for", "3s", "-g", "3"]);
    target.go();
    let pid = target.pid().to_string();
    let select = ["-u", "runtime.sigtrampgo", "-u", "main.round"];
    let how = ["trace", "--backend", "trampoline", "--stat", "--duration", "1s", "-p", &pid];
    let output = any_gospect().run(&[&how[..], &select].concat());
    output.expect_code(0);
    let told = &output.stderr;
    assert!(told.contains("runtime.sigtrampgo: is hooked by the tracer itself"), "{told}");
    assert!(!told.contains("probed by uprobes"), "{told}");
    finish(target);
}

#[test]
fn root_uprobes_are_refused_beside_trampolines() {
    let mut target = Running::held(&fixture("spin"), &["-rounds", "100"]);
    let pid = target.pid().to_string();
    let options = ["--stat", "-u", "main.round", "-p", &pid];
    let line = |backend| [&["trace", "--backend", backend][..], &options].concat();
    let mut tracer = any_gospect().start(&line("trampoline"));
    wait_attached(&tracer);
    let output = any_gospect().run(&line("uprobe"));
    expect_line(&output, 1, &["put uprobes on", &pid, "with trampolines", "gospect detach"]);
    let path = path_text(&fixture("spin")).to_owned();
    let every = ["trace", "--exe", &path, "--duration", "1s", "-u", "main.round"];
    expect_line(&any_gospect().run(&every), 1, &["put uprobes on", &pid, "with trampolines"]);
    tracer.signal("TERM");
    any_gospect().finish(&mut tracer);
    target.go();
    finish(target);
}

/// Breakpoints for one process come into no other, whatever that one carries.
#[test]
fn root_uprobes_in_a_process_leave_trampolines_in_another_alone() {
    let dir = Directory::new();
    let program = dir.copy(&fixture("spin"), "both");
    let start = || Running::held(&program, &["-rounds", "50"]);
    let (mut one, mut other) = (start(), start());
    let trace = |target: &Running, backend, file: &Path| {
        let pid = target.pid().to_string();
        let how = ["trace", "--backend", backend, "--format", "json", "-o", path_text(file)];
        let tracer = any_gospect().start(&[&how[..], &["-u", "main.round", "-p", &pid]].concat());
        wait_attached(&tracer);
        tracer
    };
    let files = ["trampoline", "uprobe"].map(|backend| dir.file(backend));
    let mut tracers = [trace(&one, "trampoline", &files[0]), trace(&other, "uprobe", &files[1])];
    one.go();
    other.go();
    finish(one);
    finish(other);
    for (tracer, file) in tracers.iter_mut().zip(&files) {
        any_gospect().finish(tracer).expect_code(0);
        let is_call = |line: &Value| line["type"] == "call" && line["exit"] == "return";
        let calls = json_lines(file).iter().filter(|line| is_call(line)).count();
        assert_eq!(calls, 101, "{}", file.display());
    }
}
