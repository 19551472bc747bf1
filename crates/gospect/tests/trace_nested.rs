//! Values made of others, compared with what the program itself logged (`cargo xtask matrix --suite trace_nested`). Needs root.

mod common;

use common::{Backend, Trace, cells, gospect, number, own, path_text, text};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use testkit::{Fixture, Mode, newest, oldest};

/// Errors whose message a trace must have.
const MESSAGES: [&str; 5] = [
    "*errors.errorString",
    "*fmt.wrapError",
    "*fs.PathError",
    "*errors.joinError",
    "*fmt.wrapErrors",
];

/// What a kernel program cannot see.
const UNSEEN: &str = "float register, which uprobes do not see";

/// Both sides in one form: numbers as such, entries of maps sorted, addresses as they are.
fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(members) => {
            let mut members: Map<String, Value> =
                members.iter().map(|(name, value)| (name.clone(), plain(value))).collect();
            if let Some(Value::Array(entries)) = members.get_mut("entries") {
                entries.sort_by_key(Value::to_string);
            }
            Value::Object(members)
        }
        other => other.clone(),
    }
}

/// Compares a value with what the program logged of it; gives the difference that matters.
fn difference(want: &Value, got: &Value, path: &str) -> Option<String> {
    let differ = || Some(format!("{path}: {got}, the program has {want}"));
    match (want, got) {
        (_, Value::Object(got)) if got.get("unavailable") == Some(&json!(UNSEEN)) => {
            (Backend::selected() == Backend::Trampoline).then(|| format!("{path}: {UNSEEN}"))
        }
        (Value::Object(want_members), Value::Object(got_members)) => {
            let dyn_type = want.get("dyn").and_then(Value::as_str).unwrap_or("");
            // Of other types the program alone knows it.
            let needs_message = MESSAGES.contains(&dyn_type);
            for (name, value) in want_members {
                match got_members.get(name) {
                    None if name == "error" && !needs_message => {}
                    None => return Some(format!("{path}: no {name} in {got}")),
                    Some(got) => {
                        let found = difference(value, got, &format!("{path}.{name}"));
                        if found.is_some() {
                            return found;
                        }
                    }
                }
            }
            let more = |name: &&String| {
                // Lengths of lists, and messages of errors inside others.
                !want_members.contains_key(*name)
                    && !["len", "cap", "error"].contains(&name.as_str())
            };
            got_members.keys().find(more).map(|name| format!("{path}: {name} in {got}"))
        }
        (Value::Array(want_items), Value::Array(got_items)) => {
            if want_items.len() != got_items.len() {
                return differ();
            }
            let pairs = want_items.iter().zip(got_items).enumerate();
            let mut each = pairs.map(|(i, (w, g))| difference(w, g, &format!("{path}[{i}]")));
            each.find_map(|found| found)
        }
        _ if want == got => None,
        _ => differ(),
    }
}

fn compare(trace: &Trace, place: &str) -> usize {
    let logged = trace.output.of_type("call");
    let mut names: Vec<String> = logged.iter().map(|call| text(&call["func"])).collect();
    names.sort();
    names.dedup();
    let (mut compared, mut wrong) = (0, Vec::new());
    for name in names {
        let want = logged.iter().filter(|call| call["func"] == *name);
        for (call, (want, got)) in want.zip(trace.calls_of(&name)).enumerate() {
            for part in ["args", "results"] {
                let empty = Vec::new();
                let list = |call: &Value| call[part].as_array().unwrap_or(&empty).clone();
                let (want, got) = (list(want), list(got));
                assert_eq!(want.len(), got.len(), "{part} of {name}");
                for (want, got) in want.iter().zip(&got) {
                    let mut want = plain(want);
                    // As the compiler spells it is another matter.
                    want["type"] = got["type"].clone();
                    let path = format!("{name}#{call} {}", got["name"]);
                    wrong.extend(difference(&want, &plain(got), &path));
                    compared += 1;
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{place}: {} of {compared}\n{}", wrong.len(), wrong.join("\n"));
    compared
}

#[test]
fn root_values_made_of_others_are_those_of_the_program() {
    for (toolchain, mode) in cells() {
        let program = own(&Fixture::build("values", &toolchain, mode));
        let trace = Trace::launch(&["-u", "main.takes*"], &program, &[]);
        trace.output.expect_code(0);
        let compared = compare(&trace, &format!("{} {mode:?}", toolchain.version));
        assert!(compared > 150, "{compared} values were compared");
        bad_addresses_are_unavailable(&trace);
        what_is_cut_says_so(&trace);
    }
}

#[test]
fn root_closures_tell_what_they_captured() {
    for mode in [Mode::Exe, Mode::Pie] {
        let program = Fixture::build("values", &newest(), mode);
        let rules = ["main.takesCallback(c, c.Call)", "-u", "main.makeCounter.func1"];
        let trace = Trace::launch(&rules, &program, &[]);
        trace.output.expect_code(0);
        let counter = json!({"N": 3, "Label": "label"});
        let call = trace.calls_of("main.makeCounter.func1")[0];
        // By reference, as it was when the call began.
        assert_eq!(
            call["captured"],
            json!([
                {"name": "seen", "type": "int", "value": 40},
                {"name": "c", "type": "*main.counter", "value": counter},
            ]),
            "{call}"
        );
        assert_eq!(call["args"], json!([]));
        let call = trace.calls_of("main.takesCallback")[0];
        let func = json!({
            "value": "main.makeCounter.func1",
            "captured": {"seen": 41, "c": counter},
        });
        assert_eq!(call["args"][0]["value"], json!({"Name": "callback", "Call": func}));
        assert_eq!(call["args"][1]["captured"], func["captured"], "{call}");
        let program = path_text(&program);
        let output = gospect().run(&["trace", "-u", "main.makeCounter.func1", "--", program]);
        let line = r#"main.makeCounter.func1(; seen=40, c=&{N: 3, Label: "label"}) = "abel""#;
        assert!(output.stdout.contains(line), "{}", output.story());
    }
}

#[test]
fn root_generic_functions_have_the_types_of_their_dictionaries() {
    for toolchain in [newest(), oldest()] {
        let program = Fixture::build("values", &toolchain, Mode::Exe);
        let trace = Trace::launch(&["-u", r"/^main\.(generic\[|.*stack\[.*push)/"], &program, &[]);
        trace.output.expect_code(0);
        let calls = trace.of_type("call");
        let types = |part: &str| -> Vec<Vec<String>> {
            let of = |call: &&Value| -> Vec<String> {
                let list = call[part].as_array().expect("a list");
                list.iter().map(|value| text(&value["type"])).collect()
            };
            calls.iter().map(of).collect()
        };
        let expected: [&[&str]; 5] = [
            &["main.celsius", "[]main.celsius", "string"],
            &["string", "[]string", "main.counter"],
            &["*main.counter", "[]*main.counter", "*main.counter"],
            &["*main.stack[main.celsius]", "main.celsius"],
            &["*main.stack[main.celsius]", "main.celsius"],
        ];
        assert_eq!(types("args"), expected, "{}", toolchain.version);
        let expected: [&[&str]; 5] = [
            &["main.celsius", "*string"],
            &["string", "*main.counter"],
            &["*main.counter", "**main.counter"],
            &["int"],
            &["int"],
        ];
        assert_eq!(types("results"), expected, "{}", toolchain.version);
        let values: Vec<&Value> = calls.iter().map(|call| &call["args"][0]["value"]).collect();
        let stacks = [json!({"items": []}), json!({"items": [20]})];
        let two = json!({"N": 2, "Label": "two"});
        assert_eq!(values, [&json!(-3), &json!("word"), &two, &stacks[0], &stacks[1]]);
        assert_eq!(calls[2]["args"][2]["value"], Value::Null, "{}", calls[2]);
    }
}

/// How many types an interface is looked into for where nothing else needs the room.
const MOST_KNOWN: usize = 24;

#[test]
fn root_what_is_not_looked_into_says_so() {
    for toolchain in [newest(), oldest()] {
        let program = Fixture::build("values", &toolchain, Mode::Exe);
        let trace = Trace::launch(&["-u", "main.holdsMany"], &program, &[]);
        trace.output.expect_code(0);
        let calls = trace.calls_of("main.holdsMany");
        assert_eq!(calls.len(), 30);
        let mut looked_into = 0;
        for (number, call) in calls.iter().enumerate() {
            let held = &call["args"][0]["value"];
            assert_eq!(held["dyn"], format!("*main.kind{number:02}"), "{call}");
            let text = &held["value"]["Text"];
            if text.is_string() {
                looked_into += 1;
                assert_eq!(*text, format!("text {number}"), "{call}");
            } else {
                let reason = "behind an interface whose type is not looked into";
                assert_eq!(*text, json!({ "unavailable": reason }), "{call}");
            }
        }
        assert_eq!(looked_into, MOST_KNOWN, "{}", toolchain.version);
    }
}

#[test]
fn root_values_without_room_say_so_and_large_ones_share_a_record() {
    for toolchain in [newest(), oldest()] {
        let program = Fixture::build("values", &toolchain, Mode::Exe);
        let trace =
            Trace::launch(&["-u", "main.holdsTexts", "-u", "main.holdsVast"], &program, &[]);
        trace.output.expect_code(0);
        // Of each only the beginning is shown, so that all of them have room.
        let args = &trace.calls_of("main.holdsVast")[0]["args"];
        let fill = json!({ "value": [1, 2, 0, 0, 0, 0, 0, 0], "len": 1200, "cut": 1192 });
        for place in 0..5 {
            assert_eq!(args[place]["value"], json!({ "N": 5, "Fill": fill }), "{args}");
            assert_eq!(args[place]["cut"], 1, "{args}");
        }
        assert_eq!(args[5]["value"], "behind them", "{args}");
        // Both would need more than a record holds: one is shown whole, the other by its address.
        let args = &trace.calls_of("main.holdsTexts")[0]["args"];
        assert_eq!(args[0]["value"]["T00"], "first", "{args}");
        assert!(args[1].get("value").is_none(), "{args}");
        assert!(text(&args[1]["addr"]).starts_with("0x"), "{args}");
        assert_eq!(args[2]["value"], 7);
    }
}

/// Nothing was read at them, and the program went on to its end.
fn bad_addresses_are_unavailable(trace: &Trace) {
    let calls = trace.calls_of("main.takesBad");
    assert_eq!(calls.len(), 7);
    for call in calls {
        for value in call["args"].as_array().expect("a list").iter().chain([&call["results"][0]]) {
            // An interface without methods has its type word in itself.
            let held = &value["value"]["value"]["unavailable"];
            let reason = text(value.get("unavailable").unwrap_or(held));
            assert!(reason.starts_with("memory not readable"), "{value} in {call}");
        }
    }
    bad_addresses_inside_others_are_unavailable(trace);
    assert_eq!(trace.done()["type"], "done");
}

/// Whether it is told of a value, or of one that it holds, that nothing is readable there.
fn is_unreadable(value: &Value) -> bool {
    let held = match value {
        Value::Object(members) if members.contains_key("dyn") => &value["value"],
        Value::Array(items) => items.last().expect("an element"),
        Value::Object(members) if members.contains_key("Q") => &value["Q"],
        Value::Object(members) if members.contains_key("entries") => &value["entries"][0][1],
        other => other,
    };
    held["unavailable"].as_str().is_some_and(|reason| reason.starts_with("memory not readable"))
}

/// What surrounds them is as it is.
fn bad_addresses_inside_others_are_unavailable(trace: &Trace) {
    let values = |function: &str, part: &str| -> Vec<Value> {
        let calls = trace.calls_of(function);
        assert_eq!(calls.len(), 7, "{function}");
        calls.iter().map(|call| call[part][0]["value"].clone()).collect()
    };
    let mut unread = BTreeSet::new();
    let fields = "main.takesBadFields";
    for part in ["args", "results"] {
        let all = [values(fields, part), values("main.takesBadBehind", part)].concat();
        for value in all {
            let members = value.as_object().expect("a struct");
            assert_eq!((&value["Before"], &value["After"]), (&json!(1), &json!(2)), "{value}");
            for (name, member) in
                members.iter().filter(|(name, _)| !["Before", "After"].contains(&name.as_str()))
            {
                // Where the record had no room for what is behind it, an address or a length stands.
                let parts = [member, &member[0], &member["Q"], &member["value"]];
                let is_short = parts.iter().any(|part| part["addr"].is_string())
                    || member["cut"].is_number()
                    || member["entries"][0][1]["addr"].is_string();
                assert!(is_unreadable(member) || is_short, "{name} in {value}");
                if is_unreadable(member) {
                    unread.insert(name.clone());
                }
            }
        }
    }
    let all = "Any Array Chan Entries Err Func Held HeldErr Inside List Pointer Text Texts Whole";
    let missing: Vec<&str> = all.split(' ').filter(|name| !unread.contains(*name)).collect();
    assert!(missing.is_empty(), "never tried to read: {missing:?}");
}

fn what_is_cut_says_so(trace: &Trace) {
    let wide = &trace.calls_of("main.takesWide")[0]["args"][0];
    assert_eq!(wide["cut"], 1, "{wide}");
    let before = json!({ "value": [4, 5, 0, 0, 0, 0, 0, 0], "len": 200, "cut": 192 });
    assert_eq!(wide["value"], json!({ "Before": before }), "{wide}");
    let map = &trace.calls_of("main.takesManyEntries")[0]["args"][0]["value"];
    let entries = map["entries"].as_array().expect("entries");
    assert_eq!((number(&map["len"]), number(&map["cut"]) as usize), (100, 100 - entries.len()));
    assert!(entries.len() <= 8 && entries.iter().all(|entry| entry[0] == entry[1]), "{map}");
    let calls = trace.calls_of("main.takesSlices");
    let texts = &calls.last().expect("a call")["args"][0];
    assert_eq!((&texts["len"], &texts["cut"]), (&json!(20), &json!(12)), "{texts}");
    let items = texts["value"].as_array().expect("elements");
    assert_eq!(items.len(), 8);
    for item in items {
        assert_eq!(number(&item["len"]) - number(&item["cut"]), 64, "{item}");
        assert_eq!(text(&item["value"]).len(), 64);
    }
}
