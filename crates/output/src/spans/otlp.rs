//! Spans as OTLP writes them in JSON (opentelemetry-proto 1.x, `ExportTraceServiceRequest`): ids in
//! hexadecimal, 64-bit numbers as strings.

use super::json::{span_id, trace_id};
use crate::clock::Clock;
use sensors::{Attribute, Link, Span, SpanEvent, SpanKind, Status};
use serde_json::{Value, json};

/// Attributes of what spans come from, by process.
pub type Resource = Vec<(String, String)>;

/// `SpanKind` and `StatusCode` of the protocol.
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
const ERROR: u8 = 2;

/// One request with `spans`, in order. `resource` gives the attributes of a process.
pub fn otlp_request(spans: &[Span], clock: &Clock, resource: &dyn Fn(u32) -> Resource) -> Value {
    let mut pids: Vec<u32> = spans.iter().map(|span| span.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    let of_process = |pid: &u32| {
        let attributes: Vec<Value> = resource(*pid)
            .into_iter()
            .map(|(key, value)| json!({"key": key, "value": {"stringValue": value}}))
            .chain([pair("process.pid", &Attribute::Int(i64::from(*pid)))])
            .collect();
        let own = spans.iter().filter(|span| span.pid == *pid);
        let spans: Vec<Value> = own.map(|one| span(one, clock)).collect();
        let scope = json!({"name": "gospect", "version": env!("CARGO_PKG_VERSION")});
        json!({
            "resource": {"attributes": attributes},
            "scopeSpans": [{"scope": scope, "spans": spans}],
        })
    };
    json!({"resourceSpans": pids.iter().map(of_process).collect::<Vec<Value>>()})
}

fn span(span: &Span, clock: &Clock) -> Value {
    let kind = match span.kind {
        SpanKind::Server => SERVER,
        SpanKind::Client => CLIENT,
    };
    let mut attributes = pairs(&span.attributes);
    if let Some(by) = span.parent_by {
        attributes.push(pair("gospect.parent_by", &Attribute::Text(by.name().to_owned())));
    }
    if !span.is_finished {
        attributes.push(pair("gospect.finished", &Attribute::Bool(false)));
    }
    let mut value = json!({
        "traceId": trace_id(span.context.trace),
        "spanId": span_id(span.context.span),
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": nanoseconds(clock, span.start_ns),
        "endTimeUnixNano": nanoseconds(clock, span.end_ns),
        "attributes": attributes,
    });
    if let Some(parent) = span.parent {
        value["parentSpanId"] = span_id(parent).into();
    }
    if !span.events.is_empty() {
        value["events"] = span.events.iter().map(|one| event(one, clock)).collect();
    }
    if !span.links.is_empty() {
        value["links"] = span.links.iter().map(link).collect();
    }
    if span.status == Status::Error {
        value["status"] = json!({"code": ERROR});
    }
    value
}

fn event(event: &SpanEvent, clock: &Clock) -> Value {
    json!({
        "timeUnixNano": nanoseconds(clock, event.ts_ns),
        "name": event.name,
        "attributes": pairs(&event.attributes),
    })
}

fn link(link: &Link) -> Value {
    json!({
        "traceId": trace_id(link.context.trace),
        "spanId": span_id(link.context.span),
        "attributes": [pair("gospect.link_by", &Attribute::Text(link.by.name().to_owned()))],
    })
}

fn nanoseconds(clock: &Clock, ts_ns: u64) -> String {
    clock.unix_ns(ts_ns).max(0).to_string()
}

fn pairs(attributes: &[(&'static str, Attribute)]) -> Vec<Value> {
    attributes.iter().map(|(name, value)| pair(name, value)).collect()
}

fn pair(name: &str, value: &Attribute) -> Value {
    let value = match value {
        Attribute::Text(text) => json!({"stringValue": text}),
        Attribute::Int(number) => json!({"intValue": number.to_string()}),
        Attribute::Bool(yes) => json!({"boolValue": yes}),
    };
    json!({"key": name, "value": value})
}
