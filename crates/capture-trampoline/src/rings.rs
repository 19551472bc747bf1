//! The rings as the reader sees them.

use crate::layout::{DATA, DROPS, HEAD, LIMIT, REJECTED, Rings, UNIT};
use crate::view::View;
use std::sync::atomic::Ordering::{self, Relaxed};

/// One ring of the shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring<'a> {
    view: &'a View,
    start: usize,
    /// Bytes of data, a power of two.
    bytes: u64,
}

impl<'a> Ring<'a> {
    /// Ring `index` of `rings`, which the mapping holds.
    pub(crate) fn of(view: &'a View, rings: &Rings, index: u32) -> Self {
        let start = rings.stride() as usize * index as usize;
        Self { view, start, bytes: u64::from(rings.bytes) }
    }

    /// Bytes reserved since the start. Whatever the target wrote there.
    pub(crate) fn head(&self) -> u64 {
        self.view.load(self.start + HEAD as usize)
    }

    /// Records that found it full, as the target counts.
    pub(crate) fn drops(&self) -> u64 {
        self.view.load(self.start + DROPS as usize)
    }

    /// Hits that a condition rejected, as the target counts.
    pub(crate) fn rejected(&self) -> u64 {
        self.view.load(self.start + REJECTED as usize)
    }

    /// Lets the target fill up what lies before `consumed`.
    pub(crate) fn release(&self, consumed: u64) {
        self.view.store(self.start + LIMIT as usize, consumed.wrapping_add(self.bytes));
    }

    /// Lets the target fill up nothing more: every record is dropped.
    pub(crate) fn close(&self) {
        self.view.store(self.start + LIMIT as usize, 0);
    }

    /// Bytes of data.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn at(&self, position: u64) -> usize {
        self.start + DATA as usize + (position & (self.bytes - 1)) as usize
    }

    /// The unit at `position`: its first word is 0 when nothing is committed there.
    pub(crate) fn unit(&self, position: u64) -> [u64; UNIT / 8] {
        let Some(words) = self.view.words::<{ UNIT / 8 }>(self.at(position)) else {
            return [0; UNIT / 8];
        };
        // The others were written before the first.
        let first = words[0].load(Ordering::Acquire);
        [first, words[1].load(Relaxed), words[2].load(Relaxed), words[3].load(Relaxed)]
    }

    /// The word at `offset` in the record at `position`.
    pub(crate) fn word(&self, position: u64, offset: usize) -> u64 {
        self.view.load(self.at(position) + offset)
    }

    /// Appends `len` bytes, a multiple of 8, from `offset` in the record at `position`. Records run into
    /// the slack, so there is no wrapping.
    pub(crate) fn append(&self, position: u64, offset: usize, len: usize, out: &mut Vec<u8>) {
        let from = out.len();
        out.resize(from + len, 0);
        self.view.copy(self.at(position) + offset, &mut out[from..]);
    }

    /// Zeroes the first word of `units` units.
    pub(crate) fn clear(&self, position: u64, units: u32) {
        let at = self.at(position);
        for unit in 0..units as usize {
            self.view.store(at + unit * UNIT, 0);
        }
    }
}
