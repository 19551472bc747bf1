//! Calls of functions within spans: who asked for them is told what a request did.

use crate::goroutine::Key;
use std::collections::HashMap;
use timeline::KeyHash;
use timeline::states::Origin;
use timeline::{Call, End, Symbolizer};

/// Calls of one span at the most; later ones are counted.
pub const CALLS_OF_SPAN: usize = 1000;

/// Calls of all open spans at the most.
const CALLS_HELD: usize = 1 << 18;

/// Goroutines remembered that one span made, at the most.
const GOROUTINES_OF_SPAN: usize = 1000;

/// What a call says at its begin or at its end, in the form that it is written in. It is made then: later the
/// process may be gone that could name things.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallText {
    /// Arguments or results.
    pub values: String,
    /// Where it was called from, or where it returned.
    pub place: String,
}

/// Makes the texts of calls and goroutines.
pub trait CallTexts {
    /// What is known at the begin of a call.
    fn at_entry(&mut self, call: &Call, symbols: &dyn Symbolizer) -> CallText;
    /// What is known at its end.
    fn at_return(&mut self, call: &Call, symbols: &dyn Symbolizer) -> CallText;
    /// The function of a goroutine, and where the goroutine was made.
    fn of_goroutine(&mut self, pid: u32, origin: &Origin, symbols: &dyn Symbolizer) -> String;
}

/// A call that was made within a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanCall {
    /// The timeline's id.
    pub id: u64,
    /// The innermost call around it on its goroutine that was asked for too; it may be of another span.
    pub parent: Option<u64>,
    /// How many such there are around it.
    pub depth: u32,
    /// Thread at the entry.
    pub tid: u32,
    /// Goroutine.
    pub goid: u64,
    /// Index into `Plan::functions`.
    pub function: u32,
    /// Begin, nanoseconds on the capture's clock.
    pub start_ns: u64,
    /// End, likewise; that of the span for a call that went on.
    pub end_ns: u64,
    /// How it ended; `Open` when it went on as the span ended.
    pub end: End,
    /// See [`Call::end_exact`].
    pub end_exact: bool,
    /// What was known at the begin.
    pub entry: CallText,
    /// What was known at the end.
    pub exit: CallText,
}

/// A goroutine that was made within a span and made calls there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanGoroutine {
    /// Which.
    pub goid: u64,
    /// Who made it.
    pub parent_goid: u64,
    /// The call of the span that it was made in.
    pub call: Option<u64>,
    /// When, nanoseconds on the capture's clock.
    pub made_ns: u64,
    /// Its function, and where it was made.
    pub text: String,
}

/// What was called within a span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanCalls {
    /// In the order of their begin.
    pub calls: Vec<SpanCall>,
    /// How many more there were.
    pub cut: u64,
    /// In the order of their creation.
    pub goroutines: Vec<SpanGoroutine>,
    /// The call of the parent that the span itself began in.
    pub within: Option<u64>,
}

/// What is known of a goroutine's creation.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    /// Process.
    pub pid: u32,
    /// The new goroutine.
    pub goid: u64,
    /// When, nanoseconds on the capture's clock.
    pub ts_ns: u64,
    /// Where it comes from.
    pub origin: Origin,
}

#[derive(Debug, Default)]
struct OfSpan {
    shown: SpanCalls,
    made: Vec<(Made, Option<u64>)>,
}

impl OfSpan {
    fn position(&self, call: u64) -> Option<usize> {
        self.shown.calls.binary_search_by_key(&call, |call| call.id).ok()
    }

    /// Names a goroutine that makes its first call here.
    fn name(&mut self, key: Key, symbols: &dyn Symbolizer, texts: &mut dyn CallTexts) {
        let is_known = |goid| self.shown.goroutines.iter().any(|known| known.goid == goid);
        let found = self.made.iter().position(|(made, _)| (made.pid, made.goid) == key);
        let Some(at) = found.filter(|_| !is_known(key.1)) else { return };
        let (made, call) = self.made.remove(at);
        let behind = |known: &SpanGoroutine| (known.made_ns, known.goid) < (made.ts_ns, made.goid);
        let place = self.shown.goroutines.partition_point(behind);
        let goroutine = SpanGoroutine {
            goid: made.goid,
            parent_goid: made.origin.parent,
            call,
            made_ns: made.ts_ns,
            text: texts.of_goroutine(made.pid, &made.origin, symbols),
        };
        self.shown.goroutines.insert(place, goroutine);
    }
}

/// The calls of the open spans.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    spans: HashMap<u64, OfSpan, KeyHash>,
    /// Open calls by id, each with its span.
    open: HashMap<u64, u64, KeyHash>,
    /// Those of each goroutine, the innermost last.
    stacks: HashMap<Key, Vec<u64>, KeyHash>,
    /// Calls in all open spans.
    held: usize,
    outside: u64,
}

impl Calls {
    /// Calls that belong to no span.
    pub(crate) fn outside(&self) -> u64 {
        self.outside
    }

    /// A span began on a goroutine, below another one or below none.
    pub(crate) fn begin_span(&mut self, span: u64, parent: Option<u64>, key: Key) {
        let innermost = self.stacks.get(&key).and_then(|stack| stack.last()).copied();
        let within = innermost.filter(|call| {
            let of = self.open.get(call).copied();
            of.is_some() && of == parent
        });
        let shown = SpanCalls { within, ..SpanCalls::default() };
        self.spans.insert(span, OfSpan { shown, ..OfSpan::default() });
    }

    /// A goroutine was made within a span.
    pub(crate) fn made(&mut self, span: u64, made: Made) {
        let stack = self.stacks.get(&(made.pid, made.origin.parent));
        let innermost = stack.and_then(|stack| stack.last()).copied();
        let call = innermost.filter(|call| self.open.get(call) == Some(&span));
        if let Some(of) = self.spans.get_mut(&span)
            && of.made.len() < GOROUTINES_OF_SPAN
            // A new one has none: so nothing stands within itself, whatever records say.
            && !of.shown.calls.iter().any(|call| call.goid == made.goid)
        {
            of.made.push((made, call));
        }
    }

    /// A call began, within a span or within none.
    pub(crate) fn enter(
        &mut self,
        span: Option<u64>,
        call: &Call,
        symbols: &dyn Symbolizer,
        texts: &mut dyn CallTexts,
    ) {
        let Some((span, of)) = span.and_then(|span| Some((span, self.spans.get_mut(&span)?)))
        else {
            self.outside += 1;
            return;
        };
        // Once one is missing, those within it would have the wrong place.
        let is_full = of.shown.calls.len() >= CALLS_OF_SPAN || self.held >= CALLS_HELD;
        if of.shown.cut > 0 || is_full {
            of.shown.cut += 1;
            return;
        }
        let key = (call.pid, call.goid);
        of.name(key, symbols, texts);
        let stack = self.stacks.entry(key).or_default();
        of.shown.calls.push(SpanCall {
            id: call.id,
            parent: stack.last().copied(),
            depth: stack.len() as u32,
            tid: call.tid,
            goid: call.goid,
            function: call.function,
            start_ns: call.start_ns,
            end_ns: call.start_ns,
            end: End::Open,
            end_exact: false,
            entry: texts.at_entry(call, symbols),
            exit: CallText::default(),
        });
        stack.push(call.id);
        self.open.insert(call.id, span);
        self.held += 1;
    }

    /// A call ended.
    pub(crate) fn leave(
        &mut self,
        call: &Call,
        symbols: &dyn Symbolizer,
        texts: &mut dyn CallTexts,
    ) {
        let key = (call.pid, call.goid);
        if let Some(stack) = self.stacks.get_mut(&key) {
            if let Some(at) = stack.iter().rposition(|open| *open == call.id) {
                stack.remove(at);
            }
            if stack.is_empty() {
                self.stacks.remove(&key);
            }
        }
        let Some(span) = self.open.remove(&call.id) else { return };
        let Some(of) = self.spans.get_mut(&span) else { return };
        if let Some(at) = of.position(call.id) {
            let shown = &mut of.shown.calls[at];
            (shown.end_ns, shown.end, shown.end_exact) = (call.end_ns, call.end, call.end_exact);
            shown.exit = texts.at_return(call, symbols);
        }
    }

    /// A span ended. Calls that go on are open there.
    pub(crate) fn end_span(&mut self, span: u64, end_ns: u64) -> SpanCalls {
        let Some(OfSpan { mut shown, .. }) = self.spans.remove(&span) else {
            return SpanCalls::default();
        };
        self.held = self.held.saturating_sub(shown.calls.len());
        for call in shown.calls.iter_mut().filter(|call| call.end == End::Open) {
            self.open.remove(&call.id);
            call.end_ns = end_ns.max(call.start_ns);
        }
        shown
    }

    /// A span was none: its calls belong to no span.
    pub(crate) fn forget_span(&mut self, span: u64) {
        let SpanCalls { calls, cut, .. } = self.end_span(span, 0);
        self.outside += calls.len() as u64 + cut;
    }

    /// A process is gone.
    pub(crate) fn forget_process(&mut self, pid: u32) {
        self.stacks.retain(|key, _| key.0 != pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use timeline::Location;

    struct Nobody;

    impl Symbolizer for Nobody {
        fn location(&self, _: u32, _: u64) -> Option<Location> {
            None
        }

        fn image_location(&self, _: u64) -> Option<Location> {
            None
        }

        fn type_name(&self, _: u32, _: u64) -> Option<(String, u8)> {
            None
        }
    }

    struct Numbers;

    impl CallTexts for Numbers {
        fn at_entry(&mut self, call: &Call, _: &dyn Symbolizer) -> CallText {
            CallText { values: format!("in {}", call.id), place: String::new() }
        }

        fn at_return(&mut self, call: &Call, _: &dyn Symbolizer) -> CallText {
            CallText { values: format!("out {}", call.id), place: String::new() }
        }

        fn of_goroutine(&mut self, _: u32, origin: &Origin, _: &dyn Symbolizer) -> String {
            format!("go {}", origin.startpc)
        }
    }

    fn call(id: u64, goid: u64, end: End) -> Call {
        Call {
            id,
            parent: None,
            depth: 0,
            pid: 1,
            tid: 1,
            goid,
            function: 0,
            start_ns: id,
            end_ns: if end == End::Open { id } else { id + 100 },
            below_ns: 0,
            end,
            end_exact: end != End::Open,
            args: timeline::Args::default(),
            results: Vec::new(),
            caller: 0,
            exit_site: None,
        }
    }

    #[derive(Default)]
    struct Story(Calls);

    impl Story {
        fn enter(&mut self, span: Option<u64>, id: u64, goid: u64) -> &mut Self {
            self.0.enter(span, &call(id, goid, End::Open), &Nobody, &mut Numbers);
            self
        }

        fn leave(&mut self, id: u64, goid: u64) -> &mut Self {
            self.0.leave(&call(id, goid, End::Return), &Nobody, &mut Numbers);
            self
        }

        fn made(&mut self, span: u64, by: u64, goid: u64) -> &mut Self {
            let origin = Origin { gopc: 0, startpc: goid * 10, parent: by };
            self.0.made(span, Made { pid: 1, goid, ts_ns: 5, origin });
            self
        }

        fn end(&mut self, span: u64, end_ns: u64) -> String {
            let SpanCalls { calls, cut, goroutines, within } = self.0.end_span(span, end_ns);
            let call = |call: &SpanCall| {
                let SpanCall { id, parent, depth, goid, start_ns, end_ns, end, .. } = call;
                let (entry, exit) = (&call.entry.values, &call.exit.values);
                format!(
                    "{id} in {parent:?} {depth} g{goid} {start_ns}-{end_ns} {end:?} {entry}/{exit}"
                )
            };
            let go = |one: &SpanGoroutine| {
                let SpanGoroutine { goid, parent_goid, call, text, .. } = one;
                format!("g{goid} by g{parent_goid} in {call:?} {text}")
            };
            let lines = calls.iter().map(call).chain(goroutines.iter().map(go));
            let lines: String = lines.map(|line| line + "\n").collect();
            format!("{lines}cut {cut} within {within:?}")
        }
    }

    #[test]
    fn calls_and_goroutines_know_what_they_are_within() {
        let mut story = Story::default();
        story.0.begin_span(70, None, (1, 4));
        story.enter(Some(70), 1, 4).enter(Some(70), 2, 4).made(70, 4, 9).enter(Some(70), 3, 9);
        story.0.begin_span(71, Some(70), (1, 4));
        story.enter(Some(71), 4, 4).leave(4, 4);
        assert_eq!(
            story.end(71, 200),
            "4 in Some(2) 2 g4 4-104 Return in 4/out 4\ncut 0 within Some(2)"
        );
        story.leave(2, 4).leave(1, 4).enter(None, 5, 6).leave(5, 6);
        // A goroutine that has calls was not made now, whatever is said.
        story.made(70, 9, 4);
        let expected = "\
1 in None 0 g4 1-101 Return in 1/out 1
2 in Some(1) 1 g4 2-102 Return in 2/out 2
3 in None 0 g9 3-200 Open in 3/
g9 by g4 in Some(2) go 90
cut 0 within None";
        assert_eq!(story.end(70, 200), expected);
        story.leave(3, 9);
        assert_eq!(story.0.outside(), 1);
        assert!(story.0.open.is_empty() && story.0.stacks.is_empty() && story.0.held == 0);
    }

    #[test]
    fn a_span_holds_so_many_calls_and_counts_the_rest() {
        let mut story = Story::default();
        story.0.begin_span(70, None, (1, 4));
        let most = CALLS_OF_SPAN as u64;
        for id in 1..=most + 5 {
            story.enter(Some(70), id, 4).leave(id, 4);
        }
        let told = story.end(70, 9000);
        assert_eq!(told.lines().count(), CALLS_OF_SPAN + 1);
        assert!(told.ends_with("cut 5 within None"), "{told}");
        // A span that is none leaves its calls outside.
        story.0.begin_span(71, None, (1, 4));
        story.enter(Some(71), 5000, 4).leave(5000, 4);
        story.0.forget_span(71);
        assert_eq!((story.0.outside(), story.0.held), (1, 0));
    }
}
