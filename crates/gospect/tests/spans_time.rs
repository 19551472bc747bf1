//! `gospect spans --time`: what the time of spans went to.

#[path = "common/trees.rs"]
mod trees;

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use testkit::{Fixture, Gospect, Mode, Output, newest, oldest};
use trees::{as_text, expected, spans, spans_line, text, trees};

const LIMIT: Duration = Duration::from_secs(240);

fn gospect(line: &[&str]) -> Output {
    let output = Gospect::new(env!("CARGO_BIN_EXE_gospect")).limit(LIMIT).run(line);
    output.expect_code(0);
    output
}

/// Parts of a span's time by name.
fn parts(span: &Value) -> BTreeMap<String, u64> {
    let time = span["time"].as_object().unwrap_or_else(|| panic!("no time: {span}"));
    let waiting = time["waiting_ns"].as_object().unwrap();
    let own = time.iter().filter(|(name, _)| *name != "waiting_ns");
    own.chain(waiting).map(|(name, ns)| (name.clone(), ns.as_u64().unwrap())).collect()
}

/// What each span that answers spent its time on mostly, where that is certain.
fn mostly(spans: &[Value], name: &str) -> String {
    let span = spans.iter().find(|span| span["kind"] == "server" && span["name"] == name);
    let parts = parts(span.unwrap_or_else(|| panic!("no {name}")));
    // A connection waits for whoever reads it in the background (`connReader.abortPendingRead`): how long says the
    // machine.
    let is_its = |name: &str| !name.ends_with("_ns") && name != "sync.Cond.Wait";
    let waiting = parts.into_iter().filter(|(name, _)| is_its(name));
    waiting.max_by_key(|(_, ns)| *ns).map_or_else(String::new, |(reason, _)| reason)
}

/// All of the time of every span is accounted for, with the reasons of what it waits for; and the trees
/// are those without.
#[test]
fn root_the_time_of_spans_is_accounted_for() {
    // `sync.WaitGroup` has a reason of its own from Go 1.24 on.
    for (go, group) in [(newest(), "sync.WaitGroup.Wait"), (oldest(), "semacquire")] {
        let program = Fixture::build("requests", &go, Mode::Exe);
        for backend in ["uprobe", "trampoline"] {
            let program = program.to_str().unwrap();
            let output = gospect(&spans_line(backend, &["--time"], &[program]));
            let told = format!("go {} {backend}", go.version);
            let spans = spans(&output, &told);
            for span in &spans {
                let parts = parts(span);
                let sum: u64 = parts.values().sum();
                assert_eq!(sum, span["duration_ns"].as_u64().unwrap(), "{told}: {span}");
                assert!(parts["running_ns"] > 0, "{told}: {span}");
                assert_eq!(parts["unknown_ns"], 0, "{told}: {span}");
            }
            assert_eq!(mostly(&spans, "GET /fan"), group, "{told}");
            assert_eq!(mostly(&spans, "GET /deep"), "chan receive", "{told}");
            assert_eq!(mostly(&spans, "GET /chain"), "select", "{told}");
            let shown = as_text(trees(&spans));
            assert_eq!(shown, expected(1), "{told}: {shown}");
        }
    }
}

/// A recorded file gives the same times.
#[test]
fn root_a_recording_has_the_same_times() {
    let program = Fixture::build("requests", &newest(), Mode::Exe);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("times.gospect");
    let file = file.to_str().unwrap();
    let live = gospect(&[
        "spans",
        "--time",
        "--backend",
        "trampoline",
        "--format",
        "json",
        "--record",
        file,
        "--",
        program.to_str().unwrap(),
    ]);
    let recorded = gospect(&["report", file, "--format", "json"]);
    let times = |output: &Output| {
        let all = output.of_type("span");
        let each = all.iter().map(|span| (text(span, "name").to_owned(), parts(span)));
        let mut each: Vec<_> = each.collect();
        each.sort();
        each
    };
    assert!(!times(&live).is_empty());
    assert_eq!(times(&live), times(&recorded));
    std::fs::remove_file(file).unwrap();
}
