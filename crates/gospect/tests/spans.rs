//! `gospect spans`: whole trees of requests, compared as text, on both backends.

#[path = "common/trees.rs"]
mod trees;

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use testkit::{Fixture, Gospect, Mode, Running, Toolchain, newest, oldest, toolchains};
use trees::{as_text, expected, spans, spans_line, trees};

const LIMIT: Duration = Duration::from_secs(240);
const BACKENDS: [&str; 2] = ["uprobe", "trampoline"];

fn gospect() -> Gospect {
    Gospect::new(env!("CARGO_BIN_EXE_gospect")).limit(LIMIT)
}

fn requests(go: &Toolchain, mode: Mode, backend: &str, rounds: usize) -> String {
    watch(&Fixture::build("requests", go, mode), backend, rounds)
}

/// The trees of so many rounds of a fixture, watched from its first instruction to its end.
fn watch(program: &Path, backend: &str, rounds: usize) -> String {
    let rounds = rounds.to_string();
    let command = [program.to_str().unwrap(), "-n", &rounds];
    let output = gospect().run(&spans_line(backend, &[], &command));
    output.expect_code(0);
    as_text(trees(&spans(&output, &format!("{} {backend}", program.display()))))
}

#[test]
fn root_requests_have_the_same_trees_on_both_backends() {
    for backend in BACKENDS {
        let trees = requests(&newest(), Mode::Exe, backend, 3);
        assert_eq!(trees, expected(3), "{backend}:\n{trees}");
    }
}

#[test]
fn root_requests_have_the_same_trees_in_every_version() {
    for go in toolchains() {
        let trees = requests(&go, Mode::Exe, "trampoline", 1);
        assert_eq!(trees, expected(1), "go {}:\n{trees}", go.version);
    }
}

#[test]
fn root_requests_have_the_same_trees_however_they_are_built() {
    for mode in [Mode::Pie, Mode::Cgo, Mode::Stripped, Mode::StrippedPie] {
        let expected = expected(1);
        for go in [oldest(), newest()] {
            let trees = requests(&go, mode, "trampoline", 1);
            assert_eq!(trees, expected, "go {} {mode}:\n{trees}", go.version);
        }
    }
}

/// Text, attached to a process that runs already, which goes on afterwards.
#[test]
fn root_trees_are_shown_of_a_running_process() {
    let program = Fixture::build("requests", &newest(), Mode::Exe);
    let mut running = Running::start(&program, &["-wait", "-linger"]);
    running.wait_for("ready", LIMIT);
    let pid = running.pid().to_string();
    let mut watching = gospect().start(&["spans", "-p", &pid, "--queries"]);
    watching.wait_error_line(LIMIT, |line| line.contains("watching"));
    running.go();
    running.wait_for("done", LIMIT);
    watching.signal("INT");
    let output = gospect().finish(&mut watching);
    output.expect_code(0);
    running.go();
    assert!(running.wait(LIMIT).success());
    // Behind time, goroutine and duration, and before the trace.
    let shown = |line: &str| -> String {
        let line: String = line.chars().skip(35).collect();
        let line = line.split("  trace=").next().unwrap_or_default();
        let (before, after) = line.split_once("127.0.0.1:").unwrap_or((line, ""));
        format!("{before}{}\n", after.trim_start_matches(|c: char| c.is_ascii_digit()))
    };
    let lines: Vec<String> = output.stdout.lines().map(shown).collect();
    let chain = lines.iter().position(|line| line.contains("/chain"));
    let chain =
        lines[chain.unwrap_or_else(|| panic!("no /chain in {}", output.stdout))..][..4].concat();
    let expected = "\
> GET 200 http:///chain
  GET /chain 200 /chain
    > GET 200 http:///stock?secret=REDACTED
      GET /stock 200 /stock?secret=REDACTED
";
    assert_eq!(chain, expected);
    assert!(
        lines.contains(&"GET /plain/ 200 /plain/item?secret=REDACTED\n".to_owned()),
        "{lines:?}"
    );
}

/// Every process of a file: those that come later too, told apart by their ids.
#[test]
fn root_requests_of_every_process_of_a_file_are_seen() {
    let program = Fixture::build("database", &newest(), Mode::Exe);
    let exe = program.to_str().unwrap();
    let mut watching = gospect().start(&["spans", "--exe", exe, "--format", "json"]);
    watching.wait_error_line(LIMIT, |line| line.contains("watching"));
    let mut pids = BTreeSet::new();
    for _ in 0..2 {
        let mut running = Running::start(&program, &["-linger"]);
        running.wait_for("done", LIMIT);
        pids.insert(u64::from(running.pid()));
        running.go();
        assert!(running.wait(LIMIT).success());
    }
    watching.signal("INT");
    let output = gospect().finish(&mut watching);
    output.expect_code(0);
    let spans = spans(&output, "--exe");
    for pid in pids {
        let own: Vec<Value> = spans.iter().filter(|span| span["pid"] == pid).cloned().collect();
        assert_eq!(own.len(), 18, "{pid}: {own:?}");
    }
}

/// A recorded file gives the same trees without the process.
#[test]
fn root_a_recording_has_the_same_trees() {
    let program = Fixture::build("requests", &newest(), Mode::Exe);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("spans.gospect");
    let file = file.to_str().unwrap();
    let line =
        ["spans", "--backend", "trampoline", "--record", file, "--", program.to_str().unwrap()];
    gospect().run(&line).expect_code(0);
    let output = gospect().run(&["report", file, "--format", "json"]);
    output.expect_code(0);
    let shown = as_text(trees(&spans(&output, "report")));
    assert_eq!(shown, expected(1), "{shown}");
    std::fs::remove_file(file).unwrap();
}
