//! Attach, capture, detach, again and again, on programs that check themselves while their own
//! profiler sends signals: nothing may ever be different for them. Quick here; `cargo xtask soak`
//! asks for a thousand rounds. Needs root.

mod common;
#[path = "common/target.rs"]
mod target;

use common::{LIMIT, fixture, gospect};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use target::Target;
use testkit::{Fixture, Mode, Running, newest, soak_rounds};

/// One capture by trampolines, and uprobes where there can be none. On a busy machine the target
/// may not run at all meanwhile; gives whether it did.
fn cycle(target: &mut Target, round: u32, patterns: &[&str]) -> bool {
    let pid = target.pid.to_string();
    let mut args = vec!["trace", "--backend", "trampoline", "--stat", "-p", &pid, "-q"];
    args.extend(["--duration", "20ms"]);
    patterns.iter().for_each(|pattern| args.extend(["-u", pattern]));
    let output = gospect().run(&args);
    let running = &mut target.running;
    assert!(running.is_running(), "dead in round {round}: {}", running.stderr());
    assert!(matches!(output.code, Some(0 | 3)), "round {round}: {}", output.story());
    target.assert_clean(&format!("round {round}"));
    output.code == Some(0)
}

/// Right results, and profiles all the time with something in them.
fn finish(target: Target) {
    let done = target.finish();
    let (profiles, bytes) = (done["profiles"].as_u64(), done["bytes"].as_u64());
    assert!(profiles > Some(0) && bytes > profiles.map(|n| 200 * n), "{done}");
}

#[test]
fn root_a_busy_program_outlives_many_captures() {
    let mut target = Target::start(&fixture("selfprofile"), &["-g", "3"]);
    let (rounds, mut seen) = (soak_rounds(6), 0);
    for round in 0..rounds {
        let patterns = [["main.*", "fmt.*"], ["main.*", "runtime.*"]];
        seen += u32::from(cycle(&mut target, round, &patterns[round as usize % 2]));
    }
    assert!(seen > rounds / 2, "calls were seen in {seen} of {rounds} captures");
    finish(target);
}

/// Loads a server until it is told to stop; gives the requests made.
fn load(client: &Path, addr: &str, stop: &AtomicBool) -> u64 {
    let mut requests = 0;
    while !stop.load(Ordering::Relaxed) {
        let paths = "/check?n=1,/check?n=3,/check?n=2";
        let args = ["-addr", addr, "-n", "0", "-for", "1s", "-c", "4", "-paths", paths];
        let mut running = Running::start(client, &args);
        assert!(running.wait(LIMIT).success(), "{}", running.stderr());
        let done = running.wait_for("done", LIMIT);
        assert_eq!(done["failures"], 0, "{done}");
        requests += done["requests"].as_u64().expect("a number");
    }
    requests
}

#[test]
fn root_a_loaded_server_outlives_many_captures() {
    let mut target = Target::start(&fixture("selfprofile"), &["-g", "0", "-http"]);
    let listening = target.running.wait_for("listening", LIMIT);
    let addr = listening["addr"].as_str().expect("an address");
    // Another program than the target, which would share its uprobes.
    let client = Fixture::build("httpload", &newest(), Mode::Exe);
    let stop = AtomicBool::new(false);
    let requests = std::thread::scope(|scope| {
        let loading = scope.spawn(|| load(&client, addr, &stop));
        for round in 0..soak_rounds(6) {
            let patterns = [["main.*", "net/http.*"], ["net.*", "runtime.*"]];
            cycle(&mut target, round, &patterns[round as usize % 2]);
            assert!(!loading.is_finished(), "the load has failed in round {round}");
        }
        stop.store(true, Ordering::Relaxed);
        loading.join().expect("every request is answered right")
    });
    assert!(requests > 0);
    finish(target);
}
