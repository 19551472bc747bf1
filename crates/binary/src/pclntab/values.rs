//! pc-value streams: a value for each range of instructions
//! (`runtime/symtab.go`, `pcvalue` and `step`).

use crate::bytes::uvarint;

/// A value that holds for a range of instructions; offsets in bytes from the function's
/// entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub start: u64,
    pub end: u64,
    pub value: i32,
}

/// Decodes one stream, up to the end of the function. Every range holds at least one
/// instruction, so there are no more ranges than bytes of code.
#[derive(Clone, Debug)]
pub(crate) struct Ranges<'a> {
    stream: &'a [u8],
    size: u64,
    pc: u64,
    value: i32,
}

impl<'a> Ranges<'a> {
    /// The stream of a function of `size` bytes.
    pub fn new(stream: &'a [u8], size: u64) -> Self {
        Self { stream, size, pc: 0, value: -1 }
    }

    /// The value at an offset from the entry; `None` after the last range.
    pub fn value_at(self, offset: u64) -> Option<i32> {
        self.take_while(|range| range.start <= offset)
            .find(|range| offset < range.end)
            .map(|range| range.value)
    }
}

impl Iterator for Ranges<'_> {
    type Item = Range;

    fn next(&mut self) -> Option<Range> {
        let (delta, rest) = uvarint(self.stream)?;
        // A zero ends the stream, except as the first delta.
        let ended = delta == 0 && self.pc != 0;
        let (advance, rest) = uvarint(rest)?;
        if ended || advance == 0 || self.pc >= self.size {
            self.stream = &[];
            return None;
        }
        self.stream = rest;
        let zigzag = delta as u32;
        let delta = (zigzag >> 1) as i32 ^ -((zigzag & 1) as i32);
        self.value = self.value.wrapping_add(delta);
        let start = self.pc;
        // The quantum is 1 on x86-64.
        self.pc = self.pc.checked_add(advance)?;
        Some(Range { start, end: self.pc, value: self.value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_gives_ranges_until_its_zero() {
        // +1 for 4 bytes (value 0), +16 for 10, -16 for 2, end.
        let stream = [2, 4, 32, 10, 31, 2, 0, 99];
        let ranges: Vec<_> = Ranges::new(&stream, 16).map(|r| (r.start, r.end, r.value)).collect();
        assert_eq!(ranges, [(0, 4, 0), (4, 14, 16), (14, 16, 0)]);
        assert_eq!(Ranges::new(&stream, 16).value_at(13), Some(16));
        assert_eq!(Ranges::new(&stream, 16).value_at(16), None);
    }

    #[test]
    fn a_first_delta_of_zero_is_a_value() {
        assert_eq!(Ranges::new(&[0, 7, 0], 7).value_at(3), Some(-1));
        assert_eq!(Ranges::new(&[2], 7).next(), None);
    }

    #[test]
    fn no_range_lies_beyond_the_function() {
        let stream = [2, 4, 32, 10, 31, 2, 0];
        assert_eq!(Ranges::new(&stream, 4).count(), 1);
        assert_eq!(Ranges::new(&[2, 0, 2, 0, 2, 0], 4).count(), 0);
    }
}
