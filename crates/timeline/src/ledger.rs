//! Ends calls and keeps the books: every call that opens is closed here once.

use crate::counters::Counters;
use crate::event::{Call, End, Event};
use crate::stack::Frame;
use probe::value::Value;

/// Counters and the memory held by open calls.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub counters: Counters,
    /// Bytes held by open frames.
    pub bytes: usize,
}

/// What is known of an exit that was seen.
#[derive(Debug)]
pub(crate) struct Exit {
    pub site: u32,
    pub results: Vec<Value>,
    /// No record was lost during the call: the exit is certainly its own.
    pub certain: bool,
}

impl Ledger {
    pub fn opened(&mut self, frame: &Frame) {
        self.counters.open += 1;
        self.bytes += frame.bytes;
    }

    /// Ends a call whose exit was not seen; `ts_ns` is when that became clear.
    pub fn infer(&mut self, frame: Frame, end: End, ts_ns: u64, out: &mut Vec<Event>) {
        self.end(frame, end, ts_ns, None, out);
    }

    /// Ends a call at its exit.
    pub fn exit(&mut self, frame: Frame, end: End, ts_ns: u64, exit: Exit, out: &mut Vec<Event>) {
        self.end(frame, end, ts_ns, Some(exit), out);
    }

    fn end(
        &mut self,
        frame: Frame,
        end: End,
        ts_ns: u64,
        exit: Option<Exit>,
        out: &mut Vec<Event>,
    ) {
        self.bytes = self.bytes.saturating_sub(frame.bytes);
        self.counters.open = self.counters.open.saturating_sub(1);
        self.counters.calls += 1;
        match end {
            End::Lost => self.counters.lost_ends += 1,
            End::Open => self.counters.open_ends += 1,
            _ => {}
        }
        let mut call = frame.call;
        call.end_ns = ts_ns.max(call.start_ns);
        call.end = end;
        call.end_exact = exit.as_ref().is_some_and(|exit| exit.certain);
        if let Some(exit) = exit {
            call.exit_site = Some(exit.site);
            call.results = exit.results;
        }
        out.push(Event::Leave(call));
    }
}

/// What an open call holds in memory, bytes.
pub(crate) fn footprint(call: &Call) -> usize {
    let values: usize = call
        .args
        .iter()
        .map(|value| match value {
            Value::String { bytes, .. } => bytes.len(),
            Value::Unavailable(reason) => reason.len(),
            _ => 0,
        })
        .sum();
    size_of::<Frame>() + call.args.len() * size_of::<Value>() + values
}
