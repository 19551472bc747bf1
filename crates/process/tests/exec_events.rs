//! The kernel tells of programs that begin.

use process::ExecEvents;
use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn root_programs_that_begin_are_told() {
    let events = ExecEvents::listen().expect("root in the initial namespaces");
    let mut started = BTreeSet::new();
    for _ in 0..3 {
        let mut child = Command::new("/bin/true").spawn().unwrap();
        started.insert(child.id());
        child.wait().unwrap();
    }
    let until = Instant::now() + Duration::from_secs(30);
    let mut told = BTreeSet::new();
    while !started.is_subset(&told) && Instant::now() < until {
        told.extend(events.take().pids);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(started.is_subset(&told), "{started:?} {told:?}");
}
