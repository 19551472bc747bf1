//! Fixtures build, run, and say what they did.

use std::time::Duration;

use testkit::{Fixture, Mode, Running, newest, oldest};

const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn every_mode_builds_and_counts_the_same() {
    for mode in Mode::ALL {
        let fixture = Fixture::build("counts", &newest(), mode);
        assert_eq!(fixture, Fixture::build("counts", &newest(), mode), "built once");
        let mut running = Running::start(&fixture, &["-n", "100", "-g", "3"]);
        assert!(running.wait(LIMIT).success(), "{mode}: {}", running.stderr());
        let done = running.wait_for("done", LIMIT);
        assert_eq!(done["calls"]["main.work"], 100, "{mode}");
        assert_eq!(done["sum"], 442, "{mode}");
    }
}

#[test]
fn a_held_fixture_waits_for_its_go() {
    let fixture = Fixture::build("counts", &oldest(), Mode::Exe);
    let mut running = Running::held(&fixture, &["-n", "8", "-linger"]);
    assert!(!running.stdout().contains("done"));
    running.go();
    running.wait_for("done", LIMIT);
    assert!(running.is_running(), "it lingers");
    running.go();
    assert!(running.wait(LIMIT).success());
}
