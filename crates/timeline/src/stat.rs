//! A table per function instead of a line per call.

use crate::durations::Durations;
use crate::event::{End, Event};
use crate::out::{Ended, Out};
use crate::stack::Frame;
use serde::Serialize;

/// Calls by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the fields are the ends, documented at `End`")]
pub struct EndCounts {
    #[serde(rename = "return", skip_serializing_if = "is_zero")]
    pub returned: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub tail: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub panic: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub goexit: u64,
    #[serde(rename = "switch", skip_serializing_if = "is_zero")]
    pub switched: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub exec: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub lost: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub open: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl EndCounts {
    /// The ends that occurred, by name.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("return", self.returned),
            ("tail", self.tail),
            ("panic", self.panic),
            ("goexit", self.goexit),
            ("switch", self.switched),
            ("exec", self.exec),
            ("lost", self.lost),
            ("open", self.open),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
    }
}

/// The figures of one function. Times in nanoseconds.
///
/// Calls whose end is `lost` count as calls and have no time: when they ended is not
/// known. A recursive call counts in the total of its caller's level too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionStat {
    /// Index into `Plan::functions`.
    pub function: u32,
    /// Calls that ended.
    pub calls: u64,
    /// Sum of their durations.
    pub total_ns: u64,
    /// The same without the traced calls they made, shown or not.
    pub self_ns: u64,
    /// Median, to 1%.
    pub p50_ns: u64,
    /// 99th percentile, to 1%.
    pub p99_ns: u64,
    /// Longest.
    pub max_ns: u64,
    /// By how they ended.
    pub ends: EndCounts,
}

/// What is counted of a function. What every call changes comes first.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Tally {
    total_ns: u64,
    self_ns: u64,
    max_ns: u64,
    durations: Durations,
    /// By the number of the end.
    ends: [u64; 8],
}

/// Gathers [`FunctionStat`]s from events.
#[derive(Debug, Default)]
pub struct Stats {
    /// By function; as long as the highest index that was seen.
    functions: Vec<Tally>,
}

impl Stats {
    /// Takes one event; only [`Event::Leave`] says something.
    pub fn push(&mut self, event: &Event) {
        if let Event::Leave(call) = event {
            let duration = call.end_ns.saturating_sub(call.start_ns);
            self.count(call.function, call.end, duration, call.below_ns);
        }
    }

    /// Counts a call that took `duration` nanoseconds, `below` of them in calls that it made.
    #[inline]
    fn count(&mut self, function: u32, end: End, duration: u64, below: u64) {
        let index = function as usize;
        if index >= self.functions.len() {
            self.functions.resize_with(index + 1, Tally::default);
        }
        let Some(tally) = self.functions.get_mut(index) else { return };
        tally.ends[end as usize] += 1;
        if end == End::Lost {
            return;
        }
        tally.total_ns = tally.total_ns.saturating_add(duration);
        tally.self_ns = tally.self_ns.saturating_add(duration.saturating_sub(below));
        tally.max_ns = tally.max_ns.max(duration);
        tally.durations.add(duration);
    }

    /// The figures of every function that was called, most total time first.
    pub fn table(&self) -> Vec<FunctionStat> {
        let figures = |(index, tally): (usize, &Tally)| tally.figures(index as u32);
        let mut table: Vec<FunctionStat> =
            self.functions.iter().enumerate().filter_map(figures).collect();
        table.sort_by_key(|stat| (std::cmp::Reverse(stat.total_ns), stat.function));
        table
    }
}

impl Out for Stats {
    const VALUES: bool = false;

    fn enter(&mut self, _: &Frame) {}

    #[inline]
    fn leave(&mut self, frame: Frame, ended: Ended) {
        self.count(frame.function, ended.end, ended.ns - frame.start_ns, frame.below_ns);
    }

    fn say(&mut self, _: Event) {}
}

impl Tally {
    /// The figures; `None` when no call ended.
    fn figures(&self, function: u32) -> Option<FunctionStat> {
        let calls = self.ends.iter().sum();
        let at = |quantile| self.durations.quantile(quantile).min(self.max_ns);
        let of = |end: End| self.ends[end as usize];
        let ends = EndCounts {
            returned: of(End::Return),
            tail: of(End::Tail),
            panic: of(End::Panic),
            goexit: of(End::Goexit),
            switched: of(End::Switch),
            exec: of(End::Exec),
            lost: of(End::Lost),
            open: of(End::Open),
        };
        (calls > 0).then(|| FunctionStat {
            function,
            calls,
            total_ns: self.total_ns,
            self_ns: self.self_ns,
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            max_ns: self.max_ns,
            ends,
        })
    }
}
