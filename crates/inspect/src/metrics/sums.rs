//! Reads memory and collector: `memstats`, `mheap_`, `gcController`, `work`, `gcphase`.

use super::checks::add_up;
use super::collector::{Collector, CpuTimes, GcPhase, Pause, Pauses};
use super::confirmed::{Confirmed, address};
use super::goal::Pacing;
use super::heap::{self, Sums};
use super::layout::{Layouts, Mstats, Pacer};
use super::machine::Machine;
use super::memory::Memory;
use super::pieces::{Pieces, View};
use super::plan::MetricsPlan;
use super::reader::Reader;
use super::unknown::{Unknown, Value};
use address::ReadMemory as _;
use binary::globals::Global;

/// Readings of what is written while the world is stopped.
const TRIES: usize = 8;

/// What memory and collector are computed from.
pub(super) struct Figures<'p> {
    plan: &'p MetricsPlan,
    heap: Value<Sums>,
    stats: Result<Vec<u8>, Unknown>,
    mheap: Result<Vec<u8>, Unknown>,
    pacer: Result<Vec<u8>, Unknown>,
    work: Result<Vec<u8>, Unknown>,
    phase: Value<GcPhase>,
}

impl<'p> Figures<'p> {
    pub(super) fn read(plan: &'p MetricsPlan, reader: &Reader<'_>, found: &Confirmed) -> Self {
        let Layouts { mstats, mheap, pacer, work, .. } = &plan.layouts;
        let heap = mstats
            .as_ref()
            .map_err(Unknown::clone)
            .and_then(|layout| heap::read(reader, address(&found.memstats)?, &layout.heap));
        let stats = read_twice(reader, Global::Memstats, &found.memstats, mstats, |l| &l.pieces);
        // What was confirmed may be gone: the process runs another program now.
        let on = |stats: View<'_>, l: &Mstats| stats.byte(l.enablegc) == 1;
        let paced = |pacer: View<'_>, l: &Pacer| pacer.half(l.gc_percent) as i32 >= -1;
        let pacer_bytes =
            read_twice(reader, Global::GcController, &found.pacer, pacer, |l| &l.pieces);
        Self {
            plan,
            heap,
            stats: sound(stats, mstats, |l| &l.pieces, on, Global::Memstats),
            mheap: read_twice(reader, Global::Mheap, &found.mheap, mheap, |l| &l.pieces),
            pacer: sound(pacer_bytes, pacer, |l| &l.pieces, paced, Global::GcController),
            work: read_twice(reader, Global::Work, &found.work, work, |l| &l.pieces),
            phase: read_phase(reader, found),
        }
    }

    pub(super) fn memory(&self) -> Memory {
        let heap = self.heap.as_ref().map_err(Unknown::clone);
        let stats = |of: fn(&Mstats) -> u64| self.stats(|stats, layout| stats.word(of(layout)));
        let in_heap = |of: fn(&Sums) -> u64| heap.clone().map(of);
        let free = || -> Value<u64> { Ok(heap.clone()?.free()) };
        let system = || -> Value<u64> {
            let others = self.stats(|stats, l| {
                let fields = [
                    l.stacks_sys,
                    l.mspan_sys,
                    l.mcache_sys,
                    l.buckhash_sys,
                    l.gc_misc_sys,
                    l.other_sys,
                ];
                fields.iter().fold(0u64, |sum, field| sum.wrapping_add(stats.word(*field)))
            })?;
            let heap = heap.clone()?;
            Ok(others.wrapping_add(heap.committed).wrapping_add(heap.released))
        };
        let gc_other = |sums: &Sums| sums.in_work_bufs.wrapping_add(sums.in_scalar_bits);
        Memory {
            sys: system(),
            heap_sys: free().and_then(|free| {
                let heap = heap.clone()?;
                Ok(free.wrapping_add(heap.in_heap).wrapping_add(heap.released))
            }),
            heap_idle: free().and_then(|free| Ok(free.wrapping_add(heap.clone()?.released))),
            heap_inuse: in_heap(|sums| sums.in_heap),
            heap_released: in_heap(|sums| sums.released),
            stack_inuse: in_heap(|sums| sums.in_stacks),
            stack_sys: stats(|l| l.stacks_sys)
                .and_then(|threads| Ok(threads.wrapping_add(heap.clone()?.in_stacks))),
            tiny_allocs: in_heap(|sums| sums.tiny_allocs),
            mspan_inuse: self.mheap(|heap, l| heap.word(l.span.inuse)),
            mspan_sys: stats(|l| l.mspan_sys),
            mcache_inuse: self.mheap(|heap, l| heap.word(l.cache.inuse)),
            mcache_sys: stats(|l| l.mcache_sys),
            buckhash_sys: stats(|l| l.buckhash_sys),
            gc_sys: stats(|l| l.gc_misc_sys)
                .and_then(|misc| Ok(misc.wrapping_add(gc_other(heap.clone()?)))),
            other_sys: stats(|l| l.other_sys),
            unflushed: Err(Unknown::NotAsked),
            ..self.objects().unwrap_or_else(|why| Memory::unknown(&why))
        }
    }

    /// What is counted by size class.
    fn objects(&self) -> Value<Memory> {
        let heap = self.heap.as_ref().map_err(Unknown::clone)?;
        let sizes = self.plan.size_classes.as_ref().map_err(Unknown::clone)?;
        let classes = heap.by_class(sizes);
        let sum =
            |of: fn(&super::SizeClass) -> u64| classes.iter().map(of).fold(0u64, u64::wrapping_add);
        let (mallocs, frees) = (sum(|c| c.mallocs), sum(|c| c.frees));
        let (allocated, freed) = (sum(|c| c.allocated), sum(|c| c.freed));
        Ok(Memory {
            total_alloc: Ok(allocated),
            total_free: Ok(freed),
            // Objects are counted where they are freed before the span they came from is
            // counted, for moments.
            heap_alloc: Ok(allocated.saturating_sub(freed)),
            heap_objects: Ok(mallocs.saturating_sub(frees)),
            mallocs: Ok(mallocs.wrapping_add(heap.tiny_allocs)),
            frees: Ok(frees.wrapping_add(heap.tiny_allocs)),
            size_classes: Ok(classes),
            ..Memory::unknown(&Unknown::NotAsked)
        })
    }

    pub(super) fn collector(&self, machine: &Machine) -> Collector {
        let pacer = |of: fn(&Pacer) -> u64| self.pacer(|pacer, layout| pacer.word(of(layout)));
        let half = |of: fn(&Mstats) -> u64| self.stats(|s, l| u64::from(s.half(of(l))));
        Collector {
            cycles: half(|l| l.numgc),
            forced_cycles: half(|l| l.numforcedgc),
            last_ns: self.stats(|stats, l| stats.word(l.last_gc_unix)),
            pause_total_ns: self.stats(|stats, l| stats.word(l.pause_total_ns)),
            pauses: self.stats(pauses),
            pause_histogram: self.pause_histogram(machine),
            cpu_fraction: self.stats(|stats, l| f64::from_bits(stats.word(l.gc_cpu_fraction))),
            cpu: self.cpu(),
            phase: self.phase.clone(),
            gogc_percent: self.pacer(|pacer, l| pacer.half(l.gc_percent) as i32),
            memory_limit: pacer(|l| l.memory_limit),
            heap_goal: self.goal(),
            heap_marked: pacer(|l| l.heap_marked),
            heap_live: pacer(|l| l.heap_live),
        }
    }

    /// Up to Go 1.21 beside the heap's statistics, then in the scheduler.
    fn pause_histogram(&self, machine: &Machine) -> Value<super::TimeHistogram> {
        let old = self.stats(|stats, l| l.pause_histogram.map(|at| at.read(stats)));
        match old {
            Ok(Some(read)) => read.ok_or(Unknown::Implausible(Global::Memstats.symbol())),
            _ => machine.pauses_gc.clone(),
        }
    }

    fn goal(&self) -> Value<u64> {
        let headroom = self.plan.headroom.clone()?;
        self.pacer(|pacer, l| {
            Pacing {
                memory_limit: pacer.word(l.memory_limit),
                percent_goal: pacer.word(l.percent_goal),
                sweep_trigger: pacer.word(l.sweep_trigger),
                triggered: pacer.word(l.triggered),
                heap_marked: pacer.word(l.heap_marked),
                heap_free: pacer.word(l.heap_free),
                heap_alloc: pacer.word(l.total_alloc).wrapping_sub(pacer.word(l.total_free)),
                mapped_ready: pacer.word(l.mapped_ready),
            }
            .goal(headroom)
        })
    }

    fn cpu(&self) -> Value<CpuTimes> {
        let name = Global::Work.symbol();
        let layout = self.plan.layouts.work.as_ref().map_err(Unknown::clone)?;
        let cpu = layout.cpu.ok_or(Unknown::NotInVersion)?;
        let bytes = self.work.as_ref().map_err(Unknown::clone)?;
        let work = layout.pieces.view(bytes);
        // What fitted while there had been no cycle need not be `work`: all was zero.
        let began = work.half(layout.cycles);
        let ended = self.stats(|stats, l| stats.half(l.numgc));
        if !add_up(work, &cpu) || ended.is_ok_and(|ended| began.wrapping_sub(ended) > 2) {
            return Err(Unknown::Implausible(name));
        }
        let times = cpu.map(|offset| work.word(offset));
        let [a, b, c, d, e, f, g, h, i, j, k] = times;
        Ok(CpuTimes {
            gc_assist_ns: a,
            gc_dedicated_ns: b,
            gc_idle_ns: c,
            gc_pause_ns: d,
            gc_total_ns: e,
            scavenge_assist_ns: f,
            scavenge_background_ns: g,
            scavenge_total_ns: h,
            idle_ns: i,
            user_ns: j,
            total_ns: k,
        })
    }

    fn stats<T>(&self, of: impl Fn(View<'_>, &Mstats) -> T) -> Value<T> {
        let layout = self.plan.layouts.mstats.as_ref().map_err(Unknown::clone)?;
        let bytes = self.stats.as_ref().map_err(Unknown::clone)?;
        Ok(of(layout.pieces.view(bytes), layout))
    }

    fn pacer<T>(&self, of: impl Fn(View<'_>, &Pacer) -> T) -> Value<T> {
        let layout = self.plan.layouts.pacer.as_ref().map_err(Unknown::clone)?;
        let bytes = self.pacer.as_ref().map_err(Unknown::clone)?;
        Ok(of(layout.pieces.view(bytes), layout))
    }

    fn mheap<T>(&self, of: impl Fn(View<'_>, &super::layout::MheapLayout) -> T) -> Value<T> {
        let layout = self.plan.layouts.mheap.as_ref().map_err(Unknown::clone)?;
        let bytes = self.mheap.as_ref().map_err(Unknown::clone)?;
        Ok(of(layout.pieces.view(bytes), layout))
    }
}

/// Reads until two readings are equal; what moves on is taken as it is.
fn read_twice<L>(
    reader: &Reader<'_>,
    global: Global,
    found: &super::confirmed::Found,
    layout: &Result<L, Unknown>,
    pieces: fn(&L) -> &Pieces,
) -> Result<Vec<u8>, Unknown> {
    let pieces = pieces(layout.as_ref().map_err(Unknown::clone)?);
    let at = address(found)?;
    let read = || reader.pieces(at, pieces).map_err(|_| Unknown::Unreadable(global.symbol()));
    let mut bytes = read()?;
    for _ in 0..TRIES {
        let next = read()?;
        if next == bytes {
            break;
        }
        bytes = next;
        reader.again();
    }
    Ok(bytes)
}

/// What was read, if it can be that variable.
fn sound<L>(
    bytes: Result<Vec<u8>, Unknown>,
    layout: &Result<L, Unknown>,
    pieces: fn(&L) -> &Pieces,
    can_be: impl Fn(View<'_>, &L) -> bool,
    global: Global,
) -> Result<Vec<u8>, Unknown> {
    let (bytes, layout) = (bytes?, layout.as_ref().map_err(Unknown::clone)?);
    let can_be = can_be(pieces(layout).view(&bytes), layout);
    if can_be { Ok(bytes) } else { Err(Unknown::Implausible(global.symbol())) }
}

fn read_phase(reader: &Reader<'_>, found: &Confirmed) -> Value<GcPhase> {
    let name = Global::GcPhase.symbol();
    let mut bytes = [0; 4];
    let at = address(&found.phase)?;
    reader.read_memory(at, &mut bytes).map_err(|_| Unknown::Unreadable(name))?;
    match u32::from_le_bytes(bytes) {
        0 => Ok(GcPhase::Off),
        1 => Ok(GcPhase::Mark),
        2 => Ok(GcPhase::MarkTermination),
        _ => Err(Unknown::Implausible(name)),
    }
}

/// The ring of pauses, newest first.
fn pauses(stats: View<'_>, layout: &Mstats) -> Pauses {
    let cycles = stats.half(layout.numgc) as usize;
    let ring = |field: u64| stats.words(field, layout.pauses).collect::<Vec<u64>>();
    let (ns, ends) = (ring(layout.pause_ns), ring(layout.pause_end));
    let count = cycles.min(layout.pauses);
    let pause = |back: usize| {
        let at = cycles.checked_sub(back)? % layout.pauses;
        Some(Pause { ns: *ns.get(at)?, end_ns: *ends.get(at)? })
    };
    Pauses((1..=count).filter_map(pause).collect())
}
