//! Two machineries on one process: what keeps breakpoints of the kernel off the jumps of the
//! trampoline backend. Needs root.

mod common;

use common::{LIMIT, expect_line, fixture, gospect, wait_attached};
use testkit::Running;

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
    let output = gospect().run(&[&how[..], &select].concat());
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
    let mut tracer = gospect().start(&line("trampoline"));
    wait_attached(&tracer);
    let output = gospect().run(&line("uprobe"));
    expect_line(&output, 1, &["put uprobes on", &pid, "with trampolines", "gospect detach"]);
    tracer.signal("TERM");
    gospect().finish(&mut tracer);
    target.go();
    finish(target);
}
