//! Asking for calls that do not come, or for output that cannot be written. Needs root.

mod common;

use std::fs;
use std::process::Stdio;

use common::{Backend, LIMIT, expect_refusal, fixture, gospect, path_text, temporary};
use testkit::Running;

#[test]
fn root_no_such_function_names_the_nearest() {
    let program = fixture("counts");
    let output = gospect().run(&["trace", "-u", "main.wrok", "--", path_text(&program)]);
    expect_refusal(&output, 3, &["main.wrok", "main.work"]);
    let output = gospect().run(&["trace", "-u", "nowhere.*", "--", path_text(&program)]);
    expect_refusal(&output, 3, &["nowhere.*"]);
}

#[test]
fn root_a_function_that_is_only_inlined_is_said_to_be() {
    let program = fixture("inlined");
    let output = gospect().run(&["trace", "-u", "main.tiny", "--", path_text(&program)]);
    expect_refusal(&output, 3, &["main.tiny", "inlined", "main.host"]);
}

#[test]
fn root_never_called_is_a_reason_and_3() {
    let program = fixture("inlined");
    let file = temporary("jsonl");
    let args =
        ["trace", "--format", "json", "-o", path_text(&file), "-u", "main.neverCalled", "--"];
    let mut args = args.to_vec();
    args.push(path_text(&program));
    let output = gospect().run(&args);
    output.expect_code(3);
    let text = fs::read_to_string(&file).expect("the output file");
    _ = fs::remove_file(&file);
    let summary: serde_json::Value =
        serde_json::from_str(text.lines().last().expect("a summary")).expect("JSON");
    assert_eq!(summary["calls"], 0);
    let reason = summary["zero_hits"].as_str().expect("a reason");
    assert!(reason.contains("called"), "{reason}");
}

#[test]
fn unwritable_output_is_refused_before_anything_runs() {
    let program = fixture("counts");
    for option in ["-o", "--record"] {
        let line = ["trace", option, "/nonexistent/file", "-u", "main.work", "--"];
        let mut line = line.to_vec();
        line.push(path_text(&program));
        let output = gospect().run(&line);
        output.expect_code(1);
        assert!(output.stderr.contains("/nonexistent/file"), "{}", output.story());
        assert!(!output.stdout.contains("done"), "the command ran: {}", output.story());
    }
}

#[test]
fn root_a_closed_pipe_ends_a_trace_quietly() {
    let mut target = Running::held(&fixture("spin"), &["-for", "0"]);
    let pid = target.pid().to_string();
    let line = ["trace", "-u", "main.round", "--format", "json", "-p", &pid];
    let mut child = gospect()
        .command(&line)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("gospect starts");
    drop(child.stdout.take());
    target.go();
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(target.is_running(), "the target goes on");
    target.signal("TERM");
    target.wait(LIMIT);
}

/// The command writes to the same pipe, and whichever of both notices first, it is no failure.
#[test]
fn root_a_closed_pipe_ends_a_trace_of_a_command_quietly() {
    let program = fixture("counts");
    for (command, func) in [("trace", Some("main.work")), ("sched", None)] {
        let mut line = vec![command, "--backend", Backend::selected().name()];
        line.extend(func.into_iter().flat_map(|func| ["-u", func]));
        line.extend(["--", path_text(&program)]);
        let mut child = gospect()
            .command(&line)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("gospect starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.as_ref()), (Some(0), ""), "{command}");
    }
}
