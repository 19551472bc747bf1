//! Expressions and conditions, compared with what the program itself reads. Needs root.

mod common;

use common::{Backend, Trace, gospect, path_text, text};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{Fixture, Mode, Toolchain, newest, oldest};

/// Expressions of one rule: a program has room for so many.
const AT_ONCE: usize = 8;

fn build(toolchain: &Toolchain, mode: Mode) -> PathBuf {
    common::own(&Fixture::build("expressions", toolchain, mode))
}

/// What the program says that expressions come to, by function, in the order of the calls.
fn wants(program: &Path, args: &[&str]) -> BTreeMap<String, Vec<Value>> {
    let output = Command::new(program).args(args).output().expect("the fixture runs");
    assert!(output.status.success(), "{output:?}");
    let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["type"] == "want" {
            all.entry(text(&line["func"])).or_default().push(line);
        }
    }
    assert!(!all.is_empty());
    all
}

/// Expressions over a function's arguments or results, each once.
fn expressions(wants: &[Value], part: &str) -> BTreeSet<String> {
    let objects = wants.iter().filter_map(|want| want[part].as_object());
    objects.flat_map(Map::keys).cloned().collect()
}

/// Rules for the `turn`th handful of expressions of each function; none when there are no more.
fn rules(wants: &BTreeMap<String, Vec<Value>>, turn: usize) -> Vec<String> {
    let mut rules = Vec::new();
    for (function, wants) in wants {
        let pick = |part| -> Vec<String> {
            expressions(wants, part).into_iter().skip(turn * AT_ONCE).take(AT_ONCE).collect()
        };
        let (args, results) = (pick("args"), pick("results"));
        if !(args.is_empty() && results.is_empty()) {
            rules.push(format!("{function}({}) -> ({})", args.join(", "), results.join(", ")));
        }
    }
    rules
}

/// Compares the values of one call with those that are wanted; gives the names of those.
fn compare(want: &Value, got: &Value) -> Vec<String> {
    let mut compared = Vec::new();
    let shown = got.as_array().unwrap();
    for (name, want) in want.as_object().into_iter().flatten() {
        let Some(value) = shown.iter().find(|value| value["name"] == *name) else { continue };
        compared.push(name.clone());
        match want.get("unavailable") {
            Some(reason) => assert_eq!(value["unavailable"], *reason, "{name}: {value}"),
            None => assert_eq!(value["value"], *want, "{name}: {value}"),
        }
    }
    compared
}

/// Traces the program as often as it takes to see all its expressions.
fn check(program: &Path, args: &[&str], wants: &BTreeMap<String, Vec<Value>>) {
    let mut compared = BTreeSet::new();
    for turn in 0.. {
        let rules = rules(wants, turn);
        if rules.is_empty() {
            break;
        }
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        let trace = Trace::launch(&rules, program, args);
        trace.output.expect_code(0);
        for (function, wants) in wants {
            let calls = trace.calls_of(function);
            if !rules.iter().any(|rule| rule.starts_with(&format!("{function}("))) {
                assert!(calls.is_empty(), "{function}");
                continue;
            }
            assert_eq!(calls.len(), wants.len(), "{function}");
            for (index, (want, call)) in wants.iter().zip(calls).enumerate() {
                for part in ["args", "results"] {
                    let names = compare(&want[part], &call[part]);
                    compared.extend(names.into_iter().map(|name| (function, index, part, name)));
                }
            }
        }
    }
    let lines = wants.values().flatten();
    let all: usize = lines
        .flat_map(|want| [&want["args"], &want["results"]])
        .filter_map(|part| part.as_object().map(Map::len))
        .sum();
    assert_eq!(compared.len(), all);
}

#[test]
fn root_expressions_come_to_what_the_program_reads() {
    for (toolchain, mode) in [(newest(), Mode::Exe), (newest(), Mode::Pie), (oldest(), Mode::Exe)] {
        let program = build(&toolchain, mode);
        let mut wants = wants(&program, &[]);
        // What closures capture is described from Go 1.23 on.
        if toolchain.version == oldest().version {
            wants.remove("main.enclosed.func1");
        }
        check(&program, &[], &wants);
    }
}

#[test]
fn root_bad_pointers_are_unavailable() {
    for toolchain in [newest(), oldest()] {
        let program = build(&toolchain, Mode::Exe);
        check(&program, &["-bad"], &wants(&program, &["-bad"]));
    }
}

#[test]
fn root_the_rest_of_the_grammar() {
    let program = build(&newest(), Mode::Exe);
    let rules =
        ["main.byValue(f, $goid, &t, &big[1])", "main.inner(raw=%ax:s64)", "main.run -> ~r0"];
    let trace = Trace::launch(&rules, &program, &[]);
    trace.output.expect_code(0);
    let call = trace.calls_of("main.byValue")[0];
    match Backend::selected() {
        Backend::Trampoline => assert_eq!(call["args"][0]["value"], 0.25),
        Backend::Uprobe => {
            let reason = "float register, which uprobes do not see";
            assert_eq!(call["args"][0]["unavailable"], reason);
        }
    }
    assert_eq!(call["args"][1]["value"], call["goid"]);
    assert_eq!(call["args"][2]["unavailable"], "in registers: it has no address");
    assert!(call["args"][3]["addr"].is_string(), "{call}");
    let inner = trace.calls_of("main.inner")[1];
    assert_eq!(inner["args"], json!([{"name": "raw", "type": "s64", "value": 1}]));
    // Without a list the arguments are those that every function gets.
    let run = trace.calls_of("main.run")[0];
    assert_eq!((&run["args"][1]["name"], &run["args"][1]["value"]), (&json!("n"), &json!(5)));
    assert_eq!(run["results"], json!([{"name": "~r0", "type": "int", "value": 16}]));
}

/// The `n` of the calls of `condition` that are shown, and for how many the summary says something.
fn shown(program: &Path, options: &[&str]) -> (Vec<i64>, [u64; 2]) {
    let line = [&["main.condition(n)", "-u", "main.inner"], options].concat();
    let trace = Trace::launch(&line, program, &[]);
    trace.output.expect_code(0);
    let calls = trace.calls_of("main.condition");
    for inner in trace.calls_of("main.inner") {
        // Where the call around it is hidden at its entry it is a root.
        let around = calls.iter().find(|call| call["id"] == inner["parent"]);
        assert_eq!(inner["depth"] == 0, inner["parent"].is_null(), "{inner}");
        if let Some(around) = around {
            assert_eq!(inner["args"][0]["value"], around["args"][0]["value"]);
        }
    }
    let n = calls.iter().map(|call| call["args"][0]["value"].as_i64().unwrap()).collect();
    let summary = trace.summary();
    (n, ["hidden", "undecided"].map(|key| common::number(&summary[key])))
}

#[test]
fn root_conditions_hide_calls_and_count_what_they_can_not_decide() {
    for toolchain in [newest(), oldest()] {
        let program = build(&toolchain, Mode::Exe);
        let n = |list: &[i64]| list.to_vec();
        let all: Vec<i64> = (0..12).collect();
        for (options, expected) in [
            (&["--if", "len(text) > 5 && n >= 4"][..], (n(&[5, 8, 11]), [9, 0])),
            (&["--if", "text == \"short\" || n == 0"], (n(&[0, 1, 4, 7, 10]), [7, 0])),
            (&["--if", "!(text < \"short\") && n != 4"], (n(&[1, 7, 10]), [9, 0])),
            (&["--if", "u == nil"], (n(&[0, 1, 2, 3]), [8, 0])),
            // Of nobody it is not known who it is.
            (&["--if", "u.ID == 1"], (n(&[0, 1, 2, 3, 4, 5, 6, 7]), [4, 4])),
            (&["--if", "u != nil && u.ID == 1"], (n(&[4, 5, 6, 7]), [8, 0])),
            (&["--if-result", "~r1 != nil"], (n(&[0, 3, 6, 9]), [8, 0])),
            (&["--if-result", "~r0 > 5 && text == \"short\""], (n(&[7, 10]), [10, 0])),
            (&["--if", "n > 2", "--if-result", "~r1 == nil"], (n(&[4, 5, 7, 8, 10, 11]), [9, 0])),
            (&["--if-duration", "< 1h"], (all, [0, 0])),
            (&["--if-duration", ">= 1h"], (n(&[]), [24, 0])),
        ] {
            assert_eq!(shown(&program, options), expected, "{options:?}");
        }
    }
}

#[test]
fn root_statistics_are_split_by_a_value() {
    let program = build(&newest(), Mode::Exe);
    let table = |by: &str| -> BTreeSet<String> {
        let line = ["-u", "main.condition", "--stat", "--by", by];
        let trace = Trace::launch(&line, &program, &[]);
        trace.output.expect_code(0);
        let stats = trace.of_type("stat").into_iter();
        stats
            .map(|stat| format!("{} {} {}", text(&stat["func"]), stat["by"], stat["calls"]))
            .collect()
    };
    let expected = |rows: &[(&str, u64)]| -> BTreeSet<String> {
        rows.iter().map(|(by, calls)| format!("main.condition {by} {calls}")).collect()
    };
    assert_eq!(
        table("len(text)"),
        expected(&[
            (r#"{"name":"len(text)","type":"int","value":0}"#, 4),
            (r#"{"name":"len(text)","type":"int","value":5}"#, 4),
            (r#"{"name":"len(text)","type":"int","value":13}"#, 4),
        ])
    );
    assert_eq!(
        table("u.Name"),
        expected(&[
            (r#"{"name":"u.Name","type":"string","unavailable":"nil pointer on the way"}"#, 4),
            (r#"{"name":"u.Name","type":"string","value":"ada"}"#, 4),
            (r#"{"name":"u.Name","type":"string","value":"grace"}"#, 4),
        ])
    );
}

#[test]
fn root_captured_variables_decide_and_split() {
    let program = build(&newest(), Mode::Exe);
    // The first of two calls makes 15 of 10, the second 21.
    let closure = "main.enclosed.func1(n, seen)";
    let trace = Trace::launch(&[closure, "--if", "seen > 10 && who.ID == 1"], &program, &[]);
    trace.output.expect_code(0);
    let args: Vec<Value> = trace
        .calls_of("main.enclosed.func1")
        .iter()
        .map(|call| json!([call["args"][0]["value"], call["args"][1]["value"]]))
        .collect();
    assert_eq!(args, [json!([6, 15])]);
    assert_eq!(trace.summary()["hidden"], 1);
    let trace = Trace::launch(&[closure, "--stat", "--by", "seen"], &program, &[]);
    trace.output.expect_code(0);
    let rows: BTreeSet<(u64, u64)> = trace
        .of_type("stat")
        .iter()
        .map(|row| (row["by"]["value"].as_u64().unwrap(), row["calls"].as_u64().unwrap()))
        .collect();
    assert_eq!(rows, [(10, 1), (15, 1)].into());
}

#[test]
fn root_a_recording_keeps_conditions() {
    let program = build(&newest(), Mode::Exe);
    let file = common::temporary("rec");
    let line = ["main.condition(n)", "--if", "u.ID == 1", "--record", path_text(&file)];
    let trace = Trace::launch(&line, &program, &[]);
    let report = gospect().run(&["report", "--format", "json", path_text(&file)]);
    std::fs::remove_file(&file).unwrap();
    let live: Vec<Value> =
        trace.lines.iter().filter(|line| line["type"] == "call").cloned().collect();
    assert_eq!((live.len(), &report.of_type("call")), (8, &live));
    assert_eq!(report.summary()["undecided_for"], json!({"nil pointer on the way": 4}));
}

#[test]
fn root_a_thousand_rules_come_from_a_file() {
    let program = build(&newest(), Mode::Exe);
    let file = common::temporary("rules");
    let mut rules = "# many\nmain.condition(n) -> ~r0 # one of them\n".to_owned();
    for number in 0..1000 {
        rules.push_str(&format!("main.nothing{number}(a.b[{number}], len(c))\n"));
    }
    std::fs::write(&file, &rules).unwrap();
    let trace = Trace::launch(&["--rules", path_text(&file)], &program, &[]);
    trace.output.expect_code(0);
    assert_eq!(trace.calls_of("main.condition").len(), 12);
    rules.push_str("main.f(a,)\n");
    std::fs::write(&file, &rules).unwrap();
    let line = ["trace", "--dry-run", "--rules", path_text(&file), "--", path_text(&program)];
    let output = gospect().run(&line);
    std::fs::remove_file(&file).unwrap();
    common::expect_line(&output, 2, &[":1003:10: malformed rule", "found ')'"]);
}

#[test]
fn root_mistakes_name_the_place_and_what_there_is() {
    let program = build(&newest(), Mode::Exe);
    for (options, words) in [
        (
            &["main.handle(req.Metod)"][..],
            &["column 17", "main.request has no field Metod", "user, Method, Header, Sizes"][..],
        ),
        (&["main.handle(rek.Method)"], &["column 13", "no rek in main.handle", "req, items, n"]),
        (&["main.handle(n.ID)"], &["column 15", "is an interface", "x.(*T).ID"]),
        (&["main.handle(n.(*nobody).ID)"], &["column 15", "no type *nobody"]),
        (&["main.handle(~r0)"], &["column 13", "~r0 is a result: write it behind '->'"]),
        (&["main.handle -> req"], &["column 16", "req is known at the entry"]),
        (&["main.handle(req.Sizes[3])"], &["column 23", "[3]uint16 has no element 3"]),
        (&["main.handle(req.Header[0])"], &["column 24", "is a map"]),
        (&["main.handle(main.totl)"], &["column 13", "nearest: main.total"]),
        (&["main.handle(req..x)"], &["column 17", "expected a field"]),
        (&["-u", "main.condition", "--if", "n == \"1\""], &["column 3", "not comparable"]),
        (&["-u", "main.condition", "--if", "n > 10ms"], &["no time.Duration"]),
        (&["-u", "main.condition", "--if", "u > nil"], &["> makes no sense"]),
        (&["-u", "main.condition", "--if", "text"], &["text is string"]),
        (&["-u", "main.condition", "--if", "n >"], &["--if", "column 4"]),
        (&["-u", "main.condition", "--by", "n"], &["--stat"]),
    ] {
        let line = [&["trace", "--dry-run"], options, &["--", path_text(&program)]].concat();
        let output = gospect().run(&line);
        output.expect_code(2);
        for word in words {
            assert!(output.stderr.contains(word), "{word}: {}", output.story());
        }
    }
}
