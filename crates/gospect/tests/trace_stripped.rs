//! Values in executables without debug information: by stated signatures, by the table of the
//! standard library and by type descriptors. Needs root.

mod common;

use common::{
    Trace, any_gospect, expect_line, gospect, json_lines, own, path_text, temporary, text,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::{Fixture, Mode, Running, Toolchain, newest, oldest, toolchain};

/// Builds that have nothing but what the runtime itself needs.
const BARE: [Mode; 2] = [Mode::Stripped, Mode::StrippedPie];

fn build(name: &str, toolchain: &Toolchain, mode: Mode) -> PathBuf {
    own(&Fixture::build(name, toolchain, mode))
}

/// How long a server may take to start on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

/// The functions that a pattern matches, as `gospect funcs` lists them.
fn funcs(program: &Path, pattern: &str) -> Vec<Value> {
    let file = temporary("jsonl");
    let line = ["funcs", path_text(program), pattern, "--format", "json", "-o", path_text(&file)];
    gospect().run(&line).expect_code(0);
    let listed = json_lines(&file);
    _ = std::fs::remove_file(&file);
    listed
}

/// `main.f(a int, b string) -> (c error)` of a listed function, for what one can state: nothing of closures
/// and instantiations.
fn statement(function: &Value) -> Option<String> {
    let name = text(&function["name"]);
    let list = |part: &str| -> String {
        let values = function[part].as_array().expect("a list").iter();
        let stated =
            values.map(|value| format!("{} {}", text(&value["name"]), text(&value["type"])));
        stated.collect::<Vec<_>>().join(", ")
    };
    let (params, results) = (list("params"), list("results"));
    // What the fixture logs with is full of offsets that differ by build.
    let logs = params.contains("reflect.");
    let is_plain = !name.contains(['[', ']']) && !name.contains(".func") && !logs;
    let (params, results) = (format!("({params})"), format!(" -> ({results})"));
    let results = if results == " -> ()" { "" } else { &results };
    (is_plain && params != "()").then(|| format!("{name}{params}{results}"))
}

/// Leaves out addresses, and what debug information alone has: names of constants, and what closures
/// captured.
fn forget_addresses(value: &mut Value) {
    match value {
        Value::Object(fields) if fields.contains_key("const") => {
            *value = fields.remove("value").unwrap_or_default();
        }
        Value::Object(fields) => {
            fields.retain(|key, _| key != "addr" && key != "captured");
            fields.values_mut().for_each(forget_addresses);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_addresses),
        Value::String(text) if text.starts_with("0x") => text.clear(),
        _ => {}
    }
}

/// What each call took and gave, by function, in the order of the calls.
fn values(trace: &Trace) -> BTreeMap<String, Vec<Value>> {
    let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for call in trace.of_type("call") {
        let mut shown = json!([call["args"], call["results"]]);
        forget_addresses(&mut shown);
        all.entry(text(&call["func"])).or_default().push(shown);
    }
    all
}

#[test]
fn root_stated_signatures_give_what_debug_information_gives() {
    // Debug information of old versions leaves out unnamed parameters.
    let listed = funcs(&build("args", &newest(), Mode::Exe), "main.*");
    let stated: Vec<String> = listed.iter().filter_map(statement).collect();
    assert!(stated.len() > 10, "{stated:?}");
    let rules: Vec<&str> = stated.iter().map(String::as_str).collect();
    for toolchain in [newest(), oldest()] {
        let whole = build("args", &toolchain, Mode::Exe);
        let expected = Trace::launch(&rules, &whole, &[]);
        expected.output.expect_code(0);
        let expected = values(&expected);
        assert!(expected.len() > 10, "{:?}", expected.keys());
        for mode in BARE {
            let trace = Trace::launch(&rules, &build("args", &toolchain, mode), &[]);
            trace.output.expect_code(0);
            let found = values(&trace);
            for (function, calls) in &expected {
                let shown = found.get(function);
                assert_eq!(shown, Some(calls), "{function} in {mode} of {}", toolchain.version);
            }
        }
    }
}

/// Asks a server for `path` and reads the answer to its end.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: shop.test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the server reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server answers");
    answer
}

/// The values of a list by their names.
fn by_name(list: &Value) -> BTreeMap<String, Value> {
    let list = list.as_array().expect("a list").iter();
    list.map(|value| (text(&value["name"]), value["value"].clone())).collect()
}

/// Traces a server while some requests come in.
fn served(mode: Mode, toolchain: &Toolchain, rules: &[&str], paths: &[String]) -> Trace {
    let program = build("httpserver", toolchain, mode);
    let server = Running::start::<&str>(&program, &[]);
    let address = text(&server.wait_for("listening", LIMIT)["addr"]);
    let trace = Trace::attach(rules, server.pid(), || {
        for path in paths {
            let status = if path.ends_with("id=9") { 404 } else { 200 };
            assert!(get(&address, path).starts_with(&format!("HTTP/1.1 {status}")), "{path}");
        }
    });
    get(&address, "/quit");
    trace
}

#[test]
fn root_a_stripped_server_shows_what_it_is_asked_for() {
    let paths: Vec<String> = (1..40).map(|n| format!("/sum?n={n}")).collect();
    let rule = "net/http.serverHandler.ServeHTTP(req.Method, req.URL.Path, req.URL.RawQuery, req.Host, \
                rw.(*net/http.response).wroteHeader)";
    for (toolchain, mode) in [
        (newest(), Mode::Stripped),
        (oldest(), Mode::StrippedPie),
        (toolchain("1.23.9"), Mode::Stripped),
    ] {
        let trace = served(mode, &toolchain, &[rule], &paths);
        let calls = trace.calls_of("net/http.serverHandler.ServeHTTP");
        let queries: Vec<String> = calls
            .iter()
            .map(|call| {
                let args = by_name(&call["args"]);
                assert_eq!(args["req.Method"], "GET", "{call}");
                assert_eq!(args["req.URL.Path"], "/sum", "{call}");
                assert_eq!(args["req.Host"], "shop.test", "{call}");
                assert_eq!(args["rw.(*net/http.response).wroteHeader"], false, "{call}");
                format!("/sum?{}", text(&args["req.URL.RawQuery"]))
            })
            .collect();
        assert_eq!(queries, paths, "{mode} of {}", toolchain.version);
    }
}

#[test]
fn root_a_status_is_read_behind_the_writer_that_holds_it() {
    let paths: Vec<String> = [1, 9, 2].iter().map(|n| format!("/order?id={n}")).collect();
    let read = "w.(*net/http.response).status, w.(*net/http.response).req.URL.RawQuery, \
                w.(*main.order).ID, r.Method";
    let known = format!("main.answered({read})");
    let stated = format!("main.answered(w net/http.ResponseWriter, r *net/http.Request; {read})");
    let stated = stated.replace("w.(*main.order).ID, ", "");
    for (toolchain, mode, rule) in [
        (newest(), Mode::Exe, &known),
        (newest(), Mode::Stripped, &stated),
        (oldest(), Mode::Pie, &known),
        (oldest(), Mode::StrippedPie, &stated),
    ] {
        let trace = served(mode, &toolchain, &[rule], &paths);
        let calls = trace.calls_of("main.answered");
        let expected = [(200, "id=1"), (404, "id=9"), (200, "id=2")];
        assert_eq!(calls.len(), expected.len(), "{mode} of {}", toolchain.version);
        for (call, (status, query)) in calls.iter().zip(expected) {
            let args = by_name(&call["args"]);
            assert_eq!(args["w.(*net/http.response).status"], status, "{call}");
            assert_eq!(args["w.(*net/http.response).req.URL.RawQuery"], query, "{call}");
            assert_eq!(args["r.Method"], "GET", "{call}");
            if let Some(other) = call["args"]
                .as_array()
                .expect("a list")
                .iter()
                .find(|value| value["name"] == "w.(*main.order).ID")
            {
                assert_eq!(other["unavailable"], "holds no *main.order", "{call}");
            }
        }
    }
}

#[test]
fn root_a_stripped_handler_is_read_by_what_is_stated_of_it() {
    let paths: Vec<String> = (1..4).map(|n| format!("/order?id={n}")).collect();
    // Signatures of their own, and in one with what is read.
    let stated = [
        "main.lookUp(id int) -> (o *order, err error)",
        "main.handleOrder(w net/http.ResponseWriter, r *net/http.Request; r.URL.RawQuery)",
        "main.price(o *main.order, count int; o.Item, count)",
    ];
    let trace = served(Mode::Stripped, &newest(), &stated, &paths);
    let queries: Vec<Value> = trace
        .calls_of("main.handleOrder")
        .iter()
        .map(|call| by_name(&call["args"])["r.URL.RawQuery"].clone())
        .collect();
    assert_eq!(queries, ["id=1", "id=2", "id=3"]);
    let orders: Vec<Value> = trace
        .calls_of("main.lookUp")
        .iter()
        .map(|call| json!([by_name(&call["args"])["id"], by_name(&call["results"])]))
        .collect();
    let order = |id: u64| json!([id, {"o": {"ID": id, "Item": "book", "Price": 9.5}, "err": null}]);
    assert_eq!(orders, [order(1), order(2), order(3)]);
    let prices = trace.calls_of("main.price");
    assert_eq!(prices.len(), 3);
    for call in prices {
        assert_eq!(json!(by_name(&call["args"])), json!({"o.Item": "book", "count": 3}));
    }
}

/// Errors whose message is made of fields.
const MESSAGES: [&str; 5] = [
    "*errors.errorString",
    "*fmt.wrapError",
    "*fs.PathError",
    "*errors.joinError",
    "*fmt.wrapErrors",
];

#[test]
fn root_errors_of_a_stripped_program_tell_their_message_or_their_fields() {
    for (toolchain, mode) in [
        (newest(), Mode::Stripped),
        (toolchain("1.23.9"), Mode::StrippedPie),
        (oldest(), Mode::Stripped),
    ] {
        let program = build("values", &toolchain, mode);
        let trace = Trace::launch(&["main.takesError(err error) -> (~r0 error)"], &program, &[]);
        trace.output.expect_code(0);
        let logged = trace.output.of_type("call");
        let logged: Vec<&Value> =
            logged.iter().filter(|call| call["func"] == "main.takesError").collect();
        let calls = trace.calls_of("main.takesError");
        assert_eq!(calls.len(), logged.len(), "{mode} of {}", toolchain.version);
        let (mut messages, mut fields) = (0, 0);
        for (call, logged) in calls.iter().zip(logged) {
            for part in ["args", "results"] {
                let (got, want) = (&call[part][0]["value"], &logged[part][0]["value"]);
                assert_eq!(got["dyn"], want["dyn"], "{call}");
                match want["dyn"].as_str() {
                    None => assert_eq!((got, want), (&Value::Null, &Value::Null), "{call}"),
                    Some(known) if MESSAGES.contains(&known) => {
                        messages += 1;
                        assert_eq!(got["error"], want["error"], "{call}");
                    }
                    Some(_) => {
                        fields += 1;
                        assert_eq!(got["value"], want["value"], "{call}");
                    }
                }
            }
        }
        let joined = if toolchain == oldest() { 0 } else { 6 };
        assert_eq!((messages, fields), (8 + joined, 6), "{mode} of {}", toolchain.version);
    }
}

#[test]
fn root_without_debug_information_names_alone_are_missing() {
    for (toolchain, mode) in [(newest(), Mode::Stripped), (oldest(), Mode::StrippedPie)] {
        let program = build("values", &toolchain, mode);
        let rules = [
            "main.holdsLevel(l main.level) -> (next main.level)",
            "main.holdsFunc(f func() string) -> (s string)",
            "main.makeCounter.func1() -> (s string)",
        ];
        let trace = Trace::launch(&rules, &program, &[]);
        trace.output.expect_code(0);
        // Constants have no names, their values they have.
        let call = trace.calls_of("main.holdsLevel")[0];
        let level = |name: &str, value: u64| json!([{ "name": name, "type": "main.level", "value": value }]);
        assert_eq!((&call["args"], &call["results"]), (&level("l", 0), &level("next", 1)));
        // A func has its name, and nothing of what it captured.
        let call = trace.calls_of("main.holdsFunc")[0];
        let held =
            json!([{ "name": "f", "type": "func() string", "value": "main.makeCounter.func1" }]);
        assert_eq!(call["args"], held, "{call}");
        let calls = trace.calls_of("main.makeCounter.func1");
        let call = calls.last().expect("a call");
        assert_eq!(call["args"], json!([]), "{call}");
        assert!(call.get("captured").is_none(), "{call}");
        assert_eq!(
            call["results"][0]["value"],
            trace.calls_of("main.holdsFunc")[0]["results"][0]["value"]
        );
        // Where package variables are only debug information tells.
        let asked = "main.holdsLevel(l main.level; used)";
        let refused =
            any_gospect().run(&["trace", "--dry-run", "--exe", path_text(&program), asked]);
        expect_line(
            &refused,
            2,
            &["column 31", "no used in main.holdsLevel; its parameters are l"],
        );
    }
}

#[test]
fn root_generic_functions_of_a_stripped_program_are_read_by_what_is_stated() {
    let rules = [
        "main.generic(v int, list []int, other string) -> (a int, b *string)",
        "main.(*stack[go.shape.int]).push(s unsafe.Pointer, v int) -> (n int)",
    ];
    for toolchain in [newest(), toolchain("1.22.10")] {
        let program = build("values", &toolchain, Mode::Stripped);
        let trace = Trace::launch(&rules, &program, &[]);
        trace.output.expect_code(0);
        let shown: Vec<Value> = trace
            .of_type("call")
            .iter()
            .map(|call| {
                let mut args = by_name(&call["args"]);
                args.remove("s");
                json!([args, by_name(&call["results"])])
            })
            .collect();
        // Of the instantiations those are read that take what is stated; what the function does not use need not be
        // there.
        let expected = json!([
            [{ "v": -3, "list": [], "other": "text" }, { "a": -3, "b": "text" }],
            [{}, {}],
            [{}, {}],
            [{ "v": 20 }, { "n": 1 }],
            [{ "v": 21 }, { "n": 2 }],
        ]);
        assert_eq!(json!(shown), expected, "{}", toolchain.version);
        let told = "is not the signature of 2 of 4 functions, which are read as without it";
        assert!(trace.output.stderr.contains(told), "{}", trace.output.story());
    }
    // In the table of Go 1.19 all instantiations have one name.
    let program = build("values", &oldest(), Mode::Stripped);
    let output = any_gospect().run(&["trace", "--dry-run", "--exe", path_text(&program), rules[0]]);
    expect_line(&output, 2, &["which instantiation of a generic this is is not known"]);
}

#[test]
fn what_is_stated_wrongly_is_told_with_its_place() {
    let program = build("httpserver", &newest(), Mode::Stripped);
    let refused = |rule: &str, words: &[&str]| {
        let output = any_gospect().run(&["trace", "--dry-run", "--exe", path_text(&program), rule]);
        expect_line(&output, 2, words);
    };
    let unknown = "no type net/http.Requst in the type descriptors; nearest: net/http.Request";
    refused(
        "main.handleSum(w net/http.ResponseWriter, r *net/http.Requst)",
        &["column 46", unknown],
    );
    refused("main.addUp(n Nothing)", &["column 14", "no type Nothing", "--debug-file"]);
    refused(
        "main.addUp(n string)",
        &["column 14", "main.addUp takes (8) bytes, and this is ({8, 8})"],
    );
    refused("main.addUp(n int, m int)", &["main.addUp takes (8) bytes, and this is (8, 8)"]);
    refused("main.addUp(n int, n.x)", &["column 20", "a name and a type"]);
    refused("main.addUp(n int; m)", &["column 19", "no m in main.addUp; its parameters are n"]);
    refused("main.addUp(n)", &["column 12", "no debug information", "state the parameters"]);
}
