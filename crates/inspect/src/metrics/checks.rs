//! What must hold at a global variable's address. Each check rejected nearly every wrong
//! address it was tried on - neighbours, random words, other variables - except those of
//! single counters ([`Global::GcPhase`], [`Global::CgoCalls`]), where code that always was
//! right has to suffice.

use super::heap;
use super::layout::Layouts;
use super::pieces::View;
use super::processors::{self, MAX_PROCESSORS};
use super::reader::Reader;
use super::threads;
use super::unknown::Unknown;
use address::{Avma, ReadMemory};
use binary::globals::Global;

/// No process has more threads (`maxmcount` is 10,000 unless the program raises it).
const MAX_THREADS: u64 = 1 << 20;

/// What the collector lets a heap grow to at least (`mgcpacer.go`, `defaultHeapMinimum`).
const HEAP_MINIMUM: u64 = 4 << 20;

/// Checks, each of which may use what earlier ones found.
pub(super) struct Checks<'a> {
    layouts: &'a Layouts,
    reader: Reader<'a>,
    processors: Option<u64>,
    threads: Option<u64>,
    memstats: Option<Avma>,
    in_heap: Option<u64>,
    cycles: Option<u32>,
}

impl<'a> Checks<'a> {
    pub(super) fn new(layouts: &'a Layouts, memory: &'a dyn ReadMemory) -> Self {
        Self {
            layouts,
            reader: Reader::new(memory),
            processors: None,
            threads: None,
            memstats: None,
            in_heap: None,
            cycles: None,
        }
    }

    /// Whether memory at `at` is what the variable must be; the reason when its layout is not
    /// known. Unreadable memory is not it.
    pub(super) fn check(&mut self, global: Global, at: Avma) -> Result<bool, Unknown> {
        let held = match global {
            Global::Allp => self.allp(at),
            Global::Allm => self.allm(at),
            Global::Sched => self.sched(at),
            Global::Memstats => self.memstats(at),
            Global::GcController => self.pacer(at),
            Global::Mheap => self.mheap(at),
            Global::Work => self.work(at),
            Global::GcPhase => Ok(self.reader.read_word(at).is_ok_and(|word| word as u32 <= 2)),
            Global::CgoCalls => Ok(self.reader.read_word(at).is_ok_and(|calls| calls < 1 << 56)),
            _ => Ok(false),
        };
        match held {
            Err(Unknown::Unreadable(_) | Unknown::Torn(_) | Unknown::Implausible(_)) => Ok(false),
            held => held,
        }
    }

    fn allp(&mut self, at: Avma) -> Result<bool, Unknown> {
        let layout = known(&self.layouts.processor)?;
        // Numbered in their order, each with a status and a cache, no more than its capacity.
        let all = processors::read(&self.reader, at, layout)?;
        let held = !all.is_empty() && all.iter().all(|p| p.mcache != 0);
        self.processors = held.then_some(all.len() as u64);
        Ok(held)
    }

    fn allm(&mut self, at: Avma) -> Result<bool, Unknown> {
        let layout = known(&self.layouts.thread)?;
        let all = threads::read(&self.reader, at, layout, MAX_THREADS)?;
        let g_m = |g0: u64| self.reader.read_word(Avma(g0).add(layout.g_m)).ok();
        let Some((newest, oldest)) = all.first().zip(all.last()) else { return Ok(false) };
        // The oldest is m0; each has a system stack that knows its thread.
        let held = oldest.id == 0
            && [newest, oldest].iter().all(|thread| g_m(thread.g0) == Some(thread.address.0));
        self.threads = held.then_some(all.len() as u64);
        Ok(held)
    }

    fn sched(&mut self, at: Avma) -> Result<bool, Unknown> {
        let layout = known(&self.layouts.sched)?;
        let bytes = self.read(at, &layout.pieces, Global::Sched)?;
        let sched = layout.pieces.view(&bytes);
        let threads = sched.word(layout.mnext).wrapping_sub(sched.word(layout.nmfreed));
        let small = |field: u64, most: u64| u64::from(sched.half(field)) <= most;
        let processors = self.processors.unwrap_or(MAX_PROCESSORS);
        let created = sched.word(layout.goidgen);
        let one = |list: u64, count: u64| (sched.word(list) != 0) == (sched.half(count) != 0);
        Ok((1..=MAX_THREADS).contains(&threads)
            // A thread more or less while the list was followed.
            && self.threads.is_none_or(|known| known.abs_diff(threads) <= 1 + known / 16)
            && i64::from(sched.half(layout.maxmcount) as i32) >= threads as i64
            && small(layout.nmidle, threads)
            && small(layout.nmspinning, threads)
            && small(layout.npidle, processors)
            && one(layout.pidle, layout.npidle)
            && sched.half(layout.gfree_size) as i32 >= 0
            && sched.half(layout.runq_size) as i32 >= 0
            && (1..1 << 56).contains(&created))
    }

    fn memstats(&mut self, at: Avma) -> Result<bool, Unknown> {
        let layout = known(&self.layouts.mstats)?;
        let sums = heap::read(&self.reader, at, &layout.heap)?;
        let bytes = self.read(at, &layout.pieces, Global::Memstats)?;
        let stats = layout.pieces.view(&bytes);
        let cycles = stats.half(layout.numgc);
        let fraction = f64::from_bits(stats.word(layout.gc_cpu_fraction));
        let ring = |field: u64| -> Vec<u64> { stats.words(field, layout.pauses).collect() };
        let newest = (cycles.wrapping_sub(1) as usize) % layout.pauses;
        let ended = ring(layout.pause_end).get(newest).copied();
        let last = stats.word(layout.last_gc_unix);
        let paused: u64 = ring(layout.pause_ns).iter().fold(0, |sum, ns| sum.wrapping_add(*ns));
        let total = stats.word(layout.pause_total_ns);
        let held = sums.is_plausible()
            && stats.half(layout.numforcedgc) <= cycles
            && stats.byte(layout.enablegc) == 1
            && (0.0..=1.0).contains(&fraction)
            && if cycles == 0 { last == 0 && total == 0 } else { ended == Some(last) }
            && (cycles as usize > layout.pauses || paused == total);
        if held {
            self.memstats = Some(at);
            self.in_heap = Some(sums.in_heap);
            self.cycles = Some(cycles);
        }
        Ok(held)
    }

    fn mheap(&mut self, at: Avma) -> Result<bool, Unknown> {
        let layout = known(&self.layouts.mheap)?;
        let bytes = self.read(at, &layout.pieces, Global::Mheap)?;
        let heap = layout.pieces.view(&bytes);
        let stats = self.layouts.mstats.as_ref().ok();
        let held = [
            (&layout.span, stats.map(|s| s.mspan_sys)),
            (&layout.cache, stats.map(|s| s.mcache_sys)),
        ]
        .into_iter()
        .all(|(allocator, counter)| {
            // Where it counts what it obtains.
            let counts = self.memstats.zip(counter).map(|(base, at)| base.add(at).0);
            let inuse = heap.word(allocator.inuse);
            heap.word(allocator.size) == allocator.element
                && inuse > 0
                && inuse.is_multiple_of(allocator.element)
                && counts.is_none_or(|counts| heap.word(allocator.stat) == counts)
        });
        Ok(held)
    }

    fn pacer(&mut self, at: Avma) -> Result<bool, Unknown> {
        let layout = known(&self.layouts.pacer)?;
        let bytes = self.read(at, &layout.pieces, Global::GcController)?;
        let pacer = layout.pieces.view(&bytes);
        let percent = pacer.half(layout.gc_percent) as i32;
        // Computed in unsigned 64 bits, also from -1.
        let minimum = HEAP_MINIMUM.wrapping_mul(i64::from(percent) as u64) / 100;
        let pages = [layout.heap_in_use, layout.heap_free, layout.heap_released];
        let in_use = pacer.word(layout.heap_in_use);
        let near = |heap: u64| heap.abs_diff(in_use) <= (64 << 20) + heap / 2;
        Ok(percent >= -1
            && pacer.word(layout.heap_minimum) == minimum
            && pacer.word(layout.memory_limit) as i64 >= 0
            && pages.iter().all(|field| pacer.word(*field).is_multiple_of(8192))
            && in_use > 0
            && self.in_heap.is_none_or(near)
            && pacer.word(layout.total_alloc) >= pacer.word(layout.total_free))
    }

    fn work(&mut self, at: Avma) -> Result<bool, Unknown> {
        let layout = known(&self.layouts.work)?;
        let bytes = self.read(at, &layout.pieces, Global::Work)?;
        let work = layout.pieces.view(&bytes);
        let began = work.half(layout.cycles);
        // One more while a cycle runs; one may have ended since the statistics were read.
        let near = |cycles: u32| began.wrapping_sub(cycles) <= 2;
        Ok(self.cycles.is_none_or(near) && layout.cpu.is_none_or(|cpu| add_up(work, &cpu)))
    }

    fn read(
        &self,
        at: Avma,
        pieces: &super::pieces::Pieces,
        global: Global,
    ) -> Result<Vec<u8>, Unknown> {
        self.reader.pieces(at, pieces).map_err(|_| Unknown::Unreadable(global.symbol()))
    }
}

/// Whether CPU times can be ones: what is in the collector's and the scavenger's sums is not
/// more than these, and no time is negative.
pub(super) fn add_up(work: View<'_>, cpu: &[u64; 11]) -> bool {
    let times = cpu.map(|offset| work.word(offset));
    let [assist, dedicated, idle, pause, gc, s_assist, s_background, scavenge, ..] = times;
    times.iter().all(|ns| *ns < 1 << 60)
        && assist + dedicated + idle + pause == gc
        && s_assist + s_background == scavenge
}

fn known<T>(layout: &Result<T, Unknown>) -> Result<&T, Unknown> {
    layout.as_ref().map_err(Unknown::clone)
}
