//! Snapshots of goroutines, and what programs say of themselves.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use testkit::{Fixture, Mode, Running, Toolchain};

use crate::common::{LIMIT, gospect, temporary, text};

/// Goroutine that is on its way through the program's own report, then waits elsewhere.
const REPORT: &str = "main.report(";

/// Goroutines of the fixture, at least.
pub const PARKED: usize = 38;

/// Lines of a goroutine with more than a hundred frames.
const LONG: usize = 150;

/// A program with all its goroutines parked, and its own text of them.
pub fn parked(go: &Toolchain, mode: Mode) -> (Running, String) {
    parked_in("parked", go, mode)
}

fn parked_in(fixture: &str, go: &Toolchain, mode: Mode) -> (Running, String) {
    let running = Running::start(&Fixture::build(fixture, go, mode), &[] as &[&str]);
    let profile = running.wait_for("profile", LIMIT);
    (running, text(&profile["text"]))
}

/// What is told of a process, with `options`.
pub fn snapshot(pid: u32, options: &[&str]) -> testkit::Output {
    let pid = pid.to_string();
    let mut line = vec!["goroutines", "-p", &pid];
    line.extend(options);
    let output = gospect().run(&line);
    output.expect_code(0);
    output
}

/// The same as lines of JSON.
pub fn json(pid: u32, options: &[&str]) -> Vec<Value> {
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

/// A program against its own text, which has at least `least` goroutines.
pub fn compare_with_its_own(fixture: &str, go: &Toolchain, mode: Mode, least: usize) {
    let (running, own) = parked_in(fixture, go, mode);
    let output = snapshot(running.pid(), &["--format", "go"]);
    let want = normalised(&own, go.minor);
    assert!(want.len() >= least, "{} goroutines in {own}", want.len());
    let what = format!("{fixture} of go {} {mode}", go.version);
    assert_same(&want, &normalised(&output.stdout, go.minor), &what);
    for line in json(running.pid(), &[]) {
        assert_eq!(line["stack_unavailable"], Value::Null, "{what}: {line}");
    }
}

/// The goroutine with `func` on its stack.
pub fn find<'a>(lines: &'a [Value], func: &str) -> &'a Value {
    let has = |line: &&Value| {
        let stack = line["stack"].as_array().map(Vec::as_slice).unwrap_or_default();
        line["type"] == "goroutine" && stack.iter().any(|frame| frame["func"] == func)
    };
    lines.iter().find(has).unwrap_or_else(|| panic!("no goroutine in {func}"))
}

/// Labels, and who is wired to a thread.
fn check_labels(lines: &[Value], what: &str) {
    let many: BTreeMap<String, String> =
        (0..40).map(|i| (format!("key{i:02}"), "v".repeat(i))).collect();
    assert_eq!(find(lines, "main.manyLabels")["labels"], serde_json::json!(many), "{what}");
    let long = find(lines, "main.longLabel");
    assert_eq!(long["labels"]["long"], "v".repeat(4096), "{what}");
    assert_eq!(long["labels_unavailable"], "there is more than is read", "{what}");
    let heir = find(lines, "main.heir");
    assert_eq!(heir["labels"], serde_json::json!({"from": "parent"}), "{what}");
    let labelled = ["main.labelled", "main.manyLabels", "main.longLabel", "main.heir"];
    for line in lines.iter().filter(|line| line["type"] == "goroutine") {
        let start = text(&line["start"]);
        let none = line["labels"] == serde_json::json!({});
        assert_eq!(none, !labelled.contains(&&*start), "{what}: {line}");
        assert!(
            start == "main.longLabel" || line["labels_unavailable"].is_null(),
            "{what}: {line}"
        );
        // The runtime wires some of its own where there is cgo.
        let locked = start == "main.locked";
        assert!(line["system"] == true || line["locked"] == locked, "{what}: {line}");
    }
}

/// What JSON has of every goroutine.
pub fn check_json(go: &Toolchain, mode: Mode) {
    let (running, _) = parked(go, mode);
    let lines = json(running.pid(), &[]);
    let what = format!("go {} {mode}", go.version);
    let labels = &find(&lines, "main.labelled.func1")["labels"];
    let expected = serde_json::json!({"request": "42", "user": "ä \"quoted\""});
    assert_eq!(*labels, expected, "{what}");
    check_labels(&lines, &what);
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
        .map(|(name, inlined)| (format!("main.{name}"), inlined && mode != Mode::NoOpt));
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
    let found = if mode.has_dwarf() { "symbol" } else { "code" };
    assert_eq!(summary["found_by"], found, "{what}");
}

/// Crashes the program so that the kernel writes its memory into `dir`.
pub fn crash(program: &Path, dir: &Path) -> String {
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

/// A dump of a program that crashed shows what the crash did.
pub fn check_core_dump(go: &Toolchain, mode: Mode) {
    let dir = temporary("core");
    std::fs::create_dir_all(&dir).unwrap();
    let program = Fixture::build("parked", go, mode);
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
