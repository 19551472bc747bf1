//! What was counted on the way.

use serde::{Deserialize, Serialize};

/// Counts since the beginning. Nothing that arrives is dropped without one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StateCounters {
    /// Records pushed, those of processes and of goroutines found in memory included.
    pub records: u64,
    /// Changes of states, as shown.
    pub changes: u64,
    /// Goroutines made.
    pub made: u64,
    /// Goroutines that ended.
    pub ended: u64,
    /// Goroutines that live, or did when their process ended.
    pub live: u64,
    /// Goroutines that were there already, found in memory.
    pub found: u64,
    /// Records that came before one that had to come first, and were put behind it.
    pub repairs: u64,
    /// Places where the next record of a goroutine does not begin where the last one ended,
    /// although nothing was lost.
    pub breaks: u64,
    /// The same where records were lost.
    pub mended: u64,
    /// Goroutines that were gone when memory was read again after a loss.
    pub vanished: u64,
    /// Changes that are parts of making a goroutine, which a record of its own tells.
    pub making: u64,
    /// Changes between running and what only looks like waiting.
    pub pseudo: u64,
    /// Hits whose goroutine could not be read.
    pub no_goroutine: u64,
    /// Records no plan of ours can produce.
    pub invalid: u64,
    /// Goroutines not followed because there are too many.
    pub evicted: u64,
    /// Gaps: places where records were lost.
    pub gaps: u64,
    /// Records lost in those gaps.
    pub lost: u64,
}

impl StateCounters {
    /// Adds what was counted elsewhere.
    pub fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.records, other.records),
            (&mut self.changes, other.changes),
            (&mut self.made, other.made),
            (&mut self.ended, other.ended),
            (&mut self.live, other.live),
            (&mut self.found, other.found),
            (&mut self.repairs, other.repairs),
            (&mut self.breaks, other.breaks),
            (&mut self.mended, other.mended),
            (&mut self.vanished, other.vanished),
            (&mut self.making, other.making),
            (&mut self.pseudo, other.pseudo),
            (&mut self.no_goroutine, other.no_goroutine),
            (&mut self.invalid, other.invalid),
            (&mut self.evicted, other.evicted),
            (&mut self.gaps, other.gaps),
            (&mut self.lost, other.lost),
        ];
        for (sum, count) in pairs {
            *sum = sum.saturating_add(count);
        }
    }
}
