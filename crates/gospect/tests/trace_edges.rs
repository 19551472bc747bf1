//! The edges of a trace: calls that begin and end at one instruction, processes that are gone
//! before their records are read. Needs root: it loads uprobes.

mod common;

use common::{Ends, LIMIT, gospect, temporary, wait_attached};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use testkit::{Fixture, Mode, Running, selected};

const FUNCTIONS: [&str; 4] = ["main.empty", "main.jump", "main.landing", "main.(*inner).Touch"];

/// Ends by function of `program` traced with `force`; every end exact, every call a root.
fn ends(force: &str, program: &Path) -> (Ends, Ends) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gospect"));
    let file = temporary("jsonl");
    command.env("GOSPECT_FORCE", force).args(["trace", "--format", "json", "-o"]).arg(&file);
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
        let program = Fixture::build("empty", &selected(), mode);
        for force in ["", "perf-link"] {
            let (seen, did) = ends(force, &program);
            assert_eq!(seen, did, "{mode} {force}");
        }
    }
}

/// The tracer sleeps for as long as the process lives: nothing of it is left to look at.
#[test]
fn root_callers_are_named_in_processes_that_are_gone() {
    let program = Fixture::build("empty", &selected(), Mode::Pie);
    let (file, path) = (temporary("jsonl"), program.to_string_lossy());
    let file_text = file.to_string_lossy();
    let line = ["trace", "--exe", &path, "-u", "main.empty", "--format", "json", "-o", &file_text];
    let mut running = gospect().start(&line);
    wait_attached(&running);
    for _ in 0..3 {
        running.signal("STOP");
        let mut target = Running::start(&program, &["-n", "2"]);
        assert!(target.wait(LIMIT).success());
        running.signal("CONT");
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    running.signal("INT");
    gospect().finish(&mut running).expect_code(0);
    let calls = calls(&file);
    let callers: Vec<_> = calls.iter().map(|call| &call["caller"]["func"]).collect();
    assert_eq!(callers, ["main.main"; 6], "{calls:?}");
}
