//! Where in the target's address space the areas go.

use crate::Error;
use crate::layout::Rings;
use address::Avma;
use process::{Mapping, Maps};
use std::ops::Range;

/// Page size on x86-64.
pub(crate) const PAGE: u64 = 4096;

/// How far a 32-bit displacement reaches, less room for the instruction around it.
const REACH: u64 = (1 << 31) - (1 << 16);

/// Nothing is placed below: a dereferenced nil with an offset must still fault.
const LOWEST: u64 = 1 << 24;

/// Free bytes left to neighbours, which may grow (the heap of malloc upwards).
const DISTANCE: u64 = 1 << 20;

/// The areas wanted, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Number of rings.
    pub ring_count: u32,
    /// Data of one.
    pub ring_bytes: u32,
    /// Code, at the most.
    pub code_room: u64,
}

/// Where they go: control page, rings, code, in this order and without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The control page.
    pub control: Avma,
    /// The rings.
    pub rings: Rings,
    /// The code.
    pub code: Avma,
    /// Room for it, whole pages.
    pub code_room: u64,
}

impl Layout {
    /// Chooses free addresses that every byte of `text` reaches, and that reach it.
    ///
    /// Below the text first: nothing grows there. Above it lie bss and malloc's heap, so the far end
    /// of what can be reached is taken.
    pub(crate) fn choose(
        pid: u32,
        maps: &Maps,
        text: &Range<Avma>,
        wanted: Wanted,
    ) -> Result<Self, Error> {
        let rings = Rings { base: Avma(0), count: wanted.ring_count, bytes: wanted.ring_bytes };
        let code_room = wanted.code_room.next_multiple_of(PAGE);
        let need = PAGE + rings.size().next_multiple_of(PAGE) + code_room;
        let no_room = Error::NoRoom { pid, need };
        let lowest = text.end.0.saturating_sub(REACH).max(LOWEST);
        let Some(highest) = text.start.0.checked_add(REACH - DISTANCE) else { return Err(no_room) };
        let Some(base) = highest_gap(maps, lowest..text.start.0, need)
            .or_else(|| highest_gap(maps, text.end.0..highest, need))
        else {
            return Err(no_room);
        };
        let rings = Rings { base: Avma(base + PAGE), ..rings };
        let code = Avma(base + need - code_room);
        Ok(Self { control: Avma(base), rings, code, code_room })
    }

    /// The same places seen from an image that lies `by` bytes further up, when they are free there.
    pub(crate) fn moved(&self, by: u64, maps: &Maps) -> Option<Self> {
        let start = self.control.0.wrapping_add(by);
        let len = self.code.0.checked_add(self.code_room)?.checked_sub(self.control.0)?;
        let (from, until) = (start.checked_sub(DISTANCE)?, start.checked_add(len)?);
        let until = until.checked_add(DISTANCE)?;
        let is_taken = |mapping: &Mapping| mapping.start.0 < until && from < mapping.end.0;
        if start < LOWEST || maps.mappings.iter().any(is_taken) {
            return None;
        }
        let rings = Rings { base: self.rings.base.add(by), ..self.rings };
        Some(Self { control: Avma(start), rings, code: self.code.add(by), ..*self })
    }

    /// Bytes of the rings' area.
    pub(crate) fn rings_len(&self) -> u64 {
        self.rings.size().next_multiple_of(PAGE)
    }
}

/// Start of the highest `need` free bytes in `range`, a distance away from all mappings.
fn highest_gap(maps: &Maps, range: Range<u64>, need: u64) -> Option<u64> {
    let need_all = need.checked_add(2 * DISTANCE)?;
    let mut best = None;
    let mut free_from = range.start;
    let ends = std::iter::once((range.end, range.end));
    let taken = maps.mappings.iter().map(|m| (m.start.0, m.end.0));
    for (start, end) in taken.filter(|&(_, end)| end > range.start).chain(ends) {
        let until = start.min(range.end);
        if until.checked_sub(free_from).is_some_and(|free| free >= need_all) {
            best = Some((until - DISTANCE - need) & !(PAGE - 1));
        }
        if start >= range.end {
            break;
        }
        free_from = free_from.max(end);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use address::FileOffset;

    fn maps(ranges: &[(u64, u64)]) -> Maps {
        let mapping = |&(start, end): &(u64, u64)| Mapping {
            start: Avma(start),
            end: Avma(end),
            offset: FileOffset(0),
            executable: false,
            writable: false,
            shared: false,
            inode: 0,
            path: None,
            label: None,
        };
        Maps { mappings: ranges.iter().map(mapping).collect() }
    }

    const WANTED: Wanted = Wanted { ring_count: 2, ring_bytes: 1 << 16, code_room: 5000 };
    const NEED: u64 = 4096 + 2 * (4096 + 65536 + 8192) + 8192;

    #[test]
    fn a_fixed_executable_gets_the_far_end_of_what_it_reaches() {
        let maps = maps(&[(0x40_0000, 0x80_0000), (0x1000_0000, 0x1100_0000)]);
        let text = Avma(0x40_1000)..Avma(0x60_0000);
        let layout = Layout::choose(1, &maps, &text, WANTED).unwrap();
        let end = layout.code.0 + layout.code_room;
        assert_eq!(layout.code.0, layout.rings.base.0 + layout.rings_len());
        assert_eq!(layout.control.0 + NEED, end);
        assert!(end - text.start.0 < 1 << 31 && end > 0x7f00_0000, "{layout:x?}");
    }

    #[test]
    fn a_pie_gets_the_place_below_it() {
        let maps = maps(&[(0x5555_0000_0000, 0x5555_0100_0000)]);
        let text = Avma(0x5555_0000_1000)..Avma(0x5555_0080_0000);
        let layout = Layout::choose(1, &maps, &text, WANTED).unwrap();
        assert_eq!(layout.control.0 + NEED + DISTANCE, 0x5555_0000_0000);
    }

    #[test]
    fn places_move_with_the_image_where_they_are_free() {
        let text = Avma(0x5555_0000_1000)..Avma(0x5555_0080_0000);
        let layout =
            Layout::choose(1, &maps(&[(text.start.0, text.end.0)]), &text, WANTED).unwrap();
        for by in [0, 0x7000_0000, 0x7000_0000_u64.wrapping_neg()] {
            let start = text.start.0.wrapping_add(by);
            let there = maps(&[(start, start + 0x80_0000)]);
            let again = Avma(start)..Avma(start + 0x7f_f000);
            let chosen = Layout::choose(1, &there, &again, WANTED).unwrap();
            assert_eq!(layout.moved(by, &there), Some(chosen));
            let end = chosen.code.0 + chosen.code_room;
            for taken in [chosen.control.0 - 1, chosen.code.0, end, end + DISTANCE - 1] {
                assert_eq!(layout.moved(by, &maps(&[(taken, taken + 1)])), None, "{taken:x}");
            }
        }
        let low = layout.control.0.wrapping_neg().wrapping_add(LOWEST - PAGE);
        assert_eq!(layout.moved(low, &maps(&[])), None);
        assert_eq!(
            layout.moved(layout.control.0.wrapping_neg().wrapping_sub(PAGE), &maps(&[])),
            None
        );
    }

    #[test]
    fn a_full_address_space_is_refused() {
        let maps = maps(&[(0x1_0000, 0x40_0000), (0x40_0000, 0x1_0000_0000)]);
        let text = Avma(0x40_1000)..Avma(0x60_0000);
        let error = Layout::choose(7, &maps, &text, WANTED).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "process 7 has no {NEED} free bytes within 2 GiB of its code: use --backend \
                 uprobe, or a smaller --ring"
            )
        );
    }
}
