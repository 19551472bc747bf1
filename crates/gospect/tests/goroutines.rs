//! `gospect goroutines` against what programs say of themselves.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use testkit::{Fixture, Mode, Running, Toolchain, newest, oldest, toolchains};

use common::{LIMIT, gospect, number, temporary, text};

/// Goroutine that is on its way through the program's own report, then waits elsewhere.
const REPORT: &str = "main.report(";

/// Goroutines of the fixture, at least.
const PARKED: usize = 38;

/// Lines of a goroutine with more than a hundred frames.
const LONG: usize = 150;

/// A program with all its goroutines parked, and its own text of them.
fn parked(go: &Toolchain, mode: Mode) -> (Running, String) {
    parked_in("parked", go, mode)
}

fn parked_in(fixture: &str, go: &Toolchain, mode: Mode) -> (Running, String) {
    let running = Running::start(&Fixture::build(fixture, go, mode), &[] as &[&str]);
    let profile = running.wait_for("profile", LIMIT);
    (running, text(&profile["text"]))
}

fn snapshot(pid: u32, options: &[&str]) -> testkit::Output {
    let pid = pid.to_string();
    let mut line = vec!["goroutines", "-p", &pid];
    line.extend(options);
    let output = gospect().run(&line);
    output.expect_code(0);
    output
}

fn json(pid: u32, options: &[&str]) -> Vec<Value> {
    let mut line = vec!["--format", "json"];
    line.extend(options);
    snapshot(pid, &line).json()
}

/// Goroutines by id, without what differs between a program's own text and another's: the
/// arguments. Offsets stay. Go 1.19 cuts long stacks elsewhere: of these the inner half is
/// kept.
fn normalised(text: &str, minor: u32) -> BTreeMap<u64, String> {
    let blocks = text.split("\n\n").map(str::trim_end);
    let goroutines = blocks.filter(|block| block.starts_with("goroutine "));
    let mut all = BTreeMap::new();
    for block in goroutines.filter(|block| !block.contains(REPORT)) {
        let mut lines: Vec<String> = block.lines().map(normalised_line).collect();
        if minor == 19 && lines.len() > LONG {
            lines.truncate(1 + 100);
        }
        let goid = lines[0].split(' ').nth(1).and_then(|goid| goid.parse().ok());
        all.insert(goid.unwrap_or_else(|| panic!("no id in {block}")), lines.join("\n"));
    }
    all
}

fn normalised_line(line: &str) -> String {
    // What GOTRACEBACK=crash adds.
    let line = line.split(" fp=0x").next().unwrap_or(line);
    if let Some(rest) = line.strip_prefix("goroutine ") {
        let (goid, state) = rest.split_at(rest.find(' ').unwrap_or(rest.len()));
        return format!("goroutine {goid} {}", &state[state.find('[').unwrap_or(0)..]);
    }
    if line.starts_with('\t') || line.starts_with("created by ") || line.starts_with("...") {
        return line.to_owned();
    }
    line.rsplit_once('(').map_or_else(|| line.to_owned(), |(name, _)| format!("{name}(...)"))
}

#[track_caller]
fn assert_same(want: &BTreeMap<u64, String>, got: &BTreeMap<u64, String>, what: &str) {
    for (goid, want) in want {
        let got = got.get(goid).map_or("nothing", String::as_str);
        assert_eq!(got, want, "goroutine {goid} of {what}");
    }
    let ids = |map: &BTreeMap<u64, String>| map.keys().copied().collect::<BTreeSet<_>>();
    assert_eq!(ids(got), ids(want), "the goroutines of {what}");
}

/// Every Go version's program against its own text, which has at least `least` goroutines.
fn compare_with_the_programs_own(fixture: &str, mode: Mode, least: usize) {
    for go in toolchains() {
        let (running, own) = parked_in(fixture, &go, mode);
        let output = snapshot(running.pid(), &["--format", "go"]);
        let want = normalised(&own, go.minor);
        assert!(want.len() >= least, "{} goroutines in {own}", want.len());
        let what = format!("{fixture} of go {} {mode}", go.version);
        assert_same(&want, &normalised(&output.stdout, go.minor), &what);
        for line in json(running.pid(), &[]) {
            assert_eq!(line["stack_unavailable"], Value::Null, "{what}: {line}");
        }
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

fn find<'a>(lines: &'a [Value], func: &str) -> &'a Value {
    let has = |line: &&Value| {
        let stack = line["stack"].as_array().map(Vec::as_slice).unwrap_or_default();
        line["type"] == "goroutine" && stack.iter().any(|frame| frame["func"] == func)
    };
    lines.iter().find(has).unwrap_or_else(|| panic!("no goroutine in {func}"))
}

#[test]
fn json_has_what_the_text_lacks() {
    for go in toolchains() {
        for mode in [Mode::Exe, Mode::Stripped] {
            let (running, _) = parked(&go, mode);
            let lines = json(running.pid(), &[]);
            let what = format!("go {} {mode}", go.version);
            let labels = &find(&lines, "main.labelled.func1")["labels"];
            let expected = serde_json::json!({"request": "42", "user": "ä \"quoted\""});
            assert_eq!(*labels, expected, "{what}");
            assert_eq!(find(&lines, "main.locked")["locked"], true, "{what}");
            let waiting = find(&lines, "main.locked");
            assert_eq!(waiting["state"], "waiting");
            assert_eq!(waiting["reason"], "chan receive");
            assert_eq!(waiting["created_by"]["func"], "main.main");
            let parent = if go.minor < 21 { Value::Null } else { 1.into() };
            assert_eq!(waiting["parent_goid"], parent, "{what}");
            let inlined: Vec<(String, bool)> = find(&lines, "main.inlined")["stack"]
                .as_array()
                .unwrap()
                .iter()
                .map(|frame| (text(&frame["func"]), frame["inlined"] == true))
                .collect();
            let expected = [("inner", true), ("middle", true), ("outer", true), ("inlined", false)]
                .map(|(name, inlined)| (format!("main.{name}"), inlined));
            assert_eq!(inlined, expected, "{what}");
            for line in lines.iter().filter(|line| line["type"] == "goroutine") {
                assert_eq!(line["torn"], false, "{what}: {line}");
                assert_eq!(line["stack_unavailable"], Value::Null, "{what}: {line}");
                let start = text(&line["start"]);
                // Some of the runtime's run finalizers, cleanups and coroutines.
                let user = line["stack"].as_array().unwrap().iter();
                let runs_user_code = user
                    .map(|frame| text(&frame["func"]))
                    .any(|func| func.starts_with("main.") || func.starts_with("iter."));
                let system = start.starts_with("runtime.") && !runs_user_code;
                assert_eq!(line["system"], system, "{what}: {line}");
            }
            let summary = lines.last().unwrap();
            let found = if mode == Mode::Exe { "symbol" } else { "code" };
            assert_eq!(summary["found_by"], found, "{what}");
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

/// Crashes the program so that the kernel writes its memory into `dir`.
fn crash(program: &Path, dir: &Path) -> String {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    assert!(
        pattern.starts_with("core"),
        "this test needs core dumps in the current directory: sysctl kernel.core_pattern=core"
    );
    let mut command = Command::new("sh");
    command.arg("-c").arg("ulimit -c unlimited && exec \"$0\" -crash").arg(program);
    command.current_dir(dir).env("GOTRACEBACK", "crash");
    let mut running = Running::spawn(command);
    running.wait_for("profile", LIMIT);
    running.go();
    _ = running.wait(LIMIT);
    running.stderr()
}

#[test]
fn a_core_dump_shows_what_the_crash_showed() {
    for (go, mode) in [
        (oldest(), Mode::Exe),
        (testkit::toolchain("1.23.9"), Mode::StrippedPie),
        (newest(), Mode::Cgo),
        (newest(), Mode::Pie),
    ] {
        let dir = temporary("core");
        std::fs::create_dir_all(&dir).unwrap();
        let program = Fixture::build("parked", &go, mode);
        let own = crash(&program, &dir);
        let core = std::fs::read_dir(&dir).unwrap().flatten().next().expect("a core dump").path();
        let core_text = core.to_string_lossy();
        let line = ["goroutines", "--core", &core_text, "--format", "go", "--system"];
        let output = gospect().run(&line);
        output.expect_code(0);
        let running = gospect().run(&["goroutines", "--core", &core_text, "--state", "running"]);
        _ = std::fs::remove_dir_all(&dir);
        // What each thread printed of itself begins behind a line of its own.
        let own = own.split("\n-----\n").next().unwrap_or_default();
        let own = normalised(own, go.minor);
        assert!(own.len() > 30, "{own:?}");
        let what = format!("core dump of go {} {mode}", go.version);
        assert_same(&own, &normalised(&output.stdout, go.minor), &what);
        // The one that crashed, from its registers.
        assert!(running.stdout.contains("main.report"), "{what}: {}", running.story());
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
