//! `gospect metrics` of processes that are no Go programs, end, or become others.

mod common;

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use testkit::{Fixture, Mode, Output, Running, newest};

use common::{Directory, LIMIT, any_gospect, as_nobody, number, path_text, text, until};

fn metrics(options: &[&str]) -> Output {
    let mut line = vec!["metrics", "--format", "json"];
    line.extend(options);
    let output = any_gospect().run(&line);
    output.expect_code(0);
    output
}

/// The lines of one metric.
fn of<'a>(lines: &'a [Value], name: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["name"] == name).collect()
}

fn waiting() -> Running {
    let program = Fixture::build("metrics", &newest(), Mode::Exe);
    let running = Running::start(&program, &["-parked", "3"]);
    running.wait_for("ready", LIMIT);
    running
}

/// `gospect metrics` every 50 ms in the background.
fn start(options: &[&str]) -> Running {
    let mut line = vec!["metrics", "--format", "json", "--interval", "50ms"];
    line.extend(options);
    Running::start(std::path::Path::new(env!("CARGO_BIN_EXE_gospect")), &line)
}

fn json(running: &Running) -> Vec<Value> {
    let lines = running.stdout();
    lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn a_figure_is_a_line_with_its_process() {
    let program = waiting();
    let pid = program.pid().to_string();
    let lines = metrics(&["-p", &pid]).json();
    let goroutines = of(&lines, "go_goroutines");
    let [line] = goroutines.as_slice() else { panic!("{goroutines:?}") };
    assert_eq!(number(&line["pid"]), u64::from(program.pid()));
    assert!(number(&line["value"]) >= 4, "{line}");
    assert_eq!(text(&line["labels"]["service"]), "metrics");
    // Larger than what every reader of JSON takes for exact.
    assert_eq!(of(&lines, "go_gc_gomemlimit_bytes")[0]["value"], i64::MAX.to_string());
    let quantiles = of(&lines, "go_gc_duration_seconds");
    assert_eq!(quantiles.len(), 5);
    assert_eq!(quantiles[4]["labels"]["quantile"], "1");
    let last = lines.last().expect("a line");
    assert_eq!((text(&last["type"]), number(&last["processes"])), ("summary".to_owned(), 1));
}

#[test]
fn what_is_no_go_program_has_what_the_kernel_counts_and_the_reason_once() {
    let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("sleep");
    let pid = child.id().to_string();
    let lines = metrics(&["-p", &pid, "--duration", "300ms", "--interval", "50ms"]).json();
    let reasons: Vec<&Value> = lines.iter().filter(|line| line["type"] == "restricted").collect();
    let [reason] = reasons.as_slice() else { panic!("{reasons:?}") };
    assert!(text(&reason["reason"]).contains("not a Go executable"), "{reason}");
    let rounds = number(&lines.last().expect("a summary")["rounds"]);
    assert!(rounds > 1);
    assert_eq!(of(&lines, "process_resident_memory_bytes").len() as u64, rounds);
    let names = lines.iter().filter_map(|line| line["name"].as_str());
    assert_eq!(names.filter(|name| name.starts_with("go_")).count(), 0);
    let output = any_gospect().run(&["metrics", "-p", &pid, "--format", "prometheus"]);
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.story());
    assert!(output.stdout.contains("gospect_runtime_readable{"), "{}", output.story());
    child.kill().expect("it runs");
    child.wait().expect("its end");
}

#[test]
fn the_memory_of_anothers_process_is_not_read_and_it_says_so() {
    let program = waiting();
    let directory = Directory::new();
    let pid = program.pid().to_string();
    let output = as_nobody(&directory, &["metrics", "-p", &pid]);
    output.expect_code(0);
    assert!(
        output.stdout.contains("only what the kernel counts: no permission"),
        "{}",
        output.story()
    );
    assert!(output.stdout.contains("process_resident_memory_bytes"), "{}", output.story());
    assert!(!output.stdout.contains("go_goroutines"), "{}", output.story());
}

#[test]
fn a_process_that_ends_leaves_a_clean_gap() {
    let (mut first, second) = (waiting(), waiting());
    let pids = format!("{},{}", first.pid(), second.pid());
    let mut gospect = start(&["-p", &pids]);
    let of_first = format!("\"pid\":{},", first.pid());
    gospect.wait_line(LIMIT, |line| line.contains(&of_first));
    first.signal("KILL");
    first.wait(LIMIT);
    std::thread::sleep(Duration::from_millis(200));
    gospect.signal("INT");
    assert_eq!(gospect.wait(LIMIT).code(), Some(0));
    assert_eq!(gospect.stderr(), "");
    let lines = json(&gospect);
    let summary = lines.last().expect("a summary");
    assert_eq!((number(&summary["processes"]), number(&summary["ended"])), (2, 1), "{summary}");
    // All that was read of it is whole: each round has all of its lines or none.
    let count = |name: &str| {
        let own = |line: &&&Value| line["pid"] == first.pid();
        of(&lines, name).iter().filter(own).count()
    };
    assert_eq!(count("go_goroutines"), count("process_open_fds"));
    assert_eq!(count("go_goroutines"), count("go_memstats_sys_bytes"));
}

#[test]
fn all_that_were_named_have_ended_and_so_does_it() {
    let mut program = waiting();
    let mut gospect = start(&["-p", &program.pid().to_string()]);
    gospect.wait_line(LIMIT, |line| line.contains("go_goroutines"));
    program.signal("KILL");
    program.wait(LIMIT);
    assert_eq!(gospect.wait(LIMIT).code(), Some(0));
}

#[test]
fn a_program_that_replaces_itself_begins_anew() {
    let go = Fixture::build("metrics", &newest(), Mode::Pie);
    let script = "read go; exec \"$0\"";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).arg(&go);
    let mut program = Running::spawn(command);
    let mut gospect = start(&["-p", &program.pid().to_string()]);
    gospect.wait_line(LIMIT, |line| line.contains("\"restricted\""));
    program.go();
    gospect.wait_line(LIMIT, |line| line.contains("\"go_goroutines\""));
    gospect.signal("INT");
    assert_eq!(gospect.wait(LIMIT).code(), Some(0));
    let lines = json(&gospect);
    assert_eq!(number(&lines.last().expect("a summary")["replaced"]), 1);
    for line in of(&lines, "go_goroutines") {
        assert_eq!(text(&line["labels"]["exe"]), path_text(&go), "{line}");
    }
}

/// Pid, start time and file stay; even the place of the image does, without the kernel's shuffling.
#[test]
fn a_program_that_begins_again_is_not_taken_for_the_one_before() {
    let go = Fixture::build("odd", &newest(), Mode::Pie);
    let mut command = Command::new("setarch");
    command.arg("-R").arg(&go).args(["-do", "exec", "-g", "1"]);
    let program = Running::spawn(command);
    program.wait_for("odd", LIMIT);
    let pid = program.pid().to_string();
    let mut gospect = start(&["-p", &pid]);
    gospect.wait_line(LIMIT, |line| line.contains("\"go_goroutines\""));
    program.signal("USR1");
    until("the program has begun again", || program.stdout().matches("\"odd\"").count() == 2);
    // Until it is read again, twice.
    let seen = gospect.stdout().matches("\"go_goroutines\"").count();
    until("two readings", || gospect.stdout().matches("\"go_goroutines\"").count() > seen + 2);
    gospect.signal("INT");
    assert_eq!(gospect.wait(LIMIT).code(), Some(0));
    let lines = json(&gospect);
    assert_eq!(number(&lines.last().expect("a summary")["replaced"]), 1);
    assert_eq!(lines.iter().filter(|line| line["type"] == "restricted").count(), 0);
}

#[test]
fn programs_that_start_later_are_found_by_their_file() {
    let directory = Directory::new();
    let program = directory.copy(&Fixture::build("metrics", &newest(), Mode::Exe), "shop");
    let mut gospect = start(&["--exe", path_text(&program)]);
    let running = Running::start(&program, &[] as &[&str]);
    let own = format!("\"pid\":{},", running.pid());
    gospect.wait_line(LIMIT, |line| line.contains(&own) && line.contains("\"go_goroutines\""));
    gospect.signal("INT");
    assert_eq!(gospect.wait(LIMIT).code(), Some(0));
    drop(running);
    let output = any_gospect().run(&["metrics", "--exe", path_text(&program)]);
    output.expect_code(3);
    assert!(output.stderr.contains("no such process runs"), "{}", output.story());
}

#[test]
fn a_file_is_replaced_as_a_whole() {
    let program = waiting();
    let directory = Directory::new();
    let file = directory.file("go.prom");
    let pid = program.pid().to_string();
    let line = ["metrics", "-p", &pid, "--format", "prometheus", "-o", path_text(&file)];
    for _ in 0..2 {
        any_gospect().run(&line).expect_code(0);
        let text = std::fs::read_to_string(&file).expect("the file");
        assert_eq!(text.matches("# TYPE go_goroutines gauge\n").count(), 1);
        assert!(text.ends_with('\n'));
    }
    let names: Vec<_> = std::fs::read_dir(directory.path()).expect("a list").collect();
    assert_eq!(names.len(), 1, "nothing is left beside it");
}
