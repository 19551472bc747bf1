//! How much a ring had lost before each of its records.
//!
//! The records tell it, but those of entries have only 8 bits of the count. The reader knows more.
//! What lies beyond the head that it saw, or beyond what there was room for, was reserved later, and
//! so behind all losses that had been counted by then. And a record is only dropped where it is
//! longer than what is left of the room: near a limit that the head could not pass while something
//! was lost. An entry there that leaves open how much was lost before it is beside a loss, and says so.

use crate::layout::Header;
use std::collections::VecDeque;

/// Marks of each kind that are kept: there is one for each look between which something was lost.
const MAX_MARKS: usize = 1 << 10;

/// As many losses may look like none, or like fewer, in the record of an entry.
const BLIND: u64 = 1 << 7;

/// What ends behind `end` was reserved when `count` records had been lost.
#[derive(Clone, Copy, Debug)]
struct Floor {
    end: u64,
    count: u64,
}

/// What is known of one ring's losses.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// As many as the records read so far tell of.
    told: u64,
    /// Growing in both.
    floors: VecDeque<Floor>,
    /// The highest count of a floor.
    floor: u64,
    /// What the head could not pass while something was lost, growing.
    full: VecDeque<u64>,
    /// The count up to which that is known.
    noticed: u64,
    /// What it cannot pass now.
    limit: u64,
    /// There were more marks than are kept.
    is_blurred: bool,
    /// The count at the last look, and a time of the counter that lies before it: no record from before that time
    /// counted more.
    seen: u64,
    seen_tsc: u64,
}

/// A record in its ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Where it begins.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// Whether it has only 8 bits of the count.
    pub is_entry: bool,
    /// The longest record that there is, bytes.
    pub longest: u64,
}

impl Losses {
    /// Of a ring that has room up to `limit`.
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, ..Self::default() }
    }

    /// As many as the records read so far tell of.
    pub(super) fn told(&self) -> u64 {
        self.told
    }

    /// The head, and the count before and behind that was read, at `tsc` or later.
    pub(super) fn look(&mut self, tsc: u64, head: u64, [before, after]: [u64; 2]) {
        self.notice(after);
        self.add_floor(head, before);
        (self.seen, self.seen_tsc) = (after, tsc);
    }

    /// There is room up to `limit` from now on. The count was read before that was said, and again
    /// behind it.
    pub(super) fn give_room(&mut self, limit: u64, [before, after]: [u64; 2]) {
        self.notice(after);
        self.add_floor(self.limit, before);
        self.limit = limit;
    }

    /// As many were counted before anything that is read from now on.
    pub(super) fn settle(&mut self, count: u64) {
        self.told = self.told.max(count);
    }

    fn notice(&mut self, count: u64) {
        if count <= self.noticed {
            return;
        }
        self.noticed = count;
        if self.full.back() == Some(&self.limit) {
            return;
        }
        if self.full.len() < MAX_MARKS {
            self.full.push_back(self.limit);
        } else {
            self.is_blurred = true;
        }
    }

    fn add_floor(&mut self, end: u64, count: u64) {
        if count <= self.floor {
            return;
        }
        self.floor = count;
        // Those say less of what lies there.
        while self.floors.back().is_some_and(|last| last.end >= end) {
            self.floors.pop_back();
        }
        if self.floors.len() < MAX_MARKS {
            self.floors.push_back(Floor { end, count });
        } else {
            self.is_blurred = true;
        }
    }

    /// Takes the next record; `now` tells how many the ring has lost by now. Whether how many were
    /// lost before it may be more than it tells.
    ///
    /// The target writes the line where it counts at every hit, and would wait for it each time that `now` has read it:
    /// so that is not asked where the last look knew enough.
    #[inline]
    pub(super) fn pass(&mut self, header: &Header, place: Place, now: impl Fn() -> u64) -> bool {
        let nothing = self.floors.is_empty() && self.full.is_empty() && !self.is_blurred;
        if nothing && header.drops_since(self.told, place.is_entry) == 0 {
            return false;
        }
        let now = if header.tsc < self.seen_tsc { self.seen } else { now() };
        self.pass_losses(header, place, now)
    }

    fn pass_losses(&mut self, header: &Header, place: Place, now: u64) -> bool {
        while let Some(floor) = self.floors.front().filter(|floor| floor.end < place.end) {
            self.told = self.told.max(floor.count);
            self.floors.pop_front();
        }
        // The records of a ring are in order of reservation and count drops a little earlier or
        // later than that: only steps forward count, and none beyond what the ring says.
        let step = header.drops_since(self.told, place.is_entry);
        let counted = self.told.saturating_add(step);
        if counted <= now {
            self.told = counted;
        }
        while self.full.front().is_some_and(|&limit| limit < place.start) {
            self.full.pop_front();
        }
        let was_full = self.full.front().is_some_and(|limit| limit - place.start < place.longest);
        let is_open = now.saturating_sub(self.told) >= BLIND;
        let is_beside = place.is_entry && is_open && (was_full || self.is_blurred);
        self.is_blurred &= !self.floors.is_empty() || !self.full.is_empty();
        is_beside
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// The record of an entry that was made at `tsc`, when `drops` had been lost.
    fn entry(tsc: u64, drops: u8) -> Header {
        Header::of([tsc, 1, u64::from(drops) << 56, 0])
    }

    #[test]
    fn the_count_is_asked_for_only_where_the_last_look_may_know_too_little() {
        let asked = Cell::new(0);
        let place = |at: u64| Place { start: at, end: at + 32, is_entry: true, longest: 32 };
        let mut losses = Losses::new(1000);
        losses.look(500, 96, [3, 3]);
        let pass = |losses: &mut Losses, tsc, drops, at| {
            let now = || {
                asked.set(asked.get() + 1);
                300
            };
            let is_beside = losses.pass(&entry(tsc, drops), place(at), now);
            (losses.told(), is_beside, asked.get())
        };
        assert_eq!(pass(&mut losses, 100, 0, 0), (0, false, 0));
        assert_eq!(pass(&mut losses, 499, 3, 32), (3, false, 0));
        // More than that look saw: of that time it cannot be.
        assert_eq!(pass(&mut losses, 499, 4, 64), (3, false, 0));
        // Reserved before the look and made after it, when more had been lost.
        assert_eq!(pass(&mut losses, 500, 90, 64), (90, false, 1));
        assert_eq!(pass(&mut losses, 900, 200, 96), (200, false, 2));
    }
}
