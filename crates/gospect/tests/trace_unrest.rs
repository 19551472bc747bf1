//! What a Go program does while it is traced: collections that move stacks, signals, stack traces,
//! children, calls from C. It goes on as if nothing were there, and no call is missed. Needs root.

mod common;

use common::{LIMIT, Trace, functions, own, text};
use testkit::{Fixture, Mode, Running, newest, oldest, selected};

/// `unrest` doing one thing, in the oldest and the newest Go.
fn unrest(what: &str, times: &str, select: &[&str]) {
    for toolchain in [oldest(), newest()] {
        let program = own(&Fixture::build("unrest", &toolchain, Mode::selected()));
        let trace = Trace::launch(&functions(select), &program, &["-do", what, "-n", times]);
        trace.output.expect_code(0);
        assert_eq!(trace.done()["wrong"], 0, "{what} {toolchain:?}");
        trace.expect_returned();
    }
}

#[test]
fn root_stacks_grow_while_the_collector_runs() {
    unrest("gc", "200", &["main.deep"]);
}

#[test]
fn root_profiling_and_preemption_signals_come_all_the_time() {
    unrest("signals", "1500", &["main.spin"]);
}

#[test]
fn root_stack_traces_inside_traced_calls_are_whole() {
    unrest("stack", "200", &["main.first", "main.second", "main.third"]);
}

#[test]
fn root_calls_between_go_and_c_are_seen_on_every_thread() {
    let select = functions(&["main.forth", "main.foreign", "main.goBack", "main.leaf"]);
    for mode in [Mode::Cgo, Mode::CgoPie] {
        let program = own(&Fixture::build("cgo", &selected(), mode));
        let trace = Trace::launch(&select, &program, &["-n", "100", "-threads", "20"]);
        trace.output.expect_code(0);
        trace.expect_returned();
    }
}

#[test]
fn root_children_that_are_started_are_not_seen() {
    let program = common::fixture("forkexec");
    let select = functions(&["main.spawn", "main.child"]);
    let trace = Trace::launch(&select, &program, &["-children", "3"]);
    trace.output.expect_code(0);
    trace.expect_returned();
    assert_eq!(trace.output.of_type("child").len(), 3, "they ran");
}

/// A child that is forked without execve goes on in the code of its parent, and is nobody's.
#[test]
fn root_a_forked_child_runs_on_unseen() {
    let program = own(&Fixture::build("odd_cgo", &newest(), Mode::Cgo));
    let mut target = Running::start(&program, &["-do", "fork"]);
    target.wait_for("before", LIMIT);
    let pid = target.pid();
    let trace = Trace::attach(&["-u", "main.round", "-u", "main.forked"], pid, || {
        target.go();
        target.wait_for("odd", LIMIT);
        target.go();
        let said = target.wait_line(LIMIT, |line| line.contains("\"child\""));
        assert!(said.contains("\"wrong\":0"), "{said}");
    });
    trace.output.expect_code(0);
    let calls = trace.of_type("call");
    assert!(!calls.is_empty(), "{}", trace.output.story());
    assert!(calls.iter().all(|call| call["pid"] == pid), "{calls:?}");
    assert!(calls.iter().all(|call| text(&call["func"]) != "main.forked"), "{calls:?}");
    assert_eq!(target.wait_for("done", LIMIT)["wrong"], 0);
    assert!(target.wait(LIMIT).success(), "{}", target.stderr());
}
