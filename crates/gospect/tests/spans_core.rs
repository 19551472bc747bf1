//! What `gospect spans` tells of requests in one Go version, build mode and backend, each of many rounds
//! alike: a cell of `cargo xtask matrix --suite spans_core`.

#[path = "common/cells.rs"]
mod cells;
#[path = "common/rounds.rs"]
mod rounds;
#[path = "common/trees.rs"]
mod trees;

use cells::{backends, expect, gospect, watch};
use rounds::{DATABASE, LATE, ROWS, WIRE, WORK, many};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use testkit::{Fixture, Mode, Output, selected};
use trees::ROUND;

fn program(fixture: &str) -> PathBuf {
    Fixture::build(fixture, &selected(), Mode::selected())
}

/// Two services that ask each other in every way, over HTTP/1.1 and HTTP/2.
#[test]
fn root_requests_have_their_trees() {
    expect(&program("requests"), &[], ROUND, 10);
}

/// Goroutines that work for requests, and for others than the one that made them.
#[test]
fn root_work_belongs_to_who_is_known_to_have_asked_for_it() {
    expect(&program("services"), &["-part", "work"], WORK, 10);
}

/// Sixty handlers that panic, forty that do not, and a hundred at once that wait for one another.
#[test]
fn root_handlers_that_fail_and_many_at_once_keep_their_trees() {
    expect(&program("services"), &["-part", "many"], &many(), 3);
}

/// Long headers, connections of the program's own, requests ahead of answers.
#[test]
fn root_unusual_connections_are_seen() {
    expect(&program("services"), &["-part", "wire"], WIRE, 10);
}

/// Handlers and requests whose time runs out.
#[test]
fn root_what_takes_too_long_says_so() {
    expect(&program("services"), &["-part", "late"], LATE, 3);
}

/// Statements, prepared ones too.
#[test]
fn root_statements_stand_below_their_requests() {
    expect(&program("database"), &["-prepared"], DATABASE, 10);
}

/// Rows read to their end and not, two at once, elsewhere, and closed by who does not read them.
#[test]
fn root_rows_stand_below_the_query_that_gave_them() {
    expect(&program("database"), &["-rows"], ROWS, 10);
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
        let program = program("services");
        let line = ["spans", "--backend", &backend, "--record", file, "--"];
        let command = [program.to_str().unwrap(), "-part", "work"];
        let live = gospect().run(&[&line[..], &command].concat());
        live.expect_code(0);
        let recorded = gospect().run(&["report", file]);
        recorded.expect_code(0);
        let is_span = |line: &&str| line.contains(" g") && line.contains("GET");
        let without_trace = |line: &str| line.split("  trace=").next().unwrap().to_owned();
        let text = |output: &Output| -> Vec<String> {
            output.stdout.lines().filter(is_span).map(without_trace).collect()
        };
        assert!(text(&live).len() > 20, "{}", live.stdout);
        assert_eq!(text(&live), text(&recorded), "{backend}");
        std::fs::remove_file(file).unwrap();
    }
}
