//! Spans as messages of the protocol (`ExportTraceServiceRequest`).

use crate::exporter::{Origin, Sourced};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span as message;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as Message, Status};
use output::Clock;
use sensors::{Attribute, Link, Name, Span, SpanContext, SpanEvent, SpanKind, Witness};
use std::sync::Arc;

/// `SpanFlags` of the protocol: the trace is sampled; whether the parent is in another process is known;
/// it is.
const SAMPLED: u32 = 0x001;
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// Spans of one process and origin.
type Group<'a> = (&'a Option<Arc<Origin>>, u32, Vec<Message>);

/// One request with `spans`, in order. `resource` are the attributes of what those come from that say nothing
/// themselves; the process is added to each.
pub(crate) fn request(
    spans: &[Sourced],
    clock: &Clock,
    resource: &[(String, String)],
) -> ExportTraceServiceRequest {
    // Origins are few, and those of one process are one.
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (one, origin) in spans {
        let message = span(one, clock);
        let known = groups.iter_mut().find(|(known, pid, _)| *pid == one.pid && *known == origin);
        match known {
            Some((_, _, messages)) => messages.push(message),
            None => groups.push((origin, one.pid, vec![message])),
        }
    }
    groups.sort_by_key(|(_, pid, _)| *pid);
    let of_process = |(origin, pid, spans): Group<'_>| {
        let resource = origin.as_ref().map_or(resource, |origin| &origin.resource);
        let mut attributes: Vec<KeyValue> = resource
            .iter()
            .map(|(key, value)| pair(key, &Attribute::Text(value.clone().into())))
            .collect();
        attributes.push(pair("process.pid", &Attribute::Int(i64::from(pid))));
        ResourceSpans {
            resource: Some(Resource { attributes, ..Resource::default() }),
            scope_spans: vec![ScopeSpans { scope: Some(scope()), spans, ..ScopeSpans::default() }],
            ..ResourceSpans::default()
        }
    };
    ExportTraceServiceRequest { resource_spans: groups.into_iter().map(of_process).collect() }
}

/// Who measured.
pub(crate) fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "gospect".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

fn span(span: &Span, clock: &Clock) -> Message {
    let mut attributes = pairs(&span.attributes);
    if let Some(by) = span.parent_by {
        attributes.push(pair("gospect.parent_by", &Attribute::Text(by.name().into())));
    }
    if !span.is_finished {
        attributes.push(pair("gospect.finished", &Attribute::Bool(false)));
    }
    if let Some(time) = &span.time {
        let parts = [
            ("gospect.time.running_ns", time.running_ns),
            ("gospect.time.runnable_ns", time.runnable_ns),
            ("gospect.time.syscall_ns", time.syscall_ns),
            ("gospect.time.other_ns", time.other_ns),
            ("gospect.time.unknown_ns", time.unknown_ns),
        ];
        let int = |ns| Attribute::Int(i64::try_from(ns).unwrap_or(i64::MAX));
        attributes.extend(parts.into_iter().map(|(name, ns)| pair(name, &int(ns))));
        for (reason, ns) in &time.waiting {
            attributes.push(pair(&format!("gospect.time.waiting_ns.{reason}"), &int(*ns)));
        }
    }
    let kind = match span.kind {
        SpanKind::Server => message::SpanKind::Server,
        SpanKind::Client => message::SpanKind::Client,
    };
    let remote = match span.parent_by {
        Some(Witness::TraceParent) => IS_REMOTE,
        _ => 0,
    };
    let is_error = span.status == sensors::Status::Error;
    Message {
        trace_id: trace_id(span.context),
        span_id: span_id(span.context.span),
        parent_span_id: span.parent.map(span_id).unwrap_or_default(),
        flags: SAMPLED | HAS_IS_REMOTE | remote,
        name: span.name.clone(),
        kind: kind as i32,
        start_time_unix_nano: unix_ns(clock, span.start_ns),
        end_time_unix_nano: unix_ns(clock, span.end_ns),
        attributes,
        events: span.events.iter().map(|one| event(one, clock)).collect(),
        links: span.links.iter().map(link).collect(),
        status: is_error.then(|| Status { code: StatusCode::Error as i32, ..Status::default() }),
        ..Message::default()
    }
}

fn event(event: &SpanEvent, clock: &Clock) -> message::Event {
    message::Event {
        time_unix_nano: unix_ns(clock, event.ts_ns),
        name: event.name.to_owned(),
        attributes: pairs(&event.attributes),
        ..message::Event::default()
    }
}

fn link(link: &Link) -> message::Link {
    message::Link {
        trace_id: trace_id(link.context),
        span_id: span_id(link.context.span),
        attributes: vec![pair("gospect.link_by", &Attribute::Text(link.by.name().into()))],
        ..message::Link::default()
    }
}

fn trace_id(context: SpanContext) -> Vec<u8> {
    context.trace.to_be_bytes().to_vec()
}

fn span_id(id: u64) -> Vec<u8> {
    id.to_be_bytes().to_vec()
}

fn unix_ns(clock: &Clock, ts_ns: u64) -> u64 {
    u64::try_from(clock.unix_ns(ts_ns)).unwrap_or(0)
}

fn pairs(attributes: &[(Name, Attribute)]) -> Vec<KeyValue> {
    attributes.iter().map(|(name, value)| pair(name, value)).collect()
}

fn pair(key: &str, value: &Attribute) -> KeyValue {
    let value = match value {
        Attribute::Text(text) => Value::StringValue(text.to_string()),
        Attribute::Texts(texts) => {
            let text = |text: &String| AnyValue { value: Some(Value::StringValue(text.clone())) };
            Value::ArrayValue(ArrayValue { values: texts.iter().map(text).collect() })
        }
        Attribute::Int(number) => Value::IntValue(*number),
        Attribute::Bool(yes) => Value::BoolValue(*yes),
    };
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}
