//! The edges of a trace: calls that begin and end at one instruction. Needs root.

mod common;

use common::{Ends, gospect, own, temporary, ways};
use serde_json::Value;
use std::path::Path;
use testkit::{Fixture, Mode, Running, selected};

const FUNCTIONS: [&str; 4] = ["main.empty", "main.jump", "main.landing", "main.(*inner).Touch"];

/// Ends by function of `program` traced with `force`; every end exact, every call a root.
fn ends(force: &str, program: &Path) -> (Ends, Ends) {
    let file = temporary("jsonl");
    let mut command = gospect().command(&["trace", "--format", "json", "-o"]);
    command.env("GOSPECT_FORCE", force).arg(&file);
    FUNCTIONS.iter().for_each(|name| _ = command.args(["-u", name]));
    command.arg("--").arg(program).args(["-n", "100"]);
    let mut running = Running::spawn(command);
    let output = gospect().finish(&mut running);
    output.expect_code(0);
    let mut seen = Ends::new();
    for call in calls(&file) {
        assert_eq!((&call["end_exact"], &call["depth"]), (&true.into(), &0.into()), "{call}");
        let (func, exit) = (common::text(&call["func"]), common::text(&call["exit"]));
        *seen.entry(func).or_default().entry(exit).or_default() += 1;
    }
    let done = output.of_type("done").remove(0);
    (seen, serde_json::from_value(done["ends"].clone()).expect("ends"))
}

fn calls(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).expect("the trace");
    _ = std::fs::remove_file(file);
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines.filter(|line| line["type"] == "call").collect()
}

/// Two probes share the instruction, and the kernel runs the one put there last first.
#[test]
fn root_calls_of_one_instruction_begin_before_they_end() {
    for mode in [Mode::Exe, Mode::Pie] {
        let program = own(&Fixture::build("empty", &selected(), mode));
        for force in ways(&["perf-link"]) {
            let (seen, did) = ends(force, &program);
            assert_eq!(seen, did, "{mode} {force}");
        }
    }
}
