//! A span that is not over.

use crate::catalog::Field;
use crate::fields::Values;
use crate::http::{self, Attributes};
use crate::rpc;
use crate::span::{Attribute, Link, Span, SpanContext, SpanEvent, SpanKind, Status, Witness};
use std::borrow::Cow;
use timeline::{Call, End};

/// A panic of a goroutine.
#[derive(Clone, Debug)]
pub(super) struct Panicked {
    /// Type of what it carries.
    pub(super) name: String,
    pub(super) ts_ns: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Open {
    /// The call that it is of, and that call's function.
    pub(super) call: u64,
    pub(super) function: u32,
    pub(super) kind: SpanKind,
    pub(super) pid: u32,
    pub(super) goid: u64,
    /// What its name begins with.
    name: Cow<'static, str>,
    pub(super) route: Option<String>,
    pub(super) context: SpanContext,
    pub(super) parent: Option<u64>,
    pub(super) parent_by: Option<Witness>,
    pub(super) sampled: Option<bool>,
    pub(super) links: Vec<Link>,
    pub(super) tree: u64,
    start_ns: u64,
    pub(super) attributes: Attributes,
    events: Vec<SpanEvent>,
    status: Status,
    /// Address of the server's response.
    pub(super) response_at: Option<u64>,
    /// Address of the request's context.
    pub(super) context_at: Option<u64>,
    /// When the handler returned, and whether that was seen.
    pub(super) answered: Option<(u64, bool)>,
    /// The call that brings the response to its end.
    pub(super) finishing: Option<u64>,
    pub(super) is_hijacked: bool,
    /// Whether it ends elsewhere: a stream of a gRPC client, which goes on behind the call that began it, and rows that
    /// another goroutine closes.
    pub(super) is_stream: bool,
    /// Whether it is a unary call of a gRPC client, whose own stream is no span.
    pub(super) is_call: bool,
    /// Address of the stream.
    pub(super) stream_at: Option<u64>,
}

impl Open {
    pub(super) fn new(
        call: &Call,
        kind: SpanKind,
        name: impl Into<Cow<'static, str>>,
        attributes: Attributes,
    ) -> Self {
        Self {
            call: call.id,
            function: call.function,
            kind,
            pid: call.pid,
            goid: call.goid,
            name: name.into(),
            route: None,
            context: SpanContext { trace: 0, span: 0 },
            parent: None,
            parent_by: None,
            sampled: None,
            links: Vec::new(),
            tree: 0,
            start_ns: call.start_ns,
            attributes,
            events: Vec::new(),
            status: Status::Unset,
            response_at: None,
            context_at: None,
            answered: None,
            finishing: None,
            is_hijacked: false,
            is_stream: false,
            is_call: false,
            stream_at: None,
        }
    }

    /// Whether it is no request: what a connection of HTTP/2 begins with (RFC 9113, section 3.4), which golang.org/x/net
    /// takes over from the server of HTTP/1.
    pub(super) fn is_preface(&self) -> bool {
        let has = |name: &str, text: &str| {
            let is_it = |value: &Attribute| matches!(value, Attribute::Text(it) if it == text);
            self.attributes.known.iter().any(|(known, value)| known == name && is_it(value))
        };
        has(http::ORIGINAL, "PRI") && has("url.path", "*")
    }

    pub(super) fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// It begins behind the beginning of its call.
    pub(super) fn begins(&mut self, start_ns: u64) {
        self.start_ns = start_ns;
    }

    fn set(&mut self, name: &'static str, value: Attribute) {
        match self.attributes.known.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.attributes.known.push((name.into(), value)),
        }
    }

    /// It failed, in a way that has a name.
    pub(super) fn failed(&mut self, how: &str) {
        self.status = Status::Error;
        self.set("error.type", Attribute::Text(how.to_owned().into()));
    }

    pub(super) fn panicked(&mut self, panicked: Panicked) {
        let Panicked { name, ts_ns } = panicked;
        self.failed(&name);
        let attributes = vec![("exception.type".into(), Attribute::Text(name.into()))];
        self.events.push(SpanEvent { name: "exception", ts_ns, attributes });
    }

    /// The header of the response went out.
    pub(super) fn wrote(&mut self, status: Result<i64, &str>) {
        match status {
            // What goes before the response (RFC 9110, section 15.2), and behind it without any.
            Ok(0 | 100 | 102..=199) => {}
            Ok(status) => self.answer(status, 500),
            Err(reason) => self.attributes.lack(http::STATUS, reason),
        }
    }

    /// A status, which is a failure from `worst` on.
    fn answer(&mut self, status: i64, worst: i64) {
        self.set(http::STATUS, Attribute::Int(status));
        if status >= worst {
            self.failed(&status.to_string());
        }
    }

    /// Bytes that the handler wrote.
    pub(super) fn written(&mut self, bytes: Result<i64, &str>) {
        // What is written in answer to HEAD does not go out.
        let is_head = self.name == "HEAD";
        match bytes {
            Ok(bytes) if bytes > 0 && !is_head => {
                self.set(http::RESPONSE_SIZE, Attribute::Int(bytes));
            }
            Ok(_) => {}
            Err(reason) => self.attributes.lack(http::RESPONSE_SIZE, reason),
        }
    }

    /// What a client got: an error, or a response that may have a status.
    pub(super) fn response(
        &mut self,
        end: End,
        values: &Values<'_>,
        has_status: bool,
        type_name: &mut dyn FnMut(u64) -> Option<String>,
    ) {
        if end != End::Return {
            return;
        }
        match values.dynamic_type(Field::Error) {
            Ok(None) if !has_status => {}
            Ok(None) => match values.int(Field::Status) {
                Ok(status) => self.answer(status, 400),
                Err(reason) => self.attributes.lack(http::STATUS, reason),
            },
            Ok(Some(descriptor)) => {
                let name = type_name(descriptor);
                self.failed(name.as_deref().unwrap_or("_OTHER"));
            }
            Err(reason) => self.attributes.lack("error.type", reason),
        }
    }

    /// How a gRPC call went: its code, or an error that has none.
    pub(super) fn rpc_ended(
        &mut self,
        values: &Values<'_>,
        type_name: &mut dyn FnMut(u64) -> Option<String>,
    ) {
        // The end of a stream is no failure (`io.EOF`).
        let is_end = values.bytes(Field::ErrorText).is_ok_and(|(text, _)| text == b"EOF");
        match values.dynamic_type(Field::Error) {
            Ok(None) => self.rpc_code(0),
            Ok(Some(_)) if is_end => self.rpc_code(0),
            Ok(Some(descriptor)) => match values.int(Field::Status) {
                Ok(code) => self.rpc_code(code),
                Err(_) => self.failed(type_name(descriptor).as_deref().unwrap_or("_OTHER")),
            },
            Err(reason) => self.attributes.lack(rpc::STATUS, reason),
        }
    }

    pub(super) fn rpc_code(&mut self, code: i64) {
        self.set(rpc::STATUS, Attribute::Int(code));
        if let Some(name) = rpc::failure(self.kind, code) {
            self.failed(&name);
        }
    }

    /// The span, of which `open_in_tree` others are still open in its tree.
    pub(super) fn into_span(mut self, end_ns: u64, is_finished: bool, open_in_tree: usize) -> Span {
        let mut name = self.name.into_owned();
        if let Some(route) = self.route {
            name = format!("{name} {route}");
            self.attributes.known.push((http::ROUTE.into(), Attribute::Text(route.into())));
        }
        if self.is_hijacked {
            self.attributes.known.push(("gospect.http.hijacked".into(), Attribute::Bool(true)));
        }
        let Attributes { known: mut attributes, mut unavailable } = self.attributes;
        attributes.sort_by(|(one, _), (other, _)| one.cmp(other));
        unavailable.retain(|(name, _)| !attributes.iter().any(|(known, _)| known == name));
        unavailable.sort();
        unavailable.dedup();
        Span {
            name,
            kind: self.kind,
            context: self.context,
            parent: self.parent,
            parent_by: self.parent_by,
            sampled_by_parent: self.sampled,
            links: self.links,
            pid: self.pid,
            goid: self.goid,
            start_ns: self.start_ns,
            end_ns,
            is_finished,
            status: self.status,
            attributes,
            unavailable,
            events: self.events,
            time: None,
            calls: None,
            tree: self.tree,
            open_in_tree,
        }
    }
}
