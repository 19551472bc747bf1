//! `gospect goroutines` against what programs say of themselves.

mod common;
#[path = "common/snapshots.rs"]
mod snapshots;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use testkit::{Fixture, Mode, Running, newest, oldest, toolchains};

use common::{LIMIT, gospect, number, temporary, text};
use snapshots::{PARKED, check_core_dump, check_json, compare_with_its_own, crash, json, parked};

/// Every Go version's program against its own text, which has at least `least` goroutines.
fn compare_with_the_programs_own(fixture: &str, mode: Mode, least: usize) {
    for go in toolchains() {
        compare_with_its_own(fixture, &go, mode, least);
    }
}

#[test]
fn static_executables_are_seen_as_they_see_themselves() {
    compare_with_the_programs_own("parked", Mode::Exe, PARKED);
}

#[test]
fn position_independent_ones_too() {
    compare_with_the_programs_own("parked", Mode::Pie, PARKED);
}

#[test]
fn those_with_cgo_too() {
    compare_with_the_programs_own("parked", Mode::Cgo, PARKED);
}

#[test]
fn those_that_wait_in_c_or_were_called_by_it_too() {
    compare_with_the_programs_own("parked_cgo", Mode::Cgo, 4);
    compare_with_the_programs_own("parked_cgo", Mode::CgoPie, 4);
}

#[test]
fn stripped_ones_too() {
    compare_with_the_programs_own("parked", Mode::Stripped, PARKED);
    compare_with_the_programs_own("parked", Mode::StrippedPie, PARKED);
}

#[test]
fn those_without_optimisation_too() {
    compare_with_the_programs_own("parked", Mode::NoOpt, PARKED);
}

#[test]
fn json_has_what_the_text_lacks() {
    for go in toolchains() {
        for mode in [Mode::Exe, Mode::Stripped] {
            check_json(&go, mode);
        }
    }
}

#[test]
fn groups_add_up_to_the_goroutines() {
    let (running, _) = parked(&newest(), Mode::Exe);
    let lines = json(running.pid(), &[]);
    let goroutines: Vec<&Value> = lines.iter().filter(|l| l["type"] == "goroutine").collect();
    for key in ["state", "reason", "site"] {
        let groups = json(running.pid(), &["--group", key]);
        let (summary, groups) = groups.split_last().unwrap();
        assert_eq!(summary["type"], "summary");
        let total: u64 = groups.iter().map(|group| number(&group["count"])).sum();
        assert_eq!(total, goroutines.len() as u64, "{key}");
        for group in groups.iter().filter(|_| key != "site") {
            let of = |line: &Value| match &line["reason"] {
                Value::String(reason) if key == "reason" => reason.clone(),
                _ => text(&line["state"]),
            };
            let count = goroutines.iter().filter(|line| of(line) == text(&group["key"])).count();
            assert_eq!(number(&group["count"]), count as u64, "{group}");
            assert_eq!(of(&group["sample"]), text(&group["key"]), "{group}");
        }
    }
    let bare = json(running.pid(), &["--no-stacks", "--state", "syscall"]);
    // The system call, and the report that waits for its input.
    assert_eq!(bare.len(), 2 + 1, "{bare:?}");
    assert_eq!((&bare[0]["state"], &bare[0]["stack"]), (&"syscall".into(), &Value::from([0; 0])));
}

/// `main.descend` must stand on the stack as often as the wait says.
fn check_churning(line: &Value) -> bool {
    let stack = line["stack"].as_array().unwrap();
    let names: Vec<&str> = stack.iter().filter_map(|frame| frame["func"].as_str()).collect();
    if names.first() == line["start"].as_str().as_ref() {
        // It never ran.
        assert_eq!(line["state"], "runnable", "{line}");
        return false;
    }
    assert_eq!(names.last(), Some(&"main.player"), "{line}");
    let depth = names.iter().filter(|name| **name == "main.descend").count();
    for (name, odd) in [("main.even", 0), ("main.odd", 1)] {
        if names.contains(&name) {
            assert_eq!(depth % 2, odd, "{line}");
            return true;
        }
    }
    false
}

#[test]
fn goroutines_that_move_are_never_shown_wrong_and_nothing_is_stopped() {
    for go in [oldest(), newest()] {
        let running = Running::start(&Fixture::build("churn", &go, Mode::Exe), &[] as &[&str]);
        running.wait_for("busy", LIMIT);
        let (mut whole, mut torn) = (0, 0);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| watch_for_stops(running.pid(), &done));
            let ends = SetOnDrop(&done);
            for _ in 0..30 {
                let lines = json(running.pid(), &[]);
                let players = lines.iter().filter(|line| line["created_by"]["func"] == "main.main");
                let players: Vec<&Value> = players.collect();
                assert_eq!(players.len(), 40, "go {}", go.version);
                for line in players {
                    torn += u64::from(line["torn"] == true);
                    let stands = line["torn"] == false && line["stack_unavailable"].is_null();
                    whole += u64::from(stands && check_churning(line));
                }
            }
            drop(ends);
            assert!(watcher.join().unwrap() > 0, "the watcher looked");
        });
        assert!(whole > 300, "go {}: {whole} whole stacks, {torn} torn", go.version);
    }
}

/// Lets the watcher end, also when a comparison fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How often no thread of the process was stopped or traced; panics when one was.
fn watch_for_stops(pid: u32, done: &AtomicBool) -> u64 {
    let mut looks = 0;
    while !done.load(Ordering::Relaxed) {
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
            let Ok(status) = std::fs::read_to_string(task.path().join("status")) else { continue };
            for line in status.lines() {
                assert!(!line.starts_with("State:\tT") && !line.starts_with("State:\tt"), "{line}");
                assert!(!line.starts_with("TracerPid:") || line.ends_with("\t0"), "{line}");
            }
        }
        looks += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    looks
}

#[test]
fn a_hundred_thousand_take_little_time_and_memory() {
    let program = Fixture::build("parked", &newest(), Mode::Exe);
    let target = Running::start(&program, &["-many", "100000"]);
    target.wait_for("profile", LIMIT);
    let (pid, file) = (target.pid().to_string(), temporary("jsonl"));
    let file_text = file.to_string_lossy();
    let line = ["goroutines", "-p", &pid, "--format", "json", "-o", &file_text];
    let mut running = gospect().start(&line);
    let (mut peak, mut ticks) = (0, 0);
    while running.is_running() {
        ticks = ticks.max(common::cpu_ticks(running.pid()));
        let status = std::fs::read_to_string(format!("/proc/{}/status", running.pid()));
        let anonymous = status.ok().and_then(|status| {
            let line = status.lines().find(|line| line.starts_with("RssAnon:"))?.to_owned();
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        });
        peak = peak.max(anonymous.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(5));
    }
    gospect().finish(&mut running).expect_code(0);
    let written = std::fs::read_to_string(&file).unwrap();
    _ = std::fs::remove_file(&file);
    let deep = written.lines().filter(|line| line.contains("\"main.deep\"")).count();
    assert_eq!(deep, 100_000 + 2);
    // CPU time: how long it waits for a CPU is another matter. There are 100 ticks a second.
    let limit = if cfg!(debug_assertions) { 6_000 } else { 200 };
    assert!(ticks > 0 && ticks < limit, "{ticks} ticks");
    assert!(peak > 0 && peak < 300 << 10, "{peak} KiB of anonymous memory");
}

#[test]
fn a_core_dump_shows_what_the_crash_showed() {
    for (go, mode) in [
        (oldest(), Mode::Exe),
        (testkit::toolchain("1.23.9"), Mode::StrippedPie),
        (newest(), Mode::Cgo),
        (newest(), Mode::Pie),
    ] {
        check_core_dump(&go, mode);
    }
}

/// A dump that was cut is not filled up with zeroes, and one of another executable is none of this.
#[test]
fn a_core_dump_is_not_believed_beyond_what_it_is() {
    let dir = temporary("core-damaged");
    std::fs::create_dir_all(&dir).unwrap();
    let original = Fixture::build("parked", &newest(), Mode::Exe);
    // The file may be replaced between the crash and the look.
    let program = dir.join("program");
    std::fs::copy(original, &program).unwrap();
    crash(&program, &dir);
    let files = std::fs::read_dir(&dir).unwrap().flatten().map(|entry| entry.path());
    let core = files.into_iter().find(|path| *path != program).expect("a core dump");
    let core_text = core.to_string_lossy().into_owned();
    let of = |options: &[&str]| {
        gospect()
            .run(&[&["goroutines", "--core", &core_text, "--format", "json"], options].concat())
    };
    let whole = of(&[]);
    whole.expect_code(0);
    let whole = whole.of_type("goroutine");

    let other = Fixture::build("parked", &oldest(), Mode::Exe);
    let given = of(&[other.to_str().unwrap()]);
    given.expect_code(1);
    assert!(given.stderr.contains("is not the executable that"), "{}", given.story());
    // Built anew with the same toolchain: what differs are the build id and the code.
    let other = Fixture::build("churn", &newest(), Mode::Exe);
    std::fs::remove_file(&program).unwrap();
    std::fs::copy(other, &program).unwrap();
    let replaced = of(&[]);
    replaced.expect_code(1);
    assert!(replaced.stderr.contains("is not the executable that"), "{}", replaced.story());
    std::fs::remove_file(&program).unwrap();
    std::fs::copy(Fixture::build("parked", &newest(), Mode::Exe), &program).unwrap();

    // What there is of a dump that was cut is right.
    let size = std::fs::metadata(&core).unwrap().len();
    for share in [9, 7, 4, 1] {
        let file = std::fs::OpenOptions::new().write(true).open(&core).unwrap();
        file.set_len(size / 10 * share).unwrap();
        let cut = of(&[]);
        assert!(cut.stderr.contains("bytes are missing"), "{share}: {}", cut.story());
        for line in cut.of_type("goroutine") {
            let same = whole.iter().find(|known| known["goid"] == line["goid"]);
            let same = same.unwrap_or_else(|| panic!("{share}: {line} is not in the whole dump"));
            let is_cut = line["stack_unavailable"].is_string();
            for key in ["state", "reason", "created_by", "locked", "parent_goid"] {
                assert_eq!(line[key], same[key], "{share}");
            }
            assert!(is_cut || line["stack"] == same["stack"], "{share}: {line} {same}");
            let has_labels = line["labels_unavailable"].is_null();
            assert!(!has_labels || line["labels"] == same["labels"], "{share}: {line} {same}");
        }
    }
    _ = std::fs::remove_dir_all(&dir);
}

/// What a goroutine saved when it waited last is not where it is.
#[test]
fn a_goroutine_that_asks_for_the_time_is_not_where_it_waited_before() {
    for go in [oldest(), newest()] {
        let dir = temporary("core-clock");
        std::fs::create_dir_all(&dir).unwrap();
        crash(&Fixture::build("clock", &go, Mode::Exe), &dir);
        let core = std::fs::read_dir(&dir).unwrap().flatten().next().expect("a core dump").path();
        let core = core.to_string_lossy().into_owned();
        let output = gospect().run(&["goroutines", "--core", &core, "--format", "json"]);
        output.expect_code(0);
        _ = std::fs::remove_dir_all(&dir);
        let clocks = output.of_type("goroutine");
        let clocks: Vec<&Value> =
            clocks.iter().filter(|line| line["start"] == "main.clock").collect();
        assert_eq!(clocks.len(), 3, "go {}", go.version);
        for line in clocks {
            let stack = line["stack"].as_array().unwrap();
            let has = |func: &str| stack.iter().any(|frame| frame["func"] == func);
            assert!(!has("main.early"), "go {}: {line}", go.version);
            assert!(has("main.ask") || line["stack_unavailable"].is_string(), "{line}");
        }
    }
}

#[test]
fn what_cannot_be_is_said() {
    let (running, _) = parked(&newest(), Mode::Exe);
    let pid = running.pid().to_string();
    for (line, code, message) in [
        (vec!["goroutines"], 2, "no process named"),
        (vec!["goroutines", "-p", &pid, "--state", "asleep"], 2, "no state `asleep`"),
        (vec!["goroutines", "-p", &pid, "--group", "site", "--format", "go"], 2, "no form for"),
        (vec!["goroutines", "-p", &pid, "--state", "copystack"], 3, "is in that state"),
        (vec!["goroutines", "--core", "/proc/self/exe"], 1, "is no core dump"),
    ] {
        let output = gospect().run(&line);
        output.expect_code(code);
        assert!(output.stderr.contains(message), "{line:?}: {}", output.stderr);
    }
}
