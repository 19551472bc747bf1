//! From calls to spans.

mod calls;
mod open;
mod origin;
mod rows;
mod rpc;
#[cfg(test)]
mod tests;

use crate::calls::Calls;
use crate::catalog::{Field, Role};
use crate::database;
use crate::evidence::{Decision, Evidence};
use crate::fields::{Values, Watched, watched};
use crate::goroutine::{Key, Origin, Origins, Used};
use crate::http;
use crate::ids::Ids;
use crate::span::{Span, SpanContext, SpanKind, Witness};
use crate::time::TimeSplit;
use crate::trace_context;
use open::{Open, Panicked};
use probe::Plan;
use probe::handover::HandOver;
use probe::value::Value;
use rows::OpenRows;
use std::collections::HashMap;
use std::sync::Arc;
use timeline::KeyHash;
use timeline::{Call, End, Event, Symbolizer};

/// Text of `http.ErrAbortHandler` (net/http/server.go): a handler that panics with it wants the
/// response cut off, and nothing logged.
const ABORT: &[u8] = b"net/http: abort Handler";

/// What `errors.New` gives, as that one is.
const PLAIN_ERROR: &str = "*errors.errorString";

/// Text of `sql.ErrTxDone` (database/sql/sql.go): nothing was asked of the database.
const OVER: &[u8] = b"sql: transaction has already been committed or rolled back";

/// How spans are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanOptions {
    /// What ids are made from: another one for each capture.
    pub seed: u64,
    /// Open spans at the most; calls that begin beyond are counted and give none.
    pub open: usize,
    /// Goroutines whose origin is remembered, the oldest making room.
    pub origins: usize,
    /// Whether statements of databases are shown, and not only what they begin with.
    pub statements: bool,
    /// Whether it is told by [`SpanBuilder::state`] what goroutines do.
    pub times: bool,
}

impl Default for SpanOptions {
    /// Seed 0, 65,536 open spans, 262,144 goroutines, no statements, no times.
    fn default() -> Self {
        Self { seed: 0, open: 1 << 16, origins: 1 << 18, statements: false, times: false }
    }
}

/// What is known of an open span by its id.
#[derive(Clone, Copy, Debug)]
struct Alive {
    tree: u64,
    sampled: Option<bool>,
}

/// Ids of spans that came from elsewhere, so that none is given out twice.
const USED: usize = 1 << 16;

/// Makes spans of calls. See the crate's documentation.
#[derive(Debug)]
pub struct SpanBuilder {
    watched: Vec<Option<Arc<Watched>>>,
    /// Whether the end of a server's response is watched.
    finishes: bool,
    /// Whether it is watched what goroutines hand to one another.
    sees_hand_overs: bool,
    options: SpanOptions,
    ids: Ids,
    used: Used,
    /// Open spans of each goroutine, the innermost last.
    goroutines: HashMap<Key, Vec<Open>, KeyHash>,
    open: usize,
    /// Goroutine of the open server span that answers with a response, by process and address.
    responses: HashMap<(u32, u64), u64, KeyHash>,
    /// Open server spans by process and address of their request's context.
    contexts: HashMap<(u32, u64), Origin, KeyHash>,
    /// Open spans by id, each with its tree; and how many of each tree there are.
    alive: HashMap<u64, Alive, KeyHash>,
    trees: HashMap<u64, usize, KeyHash>,
    origins: Origins,
    panics: HashMap<Key, Panicked, KeyHash>,
    /// Open streams of gRPC clients by process and address: whoever holds one goes on to other things.
    streams: HashMap<(u32, u64), Open, KeyHash>,
    /// Rows of databases that are being read.
    rows: OpenRows,
    split: Option<TimeSplit>,
    /// Which functions' calls are shown within spans; and these calls, where there are such functions.
    shown: Vec<bool>,
    calls: Option<Calls>,
    /// The last that is known of time.
    last_ns: u64,
    refused: u64,
}

impl SpanBuilder {
    /// A builder for calls of `plan`.
    pub fn new(plan: &Plan, options: SpanOptions) -> Self {
        let watched: Vec<_> = watched(plan).into_iter().map(|it| it.map(Arc::new)).collect();
        let rows = OpenRows::new(watched.iter().flatten().map(|it| &it.role));
        let finishes = watched.iter().flatten().any(|it| it.role == Role::ServerFinish);
        let shown = plan.functions.iter().zip(&watched).map(|(f, it)| f.traced && it.is_none());
        let shown: Vec<bool> = shown.collect();
        let has_calls = shown.contains(&true);
        Self {
            watched,
            finishes,
            sees_hand_overs: HandOver::are_watched(plan),
            options,
            ids: Ids::new(options.seed),
            used: Used::default(),
            goroutines: HashMap::default(),
            open: 0,
            responses: HashMap::default(),
            contexts: HashMap::default(),
            alive: HashMap::default(),
            trees: HashMap::default(),
            origins: Origins::default(),
            panics: HashMap::default(),
            streams: HashMap::default(),
            rows,
            split: options.times.then(TimeSplit::default),
            shown,
            calls: has_calls.then(Calls::default),
            last_ns: 0,
            refused: 0,
        }
    }

    /// Calls that gave no span, since too many were open.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Takes what a goroutine did.
    pub fn state(&mut self, event: &timeline::states::Event) {
        if let Some(split) = &mut self.split {
            split.push(event);
        }
    }

    /// Appends the spans that ended long enough before `now_ns` for all to be known of what their time went to.
    pub fn advance(&mut self, now_ns: u64, out: &mut Vec<Span>) {
        if let Some(split) = &mut self.split {
            out.extend(std::iter::from_fn(|| split.take(now_ns)));
        }
    }

    /// Takes one event of the timeline, and appends the spans that ended by it.
    pub fn push(&mut self, event: &Event, symbols: &dyn Symbolizer, out: &mut Vec<Span>) {
        if let Event::Enter(call) | Event::Leave(call) = event {
            self.last_ns = self.last_ns.max(call.end_ns);
        }
        match event {
            Event::Enter(call) => self.enter(call, symbols, out),
            Event::Leave(call) => self.leave(call, symbols, out),
            Event::ProcessExit { pid, .. } => self.end_process(*pid, out),
            Event::Panicking(panic) => self.panicking(panic, symbols),
            Event::Gap { .. } => self.rows.gap(),
            Event::Panic(_) => {}
        }
    }

    /// Reports the responses whose end was not seen any more. Every other span has ended with its
    /// call, by [`timeline::Timeline::finish`].
    pub fn finish(&mut self, out: &mut Vec<Span>) {
        let mut keys: Vec<Key> = self.goroutines.keys().copied().collect();
        keys.sort_unstable();
        for key in keys {
            self.close_answered(key, out);
        }
        self.give_up_streams(None, out);
        self.give_up_rows(None, out);
        self.advance(u64::MAX, out);
    }

    fn end_process(&mut self, pid: u32, out: &mut Vec<Span>) {
        let mut keys: Vec<Key> =
            self.goroutines.keys().copied().filter(|key| key.0 == pid).collect();
        keys.sort_unstable();
        for key in keys {
            self.close_answered(key, out);
        }
        self.give_up_streams(Some(pid), out);
        self.give_up_rows(Some(pid), out);
        self.origins.forget_process(pid);
        self.panics.retain(|key, _| key.0 != pid);
        if let Some(calls) = &mut self.calls {
            calls.forget_process(pid);
        }
    }

    fn enter(&mut self, call: &Call, symbols: &dyn Symbolizer, out: &mut Vec<Span>) {
        let Some(watched) = self.watched.get(call.function as usize).cloned().flatten() else {
            return;
        };
        let values = watched.at_entry(call);
        let key = (call.pid, call.goid);
        match watched.role {
            Role::ServerRequest | Role::ServerRun => {
                self.close_answered(key, out);
                self.begin_server(call, &values);
            }
            Role::ClientRequest => self.begin_client(call, &values),
            // Every transaction is rolled back once more when it is over.
            Role::Database(_) if values.int(Field::Over).is_ok_and(|over| over != 0) => {}
            Role::Database(operation) => {
                let (name, attributes) =
                    database::asked(operation, &values, self.options.statements);
                let open = Open::new(call, SpanKind::Client, name, attributes);
                let evidence = self.inside(key, &values);
                self.begin(open, evidence.of_client());
            }
            Role::ServerHeader => {
                if let Some(open) = self.answering(call.pid, values.address(Field::Response)) {
                    open.wrote(values.int(Field::Status));
                }
            }
            Role::ServerFinish => {
                if let Some(open) = self.answering(call.pid, values.address(Field::Response)) {
                    open.finishing = Some(call.id);
                    open.written(values.int(Field::Written));
                    // Where the header is not watched.
                    if let Ok(status) = values.int(Field::Status) {
                        open.wrote(Ok(if status == 0 { 200 } else { status }));
                    }
                }
            }
            Role::RpcServer => {
                self.close_answered(key, out);
                self.begin_rpc_server(call, &values);
            }
            Role::RpcStatus => self.rpc_status(call.pid, &values),
            Role::RpcClient => self.begin_rpc_client(call, &values),
            Role::RpcStream => self.begin_rpc_stream(call, &values),
            Role::RpcStreamEnd => self.end_rpc_stream(call, &values, symbols, out),
            Role::RpcStreamMade | Role::Route | Role::Hijack | Role::Row | Role::RowsEnd => {}
        }
    }

    fn leave(&mut self, call: &Call, symbols: &dyn Symbolizer, out: &mut Vec<Span>) {
        let Some(watched) = self.watched.get(call.function as usize).cloned().flatten() else {
            return;
        };
        let values = watched.at_return(call);
        let key = (call.pid, call.goid);
        match watched.role {
            Role::ServerRequest => self.answered(call, out),
            Role::ServerRun => self.ran(call, out),
            Role::ClientRequest | Role::Database(_) => {
                let Some(mut open) = self.take(key, call.id) else { return };
                // Where records were lost it may be the return of a later call.
                if call.end == End::Return && !call.end_exact {
                    return self.ended(open, call, out);
                }
                if values.bytes(Field::ErrorText).is_ok_and(|(text, _)| text == OVER) {
                    return self.none_after_all(&open);
                }
                let has_status = watched.role == Role::ClientRequest;
                open.response(call.end, &values, has_status, &mut |descriptor| {
                    symbols.type_name(call.pid, descriptor).map(|(name, _)| name)
                });
                self.begin_rows(call, &open, &values, out);
                self.ended(open, call, out);
            }
            Role::RpcServer => {
                if let Some(open) = self.take(key, call.id) {
                    self.ended(open, call, out);
                }
            }
            Role::RpcClient => self.end_rpc_client(call, &values, symbols, out),
            Role::RpcStream => self.rpc_stream_begun(call, &values, symbols, out),
            Role::Row => self.row(call, &watched),
            Role::RowsEnd => self.end_rows(call, &watched, symbols, out),
            Role::RpcStreamMade => self.rpc_stream_made(key, call.end, &values),
            Role::ServerFinish => {
                let spans = self.goroutines.get(&key).map_or(&[][..], |spans| spans);
                let id = spans.iter().rfind(|open| open.finishing == Some(call.id));
                let Some(open) = id.map(|open| open.call).and_then(|id| self.take(key, id)) else {
                    return;
                };
                // Without an answer it is within the handler's call.
                let is_certain = open.answered.is_none_or(|(_, is_certain)| is_certain);
                self.end(open, call.end_ns, is_certain && call.end_exact, out);
                self.settle(key);
            }
            Role::Route => {
                if let Ok(pattern) = values.text(Field::Pattern)
                    && !pattern.is_empty()
                    && let Some(open) = self.routed(key)
                {
                    open.route = Some(http::route(&pattern).to_owned());
                }
            }
            Role::Hijack => {
                let response = watched.at_entry(call).address(Field::Response);
                if call.end == End::Return
                    && values.dynamic_type(Field::Error) == Ok(None)
                    && let Some(open) = self.answering(call.pid, response)
                {
                    open.is_hijacked = true;
                    if open.is_preface() {
                        let (key, id) = ((open.pid, open.goid), open.call);
                        if let Some(open) = self.take(key, id) {
                            self.none_after_all(&open);
                        }
                    }
                }
            }
            Role::ServerHeader | Role::RpcStatus | Role::RpcStreamEnd => {}
        }
    }

    fn begin_server(&mut self, call: &Call, values: &Values<'_>) {
        let key = (call.pid, call.goid);
        let response = values.address(Field::Response);
        let around = self.goroutines.get(&key).and_then(|spans| spans.last());
        // One server hands the request to another one.
        if response.is_some() && around.is_some_and(|open| open.response_at == response) {
            return;
        }
        let header = values.traceparent();
        let incoming = header.as_ref().ok().copied().flatten().and_then(trace_context::parse);
        let named = incoming.map(|parent| parent.context);
        let evidence =
            Evidence { incoming: named, frame: self.innermost(key), ..Evidence::default() };
        let decision = evidence.of_server();
        let (name, attributes) = http::server_request(values);
        let mut open = Open::new(call, SpanKind::Server, name, attributes);
        if let Err(reason) = header {
            open.attributes.lack("traceparent", reason);
        }
        open.response_at = response;
        open.context_at = values.address(Field::Context);
        open.sampled = incoming.map(|parent| parent.is_sampled);
        self.begin(open, decision);
    }

    fn begin_client(&mut self, call: &Call, values: &Values<'_>) {
        let key = (call.pid, call.goid);
        // One library's client hands the request to another one's.
        let around = self.goroutines.get(&key).and_then(|spans| spans.last());
        if around.is_some_and(|open| self.is_client_of_other(open, call.function)) {
            return;
        }
        let header = values.traceparent();
        let outgoing = header.as_ref().ok().copied().flatten().and_then(trace_context::parse);
        let named = outgoing.map(|own| own.context);
        let evidence = Evidence { outgoing: named, ..self.inside(key, values) };
        let (name, attributes) = http::client_request(values);
        let mut open = Open::new(call, SpanKind::Client, name, attributes);
        if let Err(reason) = header {
            open.attributes.lack("traceparent", reason);
        }
        open.sampled = outgoing.map(|own| own.is_sampled);
        self.begin(open, evidence.of_client());
    }

    fn begin(&mut self, mut open: Open, decision: Decision) {
        if self.open >= self.options.open {
            self.refused += 1;
            return;
        }
        let Decision { trace, own, parent, by, links, tree } = decision;
        // Programs hand a header on as it is, and send one twice: an id is given to one span.
        if let (Some(parent), Some(Witness::TraceParent)) = (parent, by) {
            self.used.insert(parent, USED);
        }
        let own = own.filter(|id| !self.used.contains(*id) && !self.alive.contains_key(id));
        // Our own come up once.
        if let Some(own) = own {
            self.used.insert(own, USED);
        }
        let span = own.unwrap_or_else(|| self.ids.span());
        let trace = trace.unwrap_or_else(|| self.ids.trace());
        open.context = SpanContext { trace, span };
        (open.parent, open.parent_by, open.links) = (parent, by, links);
        // The parent that a header names may be one of ours.
        let known = parent.and_then(|parent| self.alive.get(&parent).copied());
        open.tree = tree.or(known.map(|known| known.tree)).unwrap_or(span);
        // A trace is sampled as a whole: what decided for the parent decides for what is below.
        if by != Some(Witness::TraceParent)
            && let Some(known) = known
        {
            open.sampled = known.sampled;
        }
        if let Some(split) = &mut self.split {
            split.begin((open.pid, open.goid), span, open.start_ns());
        }
        if let Some(calls) = &mut self.calls {
            calls.begin_span(span, open.parent, (open.pid, open.goid));
        }
        self.alive.insert(span, Alive { tree: open.tree, sampled: open.sampled });
        *self.trees.entry(open.tree).or_default() += 1;
        self.open += 1;
        if let Some(response) = open.response_at {
            self.responses.insert((open.pid, response), open.goid);
        }
        if let Some(context) = open.context_at {
            let origin = Origin { context: open.context, tree: open.tree };
            self.contexts.insert((open.pid, context), origin);
        }
        self.goroutines.entry((open.pid, open.goid)).or_default().push(open);
    }

    /// The innermost span that is open on a goroutine.
    fn innermost(&self, key: Key) -> Option<Origin> {
        let open = self.goroutines.get(&key)?.iter().rfind(|open| open.answered.is_none())?;
        Some(Origin { context: open.context, tree: open.tree })
    }

    /// The open server span that answers with a response.
    fn answering(&mut self, pid: u32, response: Option<u64>) -> Option<&mut Open> {
        let response = response?;
        let goid = self.responses.get(&(pid, response))?;
        let spans = self.goroutines.get_mut(&(pid, *goid))?;
        spans.iter_mut().rfind(|open| open.response_at == Some(response))
    }

    /// The server span whose request is routed on a goroutine: its own, or the one that it was made
    /// in, as by a TimeoutHandler.
    fn routed(&mut self, key: Key) -> Option<&mut Open> {
        let is_server = |open: &Open| open.kind == SpanKind::Server && open.answered.is_none();
        let has_own = self.goroutines.get(&key).is_some_and(|spans| spans.iter().any(is_server));
        if has_own {
            return self.goroutines.get_mut(&key)?.iter_mut().rfind(|open| is_server(open));
        }
        let origin = self.origins.get(key)?.origin.context.span;
        let mut spans = self.goroutines.values_mut().flatten();
        spans.find(|open| open.context.span == origin && is_server(open))
    }

    fn panicking(&mut self, panic: &timeline::Panic, symbols: &dyn Symbolizer) {
        let key = (panic.pid, panic.goid);
        if self.innermost(key).is_none() {
            return;
        }
        let is_abort =
            matches!(&panic.text, Some(Value::String { bytes, .. }) if **bytes == *ABORT);
        let name = match symbols.type_name(panic.pid, panic.type_word) {
            Some((name, _)) if is_abort && name == PLAIN_ERROR => {
                "net/http.ErrAbortHandler".to_owned()
            }
            Some((name, _)) => name,
            None => "panic".to_owned(),
        };
        self.panics.insert(key, Panicked { name, ts_ns: panic.ts_ns });
    }

    /// Without an open span nobody asks for a goroutine's panic any more.
    fn settle(&mut self, key: Key) {
        if self.innermost(key).is_none() {
            self.panics.remove(&key);
        }
    }

    /// Takes the open span of a call off its goroutine.
    fn take(&mut self, key: Key, call: u64) -> Option<Open> {
        let spans = self.goroutines.get_mut(&key)?;
        let at = spans.iter().rposition(|open| open.call == call)?;
        let open = spans.remove(at);
        if spans.is_empty() {
            self.goroutines.remove(&key);
        }
        Some(open)
    }

    /// A handler is done. Unless it failed or took the connection, the response is still to be
    /// brought to its end.
    fn answered(&mut self, call: &Call, out: &mut Vec<Span>) {
        let key = (call.pid, call.goid);
        let Some(mut open) = self.take(key, call.id) else { return };
        let returned = matches!(call.end, End::Return | End::Tail);
        if returned && self.finishes && open.response_at.is_some() && !open.is_hijacked {
            open.answered = Some((call.end_ns, call.end_exact));
            self.goroutines.entry(key).or_default().push(open);
            self.settle(key);
            return;
        }
        self.ended(open, call, out);
    }

    /// A handler is done and so is the response, which is told before; what is still open has failed.
    fn ran(&mut self, call: &Call, out: &mut Vec<Span>) {
        let key = (call.pid, call.goid);
        let Some(mut open) = self.take(key, call.id) else { return };
        if call.end == End::Return
            && let Some(panicked) = self.panics.get(&key).cloned()
        {
            open.panicked(panicked);
        }
        self.ended(open, call, out);
    }

    /// Whether a span is a request that a client of another function sends.
    fn is_client_of_other(&self, open: &Open, function: u32) -> bool {
        let watched = self.watched.get(open.function as usize).and_then(Option::as_ref);
        let is_client = watched.is_some_and(|watched| watched.role == Role::ClientRequest);
        is_client && open.function != function
    }

    /// Ends the span of a call.
    fn ended(&mut self, mut open: Open, call: &Call, out: &mut Vec<Span>) {
        let key = (call.pid, call.goid);
        match call.end {
            End::Panic => {
                let unseen = Panicked { name: "panic".to_owned(), ts_ns: call.end_ns };
                let panicked = self.panics.get(&key).cloned().unwrap_or(unseen);
                open.panicked(panicked);
            }
            End::Goexit => open.failed("runtime.Goexit"),
            _ => {}
        }
        self.settle(key);
        let is_finished = match call.end {
            End::Return | End::Tail => call.end_exact,
            End::Panic | End::Goexit | End::Switch => true,
            End::Open | End::Lost | End::Exec => false,
        };
        self.end(open, call.end_ns, is_finished, out);
    }

    /// Ends those spans of a goroutine whose handlers are done: it goes on to something else.
    fn close_answered(&mut self, key: Key, out: &mut Vec<Span>) {
        let Some(spans) = self.goroutines.get_mut(&key) else { return };
        let done: Vec<Open> = spans.extract_if(.., |open| open.answered.is_some()).collect();
        if spans.is_empty() {
            self.goroutines.remove(&key);
        }
        for mut open in done {
            let (end_ns, is_exact) = open.answered.unwrap_or_default();
            if !open.attributes.known.iter().any(|(name, _)| *name == http::STATUS) {
                let reason = "the end of the response was not seen".to_owned();
                open.attributes.lack(http::STATUS, reason);
            }
            self.end(open, end_ns, is_exact, out);
        }
    }

    fn end(&mut self, open: Open, end_ns: u64, is_finished: bool, out: &mut Vec<Span>) {
        let left = self.forget(&open);
        let is_there = !open.is_stream;
        let calls = self.calls.as_mut().map(|calls| calls.end_span(open.context.span, end_ns));
        let mut span = open.into_span(end_ns, is_finished, left);
        span.calls = calls.map(Box::new);
        match &mut self.split {
            Some(split) => split.end(span, is_there),
            None => out.push(span),
        }
    }

    /// What seemed to be a span is none.
    fn none_after_all(&mut self, open: &Open) {
        if let Some(split) = &mut self.split {
            split.forget((open.pid, open.goid), open.context.span);
        }
        if let Some(calls) = &mut self.calls {
            calls.forget_span(open.context.span);
        }
        self.forget(open);
    }

    /// Takes an open span out of all tables. Gives how many of its tree are still open.
    fn forget(&mut self, open: &Open) -> usize {
        self.open = self.open.saturating_sub(1);
        self.alive.remove(&open.context.span);
        if let Some(response) = open.response_at {
            self.responses.remove(&(open.pid, response));
        }
        if let Some(context) = open.context_at {
            self.contexts.remove(&(open.pid, context));
        }
        let mut left = 0;
        if let Some(count) = self.trees.get_mut(&open.tree) {
            *count = count.saturating_sub(1);
            left = *count;
        }
        if left == 0 {
            self.trees.remove(&open.tree);
        }
        left
    }
}
