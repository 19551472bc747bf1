//! Programs with many goroutines: how long they stand while saved program counters are looked for.
//! `GOSPECT_SOAK=100000` with `--nocapture` says what that is.
#![allow(clippy::print_stderr, reason = "a figure for the person who asks for it")]

mod support;

use capture::Capture as _;
use std::time::Duration;
use support::Subject;
use testkit::{Fixture, Mode, Running, newest, soak_rounds};

const LIMIT: Duration = Duration::from_secs(120);

#[test]
fn root_many_parked_goroutines_are_no_obstacle() {
    let path = Fixture::build("parked", &newest(), Mode::Exe);
    let subject = Subject::new(&path, &["main.*"]);
    let many = soak_rounds(5000).to_string();
    let mut running = Running::start(&path, &["-many", &many]);
    running.wait_for("profile", LIMIT);
    let mut capture = subject.attach(running.pid()).unwrap();
    let report = capture.reports().next().unwrap().1.clone();
    capture.detach().unwrap();
    let removal = capture.removals()[0].clone();
    eprintln!("{many} goroutines: stops {:?}, to remove {:?}", report.stops, removal.stops);
    // Words that only look like saved program counters cost stops, and where the frame of a
    // preemption at the program's start is never overwritten, the one function it was in.
    assert!(report.busy.len() <= 1 && report.foreign.is_empty(), "{report:?}");
    assert_eq!((removal.foreign, removal.left_bytes), (0, 0));
    subject.assert_clean(running.pid());
    running.close_stdin();
    assert!(running.wait(LIMIT).success(), "{}", running.stderr());
}
