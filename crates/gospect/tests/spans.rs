//! `gospect spans`: whole trees of requests, compared as text, on both backends.

use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;
use testkit::{Fixture, Gospect, Mode, Output, Running, Toolchain, newest, oldest, toolchains};

const LIMIT: Duration = Duration::from_secs(240);
const BACKENDS: [&str; 2] = ["uprobe", "trampoline"];

fn gospect() -> Gospect {
    Gospect::new(env!("CARGO_BIN_EXE_gospect")).limit(LIMIT)
}

fn text<'a>(span: &'a Value, key: &str) -> &'a str {
    span[key].as_str().unwrap_or_default()
}

/// Ports of the services change with every run.
fn without_port(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (host, _) = host.split_once(':').unwrap_or((host, ""));
    format!("{scheme}://{host}{path}")
}

/// What of a span is the same in every run.
fn line(span: &Value) -> String {
    let attributes = span["attributes"].as_object().unwrap();
    let number = |name: &str| attributes.get(name).map_or("-".to_owned(), Value::to_string);
    let mut line = format!("{} {}", text(span, "kind"), text(span, "name"));
    _ = write!(line, " {}", number("http.response.status_code"));
    if let Some(url) = attributes.get("url.full") {
        _ = write!(line, " {}", without_port(url.as_str().unwrap()));
    }
    for name in ["url.path", "url.query", "error.type", "http.request.method_original"] {
        if let Some(value) = attributes.get(name) {
            _ = write!(line, " {}", value.as_str().unwrap());
        }
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
fn trees(spans: &[Value]) -> BTreeMap<String, usize> {
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
fn spans(output: &Output, told: &str) -> Vec<Value> {
    let summary = output.of_type("summary").remove(0);
    for key in ["lost", "invalid", "no_goroutine", "orphan_exits", "open"] {
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
const ROUND: &str = "\
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

fn requests(go: &Toolchain, mode: Mode, backend: &str, rounds: usize) -> String {
    watch(&Fixture::build("requests", go, mode), backend, rounds)
}

/// The trees of so many rounds of a fixture, watched from its first instruction to its end.
fn watch(program: &Path, backend: &str, rounds: usize) -> String {
    let rounds = rounds.to_string();
    let line = [
        "spans",
        "--backend",
        backend,
        "--format",
        "json",
        // Room for what is not read while the machine is busy with other things.
        "--ring",
        "64",
        "--",
        program.to_str().unwrap(),
        "-n",
        &rounds,
    ];
    let output = gospect().run(&line);
    output.expect_code(0);
    as_text(trees(&spans(&output, &format!("{} {backend}", program.display()))))
}

/// Each tree behind the number of times it was there.
fn as_text(trees: BTreeMap<String, usize>) -> String {
    let mut text = String::new();
    for (tree, count) in trees {
        let lines: Vec<&str> = tree.lines().collect();
        _ = writeln!(text, "{count} {}", lines.join("\n  "));
    }
    text
}

/// The trees of so many rounds.
fn expected(rounds: usize) -> String {
    let times = |line: &str| match line.split_once(' ') {
        Some((count, rest)) if !count.is_empty() => {
            format!("{} {rest}\n", rounds * count.parse::<usize>().unwrap())
        }
        _ => format!("{line}\n"),
    };
    ROUND.lines().map(times).collect()
}

#[test]
fn root_requests_have_the_same_trees_on_both_backends() {
    for backend in BACKENDS {
        let trees = requests(&newest(), Mode::Exe, backend, 3);
        assert_eq!(trees, expected(3), "{backend}:\n{trees}");
    }
}

#[test]
fn root_requests_have_the_same_trees_in_every_version() {
    for go in toolchains() {
        let trees = requests(&go, Mode::Exe, "trampoline", 1);
        assert_eq!(trees, expected(1), "go {}:\n{trees}", go.version);
    }
}

#[test]
fn root_requests_have_the_same_trees_however_they_are_built() {
    for mode in [Mode::Pie, Mode::Cgo] {
        for go in [oldest(), newest()] {
            let trees = requests(&go, mode, "trampoline", 1);
            assert_eq!(trees, expected(1), "go {} {mode}:\n{trees}", go.version);
        }
    }
}

/// Text, attached to a process that runs already, which goes on afterwards.
#[test]
fn root_trees_are_shown_of_a_running_process() {
    let program = Fixture::build("requests", &newest(), Mode::Exe);
    let mut running = Running::start(&program, &["-wait", "-linger"]);
    running.wait_for("ready", LIMIT);
    let pid = running.pid().to_string();
    let mut watching = gospect().start(&["spans", "-p", &pid, "--queries"]);
    watching.wait_error_line(LIMIT, |line| line.contains("watching"));
    running.go();
    running.wait_for("done", LIMIT);
    watching.signal("INT");
    let output = gospect().finish(&mut watching);
    output.expect_code(0);
    running.go();
    assert!(running.wait(LIMIT).success());
    // Behind time, goroutine and duration, and before the trace.
    let shown = |line: &str| -> String {
        let line: String = line.chars().skip(35).collect();
        let line = line.split("  trace=").next().unwrap_or_default();
        let (before, after) = line.split_once("127.0.0.1:").unwrap_or((line, ""));
        format!("{before}{}\n", after.trim_start_matches(|c: char| c.is_ascii_digit()))
    };
    let lines: Vec<String> = output.stdout.lines().map(shown).collect();
    let chain = lines.iter().position(|line| line.contains("/chain"));
    let chain =
        lines[chain.unwrap_or_else(|| panic!("no /chain in {}", output.stdout))..][..4].concat();
    let expected = "\
> GET 200 http:///chain
  GET /chain 200 /chain
    > GET 200 http:///stock?secret=1
      GET /stock 200 /stock?secret=1
";
    assert_eq!(chain, expected);
    assert!(lines.contains(&"GET /plain/ 200 /plain/item?secret=1\n".to_owned()), "{lines:?}");
}

/// What a handler asks a database, in all ways of database/sql.
#[test]
fn root_statements_stand_below_the_request_that_makes_them() {
    let program = Fixture::build("database", &newest(), Mode::Exe);
    for backend in BACKENDS {
        let shown = watch(&program, backend, 1);
        let expected = "\
1 client GET 200 http://127.0.0.1/order
1 client PING -
1 server GET /order 200 /order
    client BEGIN - by frame
    client BEGIN - by frame
    client COMMIT - by frame
    client DELETE - by frame
    client INSERT - by frame
    client INSERT - by frame
    client PING - by frame
    client PREPARE - by frame
    client REPLACE - by goroutine
    client REPLACE - by goroutine
    client ROLLBACK - by frame
    client SELECT - *errors.errorString failed by frame
    client SELECT - by frame
    client UPDATE - by frame
";
        assert_eq!(shown, expected, "{backend}");
    }
}

/// Every process of a file: those that come later too, told apart by their ids.
#[test]
fn root_requests_of_every_process_of_a_file_are_seen() {
    let program = Fixture::build("database", &newest(), Mode::Exe);
    let exe = program.to_str().unwrap();
    let mut watching = gospect().start(&["spans", "--exe", exe, "--format", "json"]);
    watching.wait_error_line(LIMIT, |line| line.contains("watching"));
    let mut pids = BTreeSet::new();
    for _ in 0..2 {
        let mut running = Running::start(&program, &["-linger"]);
        running.wait_for("done", LIMIT);
        pids.insert(u64::from(running.pid()));
        running.go();
        assert!(running.wait(LIMIT).success());
    }
    watching.signal("INT");
    let output = gospect().finish(&mut watching);
    output.expect_code(0);
    let spans = spans(&output, "--exe");
    for pid in pids {
        let own: Vec<Value> = spans.iter().filter(|span| span["pid"] == pid).cloned().collect();
        assert_eq!(own.len(), 17, "{pid}: {own:?}");
    }
}

/// A recorded file gives the same trees without the process.
#[test]
fn root_a_recording_has_the_same_trees() {
    let program = Fixture::build("requests", &newest(), Mode::Exe);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("spans.gospect");
    let file = file.to_str().unwrap();
    let line =
        ["spans", "--backend", "trampoline", "--record", file, "--", program.to_str().unwrap()];
    gospect().run(&line).expect_code(0);
    let output = gospect().run(&["report", file, "--format", "json"]);
    output.expect_code(0);
    let shown = as_text(trees(&spans(&output, "report")));
    assert_eq!(shown, expected(1), "{shown}");
    std::fs::remove_file(file).unwrap();
}

/// A span of OTLP as `--format json` has it, so far as it is compared.
fn of_otlp(span: &Value) -> Value {
    let object = |pairs: &Value| -> Map<String, Value> {
        let each = pairs.as_array().into_iter().flatten().map(|pair| {
            let (kind, value) = pair["value"].as_object().unwrap().iter().next().unwrap();
            let value = match kind.as_str() {
                "intValue" => value.as_str().unwrap().parse::<i64>().unwrap().into(),
                _ => value.clone(),
            };
            (text(pair, "key").to_owned(), value)
        });
        each.collect()
    };
    let attributes = object(&span["attributes"]);
    let list = |key: &str| span[key].as_array().cloned().unwrap_or_default();
    let links = list("links")
        .into_iter()
        .map(|link| serde_json::json!({"by": object(&link["attributes"])["gospect.link_by"]}));
    let number = |key: &str| text(span, key).parse::<u64>().unwrap();
    assert!(number("startTimeUnixNano") < number("endTimeUnixNano"), "{span}");
    serde_json::json!({
        "kind": if span["kind"] == 2 { "server" } else { "client" },
        "name": span["name"],
        "trace_id": span["traceId"],
        "span_id": span["spanId"],
        "parent_span_id": span["parentSpanId"],
        "parent_by": attributes.get("gospect.parent_by"),
        "links": links.collect::<Vec<Value>>(),
        "events": list("events"),
        "status": if span["status"]["code"] == 2 { "error" } else { "unset" },
        "finished": attributes.get("gospect.finished").is_none(),
        "attributes": attributes,
    })
}

/// A collector: answers the first request with 503, the others with 200, and gives the bodies of these.
fn collector() -> (u16, std::thread::JoinHandle<Vec<Value>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = std::thread::spawn(move || {
        let mut taken = Vec::new();
        for turn in 0.. {
            let (stream, _) = listener.accept().unwrap();
            let mut stream = BufReader::new(stream);
            let (mut head, mut length) = (String::new(), 0);
            while stream.read_line(&mut head).unwrap() > 2 {
                let last = head.lines().next_back().unwrap().to_ascii_lowercase();
                if let Some(digits) = last.strip_prefix("content-length: ") {
                    length = digits.parse().unwrap();
                }
            }
            if head.starts_with("GET /end") {
                break;
            }
            assert!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
            let head = head.to_ascii_lowercase();
            assert!(head.contains("content-type: application/json") && head.contains("api-key: k"));
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let status = if turn == 0 { "503 Service Unavailable" } else { "200 OK" };
            if turn > 0 {
                taken.push(serde_json::from_slice(&body).unwrap());
            }
            let answer =
                format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}");
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
        }
        taken
    });
    (port, serving)
}

/// The same trees at a collector, which is busy at first; with what the environment says.
#[test]
fn root_a_collector_gets_the_same_trees() {
    let (port, serving) = collector();
    let program = Fixture::build("requests", &newest(), Mode::Exe);
    let endpoint = format!("http://127.0.0.1:{port}");
    let line =
        ["spans", "--backend", "trampoline", "--otlp", &endpoint, "--", program.to_str().unwrap()];
    let mut command = gospect().command(&line);
    command.env("OTEL_SERVICE_NAME", "shop").env("OTEL_EXPORTER_OTLP_HEADERS", "api-key=k");
    let mut running = Running::spawn(command);
    running.close_stdin();
    let output = gospect().finish(&mut running);
    output.expect_code(0);
    std::net::TcpStream::connect(("127.0.0.1", port))
        .unwrap()
        .write_all(b"GET /end\r\n\r\n")
        .unwrap();
    let requests = serving.join().unwrap();
    let mut spans = Vec::new();
    for request in &requests {
        let [from] = &request["resourceSpans"].as_array().unwrap()[..] else { panic!("{request}") };
        let service = serde_json::json!({"key": "service.name", "value": {"stringValue": "shop"}});
        assert_eq!(from["resource"]["attributes"][0], service);
        let [scope] = &from["scopeSpans"].as_array().unwrap()[..] else { panic!("{from}") };
        assert_eq!(scope["scope"]["name"], "gospect");
        spans.extend(scope["spans"].as_array().unwrap().iter().map(of_otlp));
    }
    let shown = as_text(trees(&spans));
    assert_eq!(shown, expected(1), "{shown}");
    assert!(output.stderr.contains("spans sent to http://"), "{}", output.stderr);
}

/// Nobody listens: what is lost is told.
#[test]
fn root_spans_that_no_collector_takes_are_counted() {
    let program = Fixture::build("database", &newest(), Mode::Exe);
    let program = program.to_str().unwrap();
    let line = ["spans", "--backend", "trampoline", "--otlp", "http://127.0.0.1:1", "--", program];
    let output = gospect().run(&line);
    output.expect_code(0);
    assert!(output.stderr.contains("17 spans were not delivered"), "{}", output.stderr);
}
