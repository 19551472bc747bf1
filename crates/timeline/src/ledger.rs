//! Ends calls and keeps the books: every call that opens is closed here once.

use crate::counters::Counters;
use crate::event::End;
use crate::out::{Ended, Exit, Out};
use crate::stack::Frame;

/// Counters and the memory held by open calls.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub counters: Counters,
    /// Bytes held by open frames.
    pub bytes: usize,
}

impl Ledger {
    pub fn opened(&mut self, frame: &Frame) {
        self.counters.open += 1;
        self.bytes += frame.bytes();
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
        out: &mut impl Out,
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
        out: &mut impl Out,
    ) -> Option<Below> {
        self.bytes = self.bytes.saturating_sub(frame.bytes());
        self.counters.open = self.counters.open.saturating_sub(1);
        self.counters.calls += 1;
        match end {
            End::Lost => self.counters.lost_ends += 1,
            End::Open => self.counters.open_ends += 1,
            _ => {}
        }
        let ns = ts_ns.max(frame.start_ns);
        let below = Below { parent: frame.parent, ns: ns - frame.start_ns };
        out.leave(frame, Ended { end, ns, exit });
        // When a lost call ended is not known, nor for how long.
        let counts = below.parent != 0 && end != End::Lost;
        (counts && !below.add_to(above)).then_some(below)
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
        let is_last = frames.last().is_some_and(|frame| frame.id == self.parent);
        // Ids grow with depth.
        let at = match is_last {
            true => frames.len() - 1,
            false => match frames.binary_search_by_key(&self.parent, |frame| frame.id) {
                Ok(at) => at,
                Err(_) => return false,
            },
        };
        let frame = &mut frames[at];
        frame.below_ns = frame.below_ns.saturating_add(self.ns);
        true
    }
}
