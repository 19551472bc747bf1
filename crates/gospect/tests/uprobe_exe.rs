//! `--exe`: every process of a file, now or later, which the uprobe backend alone can trace; and
//! go-ftrace's command line, which means the same. Needs root.

mod common;

use std::fs;
use std::path::Path;

use common::{
    Directory, LIMIT, any_gospect, as_nobody, count_of, expect_line, fixture, interrupt,
    json_lines, own, path_text, temporary, wait_attached,
};
use testkit::{Fixture, Mode, Running, newest, selected};

/// Starts `gospect trace` with JSON into `file`; `auto` takes uprobes for a file.
fn start(file: &Path, options: &[&str]) -> Running {
    let line = ["trace", "--format", "json", "-o", path_text(file)];
    any_gospect().start(&[&line[..], options].concat())
}

// --exe.

#[test]
fn root_every_process_of_a_file_is_seen() {
    let dir = Directory::new();
    let program = dir.copy(&fixture("counts"), "shared");
    let file = dir.file("out");
    let mut running = Running::held(&program, &["-n", "20"]);
    let mut tracer = start(&file, &["--exe", path_text(&program), "-u", "main.work"]);
    wait_attached(&tracer);
    let mut later: Vec<Running> = (0..2).map(|_| Running::held(&program, &["-n", "30"])).collect();
    for target in later.iter_mut().chain([&mut running]) {
        target.go();
        assert!(target.wait(LIMIT).success());
    }
    let (output, lines) = interrupt(&mut tracer, &file);
    output.expect_code(0);
    assert_eq!(count_of(&lines, running.pid(), "main.work"), 20);
    for target in &later {
        assert_eq!(count_of(&lines, target.pid(), "main.work"), 30);
    }
    let summary = lines.last().expect("a summary");
    assert_eq!(summary["processes"], 3);
    let notes = summary["notes"].to_string();
    assert!(notes.contains("before the attach"), "{notes}");
}

#[test]
fn root_the_death_of_a_process_of_a_file_exits_with_4() {
    let dir = Directory::new();
    let program = dir.copy(&fixture("sleepy"), "killed");
    let file = dir.file("out");
    let mut tracer = start(&file, &["--exe", path_text(&program), "-u", "main.outer"]);
    wait_attached(&tracer);
    let mut target = Running::start(&program, &["-g", "1"]);
    target.wait_for("parked", LIMIT);
    // Its calls are read by then: the process is known.
    std::thread::sleep(std::time::Duration::from_millis(300));
    target.signal("KILL");
    target.wait(LIMIT);
    let (output, lines) = interrupt(&mut tracer, &file);
    output.expect_code(4);
    let summary = lines.last().expect("a summary");
    assert_eq!(summary["target_signal"], 9, "{summary}");
    let told = format!("process {} died by signal 9", target.pid());
    assert!(summary["notes"].to_string().contains(&told), "{summary}");
}

#[test]
fn root_a_first_positional_is_the_executable() {
    let dir = Directory::new();
    let program = dir.copy(&fixture("counts"), "positional");
    let path = path_text(&program);
    let mut tracer = any_gospect().start(&["trace", path, "main.work(i=(%ax):s64)"]);
    let output = any_gospect().run(&["trace", "-o", path, path, "-u", "main.work"]);
    output.expect_code(2);
    assert!(output.stderr.contains("overwritten"), "{}", output.story());
    let hint = tracer.wait_error_line(LIMIT, |line| line.contains("nothing runs"));
    assert!(hint.contains(&format!("-- {path}")), "{hint}");
    wait_attached(&tracer);
    let mut target = Running::start(&program, &["-n", "2", "-g", "1"]);
    assert!(target.wait(LIMIT).success());
    tracer.wait_line(LIMIT, |line| line.contains("main.work(i=1)"));
    tracer.signal("INT");
    let output = any_gospect().finish(&mut tracer);
    output.expect_code(0);
    // Several processes may come: the pid stands beside the goroutine.
    let who = format!(" {}/g", target.pid());
    assert!(output.stdout.lines().all(|line| line.contains(&who)), "{}", output.story());
}

#[test]
fn root_a_replaced_file_is_planned_anew() {
    let dir = Directory::new();
    let program = dir.copy(&fixture("counts"), "replaced");
    let file = dir.file("out");
    let mut tracer =
        start(&file, &["--exe", path_text(&program), "-u", "main.work", "-u", "main.host"]);
    wait_attached(&tracer);
    let mut before = Running::start(&program, &["-n", "11"]);
    assert!(before.wait(LIMIT).success());
    let fresh = dir.copy(&fixture("inlined"), "fresh");
    fs::rename(fresh, &program).expect("a rename");
    tracer.wait_error_line(LIMIT, |line| line.contains("planned anew"));
    let mut after = Running::start(&program, &["-n", "12"]);
    assert!(after.wait(LIMIT).success());
    let (output, lines) = interrupt(&mut tracer, &file);
    output.expect_code(0);
    assert_eq!(count_of(&lines, before.pid(), "main.work"), 11);
    assert_eq!(count_of(&lines, after.pid(), "main.host"), 12);
}

/// The tracer sleeps for as long as the process lives: nothing of it is left to look at.
#[test]
fn root_callers_are_named_in_processes_that_are_gone() {
    let program = own(&Fixture::build("empty", &selected(), Mode::Pie));
    let (file, path) = (temporary("jsonl"), program.to_string_lossy());
    let file_text = file.to_string_lossy();
    let line = ["trace", "--exe", &path, "-u", "main.empty", "--format", "json", "-o", &file_text];
    let mut running = any_gospect().start(&line);
    wait_attached(&running);
    for _ in 0..3 {
        running.signal("STOP");
        let mut target = Running::start(&program, &["-n", "2"]);
        assert!(target.wait(LIMIT).success());
        running.signal("CONT");
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    running.signal("INT");
    any_gospect().finish(&mut running).expect_code(0);
    let lines = json_lines(&file);
    let calls: Vec<_> = lines.iter().filter(|line| line["type"] == "call").collect();
    let callers: Vec<_> = calls.iter().map(|call| &call["caller"]["func"]).collect();
    assert_eq!(callers, ["main.main"; 6], "{calls:?}");
}

#[test]
fn root_the_command_line_of_go_ftrace_works() {
    let demo = own(&Fixture::build("ftrace_demo", &newest(), Mode::Exe));
    let path = demo.to_string_lossy().into_owned();
    let rule = "main.(*Student).String(s.name=(*+0(%ax)):c64, s.age=(+16(%ax)):s64)";
    let mut tracer = any_gospect().start(&["ftrace", "-u", "main.add*", &path, rule]);
    wait_attached(&tracer);
    let mut target = Running::start(&demo, &["-demo", "all"]);
    assert!(target.wait(LIMIT).success());
    tracer.wait_line(LIMIT, |line| line.contains("main.(*Student).String("));
    tracer.signal("INT");
    let output = any_gospect().finish(&mut tracer);
    output.expect_code(0);
    for wanted in ["main.add(", "main.add1(", "main.add2(", "main.add3(", "s.age=22"] {
        assert!(output.stdout.contains(wanted), "no {wanted} in {}", output.story());
    }
}

#[test]
fn root_a_recording_of_a_file_shows_pids_as_the_capture_did() {
    let dir = Directory::new();
    let program = dir.copy(&fixture("counts"), "recorded");
    let (file, live) = (dir.file("recording"), dir.file("live"));
    let line = ["trace", "--exe", path_text(&program), "-u", "main.work"];
    let output = ["-o", path_text(&live), "--record", path_text(&file)];
    let mut tracer = any_gospect().start(&[&line[..], &output].concat());
    wait_attached(&tracer);
    let mut target = Running::start(&program, &["-n", "5"]);
    assert!(target.wait(LIMIT).success());
    tracer.signal("INT");
    any_gospect().finish(&mut tracer).expect_code(0);
    let live = fs::read_to_string(&live).expect("the output");
    assert!(live.contains(&format!(" {}/g", target.pid())), "{live}");
    assert_eq!(any_gospect().run(&["report", path_text(&file)]).stdout, live);
}

#[test]
fn root_without_the_rights_no_file_is_watched() {
    let dir = Directory::new();
    let program = dir.copy(&fixture("counts"), "counts");
    let line = ["trace", "--backend", "auto", "-q", "-u", "main.*", "--exe", path_text(&program)];
    expect_line(&as_nobody(&dir, &line), 1, &["no permission", "root"]);
}
