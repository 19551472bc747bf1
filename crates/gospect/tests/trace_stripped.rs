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
            assert!(get(&address, path).starts_with("HTTP/1.1 200"), "{path}");
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
