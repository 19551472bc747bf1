//! `allp`: the processors of the scheduler.

use super::layout::Processor;
use super::pieces::{Pieces, number};
use super::reader::Reader;
use super::unknown::Unknown;
use address::{Avma, ReadMemory as _};
use binary::globals::Global;

/// `GOMAXPROCS` is not larger; Go has no limit since 1.10, kernels have 8192 CPUs at most.
pub(super) const MAX_PROCESSORS: u64 = 1 << 14;

/// Goroutines in a processor's run queue (`runtime2.go`, `p.runq`).
const RUN_QUEUE: u32 = 256;

/// The highest status (`runtime2.go`, `_Pdead`).
const MAX_STATUS: u32 = 4;

/// One processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessorNow {
    pub(super) status: u32,
    pub(super) m: u64,
    pub(super) mcache: u64,
    /// Goroutines in its run queue, the next one among them.
    pub(super) queued: u64,
    /// Dead goroutines it keeps.
    pub(super) gfree: u64,
    pub(super) created: u64,
}

/// Reads all processors of the slice at `allp`.
pub(super) fn read(
    reader: &Reader<'_>,
    allp: Avma,
    layout: &Processor,
) -> Result<Vec<ProcessorNow>, Unknown> {
    let implausible = Unknown::Implausible(Global::Allp.symbol());
    let bytes = read_each(reader, allp, &layout.pieces)?;
    let each = (0..).zip(bytes.chunks_exact(layout.pieces.size().max(1)));
    each.map(|(id, bytes)| layout.processor(id, bytes).ok_or(implausible.clone())).collect()
}

/// Dead goroutines that processors keep.
pub(super) fn free(reader: &Reader<'_>, allp: Avma, layout: &Processor) -> Result<u64, Unknown> {
    let bytes = read_each(reader, allp, &layout.free)?;
    let each = bytes.chunks_exact(layout.free.size().max(1));
    let counts = each.map(|bytes| u64::from(layout.free.view(bytes).half(layout.gfree_size)));
    Ok(counts.fold(0, u64::wrapping_add))
}

/// The pieces of each, one after the other.
fn read_each(reader: &Reader<'_>, allp: Avma, pieces: &Pieces) -> Result<Vec<u8>, Unknown> {
    let name = Global::Allp.symbol();
    let unreadable = |_| Unknown::Unreadable(name);
    let mut slice = [0; 24];
    reader.read_memory(allp, &mut slice).map_err(unreadable)?;
    let mut words = slice.chunks_exact(8).map(number);
    let [start, len, capacity] = std::array::from_fn(|_| words.next().unwrap_or(0));
    if len > capacity || len > MAX_PROCESSORS {
        return Err(Unknown::Implausible(name));
    }
    let count = len as usize;
    let mut pointers = vec![0; count * 8];
    reader.read_memory(Avma(start), &mut pointers).map_err(unreadable)?;
    let size = pieces.size();
    let mut bytes = vec![0; size * count];
    let mut parts = Vec::new();
    for (pointer, bytes) in pointers.chunks_exact(8).zip(bytes.chunks_exact_mut(size.max(1))) {
        parts.extend(pieces.parts(Avma(number(pointer)), bytes));
    }
    reader.read_parts(&mut parts).map_err(unreadable)?;
    Ok(bytes)
}

impl Processor {
    /// `None` when it is no processor of that number.
    fn processor(&self, id: u32, bytes: &[u8]) -> Option<ProcessorNow> {
        let p = self.pieces.view(bytes);
        let status = p.half(self.status);
        // Head and tail are neighbours and counted modulo 2^32.
        let queued = p.half(self.runqtail).wrapping_sub(p.half(self.runqhead));
        let gfree = i32::try_from(p.half(self.gfree_size)).ok()?;
        if p.half(self.id) != id || status > MAX_STATUS || queued > RUN_QUEUE {
            return None;
        }
        Some(ProcessorNow {
            status,
            m: p.word(self.m),
            mcache: p.word(self.mcache),
            queued: u64::from(queued) + u64::from(p.word(self.runnext) != 0),
            gfree: gfree.unsigned_abs().into(),
            created: self.created.map_or(0, |offset| p.word(offset)),
        })
    }
}
