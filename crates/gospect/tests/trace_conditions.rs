//! Conditions decided at the hit and outside: the same calls, and those that the program counts. Needs
//! root. A capture with `--record` decides all of them outside.

mod common;

use common::{
    Directory, LIMIT, Trace, fixture, json_lines, number, path_text, temporary, wait_attached,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use testkit::Running;

/// What is compared of a call: what it was called with, how it ended, and in which calls it lies.
fn told(trace: &Trace) -> BTreeSet<String> {
    let calls = trace.of_type("call");
    let name = |call: &Value| format!("walk {}", call["args"][0]["value"]);
    let by_id: BTreeMap<u64, String> =
        calls.iter().map(|call| (number(&call["id"]), name(call))).collect();
    let told: BTreeSet<String> = calls
        .iter()
        .map(|call| {
            let around = call["parent"].as_u64().map(|id| by_id[&id].as_str());
            let Value::Object(call) = call else { panic!("{call}") };
            let [depth, exit, exact, args, results] =
                ["depth", "exit", "end_exact", "args", "results"].map(|key| &call[key]);
            let name = name(&Value::Object(call.clone()));
            format!("{name} in {around:?} at {depth}: {exit} {exact} {args} {results}")
        })
        .collect();
    assert_eq!(told.len(), calls.len(), "every call has its own arguments");
    told
}

/// Calls of `walk` under a condition.
fn trace(program: &Path, condition: &str, more: &[&str]) -> Trace {
    let rule = "main.walk(id, name, it.Next.Name, err) -> (n)";
    let line = [&[rule, "--if", condition], more].concat();
    let trace = Trace::launch(&line, program, &[]);
    trace.output.expect_code(0);
    trace.expect_sound();
    trace
}

#[test]
fn root_the_hit_decides_as_the_reader_does() {
    let program = fixture("screened");
    let run = std::process::Command::new(&program).output().unwrap();
    let done = String::from_utf8(run.stdout).unwrap().lines().last().unwrap().to_owned();
    let done: Value = serde_json::from_str(&done).unwrap();
    let calls = number(&done["calls"]);
    let file = temporary("rec");
    for (condition, counts) in done["counts"].as_object().unwrap() {
        let [holds, fails, unknown] = [0, 1, 2].map(|index| number(&counts[index]));
        let outside = trace(&program, condition, &["--record", path_text(&file)]);
        let at_hit = trace(&program, condition, &[]);
        for (how, trace) in [("outside", &outside), ("at the hit", &at_hit)] {
            let summary = trace.summary();
            let numbers = ["entries", "calls", "hidden", "undecided", "orphan_exits", "lost"];
            let numbers = numbers.map(|key| number(&summary[key]));
            let expected = [calls, holds + unknown, fails, unknown, 0, 0];
            assert_eq!(numbers, expected, "{condition} {how}: {summary}");
        }
        // All of these conditions can be asked at the hit.
        assert_eq!(at_hit.summary()["hidden_at_hit"], fails, "{condition}");
        assert!(outside.summary()["hidden_at_hit"].is_null(), "{condition}");
        let (outside, at_hit) = (told(&outside), told(&at_hit));
        let differing: Vec<_> = outside.symmetric_difference(&at_hit).take(10).collect();
        assert!(differing.is_empty(), "{condition}: {differing:#?}");
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn root_losses_beside_rejected_hits_are_counted_exactly() {
    let dir = Directory::new();
    let file = dir.file("out");
    let mut target = Running::held(&fixture("screened"), &["-spin", "61440", "-linger"]);
    let pid = target.pid().to_string();
    let how = ["trace", "--ring", "1", "--format", "json", "-o", path_text(&file)];
    let what = ["main.plain(id, name)", "--if", "id < 512", "-p", &pid];
    let mut tracer = common::gospect().start(&[&how[..], &what].concat());
    wait_attached(&tracer);
    tracer.signal("STOP");
    target.go();
    target.wait_for("done", LIMIT);
    tracer.signal("CONT");
    // What comes after the gap shows where it lies.
    tracer.signal("INT");
    common::gospect().finish(&mut tracer).expect_code(0);
    let lines = json_lines(&file);
    let summary = lines.last().expect("a summary");
    let at = |key: &str| number(&summary[key]);
    assert!(at("lost") > 10_000, "{summary}");
    // Of 1024 calls in a row 512 are not wanted: none of these hits is a loss.
    assert_eq!((at("hidden_at_hit"), at("hidden")), (30_720, 30_720), "{summary}");
    // The end of a goroutine of the runtime's is watched too.
    let produced = at("entries") + at("exits") + at("lost");
    assert!((122_880..=122_881).contains(&produced), "{produced}: {summary}");
    assert_eq!(at("calls"), at("entries") - at("hidden") - at("drained"), "{summary}");
    let calls: Vec<&Value> = lines.iter().filter(|line| line["type"] == "call").collect();
    assert!(calls.iter().all(|call| number(&call["args"][0]["value"]) < 512));
}

/// The values that calls of `walk` are told apart by, and how many calls there are of each.
fn split(program: &Path, by: &str) -> BTreeMap<String, u64> {
    let trace = Trace::launch(&["main.walk", "--stat", "--by", by], program, &["-n", "9"]);
    trace.output.expect_code(0);
    let rows = trace.of_type("stat").into_iter();
    rows.map(|row| {
        let mut by = row["by"].clone();
        assert!(by.as_object_mut().unwrap().remove("name").is_some());
        (by.to_string(), number(&row["calls"]))
    })
    .collect()
}

#[test]
fn root_statistics_are_split_by_values_as_calls_show_them() {
    let program = fixture("screened");
    let total: u64 = split(&program, "hue").values().sum();
    for (by, expected) in [
        (
            "hue",
            &[
                r#"{"const":"red","type":"main.color","value":0}"#,
                r#"{"const":"green","type":"main.color","value":1}"#,
                r#"{"const":"blue","type":"main.color","value":2}"#,
            ][..],
        ),
        (
            "~r1",
            &[
                r#"{"type":"","unavailable":"the call did not return"}"#,
                r#"{"type":"error","value":null}"#,
                concat!(
                    r#"{"type":"error","value":{"dyn":"*errors.errorString","error":"late","#,
                    r#""value":{"s":"late"}}}"#,
                ),
            ],
        ),
        (
            "it.Any.(*thing).Name",
            &[
                r#"{"type":"string","unavailable":"holds no *thing"}"#,
                r#"{"type":"string","unavailable":"nil pointer on the way"}"#,
                r#"{"type":"string","value":"leaf"}"#,
            ],
        ),
        (
            "it.Any",
            &[
                r#"{"type":"interface {}","unavailable":"nil pointer on the way"}"#,
                r#"{"type":"interface {}","value":null}"#,
                r#"{"type":"interface {}","value":{"dyn":"int","value":7}}"#,
                concat!(
                    r#"{"type":"interface {}","value":{"dyn":"*main.thing","#,
                    r#""value":{"Any":null,"Name":"leaf","Next":null,"Weight":1}}}"#,
                ),
            ],
        ),
    ] {
        let rows = split(&program, by);
        let values: BTreeSet<&str> = rows.keys().map(String::as_str).collect();
        assert_eq!(values, expected.iter().copied().collect(), "{by}");
        assert_eq!(rows.values().sum::<u64>(), total, "{by}");
    }
    let durations = split(&program, "left");
    assert_eq!(durations.len(), 10);
    let five = r#"{"ns":5000000,"type":"time.Duration","value":"5ms"}"#;
    assert!(durations.contains_key(five), "{durations:?}");
}

#[test]
fn root_what_a_condition_can_not_ask_is_said_in_one_line() {
    let program = fixture("screened");
    for (condition, words) in [
        ("err == \"late\"", "err is error, the string is a string"),
        ("err == errLate", "err and errLate compare with nil only"),
        ("it > nil", "> makes no sense for *main.thing"),
        ("w.counts == 1", "w.counts is map[string]*[3]int, 1 is an integer"),
        ("id > 10ms", "id is int, no time.Duration: write a number"),
        ("$duration > 1ms", "$duration is known when the call has ended"),
        ("it.Any.Name == \"x\"", "is an interface: assert its type, as in x.(*T).Name"),
    ] {
        let line = ["trace", "--dry-run", "main.walk", "--if", condition, "--"];
        let output = common::gospect().run(&[&line[..], &[path_text(&program)]].concat());
        common::expect_line(&output, 2, &[condition, words]);
    }
}
