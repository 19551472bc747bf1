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
    let name = Global::Memstats.symbol();
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
        reader.read_parts(&mut parts).map_err(|_| Unknown::Unreadable(name))?;
        let generation = layout.settled(&first);
        let whole = generation.is_some() && generation == layout.settled(&second);
        if whole && (first == second || attempt >= TRIES) {
            let sums = layout.sum(&second);
            return if sums.is_sane() { Ok(sums) } else { Err(Unknown::Implausible(name)) };
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

    /// Whether it can be the statistics of any heap, also between two changes.
    fn is_sane(&self) -> bool {
        let now = [self.committed, self.released, self.in_heap, self.in_stacks, self.in_work_bufs];
        // No address space is larger; what is counted twice for a moment may be negative.
        now.iter().all(|bytes| (*bytes as i64).unsigned_abs() < 1 << 48)
    }

    /// Whether it can be the statistics of a heap at rest.
    pub(super) fn is_plausible(&self) -> bool {
        let used = [self.in_heap, self.in_stacks, self.in_work_bufs, self.in_scalar_bits];
        // Spans are of whole pages of 8 KiB.
        let pages = |bytes: &u64| bytes.is_multiple_of(8192);
        self.is_sane()
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

#[cfg(test)]
mod tests {
    use super::*;
    use address::MemoryError;
    use std::cell::Cell;

    /// One size class; a delta of 13 words.
    const LAYOUT: HeapStats = HeapStats {
        start: 0,
        len: 3 * 13 * 8 + 4,
        delta: 13 * 8,
        gen_at: 3 * 13 * 8,
        committed: 0,
        released: 8,
        in_heap: 16,
        in_stacks: 24,
        in_work_bufs: 32,
        in_scalar_bits: None,
        tiny_allocs: 40,
        large_alloc: 48,
        large_alloc_count: 56,
        small_alloc_count: 64,
        large_free: 72,
        large_free_count: 80,
        small_free_count: 88,
        classes: 1,
    };

    /// Bytes of large objects and of the heap's memory per delta, and the generation.
    fn state(deltas: [(u64, i64); 3], generation: u32) -> Vec<u8> {
        let mut bytes = vec![0; LAYOUT.len];
        let mut set = |at: usize, word: [u8; 8]| bytes[at..at + 8].copy_from_slice(&word);
        for (index, (large, committed)) in deltas.into_iter().enumerate() {
            set(index * LAYOUT.delta + LAYOUT.large_alloc, large.to_le_bytes());
            set(index * LAYOUT.delta + LAYOUT.committed, committed.to_le_bytes());
        }
        bytes[LAYOUT.gen_at..].copy_from_slice(&generation.to_le_bytes());
        bytes
    }

    /// What is read when each reading, one after the other, finds these; the last one stays.
    fn read_states(states: &[Vec<u8>]) -> (Result<(u64, u64), Unknown>, u64) {
        let next = Cell::new(0);
        let memory = |_: Avma, buf: &mut [u8]| -> Result<(), MemoryError> {
            buf.copy_from_slice(&states[next.get().min(states.len() - 1)]);
            next.set(next.get() + 1);
            Ok(())
        };
        let reader = Reader::new(&memory);
        let sums = read(&reader, Avma(0), &LAYOUT);
        (sums.map(|sums| (sums.large_alloc, sums.committed)), reader.effort().again)
    }

    #[test]
    fn deltas_are_summed_and_may_be_negative() {
        let one = state([(0, 0), (100, 9000), (20, -1000)], 2);
        assert_eq!(read_states(&[one]), (Ok((120, 8000)), 0));
    }

    #[test]
    fn what_moved_is_read_again() {
        let later = state([(0, 0), (100, 9), (21, 0)], 2);
        let states = [state([(0, 0), (100, 9), (20, 0)], 2), later.clone(), later];
        assert_eq!(read_states(&states), (Ok((121, 9)), 1));
    }

    #[test]
    fn what_always_moves_is_taken_as_it_is() {
        let states: Vec<Vec<u8>> = (0..100).map(|n| state([(n, 0), (0, 0), (5, 0)], 0)).collect();
        let (sums, again) = read_states(&states);
        assert_eq!((sums, again), (Ok((17 + 5, 0)), 8));
    }

    /// The program adds the delta before to the one it left, and has not cleared it yet: the
    /// sum counts it twice.
    #[test]
    fn a_sum_is_not_taken_while_deltas_are_folded() {
        let rest = state([(7, 0), (0, 0), (120, 0)], 0);
        // Generation 1 was left for 2; 100 of generation 0 are in 1 as well.
        let folding = state([(100, 0), (120, 0), (3, 0)], 2);
        let folded = state([(0, 0), (120, 0), (3, 0)], 2);
        let states = [folding.clone(), folding.clone(), folding, folded.clone(), folded.clone()];
        assert_eq!(read_states(&states), (Ok((123, 0)), 2));
        // Between two readings too: the first one is of the generation before.
        let states = [state([(100, 0), (20, 0), (0, 0)], 1), folded.clone(), folded];
        assert_eq!(read_states(&states).0, Ok((123, 0)));
        assert_eq!(read_states(&[rest]).0, Ok((127, 0)));
    }

    #[test]
    fn a_program_stopped_while_it_folds_gives_no_sum() {
        let folding = state([(100, 0), (120, 0), (3, 0)], 2);
        let (sums, again) = read_states(&[folding]);
        assert_eq!(sums, Err(Unknown::Torn("the heap's statistics")));
        assert_eq!(again, MORE_TRIES as u64 - 1);
        let unknown = state([(0, 0), (0, 0), (0, 0)], 7);
        assert!(read_states(&[unknown]).0.is_err());
    }
}
