//! `runtime.allgs`: every goroutine descriptor there is.

use crate::descriptor::{Descriptor, Layout, word_at};
use crate::error::Error;
use address::{Avma, Bias, MemoryError, ReadMemory};
use binary::Executable;
use binary::globals::{Candidate, Global, find};
use std::collections::HashSet;

/// More descriptors than this are no list (a `g` and its stack take 2.5 KB at least: 40 GB).
const MAX_GOROUTINES: u64 = 1 << 24;

/// Pointers read at a time.
const CHUNK: usize = 4096;

/// Descriptors looked at before a candidate is believed.
const SAMPLE: u64 = 64;

/// How often a list that grows while it is read is begun anew.
const TRIES: usize = 8;

/// The list's place in memory, confirmed.
#[derive(Clone, Copy, Debug)]
pub struct AllGoroutines {
    slice: Avma,
    len: Option<Avma>,
    candidate: Candidate,
}

impl AllGoroutines {
    /// Takes the first candidate whose memory is a list of goroutine descriptors.
    pub(crate) fn find(
        executable: &Executable,
        memory: &dyn ReadMemory,
        bias: Bias,
        layout: &Layout,
    ) -> Result<Self, Error> {
        let name = Global::Allgs.symbol();
        let slices = find(executable, Global::Allgs)?;
        if slices.is_empty() {
            return Err(Error::NoGlobal(name));
        }
        let lens = find(executable, Global::Allglen)?;
        Self::confirm(&slices, &lens, memory, bias, layout).ok_or(Error::NotConfirmed(name))
    }

    /// The same among candidates that are known already; `None` when none fits.
    pub(crate) fn confirm(
        slices: &[Candidate],
        lens: &[Candidate],
        memory: &dyn ReadMemory,
        bias: Bias,
        layout: &Layout,
    ) -> Option<Self> {
        for candidate in slices {
            let slice = bias.to_avma(candidate.address);
            // The list grows while it is looked at: once more before it is refused.
            for _ in 0..2 {
                let Some(count) = confirmed(memory, slice, layout) else { continue };
                let near = |place: &Avma| {
                    memory.read_word(*place).is_ok_and(|len| len.abs_diff(count) <= 1 + count / 8)
                };
                let len = lens.iter().map(|len| bias.to_avma(len.address)).find(near);
                return Some(Self { slice, len, candidate: *candidate });
            }
        }
        None
    }

    /// Where the number of descriptors stands: `allglen`, else the slice's length.
    pub(crate) fn len_at(&self) -> Avma {
        self.len.unwrap_or_else(|| self.slice.add(8))
    }

    /// The slice itself.
    pub(crate) fn address(&self) -> Avma {
        self.slice
    }

    /// Where it was found, and by what.
    pub fn candidate(&self) -> Candidate {
        self.candidate
    }

    /// Addresses of all descriptors. The list only grows, and its old backing array stays
    /// as it was until the collector takes it: a reading during which the slice moved is
    /// done again.
    pub(crate) fn addresses(&self, memory: &dyn ReadMemory) -> Result<Vec<Avma>, MemoryError> {
        let mut last = MemoryError(self.slice);
        for _ in 0..TRIES {
            match self.read_once(memory) {
                Ok(Some(addresses)) => return Ok(addresses),
                Ok(None) => {}
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// `None` when the slice moved.
    fn read_once(&self, memory: &dyn ReadMemory) -> Result<Option<Vec<Avma>>, MemoryError> {
        let (start, slice_len) = read_slice(memory, self.slice)?;
        // A length without a lock may be ahead of its pointer; `allglen` never is.
        let len = match self.len {
            Some(place) => memory.read_word(place)?.min(slice_len),
            None => slice_len,
        };
        let mut addresses = Vec::new();
        let mut bytes = vec![0; CHUNK * 8];
        let mut at = start;
        let mut left = len.min(MAX_GOROUTINES);
        while left > 0 {
            let count = left.min(CHUNK as u64);
            let piece = bytes.get_mut(..count as usize * 8).unwrap_or_default();
            memory.read_memory(at, piece)?;
            let pointers = piece.chunks_exact(8).map(|word| Avma(word_at(word, 0)));
            addresses.extend(pointers.filter(|pointer| pointer.0 != 0));
            at = at.add(count * 8);
            left -= count;
        }
        let unmoved = read_slice(memory, self.slice)?.0 == start;
        Ok(unmoved.then_some(addresses))
    }
}

/// Pointer and length; a length past the capacity is cut.
fn read_slice(memory: &dyn ReadMemory, at: Avma) -> Result<(Avma, u64), MemoryError> {
    let mut bytes = [0; 24];
    memory.read_memory(at, &mut bytes)?;
    let (len, capacity) = (word_at(&bytes, 8), word_at(&bytes, 16));
    Ok((Avma(word_at(&bytes, 0)), len.min(capacity)))
}

/// The count, when the slice is one of distinct pointers to goroutine descriptors of which
/// one at least is alive.
fn confirmed(memory: &dyn ReadMemory, slice: Avma, layout: &Layout) -> Option<u64> {
    let (start, len) = read_slice(memory, slice).ok()?;
    if len == 0 || len > MAX_GOROUTINES {
        return None;
    }
    let mut seen = HashSet::new();
    let mut alive = false;
    for index in 0..len.min(SAMPLE) {
        let pointer = memory.read_word(start.add(index * 8)).ok()?;
        let descriptor = Descriptor::read(layout, memory, Avma(pointer)).ok()?;
        if !seen.insert(pointer) || !descriptor.is_plausible() {
            return None;
        }
        alive |= descriptor.state().is_alive();
    }
    // The last one is there too, or the length is another's.
    let last = memory.read_word(start.add((len - 1) * 8)).ok()?;
    let last = Descriptor::read(layout, memory, Avma(last)).ok()?;
    (last.is_plausible() && (alive || len > SAMPLE)).then_some(len)
}
