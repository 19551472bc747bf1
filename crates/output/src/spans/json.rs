//! One span a line.

use super::calls_json::push_calls;
use crate::clock::Clock;
use probe::Plan;
use sensors::{Attribute, Link, Name, Span, SpanEvent};
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use std::io::{self, Write};
use std::sync::Arc;

#[derive(Serialize)]
struct JsonSpan<'a> {
    r#type: &'static str,
    name: &'a str,
    kind: &'static str,
    trace_id: String,
    span_id: String,
    parent_span_id: Option<String>,
    parent_by: Option<&'static str>,
    links: Vec<JsonLink>,
    pid: u32,
    goid: u64,
    start_ns: i64,
    duration_ns: u64,
    finished: bool,
    status: &'static str,
    attributes: Map<'a>,
    unavailable: Reasons<'a>,
    events: Vec<JsonEvent<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<JsonTime<'a>>,
}

#[derive(Serialize)]
struct JsonTime<'a> {
    running_ns: u64,
    runnable_ns: u64,
    waiting_ns: Waiting<'a>,
    syscall_ns: u64,
    other_ns: u64,
    unknown_ns: u64,
}

struct Waiting<'a>(&'a [(Arc<str>, u64)]);

impl Serialize for Waiting<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(reason, ns)| (reason, ns)))
    }
}

#[derive(Serialize)]
struct JsonLink {
    trace_id: String,
    span_id: String,
    by: &'static str,
}

#[derive(Serialize)]
struct JsonEvent<'a> {
    name: &'static str,
    ts_ns: i64,
    attributes: Map<'a>,
}

/// An object with the keys in their order.
struct Map<'a>(&'a [(Name, Attribute)]);

impl Serialize for Map<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in self.0 {
            match value {
                Attribute::Text(text) => map.serialize_entry(name, text)?,
                Attribute::Texts(texts) => map.serialize_entry(name, texts)?,
                Attribute::Int(number) => map.serialize_entry(name, number)?,
                Attribute::Bool(yes) => map.serialize_entry(name, yes)?,
            }
        }
        map.end()
    }
}

struct Reasons<'a>(&'a [(Name, String)]);

impl Serialize for Reasons<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, reason)| (name, reason)))
    }
}

/// As W3C writes a span's id.
pub(super) fn span_id(id: u64) -> String {
    format!("{id:016x}")
}

/// As W3C writes a trace's id.
pub(super) fn trace_id(id: u128) -> String {
    format!("{id:032x}")
}

/// Writes a span as one line of JSON, its calls being of `plan`. `line` is room for it, which may serve again.
pub fn write_span_json(
    span: &Span,
    plan: &Plan,
    clock: &Clock,
    line: &mut Vec<u8>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let link = |link: &Link| JsonLink {
        trace_id: trace_id(link.context.trace),
        span_id: span_id(link.context.span),
        by: link.by.name(),
    };
    let events = span.events.iter().map(|SpanEvent { name, ts_ns, attributes }| JsonEvent {
        name,
        ts_ns: clock.unix_ns(*ts_ns),
        attributes: Map(attributes),
    });
    let value = JsonSpan {
        r#type: "span",
        name: &span.name,
        kind: span.kind.name(),
        trace_id: trace_id(span.context.trace),
        span_id: span_id(span.context.span),
        parent_span_id: span.parent.map(span_id),
        parent_by: span.parent_by.map(sensors::Witness::name),
        links: span.links.iter().map(link).collect(),
        pid: span.pid,
        goid: span.goid,
        start_ns: clock.unix_ns(span.start_ns),
        duration_ns: span.end_ns.saturating_sub(span.start_ns),
        finished: span.is_finished,
        status: span.status.name(),
        attributes: Map(&span.attributes),
        unavailable: Reasons(&span.unavailable),
        events: events.collect(),
        time: span.time.as_ref().map(|time| JsonTime {
            running_ns: time.running_ns,
            runnable_ns: time.runnable_ns,
            waiting_ns: Waiting(&time.waiting),
            syscall_ns: time.syscall_ns,
            other_ns: time.other_ns,
            unknown_ns: time.unknown_ns,
        }),
    };
    line.clear();
    serde_json::to_writer(&mut *line, &value)?;
    if let Some(calls) = &span.calls {
        // Behind all other members.
        line.pop();
        push_calls(line, span, calls, plan, clock);
        line.push(b'}');
    }
    line.push(b'\n');
    out.write_all(line)
}
