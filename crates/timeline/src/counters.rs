//! What a timeline counted.

use serde::Serialize;

/// Counts since the timeline began. Nothing that arrives is dropped without one of them.
///
/// `entries == calls + open + drained + hidden`, and every record is one of `entries`, `exits`,
/// `witnesses` (when the function is not traced too), `no_goroutine`, `invalid` or a
/// process event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Records pushed.
    pub records: u64,
    /// Entry records of traced functions.
    pub entries: u64,
    /// Exit records.
    pub exits: u64,
    /// Calls that ended, by whatever end: the number of `Leave` events.
    pub calls: u64,
    /// Calls open now.
    pub open: u64,
    /// Exits of calls whose entry was not seen: already running at the attach, or lost.
    pub orphan_exits: u64,
    /// Calls whose end is not known ([`crate::End::Lost`]).
    pub lost_ends: u64,
    /// Calls reported as still running ([`crate::End::Open`]).
    pub open_ends: u64,
    /// Entries not opened, because the timeline drains and they would be new roots.
    pub drained: u64,
    /// Exits without an open call while draining.
    pub drained_exits: u64,
    /// Entries not opened, because the condition of their function does not hold.
    pub hidden: u64,
    /// Exits without an open call of functions that have such a condition: their entries were hidden, here or
    /// at the hit, or not seen.
    pub hidden_exits: u64,
    /// Hits of the watched runtime functions.
    pub witnesses: u64,
    /// Hits whose goroutine could not be read; they belong to no call.
    pub no_goroutine: u64,
    /// Records no plan of ours can produce: unknown site, impossible depth.
    pub invalid: u64,
    /// Calls closed as lost because a limit was reached.
    pub evicted: u64,
    /// Gaps: places where records were lost.
    pub gaps: u64,
    /// Records lost in those gaps.
    pub lost: u64,
    /// Processes seen to end.
    pub process_exits: u64,
    /// Unrecovered panics.
    pub panics: u64,
}
