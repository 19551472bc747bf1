//! The core of `sched` for one Go version and build mode, by each backend: what `cargo xtask matrix
//! --suite sched_core` runs for all of them. All works of the fixture, as large as they are.

#[path = "common/chains.rs"]
mod chains;
#[path = "common/execution_trace.rs"]
mod execution_trace;

use chains::{Line, gospect, result_file, summary, watch};
use std::collections::BTreeSet;
use testkit::{Fixture, Mode, Toolchain, import_timeline, selected};

/// Waits that the works end in, by the first Go version that names them so.
const WAITS: [(u32, &str); 11] = [
    (19, "chan receive"),
    (19, "chan send"),
    (19, "select"),
    (19, "sleep"),
    (19, "IO wait"),
    (19, "sync.Cond.Wait"),
    (19, "semacquire"),
    (21, "sync.Mutex.Lock"),
    (21, "sync.RWMutex.RLock"),
    (23, "coroutine"),
    (25, "synctest.Run"),
];

fn check_waits(go: &Toolchain, lines: &[Line]) {
    let waits: BTreeSet<&str> = lines.iter().filter_map(|line| line.reason.as_deref()).collect();
    // What waits for a WaitGroup is called otherwise from Go 1.25 on.
    let ends = |reason: &str| if reason == "semacquire" { 24 } else { u32::MAX };
    for (since, reason) in WAITS {
        if (since..=ends(reason)).contains(&go.minor) {
            assert!(waits.contains(reason), "go {}: no {reason} in {waits:?}", go.version);
        }
    }
}

#[test]
fn root_chains_are_unbroken_on_uprobes() {
    let go = selected();
    check_waits(&go, &watch(&go, Mode::selected(), "uprobe", &[]));
}

/// Here the order is proved, and there is nothing to put right.
#[test]
fn root_chains_are_unbroken_on_trampolines() {
    let go = selected();
    let lines = watch(&go, Mode::selected(), "trampoline", &[]);
    check_waits(&go, &lines);
    // Swaps that are calls are left to uprobes, whose order is that of time.
    let by_calls = Mode::selected() == Mode::NoOpt && go.minor >= 21;
    let repairs = summary(&lines).repairs;
    assert!(repairs == 0 || by_calls, "{repairs} repairs");
}

/// For every goroutine what Go's own trace has: blocks, wakes and by whom, starts, yields, system calls.
#[test]
fn root_counts_and_wakers_are_those_of_the_execution_trace() {
    let (go, mode) = (selected(), Mode::selected());
    for backend in ["uprobe", "trampoline"] {
        let args = ["-n", "100", "-short", "300"];
        let (goroutines, wakes) = execution_trace::compare(&go, mode, backend, &args);
        assert!(goroutines > 1000 && wakes > 500, "{goroutines} goroutines, {wakes} wakes");
    }
}

#[test]
fn root_a_timeline_is_what_perfetto_takes() {
    let (go, mode) = (selected(), Mode::selected());
    let program = Fixture::build("states", &go, mode);
    for backend in ["uprobe", "trampoline"] {
        let file = result_file(&format!("timeline-{}-{mode}-{backend}", go.version));
        let [out, program] = [&file, &program].map(|path| path.to_str().unwrap());
        let command = ["sched", "--backend", backend, "--format", "perfetto", "--ring", "64"];
        let work = ["-o", out, "--", program, "-n", "60", "-short", "200"];
        gospect().run(&[&command[..], &work].concat()).expect_code(0);
        let timeline = import_timeline(&std::fs::read_to_string(&file).unwrap());
        std::fs::remove_file(&file).unwrap();
        let of = |cat: &str| timeline.slices.iter().filter(|slice| slice.cat == cat).count();
        let told = format!("go {} {mode} {backend}", go.version);
        assert!(of("goroutine") > 1000 && of("thread") > 500, "{told}: {timeline:?}");
        assert!(timeline.arrows.len() > 500, "{told}: {} arrows", timeline.arrows.len());
        // Who wakes somebody runs, unless it has just left its thread to a coroutine.
        let running = timeline
            .arrows
            .iter()
            .filter(|(from, _)| ["running", "syscall"].contains(&&*timeline.slices[*from].name));
        let running = running.count();
        assert!(running * 2 >= timeline.arrows.len(), "{told}: {running}");
    }
}
