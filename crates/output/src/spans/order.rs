//! The lines of a tree of spans: which stands below which.
//!
//! Below a span stand, in the order of time, the calls on its goroutine, the goroutines that were made in it with their
//! calls, and its child spans. What was made or begun within a call stands below that one.

use sensors::{Span, SpanCalls};
use std::collections::HashMap;

/// What a line is of: the place of a span, and of a call or a goroutine in [`SpanCalls`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Item {
    Goroutine(usize, usize),
    Call(usize, usize),
    Span(usize),
}

/// The items with their levels, as they are to be written.
pub(super) fn in_order(spans: &[Span]) -> Vec<(Item, usize)> {
    let known: Vec<Known<'_>> = spans.iter().map(Known::new).collect();
    let places: HashMap<u64, usize> =
        spans.iter().enumerate().map(|(place, span)| (span.context.span, place)).collect();
    let mut below: HashMap<Option<Item>, Vec<(u64, Item)>> = HashMap::new();
    for (place, span) in spans.iter().enumerate() {
        // Headers may name anything; by this order there is no way around in a circle.
        let is_before = |parent: &usize| {
            let order = |span: &Span| (span.start_ns, span.context.span);
            order(&spans[*parent]) < order(span)
        };
        let parent = span.parent.and_then(|id| places.get(&id).copied()).filter(is_before);
        let around = parent.map(|parent| known[parent].around(parent, span));
        below.entry(around).or_default().push((span.start_ns, Item::Span(place)));
        known[place].add(place, &mut below);
    }
    for items in below.values_mut() {
        items.sort_by_key(|(start_ns, item)| (*start_ns, rank(*item)));
    }
    let mut lines = Vec::new();
    let mut stack: Vec<(Item, usize)> = Vec::new();
    let mut push = |stack: &mut Vec<(Item, usize)>, around, level| {
        let items = below.remove(&around).unwrap_or_default();
        stack.extend(items.into_iter().rev().map(|(_, item)| (item, level)));
    };
    push(&mut stack, None, 0);
    while let Some((item, level)) = stack.pop() {
        lines.push((item, level));
        push(&mut stack, Some(item), level + 1);
    }
    lines
}

/// Of what begins at one time: goroutines, calls, spans; of spans those first that ended last.
fn rank(item: Item) -> (u8, usize) {
    match item {
        Item::Goroutine(_, at) => (0, at),
        Item::Call(_, at) => (1, at),
        Item::Span(place) => (2, usize::MAX - place),
    }
}

/// The calls and goroutines of a span by their ids.
struct Known<'a> {
    span: &'a Span,
    calls: Option<&'a SpanCalls>,
    goroutines: HashMap<u64, usize>,
}

impl<'a> Known<'a> {
    fn new(span: &'a Span) -> Self {
        let calls = span.calls.as_deref();
        let goroutines = calls.map_or(&[][..], |calls| &calls.goroutines).iter().enumerate();
        Self { span, calls, goroutines: goroutines.map(|(at, one)| (one.goid, at)).collect() }
    }

    /// Place of a call, if it began before the one at `end`.
    fn call(&self, id: u64, end: usize) -> Option<usize> {
        let calls = &self.calls?.calls;
        calls.get(..end)?.binary_search_by_key(&id, |call| call.id).ok()
    }

    /// Below what of this span, which is at `place`, a child stands.
    fn around(&self, place: usize, child: &Span) -> Item {
        let within = child.calls.as_ref().and_then(|calls| calls.within);
        let count = self.calls.map_or(0, |calls| calls.calls.len());
        if let Some(at) = within.and_then(|call| self.call(call, count)) {
            return Item::Call(place, at);
        }
        let own = child.pid == self.span.pid;
        self.goroutine(place, child.goid).filter(|_| own).unwrap_or(Item::Span(place))
    }

    fn goroutine(&self, place: usize, goid: u64) -> Option<Item> {
        let at = self.goroutines.get(&goid).copied()?;
        (goid != self.span.goid).then_some(Item::Goroutine(place, at))
    }

    /// Adds the calls and goroutines.
    fn add(&self, place: usize, below: &mut HashMap<Option<Item>, Vec<(u64, Item)>>) {
        let Some(SpanCalls { calls, goroutines, .. }) = self.calls else { return };
        for (at, goroutine) in goroutines.iter().enumerate() {
            let call = goroutine.call.and_then(|call| self.call(call, calls.len()));
            let by = self.goroutines.get(&goroutine.parent_goid).filter(|by| **by < at);
            let by = by.map(|by| Item::Goroutine(place, *by));
            let around = call.map(|call| Item::Call(place, call)).or(by);
            let item = (goroutine.made_ns, Item::Goroutine(place, at));
            below.entry(Some(around.unwrap_or(Item::Span(place)))).or_default().push(item);
        }
        for (at, call) in calls.iter().enumerate() {
            let parent = call.parent.and_then(|parent| self.call(parent, at));
            let around = parent.map(|parent| Item::Call(place, parent));
            let around = around.or_else(|| self.goroutine(place, call.goid));
            let item = (call.start_ns, Item::Call(place, at));
            below.entry(Some(around.unwrap_or(Item::Span(place)))).or_default().push(item);
        }
    }
}
