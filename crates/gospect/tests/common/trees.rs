//! Spans as whole trees, as text.
#![allow(dead_code, reason = "each suite takes what it needs")]

use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use testkit::Output;

/// The command line that watches a command from its first instruction to its end, with room for what is
/// not read while the machine is busy with other things.
pub fn spans_line<'a>(backend: &'a str, options: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
    let fixed = ["spans", "--backend", backend, "--format", "json", "--ring", "64"];
    [&fixed[..], options, &["--"], command].concat()
}

pub fn text<'a>(span: &'a Value, key: &str) -> &'a str {
    span[key].as_str().unwrap_or_default()
}

/// Ports of the services change with every run.
pub fn without_port(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (host, _) = host.split_once(':').unwrap_or((host, ""));
    format!("{scheme}://{host}{path}")
}

/// What of a span is the same in every run.
pub fn line(span: &Value) -> String {
    let attributes = span["attributes"].as_object().unwrap();
    let number = |name: &str| attributes.get(name).map_or("-".to_owned(), Value::to_string);
    let mut line = format!("{} {}", text(span, "kind"), text(span, "name"));
    let status = match attributes.contains_key("rpc.system") {
        true => "rpc.grpc.status_code",
        false => "http.response.status_code",
    };
    _ = write!(line, " {}", number(status));
    if let Some(url) = attributes.get("url.full") {
        _ = write!(line, " {}", without_port(url.as_str().unwrap()));
    }
    for name in ["url.path", "url.query", "error.type", "http.request.method_original"] {
        if let Some(value) = attributes.get(name) {
            _ = write!(line, " {}", value.as_str().unwrap());
        }
    }
    if let Some(rows) = attributes.get("db.response.returned_rows") {
        _ = write!(line, " {rows} rows");
    }
    if attributes.get("network.protocol.version").is_some_and(|version| version == "2") {
        line.push_str(" HTTP/2");
    }
    if attributes.contains_key("gospect.http.hijacked") {
        line.push_str(" hijacked");
    }
    if text(span, "status") == "error" {
        line.push_str(" failed");
    }
    if span["finished"] != true {
        line.push_str(" unfinished");
    }
    if let Some(by) = span["parent_by"].as_str() {
        _ = write!(line, " by {by}");
    }
    for link in span["links"].as_array().unwrap() {
        _ = write!(line, " beside {}", text(link, "by"));
    }
    for event in span["events"].as_array().unwrap() {
        _ = write!(line, " [{}]", text(event, "name"));
    }
    line
}

/// The trees of a capture as text, each as often as it was there.
pub fn trees(spans: &[Value]) -> BTreeMap<String, usize> {
    let ids: BTreeSet<&str> = spans.iter().map(|span| text(span, "span_id")).collect();
    assert_eq!(ids.len(), spans.len(), "span ids are unique");
    let mut children: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for span in spans {
        let parent = Some(text(span, "parent_span_id")).filter(|id| ids.contains(id));
        children.entry(parent.unwrap_or_default()).or_default().push(span);
    }
    fn told(span: &Value, level: usize, children: &BTreeMap<&str, Vec<&Value>>) -> String {
        let below = children.get(text(span, "span_id")).map_or(&[][..], |below| below);
        for child in below {
            assert_eq!(text(child, "trace_id"), text(span, "trace_id"));
        }
        let mut below: Vec<String> =
            below.iter().map(|child| told(child, level + 1, children)).collect();
        below.sort();
        format!("{}{}\n{}", "  ".repeat(level), line(span), below.concat())
    }
    let mut counts = BTreeMap::new();
    for root in children.get("").map_or(&[][..], |roots| roots) {
        *counts.entry(told(root, 0, &children)).or_default() += 1;
    }
    counts
}

/// Spans of a capture that lost nothing and missed nothing.
pub fn spans(output: &Output, told: &str) -> Vec<Value> {
    let summary = output.of_type("summary").remove(0);
    // A library's goroutine may be in a call that is no span when the program ends; spans that have no end say so.
    for key in ["lost", "invalid", "no_goroutine", "orphan_exits"] {
        assert_eq!(summary[key], 0, "{told}: {key} in {summary}");
    }
    let spans = output.of_type("span");
    assert_eq!(summary["spans"], spans.len(), "{told}");
    for span in &spans {
        let span = span.as_object().unwrap();
        assert_eq!(span["unavailable"], Value::Object(Map::new()), "{told}: {span:?}");
        assert!(span["duration_ns"].as_u64().unwrap() > 0, "{told}: {span:?}");
    }
    spans
}

/// One round of the fixture: see `fixtures/go/requests`.
pub const ROUND: &str = "\
1 client GET - http://127.0.0.1/aborts *errors.errorString failed
1 client GET - http://127.0.0.1/panics *errors.errorString failed
1 client GET 200 http://127.0.0.1/chain
    server GET /chain 200 /chain by traceparent
      client GET 200 http://127.0.0.1/stock by frame
        server GET /stock 200 /stock by traceparent
1 client GET 200 http://127.0.0.1/deep
1 client GET 200 http://127.0.0.1/fan
1 client GET 200 http://127.0.0.1/hijack
1 client GET 200 http://127.0.0.1/leave
2 client GET 200 http://127.0.0.1/plain/item
1 client GET 200 http://127.0.0.1/redirected
1 client GET 200 http://127.0.0.1/stock beside goroutine
1 client GET 200 https://127.0.0.1/plain/second
1 client GET 201 http://127.0.0.1/wrapped
1 client GET 201 https://127.0.0.1/wrapped
1 client GET 404 http://127.0.0.1/nothing 404 failed
1 client GET 418 http://127.0.0.1/recovers 418 failed
1 client GET 502 http://127.0.0.1/fails 502 failed
1 client HEAD 200 http://127.0.0.1/plain/
1 client HTTP 200 http://127.0.0.1/plain/ PROPFIND
1 server GET /aborts - /aborts net/http.ErrAbortHandler failed [exception]
1 server GET /deep 200 /deep
    client GET 200 http://127.0.0.1/stock by goroutine
1 server GET /fails 502 /fails 502 failed
    client POST - http://127.0.0.1/none *net.OpError failed by frame
1 server GET /fan 200 /fan
    client GET 200 http://127.0.0.1/stock by goroutine
    client GET 200 http://127.0.0.1/stock by goroutine
    client GET 200 http://127.0.0.1/stock by goroutine
1 server GET /hijack - /hijack hijacked
1 server GET /leave 200 /leave
1 server GET /moved 302 /moved
1 server GET /panics - /panics *errors.errorString failed [exception]
2 server GET /plain/ 200 /plain/item
1 server GET /plain/ 200 /plain/second HTTP/2
1 server GET /recovers 418 /recovers
1 server GET /redirected 200 /redirected
    client GET 200 http://127.0.0.1/stock by frame
    client GET 302 http://127.0.0.1/moved by frame
6 server GET /stock 200 /stock
1 server GET /wrapped 201 /wrapped
1 server GET /wrapped 201 /wrapped HTTP/2
1 server GET 404 /nothing
1 server HEAD /plain/ 200 /plain/
1 server HTTP /plain/ 200 /plain/ PROPFIND
";

/// Each tree behind the number of times it was there.
pub fn as_text(trees: BTreeMap<String, usize>) -> String {
    let mut text = String::new();
    for (tree, count) in trees {
        let lines: Vec<&str> = tree.lines().collect();
        _ = writeln!(text, "{count} {}", lines.join("\n  "));
    }
    text
}

/// The trees of so many rounds of `requests`.
pub fn expected(rounds: usize) -> String {
    times(ROUND, rounds)
}

/// The trees of so many rounds, of which one has these.
pub fn times(round: &str, rounds: usize) -> String {
    let times = |line: &str| match line.split_once(' ') {
        Some((count, rest)) if !count.is_empty() => {
            format!("{} {rest}\n", rounds * count.parse::<usize>().unwrap())
        }
        _ => format!("{line}\n"),
    };
    round.lines().map(times).collect()
}
