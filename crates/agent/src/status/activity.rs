//! What a process does: its requests of the last minutes, and the slowest of them.

use crate::window::{Rates, Window};
use sensors::{Span, Status};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Half of the time that is looked back.
const HALF_NS: u64 = 60_000_000_000;
/// Kinds of requests kept apart; others are one kind.
const KINDS: usize = 100;
/// Name of that kind.
const OTHERS: &str = "(others)";
/// Trees kept.
const TREES: usize = 10;
/// Spans kept of a tree.
const SPANS: usize = 64;
/// Trees whose spans are being gathered; the oldest goes when there are more.
const OPEN: usize = 256;

/// Requests of one name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RequestStatus {
    /// Name of their spans.
    pub name: String,
    /// `server` or `client`.
    pub kind: &'static str,
    /// How many and how long.
    #[serde(flatten)]
    pub rates: Rates,
}

/// A request with all that it did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TreeStatus {
    /// Its trace, hexadecimal.
    pub trace_id: String,
    /// When it began.
    pub start_unix_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// Its spans by their begin, the root first.
    pub spans: Vec<SpanStatus>,
    /// Spans of it that are not kept.
    pub more: u64,
}

/// A span of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SpanStatus {
    /// Name.
    pub name: String,
    /// `server` or `client`.
    pub kind: &'static str,
    /// Id, hexadecimal.
    pub span_id: String,
    /// Its parent's.
    pub parent_span_id: Option<String>,
    /// Goroutine.
    pub goid: u64,
    /// From the begin of the tree.
    pub offset_ns: u64,
    /// How long.
    pub duration_ns: u64,
    /// Whether it failed.
    pub is_error: bool,
    /// Attributes, as text.
    pub attributes: BTreeMap<String, String>,
    /// What its goroutine spent the time on, where that is watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<BTreeMap<String, u64>>,
}

/// What is kept of the requests of one process.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    /// Since when requests are watched, nanoseconds of the capture's clock; `None` while nobody said so.
    since_ns: Option<u64>,
    kinds: BTreeMap<(String, &'static str), Window>,
    /// By their number; with when the first span came.
    gathering: HashMap<u64, (u64, Gathered)>,
    /// With when they ended, nanoseconds of the capture's clock.
    slowest: Vec<(u64, u64, Gathered)>,
}

#[derive(Clone, Debug, Default)]
struct Gathered {
    spans: Vec<Span>,
    more: u64,
}

impl Activity {
    /// Requests are watched since then.
    pub fn watched_since(&mut self, since_ns: u64) {
        self.since_ns = Some(since_ns);
    }

    /// Takes a span, at `now_ns` of its clock.
    pub fn span(&mut self, span: &Span, now_ns: u64) {
        if span.is_finished {
            let ns = span.end_ns.saturating_sub(span.start_ns);
            self.window(span, now_ns).add(now_ns, ns, span.status == Status::Error);
        }
        self.gather(span, now_ns);
    }

    fn window(&mut self, span: &Span, now_ns: u64) -> &mut Window {
        let mut key = (span.name.clone(), span.kind.name());
        if self.kinds.len() >= KINDS && !self.kinds.contains_key(&key) {
            key.0 = OTHERS.to_owned();
        }
        self.kinds.entry(key).or_insert_with(|| Window::new(HALF_NS, now_ns))
    }

    fn gather(&mut self, span: &Span, now_ns: u64) {
        if self.gathering.len() >= OPEN && !self.gathering.contains_key(&span.tree) {
            let oldest = self.gathering.iter().min_by_key(|(_, (since, _))| *since);
            if let Some(oldest) = oldest.map(|(tree, _)| *tree) {
                self.gathering.remove(&oldest);
            }
        }
        let (_, tree) =
            self.gathering.entry(span.tree).or_insert_with(|| (now_ns, Gathered::default()));
        match tree.spans.len() < SPANS {
            true => tree.spans.push(span.clone()),
            false => tree.more += 1,
        }
        if span.open_in_tree == 0
            && let Some((_, done)) = self.gathering.remove(&span.tree)
        {
            self.keep(done, now_ns);
        }
    }

    fn keep(&mut self, tree: Gathered, now_ns: u64) {
        self.slowest.retain(|(_, ended, _)| now_ns.saturating_sub(*ended) < 2 * HALF_NS);
        let begin = tree.spans.iter().map(|span| span.start_ns).min().unwrap_or(0);
        let end = tree.spans.iter().map(|span| span.end_ns).max().unwrap_or(0);
        let duration = end.saturating_sub(begin);
        let at = self.slowest.partition_point(|(kept, _, _)| *kept >= duration);
        if at < TREES {
            self.slowest.insert(at, (duration, now_ns, tree));
            self.slowest.truncate(TREES);
        }
    }

    /// Kinds of requests of the last minutes, the most frequent first.
    pub fn requests(&mut self, now_ns: u64) -> Vec<RequestStatus> {
        let since_ns = self.since_ns.unwrap_or(now_ns);
        let rows = self.kinds.iter_mut().map(|((name, kind), window)| RequestStatus {
            name: name.clone(),
            kind,
            rates: window.rates(now_ns, since_ns),
        });
        let mut rows: Vec<_> = rows.collect();
        // What nobody asks for any more makes room.
        for row in rows.iter().filter(|row| row.rates.count == 0) {
            self.kinds.remove(&(row.name.clone(), row.kind));
        }
        rows.retain(|row| row.rates.count > 0);
        rows.sort_by_key(|row| std::cmp::Reverse(row.rates.count));
        rows
    }

    /// The slowest requests of the last minutes. `unix_offset_ns` makes Unix time of the clock of spans.
    pub fn slowest(&self, now_ns: u64, unix_offset_ns: i64) -> Vec<TreeStatus> {
        let recent = self.slowest.iter();
        let recent = recent.filter(|(_, ended, _)| now_ns.saturating_sub(*ended) < 2 * HALF_NS);
        recent.map(|(duration, _, tree)| tree_status(*duration, tree, unix_offset_ns)).collect()
    }
}

fn tree_status(duration_ns: u64, tree: &Gathered, unix_offset_ns: i64) -> TreeStatus {
    let mut spans: Vec<&Span> = tree.spans.iter().collect();
    spans.sort_by_key(|span| (span.start_ns, std::cmp::Reverse(span.end_ns)));
    let begin = spans.first().map_or(0, |span| span.start_ns);
    TreeStatus {
        trace_id: spans
            .first()
            .map(|span| format!("{:032x}", span.context.trace))
            .unwrap_or_default(),
        start_unix_ns: begin.saturating_add_signed(unix_offset_ns),
        duration_ns,
        spans: spans.into_iter().map(|span| span_status(span, begin)).collect(),
        more: tree.more,
    }
}

fn span_status(span: &Span, begin: u64) -> SpanStatus {
    let attributes =
        span.attributes.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    SpanStatus {
        name: span.name.clone(),
        kind: span.kind.name(),
        span_id: format!("{:016x}", span.context.span),
        parent_span_id: span.parent.map(|parent| format!("{parent:016x}")),
        goid: span.goid,
        offset_ns: span.start_ns.saturating_sub(begin),
        duration_ns: span.end_ns.saturating_sub(span.start_ns),
        is_error: span.status == Status::Error,
        attributes: attributes.collect(),
        time: span.time.as_ref().map(|time| {
            let fixed = [
                ("running", time.running_ns),
                ("runnable", time.runnable_ns),
                ("syscall", time.syscall_ns),
                ("other", time.other_ns),
                ("unknown", time.unknown_ns),
            ];
            let fixed = fixed.into_iter().map(|(name, ns)| (name.to_owned(), ns));
            let waiting =
                time.waiting.iter().map(|(reason, ns)| (format!("waiting: {reason}"), *ns));
            fixed.chain(waiting).filter(|(_, ns)| *ns > 0).collect()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::tests::request;

    #[test]
    fn the_slowest_trees_are_kept_with_all_their_spans() {
        let mut activity = Activity::default();
        for ms in 1..=20 {
            let child = Span { tree: ms, open_in_tree: 1, ..request("/child", 200, 1) };
            activity.span(&child, ms);
            let root = Span { tree: ms, ..request("/root", if ms == 3 { 500 } else { 200 }, ms) };
            activity.span(&root, ms);
        }
        let slowest = activity.slowest(20, 5);
        let durations: Vec<u64> = slowest.iter().map(|tree| tree.duration_ns / 1_000_000).collect();
        assert_eq!(durations, (11..=20).rev().collect::<Vec<_>>());
        let first = &slowest[0];
        assert_eq!(first.start_unix_ns, 1_000_005);
        let names: Vec<&str> = first.spans.iter().map(|span| &*span.name).collect();
        assert_eq!(names, ["GET /root", "GET /child"]);
        let requests = activity.requests(20);
        let rows: Vec<_> =
            requests.iter().map(|row| (&*row.name, row.rates.count, row.rates.errors)).collect();
        assert_eq!(rows, [("GET /child", 20, 0), ("GET /root", 20, 1)]);
        assert!(activity.slowest(3 * HALF_NS, 0).is_empty());
        assert!(activity.requests(5 * HALF_NS).is_empty() && activity.kinds.is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let mut activity = Activity::default();
        for number in 0..1000 {
            let span = Span { tree: number, open_in_tree: 1, ..request("/", 200, 1) };
            activity.span(&Span { name: number.to_string(), ..span }, number);
        }
        assert_eq!((activity.gathering.len(), activity.kinds.len()), (OPEN, KINDS + 1));
        for _ in 0..1000 {
            activity.span(&Span { tree: 999, open_in_tree: 1, ..request("/", 200, 1) }, 1000);
        }
        activity.span(&Span { tree: 999, ..request("/", 200, 1) }, 1000);
        let [tree] = &activity.slowest(1000, 0)[..] else { panic!() };
        assert_eq!((tree.spans.len(), tree.more), (SPANS, 938));
    }
}
