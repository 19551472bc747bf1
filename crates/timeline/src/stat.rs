//! A table per function instead of a line per call.

use crate::event::{Call, End, Event};
use hdrhistogram::Histogram;
use serde::Serialize;

/// Significant decimal digits of the percentiles.
const DIGITS: u8 = 2;

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
    fn count(&mut self, end: End) {
        *match end {
            End::Return => &mut self.returned,
            End::Tail => &mut self.tail,
            End::Panic => &mut self.panic,
            End::Goexit => &mut self.goexit,
            End::Switch => &mut self.switched,
            End::Exec => &mut self.exec,
            End::Lost => &mut self.lost,
            End::Open => &mut self.open,
        } += 1;
    }

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

#[derive(Debug)]
struct Tally {
    stat: FunctionStat,
    durations: Option<Histogram<u32>>,
}

/// Gathers [`FunctionStat`]s from events.
#[derive(Debug, Default)]
pub struct Stats {
    /// By function; as long as the highest index that was seen.
    functions: Vec<Option<Tally>>,
}

impl Stats {
    /// Takes one event; only [`Event::Leave`] says something.
    pub fn push(&mut self, event: &Event) {
        if let Event::Leave(call) = event {
            self.leave(call);
        }
    }

    fn leave(&mut self, call: &Call) {
        let duration = call.end_ns.saturating_sub(call.start_ns);
        let index = call.function as usize;
        if index >= self.functions.len() {
            self.functions.resize_with(index + 1, || None);
        }
        let Some(place) = self.functions.get_mut(index) else { return };
        let tally = place.get_or_insert_with(|| Tally {
            stat: FunctionStat { function: call.function, ..FunctionStat::default() },
            durations: Histogram::new(DIGITS).ok(),
        });
        let stat = &mut tally.stat;
        stat.calls += 1;
        stat.ends.count(call.end);
        if call.end == End::Lost {
            return;
        }
        stat.total_ns = stat.total_ns.saturating_add(duration);
        stat.self_ns = stat.self_ns.saturating_add(duration.saturating_sub(call.below_ns));
        stat.max_ns = stat.max_ns.max(duration);
        if let Some(durations) = &mut tally.durations {
            // Grows to hold the value; fails only past the address space.
            _ = durations.record(duration);
        }
    }

    /// The figures of every function that was called, most total time first.
    pub fn table(&self) -> Vec<FunctionStat> {
        let mut table: Vec<FunctionStat> =
            self.functions.iter().flatten().map(Tally::figures).collect();
        table.sort_by_key(|stat| (std::cmp::Reverse(stat.total_ns), stat.function));
        table
    }
}

impl Tally {
    fn figures(&self) -> FunctionStat {
        let at = |quantile| {
            let value = self.durations.as_ref().map_or(0, |d| d.value_at_quantile(quantile));
            value.min(self.stat.max_ns)
        };
        FunctionStat { p50_ns: at(0.5), p99_ns: at(0.99), ..self.stat }
    }
}
