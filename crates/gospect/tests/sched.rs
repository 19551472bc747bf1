//! `gospect sched`: chains of states without a break, on both backends, whatever goroutines do.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::{Fixture, Gospect, Mode, Running, Toolchain, newest, oldest, selected, toolchains};

const LIMIT: Duration = Duration::from_secs(180);

/// What of a line of JSON the tests look at.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Line {
    r#type: String,
    ts_ns: i64,
    goid: u64,
    pid: u32,
    from: String,
    to: String,
    held_ns: i64,
    reason: Option<String>,
    born_ns: Option<i64>,
    from_ns: i64,
    to_ns: i64,
    running_ns: i64,
    runnable_ns: i64,
    syscall_ns: i64,
    other_ns: i64,
    unknown_ns: i64,
    waiting_ns: BTreeMap<String, i64>,
    made: u64,
    ended: u64,
    live: u64,
    found: u64,
    lost: u64,
    breaks: u64,
    mended: u64,
    repairs: u64,
    invalid: u64,
    no_goroutine: u64,
    refused: u64,
    changes: u64,
    backend: String,
}

fn gospect() -> Gospect {
    Gospect::new(env!("CARGO_BIN_EXE_gospect")).limit(LIMIT)
}

fn result_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.json", std::process::id()))
}

/// The lines of a result, which is removed.
fn lines(path: &Path) -> Vec<Line> {
    let file = BufReader::new(File::open(path).unwrap());
    let line = |line: String| {
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"))
    };
    let lines = file.lines().map(|text| line(text.unwrap())).collect();
    std::fs::remove_file(path).unwrap();
    lines
}

/// What is true of every capture that lost nothing: each goroutine's changes follow from each
/// other, the times of its states add up to its life, and every goroutine is accounted for.
fn check(lines: &[Line], told: &str) {
    let mut last: BTreeMap<(u32, u64), (&str, i64)> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.r#type == "state") {
        let who = (line.pid, line.goid);
        if let Some((state, ts_ns)) = last.insert(who, (&line.to, line.ts_ns)) {
            assert_eq!((line.from.as_str(), line.ts_ns - line.held_ns), (state, ts_ns), "{told}");
        }
        if line.to == "dead" {
            last.remove(&who);
        }
    }
    for line in lines.iter().filter(|line| line.r#type == "goroutine") {
        let waited: i64 = line.waiting_ns.values().sum();
        let spent = line.running_ns + line.runnable_ns + line.syscall_ns + line.other_ns + waited;
        assert_eq!(spent, line.to_ns - line.from_ns, "{told}: {line:?}");
        assert_eq!(line.unknown_ns, 0, "{told}: {line:?}");
    }
    let summary = summary(lines);
    let wrong = [summary.lost, summary.breaks, summary.mended, summary.invalid, summary.refused];
    assert_eq!(wrong, [0; 5], "{told}: {summary:?}");
    assert_eq!(summary.no_goroutine, 0, "{told}: {summary:?}");
    let goroutines = lines.iter().filter(|line| line.r#type == "goroutine").count() as u64;
    assert_eq!(goroutines, summary.ended + summary.live, "{told}: {summary:?}");
}

fn summary(lines: &[Line]) -> &Line {
    lines.iter().rfind(|line| line.r#type == "summary").expect("a summary")
}

/// Watches the fixture from its first instruction to its end.
fn watch(go: &Toolchain, mode: Mode, backend: &str, args: &[&str]) -> Vec<Line> {
    let program = Fixture::build("states", go, mode);
    let told = format!("go {} {mode} {backend} {args:?}", go.version);
    let path = result_file(&format!("sched-{}-{mode}-{backend}", go.version));
    let program = program.to_str().unwrap();
    let out = path.to_str().unwrap();
    let mut command =
        vec!["sched", "--backend", backend, "--events", "--format", "json", "-o", out];
    if backend == "trampoline" {
        command.extend(["--ring", "16"]);
    }
    command.extend(["--", program]);
    command.extend(args);
    let output = gospect().run(&command);
    output.expect_code(0);
    let done = output.of_type("done").remove(0);
    let made: u64 = done["made"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    let lines = lines(&path);
    check(&lines, &told);
    let summary = summary(&lines);
    assert_eq!(summary.backend, backend, "{told}");
    // The runtime makes some of its own, among them up to one worker per processor.
    assert!((made..made + 60).contains(&summary.made), "{told}: {made} of {summary:?}");
    assert!(summary.ended >= made, "{told}: {made} of {summary:?}");
    lines
}

/// Every work, as large as the issue has it.
#[test]
fn root_chains_are_unbroken_under_everything_goroutines_do() {
    for go in [oldest(), newest()] {
        let lines = watch(&go, Mode::Exe, "uprobe", &[]);
        let reasons: std::collections::BTreeSet<&str> =
            lines.iter().filter_map(|line| line.reason.as_deref()).collect();
        for reason in ["chan receive", "chan send", "select", "sleep", "IO wait", "sync.Cond.Wait"]
        {
            assert!(reasons.contains(reason), "go {}: {reason} in {reasons:?}", go.version);
        }
        if go.version.starts_with("1.27") {
            for reason in ["coroutine", "sync.Mutex.Lock", "sync.RWMutex.RLock", "synctest.Run"] {
                assert!(reasons.contains(reason), "go {}: {reason} in {reasons:?}", go.version);
            }
        }
    }
}

/// The core of it for every version, on both backends.
#[test]
fn root_every_version_is_followed() {
    for go in toolchains() {
        for backend in ["uprobe", "trampoline"] {
            watch(&go, Mode::Exe, backend, &["-n", "60", "-short", "300"]);
        }
    }
}

#[test]
fn root_every_way_of_building_is_followed() {
    for mode in [Mode::Pie, Mode::Cgo, Mode::CgoPie, Mode::Stripped, Mode::StrippedPie] {
        for go in [oldest(), newest()] {
            for backend in ["uprobe", "trampoline"] {
                watch(&go, mode, backend, &["-n", "40", "-short", "100"]);
            }
        }
    }
}

/// What the matrix asks for.
#[test]
fn root_the_selected_build_is_followed() {
    for backend in ["uprobe", "trampoline"] {
        watch(&selected(), Mode::selected(), backend, &["-n", "100", "-short", "500"]);
    }
}

/// Goroutines that were there before the attach are known, with where they come from.
#[test]
fn root_goroutines_from_before_the_attach_are_told_of() {
    let program = Fixture::build("states", &newest(), Mode::Exe);
    for backend in ["uprobe", "trampoline"] {
        let mut running =
            Running::start(&program, &["-wait", "-work", "short", "-short", "50", "-linger"]);
        running.wait_for("ready", LIMIT);
        let pid = running.pid().to_string();
        let path = result_file(&format!("sched-attach-{backend}"));
        let out = path.to_str().unwrap();
        let command = [
            "sched",
            "-p",
            &pid,
            "--backend",
            backend,
            "--events",
            "--format",
            "json",
            "-o",
            out,
            "--duration",
            "3s",
        ];
        let mut watching = gospect().start(&command);
        watching.wait_error_line(LIMIT, |line| line.contains("watching goroutines"));
        running.go();
        running.wait_for("done", LIMIT);
        gospect().finish(&mut watching).expect_code(0);
        let lines = lines(&path);
        check(&lines, backend);
        let summary = summary(&lines);
        // The main goroutine and those of the runtime; main's 50 were made meanwhile.
        assert!(summary.found >= 1 && summary.made >= 51, "{backend}: {summary:?}");
        let main = lines.iter().find(|line| line.r#type == "goroutine" && line.goid == 1).unwrap();
        assert_eq!(main.born_ns, None, "{backend}: {main:?}");
        assert!(main.to_ns - main.from_ns > 1_000_000_000, "{backend}: {main:?}");
        running.close_stdin();
        assert!(running.wait(LIMIT).success());
    }
}

/// Detached from while everything changes, and of two executables at once.
#[test]
fn root_chains_are_unbroken_up_to_the_detach() {
    let programs = [oldest(), newest()].map(|go| Fixture::build("states", &go, Mode::Exe));
    let running: Vec<Running> = programs
        .iter()
        .map(|program| {
            Running::start(program, &["-n", "20", "-work", "timer,mutex", "-repeat", "100000"])
        })
        .collect();
    let pids: Vec<String> = running.iter().map(|running| running.pid().to_string()).collect();
    running.iter().for_each(|running| _ = running.wait_for("ready", LIMIT));
    let path = result_file("sched-detach");
    let (out, pids) = (path.to_str().unwrap(), pids.join(","));
    let command =
        ["sched", "-p", &pids, "--duration", "1s", "--events", "--format", "json", "-o", out];
    gospect().run(&command).expect_code(0);
    let lines = lines(&path);
    check(&lines, "both");
    assert_eq!(lines.iter().filter(|line| line.r#type == "summary").count(), 1);
    let of = |running: &Running| lines.iter().filter(|line| line.pid == running.pid()).count();
    assert!(running.iter().all(|running| of(running) > 1000));
}

/// A recording gives what the capture gave.
#[test]
fn root_a_recording_is_shown_as_the_capture_was() {
    let program = Fixture::build("states", &newest(), Mode::Exe);
    let program = program.to_str().unwrap();
    let (direct, replayed) = (result_file("sched-direct"), result_file("sched-replayed"));
    let recorded = result_file("sched-recorded");
    let [direct_, replayed_, recorded_] =
        [&direct, &replayed, &recorded].map(|p| p.to_str().unwrap());
    gospect()
        .run(&[
            "sched", "--record", recorded_, "--events", "--format", "json", "-o", direct_, "--",
            program, "-n", "30", "-short", "30",
        ])
        .expect_code(0);
    gospect()
        .run(&["report", recorded_, "--events", "--format", "json", "-o", replayed_])
        .expect_code(0);
    assert_eq!(
        std::fs::read_to_string(&direct).unwrap(),
        std::fs::read_to_string(&replayed).unwrap()
    );
    let timeline = result_file("sched-timeline");
    gospect()
        .run(&["report", recorded_, "--perfetto", "-o", timeline.to_str().unwrap()])
        .expect_code(0);
    let events: Vec<serde_json::Value> =
        serde_json::from_str(&std::fs::read_to_string(&timeline).unwrap()).unwrap();
    let phases = |phase| events.iter().filter(|event| event["ph"] == phase).count();
    assert!(
        phases("X") > 100 && phases("s") > 30,
        "{} slices, {} arrows",
        phases("X"),
        phases("s")
    );
    assert_eq!(phases("s"), phases("f"));
    gospect().run(&["report", recorded_, "--by", "reason"]).expect_code(0);
    gospect().run(&["report", recorded_, "--stat"]).expect_code(2);
    for path in [direct, replayed, recorded, timeline] {
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn what_makes_no_sense_is_a_usage_error() {
    let run = |args: &[&str]| gospect().run(args);
    run(&["sched"]).expect_code(2);
    run(&["sched", "-p", "1", "--state", "asleep"]).expect_code(2);
    run(&["sched", "-p", "1", "--reason", "/(/"]).expect_code(2);
    run(&["sched", "-p", "1", "./prog"]).expect_code(2);
    run(&["sched", "--exe", "./prog", "--backend", "trampoline"]).expect_code(2);
    run(&["sched", "-p", "1", "--"]).expect_code(2);
    run(&["sched", "--", "/bin/true"]).expect_code(1);
}
