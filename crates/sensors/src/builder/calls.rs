//! Which span a call belongs to.

use super::SpanBuilder;
use crate::calls::{CallTexts, Made};
use crate::goroutine::Key;
use timeline::{Event, Symbolizer};

impl SpanBuilder {
    /// Whether calls of a function are shown within spans: it is traced, and no sensor's.
    pub fn is_shown(&self, function: u32) -> bool {
        self.shown.get(function as usize) == Some(&true)
    }

    /// Calls that belong to no span; `None` when no calls are shown.
    pub fn calls_outside(&self) -> Option<u64> {
        self.calls.as_ref().map(|calls| calls.outside())
    }

    /// Takes the begin or the end of a call of such a function.
    pub fn push_call(
        &mut self,
        event: &Event,
        symbols: &dyn Symbolizer,
        texts: &mut dyn CallTexts,
    ) {
        let (Event::Enter(call) | Event::Leave(call)) = event else { return };
        self.last_ns = self.last_ns.max(call.end_ns);
        let span = self.span_of((call.pid, call.goid));
        let Some(calls) = &mut self.calls else { return };
        match event {
            Event::Enter(_) => calls.enter(span, call, symbols, texts),
            _ => calls.leave(call, symbols, texts),
        }
    }

    /// Tells more of a goroutine than [`SpanBuilder::created`]. Gives whether it may be shown.
    pub fn made(&mut self, made: Made) -> bool {
        let span = self.span_of((made.pid, made.origin.parent));
        let (Some(calls), Some(span)) = (&mut self.calls, span) else { return false };
        calls.made(span, made);
        true
    }

    /// The open span that a goroutine works for: its innermost one, one whose response is being ended too, else
    /// that in which it was made, unless others give it work.
    fn span_of(&self, key: Key) -> Option<u64> {
        if let Some(open) = self.goroutines.get(&key).and_then(|spans| spans.last()) {
            return Some(open.context.span);
        }
        self.sure_origin(key).map(|ancestry| ancestry.origin.context.span)
    }
}
