//! `memstats.heapStats`: the heap's statistics, summed over generations.
//!
//! Writers add to the delta of the current generation. Whoever reads from inside
//! (`runtime/metrics`) makes the next generation current, waits for writers to leave, adds
//! the delta before to the one just left, and clears it (`mstats.go`,
//! `consistentHeapStats.read`). So the sum of all three is the figure, except while that goes
//! on: until the delta that comes after the current one is all zero, some of it stands
//! twice. `runtime.ReadMemStats` sums them with the world stopped.
//!
//! From outside, two readings follow each other. When in both the delta after the current one
//! is zero and the generation is the same, the second was begun after the adding up and ended
//! before the next: nothing is in it twice or missing. When they are equal besides, nothing
//! moved at all.

use super::layout::{GENERATIONS, HeapStats};
use super::memory::SizeClass;
use super::pieces::number;
use super::reader::Reader;
use super::unknown::Unknown;
use address::{Avma, Part, ReadMemory as _};
use binary::globals::Global;

/// Readings before moving counters are taken as they are.
const TRIES: usize = 8;

/// Readings before it is called torn.
const MORE_TRIES: usize = 64;

/// All counts, summed. Bytes and objects since the start, except the first six: bytes now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) committed: u64,
    pub(super) released: u64,
    pub(super) in_heap: u64,
    pub(super) in_stacks: u64,
    pub(super) in_work_bufs: u64,
    pub(super) in_scalar_bits: u64,
    pub(super) tiny_allocs: u64,
    pub(super) large_alloc: u64,
    pub(super) large_alloc_count: u64,
    pub(super) large_free: u64,
    pub(super) large_free_count: u64,
    pub(super) small_alloc_count: Vec<u64>,
    pub(super) small_free_count: Vec<u64>,
}

/// Reads until nothing stands twice, and better until nothing moved.
pub(super) fn read(
    reader: &Reader<'_>,
    memstats: Avma,
    layout: &HeapStats,
) -> Result<Sums, Unknown> {
    let start = memstats.add(layout.start);
    let (mut first, mut second) = (vec![0; layout.len], vec![0; layout.len]);
    for attempt in 0..MORE_TRIES {
        if attempt > 0 {
            reader.again();
        }
        let mut parts = [
            Part { address: start, bytes: &mut first },
            Part { address: start, bytes: &mut second },
        ];
        let name = Global::Memstats.symbol();
        reader.read_parts(&mut parts).map_err(|_| Unknown::Unreadable(name))?;
        let generation = layout.settled(&first);
        let whole = generation.is_some() && generation == layout.settled(&second);
        if whole && (first == second || attempt >= TRIES) {
            return Ok(layout.sum(&second));
        }
    }
    Err(Unknown::Torn("the heap's statistics"))
}

impl HeapStats {
    /// The generation, when the delta after it is zero.
    fn settled(&self, bytes: &[u8]) -> Option<usize> {
        let generation = number(bytes.get(self.gen_at..self.gen_at + 4)?) as usize;
        let next = (generation + 1) % GENERATIONS;
        let delta = bytes.get(next * self.delta..(next + 1) * self.delta)?;
        (generation < GENERATIONS && delta.iter().all(|byte| *byte == 0)).then_some(generation)
    }

    fn sum(&self, bytes: &[u8]) -> Sums {
        let word = |at: usize| bytes.get(at..at + 8).map_or(0, number);
        // The deltas of bytes now are signed: their sum wraps to what it is.
        let field = |offset: usize| {
            (0..GENERATIONS).fold(0u64, |sum, g| sum.wrapping_add(word(g * self.delta + offset)))
        };
        let classes = |offset: usize| (0..self.classes).map(move |class| field(offset + class * 8));
        Sums {
            committed: field(self.committed),
            released: field(self.released),
            in_heap: field(self.in_heap),
            in_stacks: field(self.in_stacks),
            in_work_bufs: field(self.in_work_bufs),
            in_scalar_bits: self.in_scalar_bits.map_or(0, field),
            tiny_allocs: field(self.tiny_allocs),
            large_alloc: field(self.large_alloc),
            large_alloc_count: field(self.large_alloc_count),
            large_free: field(self.large_free),
            large_free_count: field(self.large_free_count),
            small_alloc_count: classes(self.small_alloc_count).collect(),
            small_free_count: classes(self.small_free_count).collect(),
        }
    }
}

impl Sums {
    /// Bytes of the heap that hold nothing and were not returned (`heapFree`).
    pub(super) fn free(&self) -> u64 {
        let others = [self.in_heap, self.in_stacks, self.in_work_bufs, self.in_scalar_bits];
        others.iter().fold(self.committed, |left, bytes| left.saturating_sub(*bytes))
    }

    /// Whether it can be the statistics of a heap.
    pub(super) fn is_plausible(&self) -> bool {
        let used = [self.in_heap, self.in_stacks, self.in_work_bufs, self.in_scalar_bits];
        let bytes = [self.committed, self.released];
        // No address space is larger.
        let sane = |bytes: &u64| *bytes < 1 << 48;
        // Spans are of whole pages of 8 KiB.
        let pages = |bytes: &u64| bytes.is_multiple_of(8192);
        used.iter().chain(&bytes).all(sane)
            && used.iter().all(pages)
            && used.iter().sum::<u64>() <= self.committed
            && self.in_heap > 0
    }

    /// By size class; `sizes` are the bytes of an object of each.
    pub(super) fn by_class(&self, sizes: &[u16]) -> Vec<SizeClass> {
        // Class 0 stands for large objects and has no counts.
        let small = sizes.iter().zip(self.small_alloc_count.iter().zip(&self.small_free_count));
        let mut classes: Vec<SizeClass> = small
            .skip(1)
            .map(|(&size, (&mallocs, &frees))| {
                let size = u64::from(size);
                let (allocated, freed) = (mallocs.wrapping_mul(size), frees.wrapping_mul(size));
                SizeClass { size, mallocs, frees, allocated, freed }
            })
            .collect();
        classes.push(SizeClass {
            size: 0,
            mallocs: self.large_alloc_count,
            frees: self.large_free_count,
            allocated: self.large_alloc,
            freed: self.large_free,
        });
        classes
    }
}
