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

    /// Ends a call whose exit was not seen; `ts_ns` is when that became clear. `above` holds the
    /// calls that it may have been made in.
    ///
    /// Gives what is to be added to the time below another call, which is not among those.
    pub fn infer(
        &mut self,
        frame: Frame,
        end: End,
        ts_ns: u64,
        above: &mut [Frame],
        out: &mut Vec<Event>,
    ) -> Option<Below> {
        self.end(frame, end, ts_ns, None, above, out)
    }

    /// Ends a call, at its exit when that was seen; otherwise as [`Ledger::infer`].
    pub fn end(
        &mut self,
        frame: Frame,
        end: End,
        ts_ns: u64,
        exit: Option<Exit>,
        above: &mut [Frame],
        out: &mut Vec<Event>,
    ) -> Option<Below> {
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
        // When a lost call ended is not known, nor for how long.
        let below = call.parent.filter(|_| end != End::Lost);
        let below = below.map(|parent| Below { parent, ns: call.end_ns - call.start_ns });
        out.push(Event::Leave(call));
        below.filter(|below| !below.add_to(above))
    }
}

/// Time that was spent in a call made by `parent`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Below {
    parent: u64,
    ns: u64,
}

impl Below {
    /// Adds it if the parent is among these calls of a stack; tells whether it was.
    pub fn add_to(self, frames: &mut [Frame]) -> bool {
        let is_last = frames.last().is_some_and(|frame| frame.call.id == self.parent);
        // Ids grow with depth.
        let at = match is_last {
            true => frames.len() - 1,
            false => match frames.binary_search_by_key(&self.parent, |frame| frame.call.id) {
                Ok(at) => at,
                Err(_) => return false,
            },
        };
        let call = &mut frames[at].call;
        call.below_ns = call.below_ns.saturating_add(self.ns);
        true
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
