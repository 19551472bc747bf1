//! Breakpoints of other tools on the functions that are traced: set before, during and after a
//! capture, and coming and going all the time. Needs root.
//!
//! The kernel's own uprobe events stand for bpftrace, perf and the like: the same breakpoints in the
//! same places, entries and RETs.

mod common;
#[path = "common/target.rs"]
mod target;

use common::{LIMIT, cpu_ticks, fixture, gospect, wait_attached};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use target::Target;
use testkit::{Running, soak_rounds};

/// Probed by somebody else; they begin with a check of the stack, as all functions that call.
const FUNCTIONS: [&str; 3] = ["main.fib", "main.mix", "main.round"];

/// First bytes and RETs of [`FUNCTIONS`], as places in the file at `path`.
fn places(path: &Path) -> Vec<u64> {
    let how = ["funcs", "--format", "json", path.to_str().expect("a path")];
    let functions = gospect().run(&how).of_type("func");
    let mut places = Vec::new();
    for function in functions.iter().filter(|f| FUNCTIONS.contains(&f["name"].as_str().unwrap())) {
        // A static program: its code lies where its file says, from 4 MiB on.
        places.push(common::number(&function["addr"]) - 0x40_0000);
        places.extend(function["exits"].as_array().expect("a list").iter().map(common::number));
    }
    assert!(places.len() >= 2 * FUNCTIONS.len(), "{places:x?}");
    places
}

/// Events of the kernel on some places, enabled as long as they live.
struct Events {
    tracefs: PathBuf,
    group: String,
}

impl Events {
    /// `tracefs` is an empty directory.
    fn set(tracefs: &Path, path: &Path, places: &[u64]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let group = format!("gospect_test_{}_{next}", std::process::id());
        let events = Self { tracefs: tracefs.to_owned(), group };
        for (index, place) in places.iter().enumerate() {
            events.command(&format!("p:{}/e{index} {}:0x{place:x}", events.group, path.display()));
        }
        events.enable(true);
        events
    }

    fn enable(&self, on: bool) {
        let path = self.tracefs.join(format!("events/{}/enable", self.group));
        let word = if on { "1" } else { "0" };
        fs::write(&path, word).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    fn command(&self, text: &str) {
        let path = self.tracefs.join("uprobe_events");
        let mut file = OpenOptions::new().append(true).open(&path).expect("tracefs is mounted");
        file.write_all(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.enable(false);
        let all = fs::read_to_string(self.tracefs.join("uprobe_events")).expect("the events");
        let names =
            all.lines().filter_map(|line| line.split_whitespace().next()?.strip_prefix("p:"));
        for name in names.filter(|name| name.starts_with(&format!("{}/", self.group))) {
            self.command(&format!("-:{name}"));
        }
    }
}

/// The kernel's files of events, mounted where nobody else looks.
struct Tracefs(PathBuf);

impl Tracefs {
    fn mount(dir: &common::Directory) -> Self {
        let path = dir.file("tracefs");
        fs::create_dir(&path).expect("a directory of ours");
        let mounted = Command::new("mount").args(["-t", "tracefs", "tracefs"]).arg(&path).status();
        assert!(mounted.expect("mount").success());
        Self(path)
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A program of its own inode: events reach every process of a file.
fn subject(dir: &common::Directory) -> (PathBuf, Target) {
    let path = dir.copy(&fixture("odd"), "odd");
    let target = Target::start(&path, &["-g", "2"]);
    target.running.wait_for("odd", LIMIT);
    (path, target)
}

fn capture(target: &Target) -> Running {
    let pid = target.pid.to_string();
    let how = ["trace", "--backend", "trampoline", "--stat", "-u", "main.*", "-p", &pid];
    let tracer = gospect().start(&how);
    wait_attached(&tracer);
    tracer
}

/// Ends a capture that has seen calls: on a busy machine the target may not run at once.
fn end(mut tracer: Running, target: &Target) {
    let (begun, before) = (Instant::now(), cpu_ticks(target.pid));
    while cpu_ticks(target.pid) < before + 2 {
        assert!(begun.elapsed() < LIMIT, "the target does not run");
        std::thread::sleep(Duration::from_millis(5));
    }
    tracer.signal("INT");
    gospect().finish(&mut tracer).expect_code(0);
}

#[test]
fn root_breakpoints_before_during_and_after_a_capture() {
    let dir = common::Directory::new();
    let tracefs = Tracefs::mount(&dir);
    let (path, mut target) = subject(&dir);
    let places = places(&path);
    for round in 0..soak_rounds(1) {
        let round = format!("round {round}");
        // There before; gone after, and gone in between.
        let events = Events::set(&tracefs.0, &path, &places);
        let tracer = capture(&target);
        end(tracer, &target);
        let tracer = capture(&target);
        drop(events);
        end(tracer, &target);
        target.assert_clean(&round);
        // Come and gone in between, and left after.
        let tracer = capture(&target);
        drop(Events::set(&tracefs.0, &path, &places));
        let events = Events::set(&tracefs.0, &path, &places);
        end(tracer, &target);
        drop(events);
        assert!(target.running.is_running(), "{round}: {}", target.running.stderr());
        target.assert_clean(&round);
    }
    target.finish();
}

#[test]
fn root_breakpoints_that_come_and_go_all_the_time() {
    let dir = common::Directory::new();
    let tracefs = Tracefs::mount(&dir);
    let (path, mut target) = subject(&dir);
    let places = places(&path);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let toggling = scope.spawn(|| {
            let events = Events::set(&tracefs.0, &path, &places);
            while !stop.load(Ordering::Relaxed) {
                events.enable(false);
                events.enable(true);
            }
        });
        for round in 0..soak_rounds(2) {
            let pid = target.pid.to_string();
            let how = ["trace", "--backend", "trampoline", "--stat", "--duration", "20ms"];
            let output =
                gospect().run(&[&how[..], &["-u", "main.*", "-u", "fmt.*", "-p", &pid]].concat());
            let running = &mut target.running;
            assert!(running.is_running(), "dead in round {round}: {}", running.stderr());
            // A breakpoint that is set while a place is written, or just after, ends the attempt.
            let is_typed = output.stderr.contains("differs from its file");
            assert!(matches!(output.code, Some(0 | 3)) || is_typed, "{}", output.story());
        }
        stop.store(true, Ordering::Relaxed);
        toggling.join().expect("events can be set");
    });
    let _ = gospect().run(&["detach", "-p", &target.pid.to_string()]);
    target.assert_clean("at the end");
    target.finish();
}
