//! What `gospect spans` tells of requests in one Go version, build mode and backend, each of many rounds
//! alike: a cell of `cargo xtask matrix --suite spans_core`.
//!
//! `GOSPECT_TEST_ROUNDS` says how many rounds; captures have 100 of them at the most.

#[path = "common/rounds.rs"]
mod rounds;
#[path = "common/trees.rs"]
mod trees;

use rounds::{DATABASE, LATE, WIRE, WORK, as_built, many};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::{Fixture, Gospect, Mode, Output, selected};
use trees::{ROUND, as_text, spans, spans_line, times, trees};

const LIMIT: Duration = Duration::from_secs(600);

/// Rounds of one capture.
const OF_ONE: usize = 100;

fn gospect() -> Gospect {
    Gospect::new(env!("CARGO_BIN_EXE_gospect")).limit(LIMIT)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// The backend of the cell; both without one.
fn backends() -> Vec<String> {
    let both = || ["uprobe", "trampoline"].map(str::to_owned).to_vec();
    variable("GOSPECT_TEST_BACKEND").map_or_else(both, |backend| vec![backend])
}

fn rounds(quick: usize) -> usize {
    variable("GOSPECT_TEST_ROUNDS").map_or(quick, |text| text.parse().expect("a number"))
}

fn program(fixture: &str) -> PathBuf {
    Fixture::build(fixture, &selected(), Mode::selected())
}

/// Watches so many rounds of a fixture from its first instruction to its end.
fn watch(program: &Path, backend: &str, args: &[&str], options: &[&str], rounds: usize) -> Output {
    let rounds = rounds.to_string();
    let command = [&[program.to_str().unwrap()], args, &["-n", &rounds]].concat();
    let output = gospect().run(&spans_line(backend, options, &command));
    output.expect_code(0);
    output
}

/// Every round has these trees and no other ones.
#[track_caller]
fn expect(fixture: &str, args: &[&str], round: &str, quick: usize) {
    let program = program(fixture);
    let round = as_built(round, Mode::selected());
    for backend in backends() {
        let told = format!("{} {args:?} {backend}", program.display());
        let (mut left, mut all) = (rounds(quick), BTreeMap::new());
        let want = times(&round, left);
        while left > 0 {
            let now = left.min(OF_ONE);
            left -= now;
            let output = watch(&program, &backend, args, &[], now);
            for (tree, count) in trees(&spans(&output, &told)) {
                *all.entry(tree).or_default() += count;
            }
        }
        let shown = as_text(all);
        assert_eq!(shown, want, "{told}:\n{shown}");
    }
}

/// Two services that ask each other in every way, over HTTP/1.1 and HTTP/2.
#[test]
fn root_requests_have_their_trees() {
    expect("requests", &[], ROUND, 10);
}

/// Goroutines that work for requests, and for others than the one that made them.
#[test]
fn root_work_belongs_to_who_is_known_to_have_asked_for_it() {
    expect("services", &["-part", "work"], WORK, 10);
}

/// Sixty handlers that panic, forty that do not, and a hundred at once that wait for one another.
#[test]
fn root_handlers_that_fail_and_many_at_once_keep_their_trees() {
    expect("services", &["-part", "many"], &many(), 3);
}

/// Long headers, connections of the program's own, requests ahead of answers.
#[test]
fn root_unusual_connections_are_seen() {
    expect("services", &["-part", "wire"], WIRE, 10);
}

/// Handlers and requests whose time runs out.
#[test]
fn root_what_takes_too_long_says_so() {
    expect("services", &["-part", "late"], LATE, 3);
}

/// Statements, prepared ones too.
#[test]
fn root_statements_stand_below_their_requests() {
    expect("database", &["-prepared"], DATABASE, 10);
}

/// The spans of a capture, ids told by the order in which they come: those of a recording are others.
fn without_ids(output: &Output) -> Vec<String> {
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    let mut rename = |object: &mut Value| {
        for key in ["trace_id", "span_id", "parent_span_id"] {
            if let Some(id) = object.get(key).and_then(Value::as_str) {
                let next = names.len();
                object[key] = (*names.entry(id.to_owned()).or_insert(next)).into();
            }
        }
    };
    let told = |mut span: Value| {
        rename(&mut span);
        span["links"].as_array_mut().into_iter().flatten().for_each(&mut rename);
        span.to_string()
    };
    output.of_type("span").into_iter().map(told).collect()
}

/// A recording has the very same spans, and shows the same text.
#[test]
fn root_recordings_tell_what_was_told_live() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for backend in backends() {
        let file = file.join(format!("core-{}-{backend}.gospect", Mode::selected()));
        let file = file.to_str().unwrap();
        for (fixture, args) in
            [("requests", &[][..]), ("services", &["-part", "work"]), ("database", &["-prepared"])]
        {
            let live = watch(&program(fixture), &backend, args, &["--record", file], 2);
            let recorded = gospect().run(&["report", file, "--format", "json"]);
            recorded.expect_code(0);
            let (live, recorded) = (without_ids(&live), without_ids(&recorded));
            assert!(!live.is_empty());
            assert_eq!(live, recorded, "{fixture} {backend}");
        }
        std::fs::remove_file(file).unwrap();
    }
}
