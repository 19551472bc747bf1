//! The core suite: what every Go version and build mode has to pass (`cargo xtask matrix`
//! runs it with `GOSPECT_TEST_GO` and `GOSPECT_TEST_MODE`). Needs root: it loads uprobes.

mod common;

use common::{LIMIT, Trace, fixture, functions, number};
use testkit::Running;

#[test]
fn root_counts_over_goroutines_are_exact() {
    let select = functions(&["main.work", "main.leaf"]);
    let trace = Trace::launch(&select, &fixture("counts"), &["-n", "10000", "-g", "8"]);
    trace.output.expect_code(0);
    trace.expect_returned();
    for leaf in trace.calls_of("main.leaf") {
        assert_eq!(leaf["depth"], 1, "a leaf is called by work: {leaf}");
    }
}

#[test]
fn root_stack_growth_counts_each_call_once() {
    let trace = Trace::launch(&functions(&["main.deep"]), &fixture("growth"), &[]);
    trace.output.expect_code(0);
    trace.expect_returned();
    assert_eq!(trace.of_type("call").len(), 123);
    let deepest = trace.of_type("call").iter().map(|call| number(&call["depth"])).max();
    assert_eq!(deepest, Some(40));
}

#[test]
fn root_panics_and_goexit_end_calls_by_name() {
    let select = functions(&[
        "main.guard",
        "main.middle",
        "main.thrower",
        "main.rethrower",
        "main.nester",
        "main.nestedThrower",
        "main.quit",
        "main.quitMiddle",
        "main.quitLeaf",
        "main.nilMap",
        "main.outOfRange",
        "main.nilPointer",
    ]);
    for mode in ["recover", "repanic", "nested", "goexit", "runtime", "all"] {
        let trace = Trace::launch(&select, &fixture("panics"), &["-mode", mode, "-n", "1000"]);
        trace.output.expect_code(0);
        trace.expect_ends();
        assert_eq!(trace.of_type("panic").len(), 0, "{mode}: every panic was recovered");
    }
}

#[test]
fn root_a_fatal_panic_gives_the_value_and_all_open_calls() {
    let select = functions(&["main.outer", "main.inner", "main.parked"]);
    let values = [
        ("string", "string"),
        ("error", "*errors.errorString"),
        ("custom", "main.custom"),
        ("int", "int"),
        ("runtime", "runtime.errorString"),
    ];
    for (value, type_name) in values {
        let trace = Trace::launch(&select, &fixture("fatal"), &["-value", value]);
        trace.output.expect_code(4);
        trace.expect_ends();
        let panics = trace.of_type("panic");
        assert_eq!(panics.len(), 1, "{value}: {}", trace.output.story());
        assert_eq!(panics[0]["recovered"], false);
        if value != "runtime" {
            assert_eq!(panics[0]["value_type"], type_name, "{}", panics[0]);
        }
        if value == "string" {
            assert_eq!(panics[0]["value"], "the last words", "{}", panics[0]);
        }
        assert_eq!(trace.summary()["target_exit"], 2);
    }
}

#[test]
fn root_os_exit_leaves_calls_open() {
    let select = functions(&["main.outer", "main.quitter", "main.parked"]);
    let trace = Trace::launch(&select, &fixture("osexit"), &["-code", "3"]);
    trace.output.expect_code(0);
    trace.expect_ends();
    assert_eq!(trace.summary()["target_exit"], 3);
}

#[test]
fn root_thousands_of_goroutines_keep_their_calls() {
    let select = functions(&["main.job", "main.step"]);
    let trace = Trace::launch(&select, &fixture("goroutines"), &["-n", "10000"]);
    trace.output.expect_code(0);
    trace.expect_returned();
    let ids: std::collections::BTreeSet<u64> =
        trace.calls_of("main.job").iter().map(|call| number(&call["goid"])).collect();
    assert_eq!(ids.len(), 10_000, "each goroutine has its own id");
}

#[test]
fn root_goroutines_that_change_threads_keep_their_calls() {
    let trace = Trace::launch(&functions(&["main.hop", "main.rest"]), &fixture("migrate"), &[]);
    trace.output.expect_code(0);
    trace.expect_returned();
    assert!(number(&trace.done()["moved"]) > 0, "the fixture did move: {}", trace.done());
}

#[test]
fn root_wrappers_that_leave_by_a_jump_end_as_tail() {
    let wrappers = [
        "main.(*first).Get",
        "main.first.Get",
        "main.(*second).Get",
        "main.(*third).Get",
        "main.(*fourth).Get",
    ];
    let mut names = vec!["main.call", "main.(*base).Get"];
    names.extend(wrappers);
    let trace = Trace::launch(&functions(&names), &fixture("tail"), &[]);
    trace.output.expect_code(0);
    let (calls, ends) = (trace.done()["calls"].clone(), trace.ends());
    for name in &names {
        let total: u64 = ends.get(*name).map_or(0, |ends| ends.values().sum());
        assert_eq!(total, number(&calls[*name]), "{name} in {ends:?}");
    }
    for name in ["main.call", "main.(*base).Get"] {
        assert_eq!(ends[name].keys().collect::<Vec<_>>(), ["return"], "{name}");
    }
    for name in wrappers {
        // Without optimisation the compiler calls where it could jump.
        let ends: Vec<&str> = ends[name].keys().map(String::as_str).collect();
        assert!(ends == ["tail"] || ends == ["return"], "{name}: {ends:?}");
    }
    trace.expect_sound();
}

#[test]
fn root_attaching_in_the_middle_invents_nothing() {
    let mut target = Running::start(&fixture("sleepy"), &["-g", "3", "-n", "5"]);
    target.wait_for("parked", LIMIT);
    let pid = target.pid();
    let select = functions(&["main.outer", "main.inner", "main.tick"]);
    let trace = Trace::attach(&select, pid, || {
        target.go();
        target.wait_for("tick", LIMIT);
    });
    trace.output.expect_code(0);
    trace.expect_sound();
    assert_eq!(trace.calls_of("main.tick").len(), 5);
    assert_eq!(trace.of_type("call").len(), 5, "outer and inner began before the attach");
    target.close_stdin();
    assert!(target.wait(LIMIT).success(), "the target went on: {}", target.stderr());
    assert_eq!(target.wait_for("done", LIMIT)["sum"], 6);
}

#[test]
fn root_detaching_reports_open_calls_and_the_target_goes_on() {
    let mut target = Running::held(&fixture("sleepy"), &["-g", "4"]);
    let trace = Trace::attach(&functions(&["main.outer", "main.inner"]), target.pid(), || {
        target.go();
        target.wait_for("parked", LIMIT);
    });
    trace.output.expect_code(0);
    trace.expect_sound();
    for name in ["main.outer", "main.inner"] {
        let open: u64 = trace.ends()[name]["open"];
        assert_eq!((open, trace.calls_of(name).len()), (4, 4), "{name}");
    }
    target.close_stdin();
    assert!(target.wait(LIMIT).success(), "the target went on: {}", target.stderr());
    assert_eq!(target.wait_for("done", LIMIT)["sum"], 10);
}

#[test]
fn root_a_computing_target_computes_the_same() {
    let select = functions(&["main.mix", "main.scale", "main.fold", "main.round", "main.fib"]);
    let trace = Trace::launch(&select, &fixture("spin"), &["-rounds", "10"]);
    trace.output.expect_code(0);
    trace.expect_returned();
    assert_eq!(trace.done()["wrong"], 0);
}

#[test]
fn root_exec_ends_open_calls_and_children_are_not_seen() {
    let select = functions(&["main.outer", "main.replace", "main.spawn", "main.child"]);
    let trace = Trace::launch(&select, &fixture("forkexec"), &["-children", "2", "-exec"]);
    trace.output.expect_code(0);
    let ends = trace.ends();
    assert_eq!(ends["main.spawn"]["return"], 2, "{ends:?}");
    for name in ["main.outer", "main.replace"] {
        assert_eq!(ends[name].keys().collect::<Vec<_>>(), ["exec"], "{ends:?}");
    }
}
