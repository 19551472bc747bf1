//! `--record` and `report`: a file gives what the capture showed, without the process.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Directory, LIMIT, fixture, gospect, json_lines, path_text, until, wait_attached};
use serde_json::Value;
use testkit::{Output, Running};

/// Starts `program` under `trace options…` with a recording, and gives the recording and
/// what the capture wrote to its output file.
fn record(dir: &Directory, options: &[&str], program: &Path, args: &[&str]) -> (PathBuf, Output) {
    let (live, file) = (dir.file("live"), dir.file("recording"));
    let mut line = vec!["trace", "-o", path_text(&live), "--record", path_text(&file)];
    line.extend(options);
    line.extend(["--", path_text(program)]);
    line.extend(args);
    let output = gospect().run(&line);
    (file, output)
}

/// What `report` writes of `file`.
fn report(file: &Path, options: &[&str]) -> Output {
    let mut line = vec!["report", path_text(file)];
    line.extend(options);
    gospect().run(&line)
}

/// Records with `how` and `show`, and expects of `report` with `show` the very same bytes.
#[track_caller]
fn expect_same(how: &[&str], show: &[&str], program: &Path, args: &[&str], code: i32) {
    let dir = Directory::new();
    let (file, output) = record(&dir, &[how, show].concat(), program, args);
    output.expect_code(code);
    let live = fs::read_to_string(dir.file("live")).expect("the output file");
    let again = report(&file, show);
    again.expect_code(code);
    assert_eq!(again.stdout, live, "{show:?} of {}", program.display());
    // The summary of text goes to stderr, after what the capture said before it.
    if !show.contains(&"json") {
        let ending = output.stderr.ends_with(&again.stderr) && !again.stderr.is_empty();
        assert!(ending, "{}\n--- of the file\n{}", output.story(), again.stderr);
    }
    assert!(!live.is_empty(), "{}", output.story());
}

const FORMATS: [&[&str]; 4] = [
    &["--format", "json"],
    &["--format", "text"],
    &["--format", "json", "--stat"],
    &["--format", "text", "--stat"],
];

#[test]
fn root_a_recording_gives_what_the_capture_showed() {
    let panics = ["-u", "main.guard", "-u", "main.middle", "-u", "main.thrower"];
    for show in FORMATS {
        expect_same(&panics, show, &fixture("panics"), &["-mode", "recover", "-n", "20"], 0);
        expect_same(&["-u", "main.*"], show, &fixture("args"), &[], 0);
        expect_same(&["-u", "main.*"], show, &fixture("fatal"), &["-value", "error"], 4);
    }
    // Lines that are held, with calls that take longer than that.
    expect_same(&["-u", "main.add*"], FORMATS[1], &fixture("ftrace_demo"), &[], 0);
}

#[test]
fn root_filters_give_the_same_from_a_recording() {
    let demo = fixture("ftrace_demo");
    let filters: [&[&str]; 5] = [
        &["--depth", "2"],
        &["--min", "400ms"],
        &["-D", "main.add1"],
        &["--color", "always"],
        &["-D", "main.add1", "--depth", "2", "--stat"],
    ];
    for filter in filters {
        for format in [&["--format", "json"][..], &["--format", "text"]] {
            expect_same(&["-u", "main.add*"], &[filter, format].concat(), &demo, &[], 0);
        }
    }
}

#[test]
fn root_a_limit_is_kept_from_a_recording() {
    let spin = ["-u", "main.round", "-u", "main.mix"];
    let show = ["--limit", "3", "--format", "json"];
    expect_same(&spin, &show, &fixture("spin"), &["-for", "300ms"], 0);
}

#[test]
fn root_one_recording_gives_any_output() {
    let dir = Directory::new();
    let (file, output) =
        record(&dir, &["-u", "main.add*", "--format", "json"], &fixture("ftrace_demo"), &[]);
    output.expect_code(0);
    let names = |options: &[&str]| {
        let output = report(&file, &[options, &["--format", "json"]].concat());
        output.expect_code(0);
        let mut calls = output.of_type("call");
        calls.sort_by_key(|call| call["depth"].as_u64());
        calls.iter().map(|call| common::text(&call["func"])).collect::<Vec<_>>()
    };
    assert_eq!(names(&[]), ["main.add", "main.add1", "main.add2", "main.add3"]);
    assert_eq!(names(&["--depth", "1"]), ["main.add"]);
    assert_eq!(names(&["--min", "550ms"]), ["main.add", "main.add1"]);
    assert_eq!(names(&["-D", "main.add2"]), ["main.add2", "main.add3"]);
    assert_eq!(names(&["-D", "main.add?"]), ["main.add1", "main.add2", "main.add3"]);
}

#[test]
fn root_a_report_has_the_exit_code_of_its_capture() {
    let dir = Directory::new();
    let never = ["-u", "main.neverCalled", "--format", "json"];
    let (file, output) = record(&dir, &never, &fixture("inlined"), &[]);
    output.expect_code(3);
    let again = report(&file, &["--format", "json"]);
    again.expect_code(3);
    assert_eq!(again.summary()["zero_hits"], output_summary(&dir)["zero_hits"]);

    let (file, output) = record(&dir, &["-u", "main.outer"], &fixture("osexit"), &["-code", "5"]);
    output.expect_code(0);
    let again = report(&file, &["--format", "json"]);
    again.expect_code(0);
    assert_eq!(again.summary()["target_exit"], 5);

    report(&file, &["-D", "main.nowhere"]).expect_code(3);
    assert!(report(&file, &["-D", "main.nowhere"]).stderr.contains("main.nowhere"));
    report(&file, &["--format", "xml"]).expect_code(2);
    report(&file, &["-o", "/nonexistent/out"]).expect_code(1);
}

fn output_summary(dir: &Directory) -> Value {
    json_lines(&dir.file("live")).pop().expect("a summary")
}

#[test]
fn root_a_truncated_recording_gives_what_it_holds() {
    let dir = Directory::new();
    let options = ["-u", "main.*", "--format", "json"];
    let (file, output) = record(&dir, &options, &fixture("counts"), &["-n", "500"]);
    output.expect_code(0);
    let whole = json_lines(&dir.file("live"));
    let bytes = fs::read(&file).expect("the recording");
    let cut = dir.file("cut");
    let mut most = 0;
    for part in 0..40 {
        fs::write(&cut, &bytes[..bytes.len() * part / 40]).expect("a part of it");
        let output = report(&cut, &["--format", "json"]);
        assert!(!output.stderr.contains("panicked"), "{}", output.story());
        match output.code {
            // Neither the header nor the plan is whole.
            Some(1) => {
                assert_eq!(output.stdout, "", "{}", output.story());
                assert_eq!(output.stderr.lines().count(), 1, "{}", output.story());
            }
            Some(0 | 3) => {
                let notes = output.summary()["notes"].to_string();
                assert!(notes.contains("truncated"), "{}", output.story());
                let calls = output.of_type("call");
                let returned = calls.iter().filter(|call| call["exit"] == "return");
                assert!(returned.clone().all(|call| has_twin(&whole, call)), "part {part}");
                most = most.max(returned.count());
            }
            _ => panic!("part {part}: {}", output.story()),
        }
    }
    assert!(most > 500, "the longest parts hold most of the 1000 calls, not {most}");
}

fn has_twin(whole: &[Value], call: &Value) -> bool {
    whole.iter().any(|other| {
        ["func", "start_ns", "duration_ns", "goid", "depth"].iter().all(|k| other[*k] == call[*k])
    })
}

/// A file that begins as a recording does, with this header.
fn with_header(dir: &Directory, header: &str) -> PathBuf {
    let mut bytes = b"GOSPECT\0".to_vec();
    bytes.extend(1u32.to_le_bytes());
    bytes.extend((header.len() as u32).to_le_bytes());
    bytes.extend(header.as_bytes());
    let file = dir.file("odd");
    fs::write(&file, bytes).expect("a file");
    file
}

#[test]
fn what_is_no_recording_is_refused_by_name() {
    let dir = Directory::new();
    let newer = with_header(&dir, r#"{"version":99,"unix_offset_ns":0}"#);
    let refused = |file: &Path, word: &str| {
        let output = report(file, &[]);
        output.expect_code(1);
        assert_eq!(output.stdout, "");
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.story());
        for word in [word, path_text(file)] {
            assert!(output.stderr.contains(word), "no {word:?} in {}", output.story());
        }
    };
    refused(&newer, "version 99");
    refused(&with_header(&dir, r#"{"version":1,"unix_offset_ns":0}"#), "no plan");
    refused(&with_header(&dir, "{"), "header");
    refused(&fixture("counts"), "not a recorded gospect file");
    refused(Path::new("/dev/null"), "not a recorded gospect file");
    refused(Path::new("/nonexistent/file"), "No such file");
    refused(dir.path(), "directory");
}

#[test]
fn root_what_a_killed_gospect_recorded_is_there() {
    let dir = Directory::new();
    let file = dir.file("recording");
    let mut target = Running::held(&fixture("sleepy"), &["-g", "2", "-n", "7"]);
    let pid = target.pid().to_string();
    let line = ["trace", "-u", "main.*", "--record", path_text(&file), "-p", &pid];
    let mut tracer = gospect().start(&line);
    wait_attached(&tracer);
    let begun = fs::metadata(&file).expect("the recording").len();
    target.go();
    target.wait_for("parked", LIMIT);
    target.go();
    target.wait_for("tick", LIMIT);
    // What was seen is handed to the file now and then.
    let mut size = begun;
    until("the file grows and stands still", || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        let before = std::mem::replace(&mut size, fs::metadata(&file).expect("it").len());
        size > begun && size == before
    });
    tracer.signal("KILL");
    tracer.wait(LIMIT);
    let output = report(&file, &["--format", "json"]);
    output.expect_code(0);
    assert_eq!(output.calls_of("main.tick").len(), 7, "{}", output.story());
    for call in output.of_type("call") {
        let open = call["func"] != "main.tick";
        assert_eq!(call["exit"] == "open", open, "{call}");
        assert_ne!(call["caller"]["func"], Value::Null, "{call}");
    }
    let notes = output.summary()["notes"].to_string();
    assert!(notes.contains("did not end in order"), "{notes}");
    assert_eq!(output.summary()["processes"], 1);
    assert!(target.is_running(), "the target goes on");
    target.close_stdin();
    assert!(target.wait(LIMIT).success(), "{}", target.stderr());
}

#[test]
fn root_what_is_drained_is_drained_in_the_report_too() {
    let dir = Directory::new();
    let (file, live) = (dir.file("recording"), dir.file("live"));
    let mut target = Running::held(&fixture("sleepy"), &["-g", "2", "-n", "7"]);
    let pid = target.pid().to_string();
    let line = ["trace", "-v", "-u", "main.*", "--record", path_text(&file), "-p", &pid];
    let show = ["--format", "json", "-o", path_text(&live), "--drain", "20s"];
    let mut tracer = gospect().start(&[&line[..], &show].concat());
    wait_attached(&tracer);
    target.go();
    target.wait_for("parked", LIMIT);
    tracer.signal("INT");
    tracer.wait_error_line(LIMIT, |line| line.contains("captured until"));
    target.go();
    target.wait_for("tick", LIMIT);
    target.close_stdin();
    gospect().finish(&mut tracer).expect_code(0);
    let summary = json_lines(&live).pop().expect("a summary");
    assert_eq!(summary["drained"], 7, "{summary}");
    let again = report(&file, &["--format", "json"]);
    assert_eq!(again.stdout, fs::read_to_string(&live).expect("the output"));
    assert!(again.calls_of("main.inner").iter().all(|call| call["exit"] == "return"));
    assert!(target.wait(LIMIT).success(), "{}", target.stderr());
}
