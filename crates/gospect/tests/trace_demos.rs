//! The demonstrations that people know from go-ftrace, durations included. Needs root.

mod common;

use common::{Trace, gospect, number, own, text};
use serde_json::Value;
use testkit::{Fixture, Mode, newest};

/// What the program measured itself, by function, in the order of the calls.
fn measured(trace: &Trace) -> Vec<(String, u64)> {
    let calls = trace.output.of_type("call");
    calls.iter().map(|call| (text(&call["func"]), number(&call["duration_ns"]))).collect()
}

#[test]
fn root_nested_adds_take_what_the_program_measured() {
    let demo = own(&Fixture::build("ftrace_demo", &newest(), Mode::Exe));
    let trace = Trace::launch(&["-u", "main.add*"], &demo, &["-demo", "nested"]);
    trace.output.expect_code(0);
    trace.expect_returned();
    let names = ["main.add", "main.add1", "main.add2", "main.add3"];
    for (depth, name) in names.iter().enumerate() {
        let call = trace.calls_of(name)[0];
        assert_eq!(call["depth"], depth, "{call}");
        assert_eq!(call["results"][0]["value"], 3, "{call}");
        let own = measured(&trace).iter().find(|(func, _)| func == name).expect("it measured").1;
        let seen = number(&call["duration_ns"]);
        // The program's own span lies inside the call; the difference is its JSON line.
        assert!(seen.abs_diff(own) < 20_000_000, "{name}: seen {seen}, measured {own}");
    }
    for (name, at_least) in [("main.add1", 600), ("main.add2", 500), ("main.add3", 300)] {
        let seen = number(&trace.calls_of(name)[0]["duration_ns"]) / 1_000_000;
        assert!((at_least..at_least + 100).contains(&seen), "{name} took {seen} ms");
    }
}

#[test]
fn root_a_loop_of_adds_shows_arguments_and_results() {
    let demo = own(&Fixture::build("ftrace_demo", &newest(), Mode::Exe));
    let trace = Trace::launch(&["-u", "main.add"], &demo, &["-demo", "loop", "-n", "20"]);
    trace.output.expect_code(0);
    trace.expect_returned();
    for call in trace.calls_of("main.add") {
        let values: Vec<&Value> =
            [&call["args"][0], &call["args"][1], &call["results"][0]].map(|v| &v["value"]).into();
        assert_eq!(values, [1, 2, 3], "{call}");
    }
}

const STUDENT: &str = "main.(*Student).String(s.name=(*+0(%ax)):c64, s.name.len=(+8(%ax)):s64, \
                       s.age=(+16(%ax)):s64)";

fn expect_students(calls: &[&Value]) {
    assert_eq!(calls.len(), 3);
    for (round, call) in calls.iter().enumerate() {
        let value = |name: &str| {
            let args = call["args"].as_array().expect("args");
            args.iter().find(|arg| arg["name"] == name).unwrap_or_else(|| panic!("{name}: {call}"))
                ["value"]
                .clone()
        };
        // c64 is 64 bits of text: eight bytes of `zhang san`.
        assert_eq!(value("s.name"), "zhang sa", "{call}");
        assert_eq!(value("s.name.len"), 9, "{call}");
        assert_eq!(value("s.age"), 20 + round, "{call}");
    }
}

#[test]
fn root_a_rule_reads_a_struct_behind_a_pointer() {
    let demo = own(&Fixture::build("ftrace_demo", &newest(), Mode::Exe));
    for mode in [Mode::Exe, Mode::StrippedPie] {
        let demo = own(&Fixture::build("ftrace_demo", &newest(), mode));
        let trace = Trace::launch(&[STUDENT], &demo, &["-demo", "student"]);
        trace.output.expect_code(0);
        trace.expect_returned();
        expect_students(&trace.calls_of("main.(*Student).String"));
    }
    // The same rule behind -u.
    let trace = Trace::launch(&["-u", STUDENT], &demo, &["-demo", "student"]);
    expect_students(&trace.calls_of("main.(*Student).String"));
}

#[test]
fn root_text_shows_the_tree() {
    let demo = own(&Fixture::build("ftrace_demo", &newest(), Mode::Exe));
    let file = common::temporary("txt");
    let (out, path) = (file.to_string_lossy(), demo.to_string_lossy());
    let args = ["trace", "-q", "-u", "main.add*", "-o", &out, "--", &path, "-demo", "nested"];
    gospect().run(&args).expect_code(0);
    let text = std::fs::read_to_string(&file).expect("the output file");
    _ = std::fs::remove_file(&file);
    let shown: Vec<String> = testkit::Mask::new()
        .lines(&text)
        .lines()
        .filter(|line| line.contains("main.add") || line.contains('}'))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    // add3 sleeps 300 ms, longer than an entry line is held for.
    let starts = [
        "main.add(a=1, b=2) {",
        "main.add1(a=1, b=2) {",
        "main.add2(a=1, b=2) {",
        "main.add3(a=1, b=2) {",
    ];
    for (line, want) in shown.iter().zip(starts) {
        assert!(line.contains(want), "{want} in {line}; all:\n{text}");
    }
    let ends: Vec<&str> = text
        .lines()
        .filter_map(|line| line.find("} = 3").map(|at| &line[at..]))
        .map(|end| end.split_whitespace().last().unwrap_or(""))
        .collect();
    assert_eq!(ends.len(), 4, "{text}");
    assert!(ends.iter().all(|place| place.starts_with("main.go:")), "{text}");
}

#[test]
fn root_a_leaf_is_one_line() {
    let demo = own(&Fixture::build("ftrace_demo", &newest(), Mode::Exe));
    let file = common::temporary("txt");
    let (out, path) = (file.to_string_lossy(), demo.to_string_lossy());
    let args =
        ["trace", "-q", "-u", "main.add", "-o", &out, "--", &path, "-demo", "loop", "-n", "1"];
    gospect().run(&args).expect_code(0);
    let text = std::fs::read_to_string(&file).expect("the output file");
    _ = std::fs::remove_file(&file);
    let line = testkit::Mask::new().lines(&text);
    let words: Vec<&str> = line.split_whitespace().collect();
    let start = ["<time>", "<g>", "<duration>", "main.add(a=1,", "b=2)", "=", "3"];
    assert_eq!(words[..start.len().min(words.len())], start, "{text}");
    assert_eq!(line.lines().count(), 1, "{text}");
}
