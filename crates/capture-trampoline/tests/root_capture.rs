//! Whole captures of running programs.

mod support;

use capture::{Capture as _, Request};
use capture_trampoline::{Options, TrampolineCapture};
use std::time::Duration;
use support::{Seen, Subject, read_to_end};
use testkit::{Fixture, Mode, Running, newest, oldest};
use wire::{RecordKind, SiteKind};

const LIMIT: Duration = Duration::from_secs(60);

/// Bytes of rings: as many as there may be.
const LARGE: usize = 16 << 20;

const SPIN: [&str; 5] = ["main.round", "main.mix", "main.scale", "main.fold", "main.fib"];

/// Runs `spin` for some rounds under a capture; gives what was seen, what the program says it
/// called, and what was lost.
fn count(
    subject: &Subject,
    rounds: &str,
    ring_bytes: usize,
    options: Options,
) -> (Seen, serde_json::Value, u64) {
    let mut running = Running::held(&subject.path, &["-rounds", rounds, "-g", "3"]);
    let request = Request { ring_bytes, ..subject.request(running.pid()) };
    let mut capture = TrampolineCapture::install(&request, options).unwrap();
    let refused: Vec<_> =
        capture.refused().keys().map(|&f| &*subject.plan.functions[f as usize].name).collect();
    assert!(!refused.iter().any(|name| SPIN.contains(name)), "{:?}", capture.refused());
    running.go();
    let seen = read_to_end(&mut capture, &subject.plan, LIMIT);
    let done = running.wait_for("done", LIMIT);
    assert!(running.wait(LIMIT).success());
    assert_eq!(done["wrong"], 0);
    assert_eq!(seen.other, [RecordKind::Process, RecordKind::ProcessExit]);
    assert_eq!(seen.disordered, 0);
    (seen, done, capture.counters().unwrap().lost)
}

#[test]
fn root_every_call_is_recorded() {
    // The last without `rdpid`, with rings by thread: older CPUs.
    let builds = [
        (newest(), Mode::Exe, false),
        (newest(), Mode::Pie, false),
        (oldest(), Mode::Cgo, false),
        (newest(), Mode::Exe, true),
        (oldest(), Mode::Pie, true),
    ];
    for (toolchain, mode, no_rdpid) in builds {
        let path = Fixture::build("spin", &toolchain, mode);
        let subject = Subject::new(&path, &SPIN);
        // What fits the rings, also when nobody reads.
        let (seen, done, lost) =
            count(&subject, "5", LARGE, Options { no_rdpid, ..subject.options() });
        assert_eq!(lost, 0);
        for function in SPIN {
            let expected = done["calls"][function].as_u64().unwrap();
            let entries = seen.count(function, SiteKind::Entry);
            let exits =
                seen.count(function, SiteKind::Return) + seen.count(function, SiteKind::TailJump);
            assert_eq!((entries, exits), (expected, expected), "{mode} {function}");
        }
    }
}

/// What is left to another backend stays as the file has it, wherever the code comes to lie.
#[test]
fn root_excluded_functions_are_not_written_into() {
    let path = Fixture::build("spin", &newest(), Mode::Exe);
    let subject = Subject::new(&path, &SPIN);
    let index = |name: &str| {
        let found = subject.plan.functions.iter().position(|function| function.name == name);
        u32::try_from(found.unwrap()).unwrap()
    };
    let excluded = [index("main.fib"), index("main.mix")].into();
    let mut running = Running::held(&path, &["-rounds", "3"]);
    let request = subject.request(running.pid());
    let options = Options { excluded, ..subject.options() };
    let mut capture = TrampolineCapture::install(&request, options).unwrap();
    for name in ["main.fib", "main.mix"] {
        let reason = &capture.refused()[&index(name)];
        assert!(reason.contains("is left to the other backend"), "{reason}");
        assert!(capture.bare().contains(&index(name)));
        let function = &subject.plan.functions[index(name) as usize];
        let range = function.entry.0..function.entry.0 + function.size;
        let different = subject.different_bytes(running.pid());
        assert!(!different.iter().any(|at| range.contains(at)), "{name}: {different:x?}");
    }
    running.go();
    let seen = read_to_end(&mut capture, &subject.plan, LIMIT);
    let done = running.wait_for("done", LIMIT);
    assert_eq!(done["wrong"], 0);
    for name in SPIN {
        let called = done["calls"][name].as_u64().unwrap();
        let want = if ["main.fib", "main.mix"].contains(&name) { 0 } else { called };
        assert_eq!(seen.count(name, SiteKind::Entry), want, "{name}");
    }
}

#[test]
fn root_what_does_not_fit_is_counted() {
    let path = Fixture::build("spin", &newest(), Mode::Exe);
    let subject = Subject::new(&path, &SPIN);
    // The last two with one ring for all CPUs, as on a machine that has more of them than rings.
    for (ring_bytes, no_rdpid) in [(LARGE, false), (1, false), (1, true)] {
        let options = Options { no_rdpid, ..subject.options() };
        let (seen, done, lost) = count(&subject, "300", ring_bytes, options);
        let expected: u64 = SPIN.iter().map(|name| done["calls"][name].as_u64().unwrap()).sum();
        let recorded: u64 = seen.hits.values().sum();
        // Besides its calls, the deaths of its goroutines are watched.
        let deaths = recorded + lost - 2 * expected;
        assert!((1..=8).contains(&deaths), "{recorded} + {lost} - 2 * {expected}");
    }
}

#[test]
fn root_removal_leaves_the_text_as_the_file_has_it() {
    let path = Fixture::build("spin", &newest(), Mode::Exe);
    let subject = Subject::new(&path, &["main.*", "runtime.*", "time.*", "sync.*"]);
    let mut running = Running::held(&path, &["-for", "0", "-g", "4"]);
    running.go();
    for _ in 0..4 {
        let mut capture = match subject.attach(running.pid()) {
            Ok(capture) => capture,
            Err(error) => panic!("{error}; {:?} {}", running.wait(LIMIT), running.stderr()),
        };
        assert!(!subject.different_bytes(running.pid()).is_empty());
        let begun = std::time::Instant::now();
        while capture.counters().unwrap().produced == 0 {
            capture.poll(Duration::from_millis(20), &mut |_| {}).unwrap();
            assert!(begun.elapsed() < LIMIT, "no call came");
        }
        capture.detach().unwrap();
        while capture.poll(Duration::ZERO, &mut |_| {}).unwrap() > 0 {}
        for removal in capture.removals() {
            assert_eq!((removal.foreign, removal.left_bytes), (0, 0), "{removal:?}");
        }
    }
    subject.assert_clean(running.pid());
    running.close_stdin();
    let done = running.wait_for("done", LIMIT);
    assert_eq!(done["wrong"], 0);
    assert!(running.wait(LIMIT).success());
}
