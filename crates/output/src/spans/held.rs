//! Spans that wait for the rest of their tree.

use sensors::Span;
use std::collections::BTreeMap;

/// Spans held of one tree; those of a longer one are given piece by piece.
const SPANS: usize = 1000;
/// Calls held of one tree, likewise.
const CALLS: usize = 10_000;

/// The trees by their ids.
#[derive(Debug, Default)]
pub(super) struct Trees(BTreeMap<u64, Held>);

#[derive(Debug, Default)]
struct Held {
    spans: Vec<Span>,
    calls: usize,
}

impl Trees {
    /// Takes a span that ended; gives its tree when nothing of it is open any more.
    pub(super) fn take(&mut self, span: Span) -> Option<Vec<Span>> {
        let (tree, is_last) = (span.tree, span.open_in_tree == 0);
        let held = self.0.entry(tree).or_default();
        held.calls += span.calls.as_ref().map_or(0, |calls| calls.calls.len());
        held.spans.push(span);
        if !is_last && held.spans.len() < SPANS && held.calls < CALLS {
            return None;
        }
        self.0.remove(&tree).map(|held| held.spans)
    }

    /// What is held.
    pub(super) fn into_all(self) -> impl Iterator<Item = Vec<Span>> {
        self.0.into_values().map(|held| held.spans)
    }
}
