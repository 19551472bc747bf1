//! The parts of a struct that are read, and numbers in what was read.

use address::{Avma, Part};
use binary::layout::{LayoutError, RuntimeLayouts};

use super::unknown::Unknown;

/// Fields that are less apart are read in one piece, bytes: a piece costs the kernel as much as
/// some thousand bytes.
const GAP: u64 = 512;

/// No struct of the runtime that is read is larger; a layout that says so is wrong.
const MAX_SIZE: u64 = 1 << 20;

/// The pieces of one struct. Fields are named by their offset in the struct.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pieces {
    /// Offset and length, in order.
    ranges: Vec<(u64, usize)>,
}

impl Pieces {
    /// Pieces that hold all fields, each an offset and a size in bytes.
    fn of(mut fields: Vec<(u64, u64)>) -> Self {
        fields.sort_unstable();
        let mut ranges: Vec<(u64, usize)> = Vec::new();
        for (offset, size) in fields {
            let end = offset + size;
            match ranges.last_mut() {
                Some((start, len)) if offset <= *start + *len as u64 + GAP => {
                    *len = (*len).max((end - *start) as usize);
                }
                _ => ranges.push((offset, size as usize)),
            }
        }
        Self { ranges }
    }

    /// Bytes of all pieces.
    pub(super) fn size(&self) -> usize {
        self.ranges.iter().map(|(_, len)| len).sum()
    }

    /// What to read of a struct at `base`; `bytes` must be [`Self::size`] long.
    pub(super) fn parts<'b>(&self, base: Avma, bytes: &'b mut [u8]) -> Vec<Part<'b>> {
        let mut left = bytes;
        let mut parts = Vec::with_capacity(self.ranges.len());
        for (offset, len) in &self.ranges {
            let Some((bytes, rest)) = left.split_at_mut_checked(*len) else { break };
            parts.push(Part { address: base.add(*offset), bytes });
            left = rest;
        }
        parts
    }

    /// A look at what was read.
    pub(super) fn view<'b>(&'b self, bytes: &'b [u8]) -> View<'b> {
        View { pieces: self, bytes }
    }

    fn place(&self, offset: u64) -> Option<usize> {
        let mut at = 0;
        for (start, len) in &self.ranges {
            let within = offset.checked_sub(*start).and_then(|d| usize::try_from(d).ok());
            if let Some(within) = within.filter(|within| within < len) {
                return Some(at + within);
            }
            at += len;
        }
        None
    }
}

/// Numbers by their field's offset in the struct; 0 for a field that was not read.
#[derive(Clone, Copy)]
pub(super) struct View<'b> {
    pieces: &'b Pieces,
    bytes: &'b [u8],
}

impl<'b> View<'b> {
    pub(super) fn word(&self, offset: u64) -> u64 {
        self.slice(offset, 8).map_or(0, number)
    }

    pub(super) fn half(&self, offset: u64) -> u32 {
        self.slice(offset, 4).map_or(0, |bytes| number(bytes) as u32)
    }

    pub(super) fn short(&self, offset: u64) -> u16 {
        self.slice(offset, 2).map_or(0, |bytes| number(bytes) as u16)
    }

    pub(super) fn byte(&self, offset: u64) -> u8 {
        self.slice(offset, 1).and_then(|bytes| bytes.first().copied()).unwrap_or(0)
    }

    /// Words that follow each other.
    pub(super) fn words(&self, offset: u64, count: usize) -> impl Iterator<Item = u64> + 'b {
        let bytes = self.slice(offset, count.saturating_mul(8)).unwrap_or_default();
        bytes.chunks_exact(8).map(number)
    }

    pub(super) fn slice(&self, offset: u64, len: usize) -> Option<&'b [u8]> {
        let at = self.pieces.place(offset)?;
        self.bytes.get(at..at.checked_add(len)?)
    }
}

/// Little-endian; at most eight bytes.
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Collects the fields of one struct that are read.
pub(super) struct Wanted<'l> {
    layouts: &'l RuntimeLayouts<'l>,
    structure: &'static str,
    fields: Vec<(u64, u64)>,
}

impl<'l> Wanted<'l> {
    pub(super) fn of(layouts: &'l RuntimeLayouts<'l>, structure: &'static str) -> Self {
        Self { layouts, structure, fields: Vec::new() }
    }

    /// Offset of a field that every version has.
    pub(super) fn must(&mut self, field: &str) -> Result<u64, Unknown> {
        Ok(self.sized(field)?.0)
    }

    /// Offset of a field that some versions lack.
    pub(super) fn maybe(&mut self, field: &str) -> Result<Option<u64>, Unknown> {
        Ok(self.sized_maybe(field)?.map(|(offset, _)| offset))
    }

    /// Offset and size.
    pub(super) fn sized(&mut self, field: &str) -> Result<(u64, u64), Unknown> {
        let layout = self.layouts.field(self.structure, field).map_err(|e| no_layout(&e))?;
        self.want(layout.offset, layout.size)
    }

    pub(super) fn sized_maybe(&mut self, field: &str) -> Result<Option<(u64, u64)>, Unknown> {
        match self.layouts.field(self.structure, field) {
            Ok(layout) => self.want(layout.offset, layout.size).map(Some),
            Err(LayoutError::NoField { .. } | LayoutError::NoStruct { .. }) => Ok(None),
            Err(error) => Err(no_layout(&error)),
        }
    }

    fn want(&mut self, offset: u64, size: u64) -> Result<(u64, u64), Unknown> {
        if offset.saturating_add(size) > MAX_SIZE {
            return Err(Unknown::Implausible(self.structure));
        }
        self.fields.push((offset, size));
        Ok((offset, size))
    }

    pub(super) fn pieces(self) -> Pieces {
        Pieces::of(self.fields)
    }
}

/// The reason at every figure that needs that layout.
pub(super) fn no_layout(error: &LayoutError) -> Unknown {
    Unknown::NoLayout(error.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_fields_are_one_piece() {
        let pieces = Pieces::of(vec![(1000, 4), (0, 4), (16, 8), (1004, 8)]);
        assert_eq!(pieces.ranges, [(0, 24), (1000, 12)]);
        let mut bytes: Vec<u8> = (0..36).collect();
        let parts = pieces.parts(Avma(0x5000), &mut bytes);
        let read: Vec<(u64, usize)> = parts.iter().map(|p| (p.address.0, p.bytes.len())).collect();
        assert_eq!(read, [(0x5000, 24), (0x53e8, 12)]);
        let view = pieces.view(&bytes);
        assert_eq!(view.half(1000), 0x1b1a_1918);
        assert_eq!(view.byte(16), 16);
        assert_eq!(
            view.words(8, 2).collect::<Vec<_>>(),
            [0x0f0e_0d0c_0b0a_0908, 0x1716_1514_1312_1110]
        );
        assert_eq!(view.word(2000), 0);
    }
}
