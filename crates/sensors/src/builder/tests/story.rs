//! Stories of calls, told as text.

use super::super::*;
use crate::catalog::SENSORS;
use crate::span::Link;
use probe::PlannedFunction;
use probe::value::{Value, ValueKind, ValueSpec};
use std::fmt::Write as _;
use timeline::Location;

pub(super) const HANDLE: &str = "net/http.serverHandler.ServeHTTP";
pub(super) const HEADER: &str = "net/http.(*chunkWriter).writeHeader";
pub(super) const FINISH: &str = "net/http.(*response).finishRequest";
pub(super) const ROUTE: &str = "net/http.(*ServeMux).findHandler";
pub(super) const HIJACK: &str = "net/http.(*response).Hijack";
pub(super) const CLIENT: &str = "net/http.(*Transport).roundTrip";

/// Names of types by the addresses that the tests give them.
pub(super) struct Types;

impl Symbolizer for Types {
    fn location(&self, _: u32, _: u64) -> Option<Location> {
        None
    }

    fn image_location(&self, _: u64) -> Option<Location> {
        None
    }

    fn type_name(&self, _: u32, address: u64) -> Option<(String, u8)> {
        let name = match address {
            1 => "*errors.errorString",
            2 => "*net.OpError",
            _ => return None,
        };
        Some((name.to_owned(), 22))
    }
}

pub(super) type Reads = Vec<(Field, String)>;

pub(super) fn specs(reads: &Reads) -> Vec<ValueSpec> {
    let spec = |(_, text): &(Field, String)| ValueSpec {
        name: text.as_str().into(),
        type_name: "".into(),
        kind: ValueKind::Pointer,
    };
    reads.iter().map(spec).collect()
}

pub(super) fn plan() -> Plan {
    let function = |sensor: &crate::Sensor| PlannedFunction {
        name: sensor.function.to_owned(),
        file: String::new(),
        line: 0,
        entry: Default::default(),
        size: 0,
        traced: true,
        witness: None,
        args: specs(&sensor.at_entry()),
        results: specs(&sensor.at_return()),
    };
    Plan { functions: SENSORS.iter().map(function).collect(), ..Plan::default() }
}

/// A story of calls on goroutines of process 1: every step takes a microsecond.
pub(super) struct Story {
    pub(super) builder: SpanBuilder,
    pub(super) now_ns: u64,
    pub(super) last: u64,
    pub(super) calls: Vec<Call>,
    pub(super) spans: Vec<Span>,
    /// Records were lost.
    pub(super) is_doubtful: bool,
}

pub(super) type Given<'a> = &'a [(Field, Value)];

pub(super) fn text(text: &str) -> Value {
    Value::String { bytes: text.as_bytes().to_vec(), len: text.len() as u64 }
}

pub(super) fn values(reads: &Reads, given: Given<'_>) -> Vec<Value> {
    let find = |wanted: Field| given.iter().find(|(field, _)| *field == wanted);
    let missing = || Value::Unavailable("not in this test".into());
    reads
        .iter()
        .map(|(field, _)| find(*field).map_or_else(missing, |(_, value)| value.clone()))
        .collect()
}

pub(super) fn sensor(function: &str) -> (u32, &'static crate::Sensor) {
    let at = SENSORS.iter().position(|sensor| sensor.function == function).unwrap();
    (at as u32, &SENSORS[at])
}

/// The header `traceparent`.
pub(super) fn header(trace: &str) -> Value {
    Value::List { items: vec![text(trace)], len: 1, cap: Some(1) }
}

/// No such header.
pub(super) fn none() -> Value {
    Value::Unavailable("nil pointer on the way".into())
}

impl Story {
    pub(super) fn new() -> Self {
        Self::with(SpanOptions { seed: 7, ..SpanOptions::default() })
    }

    pub(super) fn with(options: SpanOptions) -> Self {
        let mut builder = SpanBuilder::new(&plan(), options);
        builder.sees_hand_overs = true;
        Self {
            builder,
            now_ns: 0,
            last: 0,
            calls: Vec::new(),
            spans: Vec::new(),
            is_doubtful: false,
        }
    }

    pub(super) fn push(&mut self, event: &Event) {
        self.builder.push(event, &Types, &mut self.spans);
    }

    pub(super) fn enter(&mut self, goid: u64, function: &str, given: Given<'_>) -> &mut Self {
        let (index, sensor) = sensor(function);
        self.now_ns += 1000;
        self.last += 1;
        let call = Call {
            id: self.last,
            parent: None,
            depth: 0,
            pid: 1,
            tid: 1,
            goid,
            function: index,
            start_ns: self.now_ns,
            end_ns: self.now_ns,
            below_ns: 0,
            end: End::Open,
            end_exact: false,
            args: values(&sensor.at_entry(), given).into(),
            results: Vec::new(),
            caller: 0,
            exit_site: None,
        };
        self.calls.push(call.clone());
        self.push(&Event::Enter(call));
        self
    }

    /// Ends the goroutine's innermost call of that function.
    pub(super) fn leave(
        &mut self,
        goid: u64,
        function: &str,
        end: End,
        given: Given<'_>,
    ) -> &mut Self {
        let (index, sensor) = sensor(function);
        self.now_ns += 1000;
        let is_it = |call: &Call| call.goid == goid && call.function == index;
        let at = self.calls.iter().rposition(is_it).unwrap();
        let mut call = self.calls.remove(at);
        let is_exact = end == End::Return && !self.is_doubtful;
        (call.end, call.end_ns, call.end_exact) = (end, self.now_ns, is_exact);
        if end == End::Return {
            call.results = values(&sensor.at_return(), given);
        }
        self.push(&Event::Leave(call));
        self
    }

    pub(super) fn done(&mut self, goid: u64, function: &str, given: Given<'_>) -> &mut Self {
        self.leave(goid, function, End::Return, given)
    }

    pub(super) fn created(&mut self, creator: u64, goid: u64) -> &mut Self {
        self.builder.created(1, creator, goid);
        self
    }

    /// A goroutine hands something to another one.
    pub(super) fn handed(&mut self, from: u64, to: u64) -> &mut Self {
        self.builder.handed(1, Some(from), to, &|| false);
        self
    }

    /// A goroutine panics with a value of that type, in whose place that text is.
    pub(super) fn panic(&mut self, goid: u64, type_word: u64, said: &str) -> &mut Self {
        self.now_ns += 1000;
        let panic = timeline::Panic {
            pid: 1,
            goid,
            ts_ns: self.now_ns,
            type_word,
            data: 0xc0,
            head: Vec::new(),
            text: Some(text(said)),
        };
        self.push(&Event::Panicking(panic));
        self
    }

    /// A request comes in.
    pub(super) fn request(
        &mut self,
        goid: u64,
        response: u64,
        path: &str,
        lines: Value,
    ) -> &mut Self {
        self.request_by(HANDLE, goid, response, path, lines)
    }

    /// The same by the function of another server.
    pub(super) fn request_by(
        &mut self,
        function: &str,
        goid: u64,
        response: u64,
        path: &str,
        lines: Value,
    ) -> &mut Self {
        let given = [
            (Field::Response, Value::Pointer(response)),
            (Field::Method, text("GET")),
            (Field::Path, text(path)),
            (Field::Host, text("shop.test:8080")),
            (Field::Protocol, text("HTTP/1.1")),
            (Field::Length, Value::Int(0)),
            (Field::Peer, text("10.0.0.9:4242")),
            (Field::Tls, Value::Unavailable("nil pointer on the way".into())),
            (Field::Context, Value::Pointer(response + 0x1000)),
            (Field::TraceParent, lines),
        ];
        self.enter(goid, function, &given)
    }

    /// The handler returns, and its response goes out.
    pub(super) fn respond(&mut self, goid: u64, response: u64, status: i64) -> &mut Self {
        let at = (Field::Response, Value::Pointer(response));
        self.done(goid, HANDLE, &[])
            .enter(goid, FINISH, &[at.clone(), (Field::Written, Value::Int(12))])
            .enter(goid, HEADER, &[at, (Field::Status, Value::Int(status))])
            .done(goid, HEADER, &[])
            .done(goid, FINISH, &[])
    }

    pub(super) fn ask(&mut self, goid: u64, host: &str, lines: Value) -> &mut Self {
        let given = [
            (Field::Method, text("")),
            (Field::Scheme, text("http")),
            (Field::Host, text(host)),
            (Field::Path, text("/stock")),
            (Field::Length, Value::Int(0)),
            (Field::TraceParent, lines),
        ];
        self.enter(goid, CLIENT, &given)
    }

    pub(super) fn answer(&mut self, goid: u64, status: i64) -> &mut Self {
        let given = [(Field::Status, Value::Int(status)), (Field::Error, Value::NilInterface)];
        self.done(goid, CLIENT, &given)
    }

    pub(super) fn call(&mut self, goid: u64, host: &str) -> &mut Self {
        self.ask(goid, host, none()).answer(goid, 200)
    }

    /// The spans, ids by the order in which they are met.
    pub(super) fn told(&mut self) -> String {
        self.builder.finish(&mut self.spans);
        assert_eq!((self.builder.open, self.builder.responses.len()), (0, 0));
        assert!(self.builder.contexts.is_empty());
        assert!(self.builder.goroutines.is_empty() && self.builder.alive.is_empty());
        assert!(self.builder.trees.is_empty() && self.builder.panics.is_empty());
        let mut ids: Vec<u128> = Vec::new();
        let mut text = String::new();
        for span in &self.spans {
            let mut id = |id: u128| match ids.iter().position(|known| *known == id) {
                Some(at) => at,
                None => {
                    ids.push(id);
                    ids.len() - 1
                }
            };
            let Span { name, kind, context, goid, start_ns, end_ns, .. } = span;
            let (trace, own) = (id(context.trace), id(context.span.into()));
            let tree = id(span.tree.into());
            _ = write!(text, "{name} | {} t{trace} s{own} tree s{tree}", kind.name());
            if let (Some(parent), Some(by)) = (span.parent, span.parent_by) {
                _ = write!(text, " under s{} by {}", id(parent.into()), by.name());
            }
            for Link { context, by } in &span.links {
                let (trace, span) = (id(context.trace), id(context.span.into()));
                _ = write!(text, " beside t{trace} s{span} by {}", by.name());
            }
            let end = if span.is_finished { "" } else { " unfinished" };
            let times = (start_ns / 1000, end_ns / 1000);
            _ = write!(text, " | g{goid} {}-{} us{end}", times.0, times.1);
            _ = writeln!(text, " {} {} left", span.status.name(), span.open_in_tree);
            for event in &span.events {
                _ = writeln!(
                    text,
                    "  {} at {} us {:?}",
                    event.name,
                    event.ts_ns / 1000,
                    event.attributes
                );
            }
        }
        text
    }
}

/// Attributes of the one span of that kind.
pub(super) fn attributes(story: &mut Story) -> String {
    story.builder.finish(&mut story.spans);
    let [span] = &story.spans[..] else { panic!("{:?}", story.spans) };
    let mut text = String::new();
    for (name, value) in &span.attributes {
        _ = writeln!(text, "{name} = {value}");
    }
    for (name, reason) in &span.unavailable {
        _ = writeln!(text, "{name}: {reason}");
    }
    text
}
