//! Trees of spans for people, each when all of it has ended.
//!
//! ```text
//! TIME            GOID   DURATION   SPAN
//! 21:06:01.001123 g18    100.161ms  GET /buy/{id} 200 /buy/7
//! 21:06:01.001140 g18     40.100ms    > GET 200 http://127.0.0.1:8081/stock
//! 21:06:01.002000 g21     39.100ms      GET /stock 200 /stock
//! ```
//! `>` marks who asks. What ended without being seen to end has `~` before its duration.

use super::json::trace_id;
use super::order::{Item, in_order};
use crate::clock::Clock;
use crate::duration::short_duration;
use crate::printable::{push_printable, width};
use crate::text::{PLACE_COLUMN, TextOptions};
use anstyle::{AnsiColor, Style};
use probe::Plan;
use sensors::{Attribute, Span, SpanKind, SpanTime, Status};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use timeline::End;

/// Spans held of one tree; those of a longer one are written piece by piece.
const HELD: usize = 1000;
/// Calls held of one tree, likewise.
const HELD_CALLS: usize = 10_000;
/// Levels that are indented.
const MAX_INDENT: usize = 40;

const DIM: Style = Style::new().dimmed();
const BAD: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Red)));

/// What is held of a tree.
#[derive(Debug, Default)]
struct Held {
    spans: Vec<Span>,
    calls: usize,
}

/// What a line begins with.
struct Begin<'a> {
    ts_ns: u64,
    pid: u32,
    goid: u64,
    duration: &'a str,
    level: usize,
}

/// Writes spans as trees.
#[derive(Debug)]
pub struct SpanTrees {
    plan: Arc<Plan>,
    clock: Clock,
    options: TextOptions,
    held: BTreeMap<u64, Held>,
}

impl SpanTrees {
    /// A writer of spans with calls of `plan`.
    pub fn new(plan: Arc<Plan>, clock: Clock, options: TextOptions) -> Self {
        Self { plan, clock, options, held: BTreeMap::new() }
    }

    /// Takes a span that ended; writes its tree when nothing of it is open any more.
    pub fn span(&mut self, span: Span, out: &mut dyn Write) -> io::Result<()> {
        let (tree, is_last) = (span.tree, span.open_in_tree == 0);
        let held = self.held.entry(tree).or_default();
        held.calls += span.calls.as_ref().map_or(0, |calls| calls.calls.len());
        held.spans.push(span);
        if !is_last && held.spans.len() < HELD && held.calls < HELD_CALLS {
            return Ok(());
        }
        let held = self.held.remove(&tree).unwrap_or_default();
        self.write(&held.spans, out)
    }

    /// Writes what is held.
    pub fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        for (_, held) in std::mem::take(&mut self.held) {
            self.write(&held.spans, out)?;
        }
        Ok(())
    }

    fn write(&self, spans: &[Span], out: &mut dyn Write) -> io::Result<()> {
        for (item, level) in in_order(spans) {
            match item {
                Item::Span(place) => self.line(&spans[place], level, out)?,
                Item::Call(place, at) => self.call(&spans[place], at, level, out)?,
                Item::Goroutine(place, at) => self.goroutine(&spans[place], at, level, out)?,
            }
        }
        Ok(())
    }

    /// Time, who, duration and indentation, which every line begins with.
    fn begin(&self, line: Begin<'_>, out: &mut dyn Write) -> io::Result<()> {
        let time = self.clock.time_of_day(line.ts_ns);
        let goid = match self.options.pids {
            true => format!("{} g{}", line.pid, line.goid),
            false => format!("g{}", line.goid),
        };
        let indent = "  ".repeat(line.level.min(MAX_INDENT));
        write!(out, "{time} {goid:<6} {:>10}  {indent}", line.duration)
    }

    fn call(&self, span: &Span, at: usize, level: usize, out: &mut dyn Write) -> io::Result<()> {
        let call = span.calls.as_ref().and_then(|calls| calls.calls.get(at));
        let Some(call) = call else { return Ok(()) };
        let mut duration = short_duration(call.end_ns.saturating_sub(call.start_ns));
        if !call.end_exact {
            duration.insert(0, '~');
        }
        let function = self.plan.functions.get(call.function as usize);
        let mut text = String::new();
        push_printable(&mut text, function.map_or("", |function| &function.name));
        let end = if call.exit.values.is_empty() && call.end == End::Open { " open" } else { "" };
        text.push_str(&format!("({}){}{end}", call.entry.values, call.exit.values));
        let (pid, goid, ts_ns) = (span.pid, call.goid, call.start_ns);
        self.begin(Begin { ts_ns, pid, goid, duration: &duration, level }, out)?;
        let is_bad = !matches!(call.end, End::Return | End::Tail | End::Open);
        let (bad, dim) = (self.style(if is_bad { BAD } else { Style::new() }), self.style(DIM));
        write!(out, "{bad}{text}{bad:#}")?;
        if !call.entry.place.is_empty() {
            let used = 2 * level.min(MAX_INDENT) + width(&text);
            let gap = " ".repeat(PLACE_COLUMN.saturating_sub(used).max(2));
            write!(out, "{gap}{dim}{}{dim:#}", call.entry.place)?;
        }
        writeln!(out)
    }

    fn goroutine(
        &self,
        span: &Span,
        at: usize,
        level: usize,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let goroutine = span.calls.as_ref().and_then(|calls| calls.goroutines.get(at));
        let Some(goroutine) = goroutine else { return Ok(()) };
        let (pid, goid, ts_ns) = (span.pid, goroutine.goid, goroutine.made_ns);
        self.begin(Begin { ts_ns, pid, goid, duration: "", level }, out)?;
        let dim = self.style(DIM);
        writeln!(out, "{dim}go {}{dim:#}", goroutine.text)
    }

    fn style(&self, style: Style) -> Style {
        if self.options.color { style } else { Style::new() }
    }

    fn line(&self, span: &Span, level: usize, out: &mut dyn Write) -> io::Result<()> {
        let mut duration = short_duration(span.end_ns.saturating_sub(span.start_ns));
        if !span.is_finished {
            duration.insert(0, '~');
        }
        let mark = if span.kind == SpanKind::Client { "> " } else { "" };
        let mut text = String::new();
        push_printable(&mut text, &span.name);
        let get = |wanted: &str| span.attributes.iter().find(|(name, _)| *name == wanted);
        for name in ["http.response.status_code", "url.path", "url.full"] {
            if let Some((_, value)) = get(name) {
                text.push(' ');
                push_printable(&mut text, &value.to_string());
            }
        }
        if let Some((_, query)) = get("url.query") {
            text.push('?');
            push_printable(&mut text, &query.to_string());
        }
        let error = match get("error.type") {
            Some((_, Attribute::Text(error))) if error.parse::<u16>().is_err() => error.as_str(),
            _ => "",
        };
        if !error.is_empty() {
            text.push_str(" error=");
            push_printable(&mut text, error);
        }
        if get("gospect.http.hijacked").is_some() {
            text.push_str(" hijacked");
        }
        let style = if span.status == Status::Error { BAD } else { Style::new() };
        let (bad, dim) = (self.style(style), self.style(DIM));
        let (pid, goid, ts_ns) = (span.pid, span.goid, span.start_ns);
        self.begin(Begin { ts_ns, pid, goid, duration: &duration, level }, out)?;
        write!(out, "{mark}{bad}{text}{bad:#}")?;
        if level == 0 {
            write!(out, "  {dim}trace={}{dim:#}", trace_id(span.context.trace))?;
        }
        if let Some(time) = &span.time {
            write!(out, "  {dim}{}{dim:#}", spent(time))?;
        }
        if let Some(cut) = span.calls.as_ref().map(|calls| calls.cut).filter(|cut| *cut > 0) {
            write!(out, "  {dim}{cut} more calls{dim:#}")?;
        }
        writeln!(out)
    }
}

/// What time went to, without what took none.
fn spent(time: &SpanTime) -> String {
    let parts = [
        ("running", time.running_ns),
        ("runnable", time.runnable_ns),
        ("syscall", time.syscall_ns),
        ("other", time.other_ns),
        ("unknown", time.unknown_ns),
    ];
    let waiting = time.waiting.iter().map(|(reason, ns)| (&**reason, *ns));
    let parts = parts.into_iter().chain(waiting).filter(|(_, ns)| *ns > 0);
    let parts: Vec<String> =
        parts.map(|(what, ns)| format!("{what} {}", short_duration(ns))).collect();
    format!("[{}]", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::write_span_json;
    use super::*;
    use sensors::{
        CallText, Link, SpanCall, SpanCalls, SpanContext, SpanEvent, SpanGoroutine, Witness,
    };

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
                ("http.response.status_code", Attribute::Int(200)),
                ("url.path", Attribute::Text("/a/\x1b7".to_owned())),
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
        let url = ("url.full", Attribute::Text("http://b/".to_owned()));
        let failed = ("error.type", Attribute::Text("*net.OpError".to_owned()));
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
    fn a_span_is_one_line_of_json() {
        let context = SpanContext { trace: 1, span: 2 };
        let attributes = vec![("exception.type", Attribute::Text("*main.E".to_owned()))];
        let span = Span {
            links: vec![Link { context, by: Witness::Goroutine }],
            unavailable: vec![("http.route", "not read".to_owned())],
            events: vec![SpanEvent { name: "exception", ts_ns: 9_000, attributes }],
            ..span(3, Some(2), 5)
        };
        let mut out = Vec::new();
        let clock = Clock { unix_offset_ns: 1_000_000, utc_offset_s: 0 };
        write_span_json(&span, &Plan::default(), &clock, &mut out).unwrap();
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
            made_ns: 11_500,
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
        write_span_json(&span, &Plan::default(), &Clock::default(), &mut out).unwrap();
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
        let goroutines =
            r#"[{"goid":50,"parent_goid":11,"in_call":11,"made_ns":11500,"func":null}]"#;
        assert_eq!(
            line["goroutines"],
            serde_json::from_str::<serde_json::Value>(goroutines).unwrap()
        );
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
        write_span_json(&span, &Plan::default(), &Clock::default(), &mut out).unwrap();
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
}
