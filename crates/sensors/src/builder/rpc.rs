//! Calls of gRPC.

use super::SpanBuilder;
use super::open::Open;
use crate::catalog::Field;
use crate::evidence::{Decision, Evidence};
use crate::fields::Values;
use crate::goroutine::{Key, Origin};
use crate::rpc;
use crate::span::{Span, SpanKind};
use crate::trace_context::TraceParent;
use timeline::{Call, End, Symbolizer};

impl SpanBuilder {
    pub(super) fn begin_rpc_server(&mut self, call: &Call, values: &Values<'_>) {
        let (name, attributes) = rpc::call(values);
        let mut open = Open::new(call, SpanKind::Server, name, attributes);
        let incoming = named(&mut open, values);
        open.response_at = values.address(Field::Response);
        open.sampled = incoming.map(|parent| parent.is_sampled);
        let key = (call.pid, call.goid);
        // A server of net/http hands a request on (`(*Server).ServeHTTP`), which is handled on a goroutine of its own;
        // else who reads the connection makes these, and is in no span.
        let maker = self.sure_origin(key).filter(|ancestry| ancestry.is_direct);
        let evidence = Evidence {
            incoming: incoming.map(|parent| parent.context),
            frame: self.innermost(key),
            maker: maker.map(|ancestry| ancestry.origin),
            ..Evidence::default()
        };
        self.begin(open, evidence.of_server());
    }

    pub(super) fn rpc_status(&mut self, pid: u32, values: &Values<'_>) {
        let Some(open) = self.answering(pid, values.address(Field::Response)) else { return };
        // A status without a message inside is OK (`status.go`, `Code`).
        let code = match values.is_there(Field::Status) {
            Ok(true) => values.int(Field::Status),
            Ok(false) => Ok(0),
            Err(reason) => Err(reason),
        };
        match code {
            Ok(code) => open.rpc_code(code),
            Err(reason) => open.attributes.lack(rpc::STATUS, reason),
        }
    }

    pub(super) fn begin_rpc_client(&mut self, call: &Call, values: &Values<'_>) {
        let (open, decision) = self.rpc_client(call, values);
        self.begin(open, decision);
    }

    pub(super) fn end_rpc_client(
        &mut self,
        call: &Call,
        values: &Values<'_>,
        symbols: &dyn Symbolizer,
        out: &mut Vec<Span>,
    ) {
        let Some(mut open) = self.take((call.pid, call.goid), call.id) else { return };
        // Where records were lost it may be the return of a later call.
        if call.end == End::Return && call.end_exact {
            open.rpc_ended(values, &mut type_names(symbols, call.pid));
        }
        self.ended(open, call, out);
    }

    /// Begins a stream, unless it is that of a unary call.
    pub(super) fn begin_rpc_stream(&mut self, call: &Call, values: &Values<'_>) {
        let spans = self.goroutines.get(&(call.pid, call.goid));
        let around = spans.and_then(|spans| spans.last());
        if around.is_some_and(|open| open.is_call) {
            return;
        }
        let (mut open, decision) = self.rpc_client(call, values);
        (open.is_stream, open.is_call) = (true, false);
        self.begin(open, decision);
    }

    pub(super) fn rpc_stream_made(&mut self, key: Key, end: End, values: &Values<'_>) {
        let Some(spans) = self.goroutines.get_mut(&key) else { return };
        if let Some(open) = spans.last_mut().filter(|open| open.is_stream && end == End::Return) {
            open.stream_at = values.address(Field::Stream);
        }
    }

    /// A stream is begun: from here on it is nobody's frame. One that failed is over.
    pub(super) fn rpc_stream_begun(
        &mut self,
        call: &Call,
        values: &Values<'_>,
        symbols: &dyn Symbolizer,
        out: &mut Vec<Span>,
    ) {
        let Some(mut open) = self.take((call.pid, call.goid), call.id) else { return };
        let is_begun = call.end == End::Return && values.dynamic_type(Field::Error) == Ok(None);
        match open.stream_at {
            Some(address) if is_begun => {
                if let Some(lost) = self.streams.insert((call.pid, address), open) {
                    self.end(lost, call.end_ns, false, out);
                }
            }
            _ => {
                if call.end == End::Return && call.end_exact {
                    open.rpc_ended(values, &mut type_names(symbols, call.pid));
                }
                self.ended(open, call, out);
            }
        }
    }

    pub(super) fn end_rpc_stream(
        &mut self,
        call: &Call,
        values: &Values<'_>,
        symbols: &dyn Symbolizer,
        out: &mut Vec<Span>,
    ) {
        let Some(address) = values.address(Field::Stream) else { return };
        // It is ended more than once: the first time counts.
        let Some(mut open) = self.streams.remove(&(call.pid, address)) else { return };
        open.rpc_ended(values, &mut type_names(symbols, call.pid));
        self.end(open, call.start_ns, true, out);
    }

    /// Reports the streams whose end was not seen any more, of one process or of all.
    pub(super) fn give_up_streams(&mut self, pid: Option<u32>, out: &mut Vec<Span>) {
        let is_wanted = |key: &(u32, u64)| pid.is_none_or(|pid| key.0 == pid);
        let mut keys: Vec<(u32, u64)> = self.streams.keys().copied().filter(is_wanted).collect();
        keys.sort_unstable();
        for key in keys {
            if let Some(open) = self.streams.remove(&key) {
                let end_ns = self.last_ns.max(open.start_ns());
                self.end(open, end_ns, false, out);
            }
        }
    }

    /// The open server span whose context one is, or comes from.
    fn origin_of_response(&self, pid: u32, response: u64) -> Option<Origin> {
        let goid = self.responses.get(&(pid, response))?;
        let spans = self.goroutines.get(&(pid, *goid))?;
        let open = spans.iter().rfind(|open| open.response_at == Some(response))?;
        Some(Origin { context: open.context, tree: open.tree })
    }

    fn rpc_client(&self, call: &Call, values: &Values<'_>) -> (Open, Decision) {
        let (name, attributes) = rpc::call(values);
        let mut open = Open::new(call, SpanKind::Client, name, attributes);
        open.is_call = true;
        let outgoing = named(&mut open, values);
        open.sampled = outgoing.map(|own| own.is_sampled);
        let mut inside = self.inside((call.pid, call.goid), values);
        let mut handlers = values.addresses(Field::OfResponse);
        let handler = handlers.find_map(|address| self.origin_of_response(call.pid, address));
        inside.context = inside.context.or(handler);
        let evidence = Evidence { outgoing: outgoing.map(|own| own.context), ..inside };
        (open, evidence.of_client())
    }
}

/// The trace that the call's metadata names; when it could not be read, that is missing in the span.
fn named(open: &mut Open, values: &Values<'_>) -> Option<TraceParent> {
    rpc::traceparent(values).unwrap_or_else(|reason| {
        open.attributes.lack("traceparent", reason);
        None
    })
}

fn type_names(symbols: &dyn Symbolizer, pid: u32) -> impl FnMut(u64) -> Option<String> {
    move |descriptor| symbols.type_name(pid, descriptor).map(|(name, _)| name)
}
