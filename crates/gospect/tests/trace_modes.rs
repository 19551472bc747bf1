//! However a program was built, its calls are the same. Needs root.

mod common;

use common::{Trace, number, own, text};
use serde_json::Value;
use std::collections::BTreeMap;
use testkit::{Fixture, Mode, newest};

/// What each of these does is the same every time, but for addresses.
const PROGRAMS: [(&str, &[&str]); 3] =
    [("args", &[]), ("tail", &["-n", "3"]), ("panics", &["-mode", "recover", "-n", "5"])];

/// The names and values of a list, without the addresses in them.
fn values(list: &Value) -> String {
    let list = list.as_array().expect("a list").iter();
    let shown = list.map(|value| {
        let mut value = value.clone();
        forget_addresses(&mut value);
        value.to_string()
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn forget_addresses(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| key != "addr");
            fields.values_mut().for_each(forget_addresses);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_addresses),
        Value::String(text) if text.starts_with("0x") => text.clear(),
        _ => {}
    }
}

/// One line a call in the order of their beginnings, indented; what it was passed and gave if `whole`.
fn tree(trace: &Trace, whole: bool) -> Vec<String> {
    let mut calls = trace.of_type("call");
    calls.sort_by_key(|call| {
        (number(&call["goid"]), number(&call["start_ns"]), number(&call["id"]))
    });
    // Goroutines by the order in which they appear: their ids are the runtime's business.
    let mut goroutines = BTreeMap::new();
    let shown = calls.into_iter().map(|call| {
        let count = goroutines.len();
        let goroutine = *goroutines.entry(number(&call["goid"])).or_insert(count);
        let indent = " ".repeat(number(&call["depth"]) as usize);
        let (caller, ret) = (&call["caller"], &call["ret"]);
        let ends = format!("{} {} line {}", call["exit"], call["end_exact"], ret["line"]);
        let from = format!("from {} line {}", caller["func"], caller["line"]);
        let passed = match whole {
            true => format!("({}) = {}", values(&call["args"]), values(&call["results"])),
            false => String::new(),
        };
        format!("{goroutine} {indent}{}{passed} {ends} {from}", text(&call["func"]))
    });
    shown.collect()
}

fn traced(program: &str, args: &[&str], mode: Mode) -> Trace {
    let file = own(&Fixture::build(program, &newest(), mode));
    let trace = Trace::launch(&["-u", "main.*", "--exclude", "main.init*"], &file, args);
    trace.output.expect_code(0);
    trace.expect_sound();
    trace
}

#[test]
fn root_the_tree_is_the_same_however_a_program_was_built() {
    for (program, args) in PROGRAMS {
        let plain = traced(program, args, Mode::Exe);
        let (whole, bare) = (tree(&plain, true), tree(&plain, false));
        assert!(whole.len() > 10, "{whole:?}");
        for mode in [Mode::Pie, Mode::PieExternal, Mode::Cgo, Mode::CgoPie, Mode::Trimpath] {
            pretty_equal(&tree(&traced(program, args, mode), true), &whole, program, mode);
        }
        // What is left without debug information: names, ends, lines and call sites.
        for mode in [Mode::Stripped, Mode::StrippedPie] {
            let stripped = traced(program, args, mode);
            pretty_equal(&tree(&stripped, false), &bare, program, mode);
            // Only methods behind interfaces say what they take.
            for call in stripped.of_type("call") {
                let is_method = text(&call["func"]).split('.').count() > 2;
                assert!(is_method || call["args"] == serde_json::json!([]), "{call}");
            }
        }
    }
}

/// As `assert_eq`, with the first difference instead of all lines.
#[track_caller]
fn pretty_equal(got: &[String], want: &[String], program: &str, mode: Mode) {
    let first = got.iter().zip(want).find(|(got, want)| got != want);
    assert_eq!(first, None, "{program} as {mode}");
    assert_eq!(got.len(), want.len(), "{program} as {mode}");
}
