//! Arguments and results, compared with what the program itself logged. Needs root.

mod common;

use common::{Backend, Trace, cells, number, own, text};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use testkit::{Fixture, Mode, Toolchain, newest, oldest};

/// A function's name without what stands in brackets: `go.shape.int` is the compiler's.
fn plain(name: &str) -> String {
    match (name.find('['), name.rfind(']')) {
        (Some(open), Some(close)) => format!("{}[...]{}", &name[..open], &name[close + 1..]),
        _ => name.to_owned(),
    }
}

/// What of a logged value a trace must show: scalars, texts, pointers and lengths whole;
/// of an interface its dynamic type. `None` for what a trace may leave out.
fn shown(value: &Value) -> Option<Value> {
    let logged = text(&value["type"]);
    if let Some(hex) = value.get("bytes_hex") {
        return Some(json!({ "bytes_hex": hex }));
    }
    if value.get("addr").is_some() {
        return Some(json!("pointer"));
    }
    if let Some(len) = value.get("len") {
        return Some(json!({ "len": len }));
    }
    match &value["value"] {
        Value::Object(fields) if fields.contains_key("dyn") => {
            Some(json!({ "dyn": fields["dyn"] }))
        }
        Value::Array(parts) if logged.starts_with("complex") => Some(floats(parts)),
        Value::Object(_) | Value::Array(_) => None,
        Value::Number(number) if logged.starts_with("float") => Some(json!(number.as_f64())),
        // NaN and Inf are strings in JSON.
        Value::String(text) if logged.starts_with("float") => {
            Some(json!(text.trim_start_matches('+').to_owned()))
        }
        Value::String(text) if text.len() > 64 => Some(json!(text[..64])),
        _ if logged.starts_with("func") => None,
        other => Some(other.clone()),
    }
}

/// Numbers, whether they were written as integers or not.
fn floats(parts: &[Value]) -> Value {
    json!(parts.iter().map(Value::as_f64).collect::<Vec<_>>())
}

/// The same view of a value as gospect gives it.
fn seen(value: &Value, like: &Value) -> Value {
    if let Some(hex) = value.get("bytes_hex").filter(|_| like.get("len").is_none()) {
        return json!({ "bytes_hex": hex });
    }
    if *like == "pointer" {
        // Or what it leads to.
        let is_followed = !value["value"].is_null();
        return json!(if value["addr"].is_string() || is_followed { "pointer" } else { "none" });
    }
    if like.get("len").is_some() {
        return json!({ "len": value["len"] });
    }
    if like.get("dyn").is_some() {
        return json!({ "dyn": value["value"]["dyn"] });
    }
    match &value["value"] {
        Value::Number(number) if like.is_f64() => json!(number.as_f64()),
        Value::String(text) if *text == "+Inf" => json!("Inf"),
        Value::Array(parts) if like.is_array() => floats(parts),
        other => other.clone(),
    }
}

/// Whether the backend under test sees vector registers.
fn is_by_trampolines() -> bool {
    Backend::selected() == Backend::Trampoline
}

/// Compares values one by one; returns how many were compared.
fn compare(call: &Value, want: &[Value], got: &[Value]) -> usize {
    // The compiler names blank parameters by their place; that of Go 1.19 leaves them out.
    let named: Vec<Value> = got.iter().map(|value| value["name"].clone()).collect();
    let blanks_shown = named.iter().any(|name| *name == "~p0");
    let want: Vec<&Value> =
        want.iter().filter(|value| blanks_shown || value["name"] != "_").collect();
    let name = |at: usize, value: &Value| match value["name"].as_str() {
        Some("_") => json!(format!("~p{at}")),
        _ => value["name"].clone(),
    };
    assert_eq!(got.len(), want.len(), "number of values: {call}");
    let mut compared = 0;
    for (at, (want, got)) in want.iter().zip(got).enumerate() {
        let Some(like) = shown(want) else { continue };
        // A kernel program cannot read vector registers; what it must not do is guess.
        let in_vectors = ["float", "complex"].iter().any(|t| text(&want["type"]).starts_with(t));
        if in_vectors && got["unavailable"] == "float register, which uprobes do not see" {
            assert!(!is_by_trampolines(), "{want} as {got} in {call}");
            continue;
        }
        assert_eq!(seen(got, &like), like, "{want} as {got} in {call}");
        assert_eq!(got["name"], name(at, want), "{call}");
        compared += 1;
    }
    compared
}

#[test]
fn root_every_kind_of_value_is_what_the_program_passed() {
    for (toolchain, mode) in cells() {
        let program = own(&Fixture::build("args", &toolchain, mode));
        let trace = Trace::launch(&["-u", "main.*"], &program, &[]);
        trace.output.expect_code(0);
        let logged = trace.output.of_type("call");
        let mut compared = 0;
        let mut names: Vec<String> = logged.iter().map(|call| text(&call["func"])).collect();
        names.sort();
        names.dedup();
        for name in names {
            let want: Vec<&Value> = logged.iter().filter(|c| c["func"] == *name).collect();
            let got: Vec<&Value> = trace
                .of_type("call")
                .into_iter()
                .filter(|call| plain(&text(&call["func"])) == name)
                .collect();
            assert_eq!(got.len(), want.len(), "calls of {name} by {}", toolchain.version);
            for (want, got) in want.iter().zip(got) {
                for part in ["args", "results"] {
                    let empty = Vec::new();
                    let list = |call: &Value| call[part].as_array().unwrap_or(&empty).clone();
                    compared += compare(got, &list(want), &list(got));
                }
            }
        }
        assert!(compared > 250, "{compared} values were compared");
    }
}

#[test]
fn root_without_dwarf_values_are_left_out_and_said_so() {
    let program = Fixture::build("args", &newest(), Mode::Stripped);
    let trace = Trace::launch(&["-u", "main.overflow", "-u", "main.ints"], &program, &[]);
    trace.output.expect_code(0);
    assert_eq!(trace.calls_of("main.ints").len(), 8);
    for call in trace.of_type("call") {
        for value in call["args"].as_array().expect("a list") {
            assert!(value.get("value").is_none(), "a value from nowhere: {call}");
        }
    }
    trace.expect_sound();
}

#[test]
fn root_values_can_be_left_out() {
    let program = Fixture::build("args", &newest(), Mode::Exe);
    let options = ["-u", "main.ints", "--args", "none", "--results", "none"];
    let trace = Trace::launch(&options, &program, &[]);
    trace.output.expect_code(0);
    for call in trace.calls_of("main.ints") {
        assert_eq!((&call["args"], &call["results"]), (&json!([]), &json!([])), "{call}");
    }
}

#[test]
fn root_long_texts_are_cut_at_the_length_asked_for() {
    let program = Fixture::build("args", &newest(), Mode::Exe);
    let trace = Trace::launch(&["-u", "main.text", "--max-string", "16"], &program, &[]);
    let cut: Vec<u64> = trace
        .calls_of("main.text")
        .iter()
        .filter_map(|call| call["args"][0].get("cut"))
        .map(number)
        .collect();
    assert_eq!(cut, [1000 - 16], "one text is longer than 16 bytes");
}

/// A run in which stacks grow at the calls of functions that do not use their parameters.
fn growing(toolchain: &Toolchain, patterns: &[&str]) -> Trace {
    let program = Fixture::build("recycle", toolchain, Mode::Exe);
    let run = ["-unused", "100", "-g", "0", "-n", "0", "-churn", "0"];
    let options: Vec<&str> = patterns.iter().flat_map(|pattern| ["-u", pattern]).collect();
    let trace = Trace::launch(&options, &program, &run);
    trace.output.expect_code(0);
    assert!(number(&trace.done()["moved"]) >= 100, "stacks that moved: {}", trace.done());
    trace
}

/// A value or why there is none, of all calls each once; and how many calls there were.
fn of_argument(trace: &Trace, function: &str, name: &str) -> (usize, BTreeSet<String>) {
    let calls = trace.calls_of(function);
    let shown = |call: &&Value| {
        let args = call["args"].as_array().expect("a list");
        let value = args.iter().find(|value| value["name"] == name).expect("the argument");
        value["unavailable"].as_str().map_or_else(|| value["value"].to_string(), str::to_owned)
    };
    (calls.len(), calls.iter().map(shown).collect())
}

#[test]
fn root_what_is_lost_when_a_stack_grows_at_the_call_is_not_shown() {
    let one = |reason: &str| (6400, BTreeSet::from([reason.to_owned()]));
    let numbers = |to: u32| (6400, (1..=to).map(|n| n.to_string()).collect::<BTreeSet<_>>());
    for toolchain in [oldest(), newest()] {
        let trace = growing(&toolchain, &["main.lost", "main.beside"]);
        let lost = one("not used by the function, so not kept when its stack grows");
        for name in ["id", "name"] {
            assert_eq!(of_argument(&trace, "main.lost", name), lost, "{name}");
        }
        assert_eq!(of_argument(&trace, "main.beside", "id"), numbers(100));
        assert_eq!(of_argument(&trace, "main.beside", "used"), numbers(64));
        let gone = one("what it points to is not kept when the stack grows");
        assert_eq!(of_argument(&trace, "main.beside", "name"), gone);
        assert_eq!(of_argument(&trace, "main.lost", "half"), lost);
        for call in trace.calls_of("main.beside") {
            let (id, half) = (number(&call["args"][0]["value"]), &call["args"][1]);
            let unseen = half["unavailable"] == "float register, which uprobes do not see";
            let is_half = half["value"].as_f64() == Some(id as f64 / 2.0);
            assert!(if is_by_trampolines() { is_half } else { unseen }, "{call}");
        }
    }
}

#[test]
fn root_rules_do_not_read_what_is_lost_when_a_stack_grows_at_the_call() {
    let rules = [
        "main.lost(id=%ax:u64, half=%x0:f64, context=%dx:u64, g=%r14:u64)",
        "main.beside(id=%ax:u64, half=%x0:f64, text=(+0(%bx)):c64, length=%cx:s64, scratch=%r12:u64)",
    ];
    let trace = growing(&newest(), &rules);
    let one = |reason: &str| (6400, BTreeSet::from([reason.to_owned()]));
    let of_lost = |name| of_argument(&trace, "main.lost", name);
    assert_eq!(of_lost("id"), one("not used by the function, so not kept when its stack grows"));
    assert_eq!(of_lost("half"), of_lost("id"));
    assert_eq!(of_lost("context"), one("register not kept when the stack grows"));
    let is_address = |g: &String| g.parse().is_ok_and(|g: u64| g > 4096);
    assert!(of_lost("g").1.iter().all(is_address), "{:?}", of_lost("g"));
    let of_beside = |name| of_argument(&trace, "main.beside", name);
    assert_eq!(of_beside("id").1.len(), 100);
    let halves = if is_by_trampolines() { 100 } else { 1 };
    assert_eq!(of_beside("half").1.len(), halves);
    assert_eq!(of_beside("text"), one("what it points to is not kept when the stack grows"));
    assert_eq!(of_beside("length"), one("8"));
    assert_eq!(of_beside("scratch"), one("register not kept when the stack grows"));
}
