//! Stacks that move and goroutines that take over the descriptors of dead ones, with hits that
//! read whose they are and with hits that may remember it. Needs root: it loads uprobes.

mod common;

use common::{LIMIT, Trace, functions, number, temporary, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use testkit::{Fixture, Mode, newest, oldest, toolchain};

const FUNCTIONS: [&str; 4] = ["main.mark", "main.step", "main.deep", "main.outer"];

fn trace(force: &str, program: &Path) -> Trace {
    let file = temporary("jsonl");
    // Room for all of it: nothing may be lost where all calls are compared.
    let how = ["trace", "--ring", "64", "--format", "json", "-o"];
    let mut command = common::gospect().command(&how);
    command.env("GOSPECT_FORCE", force).arg(&file).args(functions(&FUNCTIONS));
    command.arg("--").arg(program);
    let mut running = testkit::Running::spawn(command);
    running.close_stdin();
    Trace::read(common::gospect().limit(LIMIT).finish(&mut running), &file)
}

/// What each goroutine did, without its number: its calls in order of their starts.
fn stories(trace: &Trace) -> Vec<Vec<String>> {
    let mut calls = trace.of_type("call");
    calls.sort_by_key(|call| number(&call["start_ns"]));
    let mut stories: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for call in calls {
        let id = number(&call["goid"]);
        let mut told = format!("{} {} {}", text(&call["func"]), call["depth"], call["exit"]);
        if call["func"] == "main.mark" {
            assert_eq!(id_of(call), id, "{call}");
        } else {
            told += &call["args"].to_string();
        }
        stories.entry(id).or_default().push(told);
    }
    let mut stories: Vec<_> = stories.into_values().collect();
    stories.sort();
    stories
}

/// The goroutine that a call of `main.mark` was told to run as.
fn id_of(call: &Value) -> u64 {
    number(&call["args"][0]["value"])
}

#[test]
fn root_goroutines_are_told_apart_when_stacks_move_and_descriptors_are_used_again() {
    for toolchain in [oldest(), toolchain("1.22.10"), newest()] {
        let program = common::own(&Fixture::build("recycle", &toolchain, Mode::Exe));
        let told = common::ways(&["read-g"]).into_iter().map(|force| {
            let trace = trace(force, &program);
            trace.output.expect_code(0);
            trace.expect_returned();
            assert!(number(&trace.done()["moved"]) > 0, "no stack moved: {}", trace.done());
            stories(&trace)
        });
        let told: Vec<_> = told.collect();
        assert!(told.iter().all(|one| *one == told[0]), "{toolchain:?}");
    }
}
