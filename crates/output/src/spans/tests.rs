//! Spans and calls, as text, JSON and timelines.

use super::{SpanTimeline, SpanTrees, write_span_json};
use crate::{Clock, PerfettoFile, TextOptions};
use probe::Plan;
use sensors::{
    Attribute, CallText, Link, Span, SpanCall, SpanCalls, SpanContext, SpanEvent, SpanGoroutine,
    SpanKind, Status, Witness,
};
use std::sync::Arc;
use timeline::End;

fn span(id: u64, parent: Option<u64>, start_us: u64) -> Span {
    Span {
        name: "GET /a/{id}".to_owned(),
        kind: SpanKind::Server,
        context: SpanContext { trace: 0xabc, span: id },
        parent,
        sampled_by_parent: None,
        parent_by: parent.map(|_| Witness::Frame),
        links: Vec::new(),
        pid: 7,
        goid: 10 + id,
        start_ns: start_us * 1000,
        end_ns: 100_000_000,
        is_finished: true,
        status: Status::Unset,
        attributes: vec![
            ("http.response.status_code".into(), Attribute::Int(200)),
            ("url.path".into(), Attribute::Text("/a/\x1b7".into())),
        ],
        unavailable: Vec::new(),
        events: Vec::new(),
        tree: 1,
        time: None,
        calls: None,
        open_in_tree: 1,
    }
}

fn client(id: u64, parent: Option<u64>, start_us: u64) -> Span {
    let url = ("url.full".into(), Attribute::Text("http://b/".into()));
    let failed = ("error.type".into(), Attribute::Text("*net.OpError".into()));
    Span {
        name: "GET".to_owned(),
        kind: SpanKind::Client,
        status: Status::Error,
        is_finished: false,
        attributes: vec![failed, url],
        ..span(id, parent, start_us)
    }
}

#[test]
fn a_tree_is_written_when_all_of_it_has_ended() {
    let mut trees = SpanTrees::new(Arc::default(), Clock::default(), TextOptions::default());
    let mut out = Vec::new();
    // In the order of their ends; the remote parent of the first is not among them.
    for span in [span(3, Some(2), 30), client(2, Some(1), 20), client(4, Some(1), 10)] {
        trees.span(span, &mut out).unwrap();
        assert!(out.is_empty());
    }
    trees.span(Span { open_in_tree: 0, ..span(1, Some(99), 5) }, &mut out).unwrap();
    trees.span(Span { tree: 5, ..client(5, None, 50) }, &mut out).unwrap();
    let expected = "\
00:00:00.000005 g11      99.995ms  GET /a/{id} 200 /a/\\x1b7  trace=00000000000000000000000000000abc
00:00:00.000010 g14     ~99.990ms    > GET http://b/ error=*net.OpError
00:00:00.000020 g12     ~99.980ms    > GET http://b/ error=*net.OpError
00:00:00.000030 g13      99.970ms      GET /a/{id} 200 /a/\\x1b7
";
    assert_eq!(String::from_utf8(std::mem::take(&mut out)).unwrap(), expected);
    trees.finish(&mut out).unwrap();
    assert_eq!(String::from_utf8(out).unwrap().lines().count(), 1);
}

#[test]
fn rows_tell_how_many_were_read() {
    let mut trees = SpanTrees::new(Arc::default(), Clock::default(), TextOptions::default());
    let mut out = Vec::new();
    for rows in [0, 1, 2] {
        let attributes = vec![("db.response.returned_rows".into(), Attribute::Int(rows))];
        let name = "ROWS".to_owned();
        let rows = Span { name, attributes, open_in_tree: 0, ..client(2, Some(1), 20) };
        trees.span(rows, &mut out).unwrap();
    }
    let lines = String::from_utf8(out).unwrap();
    let shown = |line: &str| line.split("  trace=").next().unwrap()[34..].to_owned();
    let shown: Vec<String> = lines.lines().map(shown).collect();
    assert_eq!(shown, [" > ROWS 0 rows", " > ROWS 1 row", " > ROWS 2 rows"]);
}

#[test]
fn a_span_is_one_line_of_json() {
    let context = SpanContext { trace: 1, span: 2 };
    let attributes = vec![("exception.type".into(), Attribute::Text("*main.E".into()))];
    let span = Span {
        links: vec![Link { context, by: Witness::Goroutine }],
        unavailable: vec![("http.route".into(), "not read".to_owned())],
        events: vec![SpanEvent { name: "exception", ts_ns: 9_000, attributes }],
        ..span(3, Some(2), 5)
    };
    let mut out = Vec::new();
    let clock = Clock { unix_offset_ns: 1_000_000, utc_offset_s: 0 };
    write_span_json(&span, &Plan::default(), &clock, &mut Vec::new(), &mut out).unwrap();
    let expected = concat!(
        r#"{"type":"span","name":"GET /a/{id}","kind":"server","#,
        r#""trace_id":"00000000000000000000000000000abc","span_id":"0000000000000003","#,
        r#""parent_span_id":"0000000000000002","parent_by":"frame","#,
        r#""links":[{"trace_id":"00000000000000000000000000000001","span_id":"0000000000000002","#,
        r#""by":"goroutine"}],"pid":7,"goid":13,"start_ns":1005000,"duration_ns":99995000,"#,
        r#""finished":true,"status":"unset","attributes":{"http.response.status_code":200,"#,
        r#""url.path":"/a/\u001b7"},"unavailable":{"http.route":"not read"},"#,
        r#""events":[{"name":"exception","ts_ns":1009000,"#,
        r#""attributes":{"exception.type":"*main.E"}}]}"#,
        "\n"
    );
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

fn called(id: u64, parent: Option<u64>, goid: u64) -> SpanCall {
    let text = |values: String| CallText { values, place: String::new() };
    SpanCall {
        id,
        parent,
        depth: 0,
        tid: 8,
        goid,
        function: 9,
        start_ns: id * 1000,
        end_ns: id * 1000 + 20,
        end: End::Return,
        end_exact: true,
        entry: CallText { place: "here".to_owned(), ..text(format!("\"args\":[{id}]")) },
        exit: text(format!(" = {id}")),
    }
}

/// Calls 10 and 11 in it, goroutine 50 made in 11 with 12, where span 2 begins within 12, and 13.
fn with_calls() -> [Span; 2] {
    let goroutine = SpanGoroutine {
        goid: 50,
        parent_goid: 11,
        call: Some(11),
        // At the very end of the call, as far as the clock tells.
        made_ns: 11_020,
        text: "main.worker".to_owned(),
    };
    let open = SpanCall { end: End::Open, exit: CallText::default(), ..called(13, None, 11) };
    let calls = SpanCalls {
        calls: vec![called(10, None, 11), called(11, Some(10), 11), called(12, None, 50), open],
        cut: 3,
        goroutines: vec![goroutine],
        within: None,
    };
    let within = SpanCalls { within: Some(12), ..SpanCalls::default() };
    let child = Span { goid: 50, calls: Some(Box::new(within)), ..client(2, Some(1), 13) };
    [child, Span { calls: Some(Box::new(calls)), open_in_tree: 0, ..span(1, None, 5) }]
}

#[test]
fn calls_stand_within_each_other_and_spans_within_calls() {
    let mut trees = SpanTrees::new(Arc::default(), Clock::default(), TextOptions::default());
    let mut out = Vec::new();
    for span in with_calls() {
        trees.span(span, &mut out).unwrap();
    }
    let lines = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = lines.lines().map(|line| &line[16..]).collect();
    let expected = r#"g11      99.995ms  GET /a/{id} 200 /a/\x1b7  trace=00000000000000000000000000000abc  3 more calls
g11          20ns    ("args":[10]) = 10                      here
g11          20ns      ("args":[11]) = 11                    here
g50                      go main.worker
g50          20ns          ("args":[12]) = 12                here
g50     ~99.987ms            > GET http://b/ error=*net.OpError
g11          20ns    ("args":[13]) open                      here"#;
    assert_eq!(lines.join("\n"), expected);
}

#[test]
fn calls_are_objects_within_the_span() {
    let mut out = Vec::new();
    let [_, mut span] = with_calls();
    let calls = span.calls.as_mut().unwrap();
    calls.goroutines[0].text = "\"func\":null".to_owned();
    for call in &mut calls.calls {
        call.entry.place = "\"caller\":null".to_owned();
        if call.end == End::Return {
            call.exit.values = "\"results\":[]".to_owned();
            call.exit.place = "\"ret\":null".to_owned();
        }
    }
    write_span_json(&span, &Plan::default(), &Clock::default(), &mut Vec::new(), &mut out).unwrap();
    let line: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let told = |call: &serde_json::Value| {
        format!("{} in {} {} {}", call["id"], call["parent"], call["args"], call["exit"])
    };
    let calls = line["calls"].as_array().unwrap();
    let first = [&calls[0], &calls[0]["calls"][0], &calls[1], &calls[2]].map(told).join(", ");
    let expected = "10 in null [10] \"return\", 11 in 10 [11] \"return\", \
         12 in null [12] \"return\", 13 in null [13] \"open\"";
    assert_eq!(first, expected);
    assert_eq!(calls.len(), 3);
    let goroutines = r#"[{"goid":50,"parent_goid":11,"in_call":11,"made_ns":11020,"func":null}]"#;
    assert_eq!(line["goroutines"], serde_json::from_str::<serde_json::Value>(goroutines).unwrap());
    assert_eq!((&line["calls_cut"], &line["in_call"]), (&3.into(), &serde_json::Value::Null));
}

/// Readers of JSON follow so many levels and no more.
#[test]
fn deep_calls_stand_beside_each_other() {
    let [_, mut span] = with_calls();
    let deep = (1..=500).map(|id| SpanCall {
        entry: CallText { values: "\"args\":[]".into(), place: "\"caller\":null".into() },
        exit: CallText { values: "\"results\":[]".into(), place: "\"ret\":null".into() },
        ..called(id, Some(id - 1).filter(|id| *id > 0), 11)
    });
    span.calls = Some(Box::new(SpanCalls { calls: deep.collect(), ..SpanCalls::default() }));
    let mut out = Vec::new();
    write_span_json(&span, &Plan::default(), &Clock::default(), &mut Vec::new(), &mut out).unwrap();
    let line: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let mut calls = &line["calls"];
    let mut levels = 0;
    while calls[0].is_object() {
        levels += 1;
        assert_eq!(calls.as_array().unwrap().len(), if levels == 32 { 469 } else { 1 });
        calls = &calls[0]["calls"];
    }
    assert_eq!(levels, 32);
}

/// A request over two processes, and a stream that outlives what began it.
#[test]
fn slices_lie_in_one_another_and_arrows_cross_processes() {
    let file = PerfettoFile::default();
    let mut timeline = SpanTimeline::new(Arc::default(), file.clone());
    let mut out = Vec::new();
    timeline.begins(5_000);
    let [child, parent] = with_calls();
    let there = Span { pid: 8, end_ns: 90_000_000, ..span(3, Some(2), 14) };
    let stream = Span { goid: 50, end_ns: 200_000_000, ..client(4, Some(1), 12) };
    let next = Span {
        goid: 50,
        tree: 2,
        open_in_tree: 0,
        end_ns: 160_000_000,
        ..client(5, None, 150_000)
    };
    for span in [there, child, stream, parent, next] {
        timeline.span(span, &mut out).unwrap();
    }
    timeline.finish(&mut out).unwrap();
    file.close(&mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let timeline = testkit::import_timeline(&text);
    let name = |slice: &testkit::Slice| {
        let track = &timeline.names[&(slice.pid, slice.tid)];
        format!("{} {track}: {} {}-{}", slice.pid, slice.name, slice.from_ns, slice.to_ns)
    };
    let slices: Vec<String> = timeline.slices.iter().map(name).collect();
    let expected = "\
7 g11: GET /a/{id} 0-99995000
7 g11: ? 5000-5020
7 g11: ? 6000-6020
7 g11: to ? 6019-6019
7 g50 main.worker: ? 7000-7020
7 g11: to GET 7000-7000
7 g50 beside: GET 7000-199995000
7 g11: to GET 8000-8000
7 g50 main.worker: GET 8000-99995000
7 g11: ? 8000-8020
7 g50 main.worker: to GET /a/{id} 9000-9000
8 g13: GET /a/{id} 9000-89995000
7 g50 main.worker: GET 149995000-159995000";
    assert_eq!(slices.join("\n"), expected);
    let arrows = timeline.arrows.iter().map(|(from, to)| {
        format!("{} -> {}", name(&timeline.slices[*from]), name(&timeline.slices[*to]))
    });
    let expected = "\
7 g11: to ? 6019-6019 -> 7 g50 main.worker: ? 7000-7020
7 g11: to GET 7000-7000 -> 7 g50 beside: GET 7000-199995000
7 g11: to GET 8000-8000 -> 7 g50 main.worker: GET 8000-99995000
7 g50 main.worker: to GET /a/{id} 9000-9000 -> 8 g13: GET /a/{id} 9000-89995000";
    assert_eq!(arrows.collect::<Vec<_>>().join("\n"), expected);
    let first: serde_json::Value = serde_json::from_str(&text).unwrap();
    let request = first.as_array().unwrap().iter().find(|event| event["name"] == "GET /a/{id}");
    let expected = r#"{"http.response.status_code":"200","kind":"server","span_id":"0000000000000001",
        "status":"unset","trace_id":"00000000000000000000000000000abc","url.path":"/a/\u001b7"}"#;
    let expected: serde_json::Value = serde_json::from_str(expected).unwrap();
    assert_eq!(request.unwrap()["args"], expected);
}
