//! The heap and the collector.

use super::machine::HistogramAt;
use crate::metrics::pieces::{Pieces, Wanted};
use crate::metrics::unknown::Unknown;
use binary::layout::RuntimeLayouts;

/// `memstats.heapStats`: three `heapStatsDelta`, then the generation. Offsets of fields are
/// those in a delta.
#[derive(Clone, Debug)]
pub(in crate::metrics) struct HeapStats {
    /// From the start of `memstats`: the first delta.
    pub(in crate::metrics) start: u64,
    /// Bytes from the first delta to the end of the generation.
    pub(in crate::metrics) len: usize,
    /// Bytes of a delta.
    pub(in crate::metrics) delta: usize,
    /// From the first delta.
    pub(in crate::metrics) gen_at: usize,
    pub(in crate::metrics) committed: usize,
    pub(in crate::metrics) released: usize,
    pub(in crate::metrics) in_heap: usize,
    pub(in crate::metrics) in_stacks: usize,
    pub(in crate::metrics) in_work_bufs: usize,
    /// Up to Go 1.24.
    pub(in crate::metrics) in_scalar_bits: Option<usize>,
    pub(in crate::metrics) tiny_allocs: usize,
    pub(in crate::metrics) large_alloc: usize,
    pub(in crate::metrics) large_alloc_count: usize,
    pub(in crate::metrics) small_alloc_count: usize,
    pub(in crate::metrics) large_free: usize,
    pub(in crate::metrics) large_free_count: usize,
    pub(in crate::metrics) small_free_count: usize,
    /// Size classes.
    pub(in crate::metrics) classes: usize,
}

/// Deltas there are (`mstats.go`, `consistentHeapStats.stats`).
pub(in crate::metrics) const GENERATIONS: usize = 3;

impl HeapStats {
    fn new(layouts: &RuntimeLayouts<'_>) -> Result<Self, Unknown> {
        let mut whole = Wanted::of(layouts, "runtime.mstats");
        let (start, all) = whole.sized("heapStats.stats")?;
        let (_, delta) = whole.sized("heapStats.stats[]")?;
        let (generation, generation_size) = whole.sized("heapStats.gen")?;
        if delta * GENERATIONS as u64 != all || generation < start + all || delta % 8 != 0 {
            return Err(Unknown::NoLayout(
                "the heap's statistics are laid out as not known".into(),
            ));
        }
        let mut w = Wanted::of(layouts, "runtime.heapStatsDelta");
        let mut must = |field: &str| w.must(field).map(|offset| offset as usize);
        let fields = Self {
            start,
            len: (generation + generation_size - start) as usize,
            delta: delta as usize,
            gen_at: (generation - start) as usize,
            committed: must("committed")?,
            released: must("released")?,
            in_heap: must("inHeap")?,
            in_stacks: must("inStacks")?,
            in_work_bufs: must("inWorkBufs")?,
            tiny_allocs: must("tinyAllocCount")?,
            large_alloc: must("largeAlloc")?,
            large_alloc_count: must("largeAllocCount")?,
            small_alloc_count: must("smallAllocCount")?,
            large_free: must("largeFree")?,
            large_free_count: must("largeFreeCount")?,
            small_free_count: must("smallFreeCount")?,
            in_scalar_bits: None,
            classes: 0,
        };
        let in_scalar_bits = w.maybe("inPtrScalarBits")?.map(|offset| offset as usize);
        let (_, counts) = w.sized("smallAllocCount")?;
        Ok(Self { in_scalar_bits, classes: (counts / 8) as usize, ..fields })
    }
}

/// `runtime.mstats`.
#[derive(Clone, Debug)]
pub(in crate::metrics) struct Mstats {
    pub(in crate::metrics) heap: HeapStats,
    /// What lies behind `heapStats`.
    pub(in crate::metrics) pieces: Pieces,
    pub(in crate::metrics) stacks_sys: u64,
    pub(in crate::metrics) mspan_sys: u64,
    pub(in crate::metrics) mcache_sys: u64,
    pub(in crate::metrics) buckhash_sys: u64,
    pub(in crate::metrics) gc_misc_sys: u64,
    pub(in crate::metrics) other_sys: u64,
    pub(in crate::metrics) last_gc_unix: u64,
    pub(in crate::metrics) pause_total_ns: u64,
    pub(in crate::metrics) pause_ns: u64,
    pub(in crate::metrics) pause_end: u64,
    pub(in crate::metrics) pauses: usize,
    pub(in crate::metrics) numgc: u64,
    pub(in crate::metrics) numforcedgc: u64,
    pub(in crate::metrics) gc_cpu_fraction: u64,
    pub(in crate::metrics) enablegc: u64,
    /// Up to Go 1.21.
    pub(in crate::metrics) pause_histogram: Option<HistogramAt>,
}

impl Mstats {
    pub(super) fn new(layouts: &RuntimeLayouts<'_>) -> Result<Self, Unknown> {
        let heap = HeapStats::new(layouts)?;
        let mut w = Wanted::of(layouts, "runtime.mstats");
        let (pause_ns, ring) = w.sized("pause_ns")?;
        Ok(Self {
            heap,
            stacks_sys: w.must("stacks_sys")?,
            mspan_sys: w.must("mspan_sys")?,
            mcache_sys: w.must("mcache_sys")?,
            buckhash_sys: w.must("buckhash_sys")?,
            gc_misc_sys: w.must("gcMiscSys")?,
            other_sys: w.must("other_sys")?,
            last_gc_unix: w.must("last_gc_unix")?,
            pause_total_ns: w.must("pause_total_ns")?,
            pause_ns,
            pause_end: w.must("pause_end")?,
            pauses: (ring / 8).max(1) as usize,
            numgc: w.must("numgc")?,
            numforcedgc: w.must("numforcedgc")?,
            gc_cpu_fraction: w.must("gc_cpu_fraction")?,
            enablegc: w.must("enablegc")?,
            pause_histogram: HistogramAt::of(&mut w, "gcPauseDist")?,
            pieces: w.pieces(),
        })
    }
}

/// `runtime.gcControllerState`.
#[derive(Clone, Debug)]
pub(in crate::metrics) struct Pacer {
    pub(in crate::metrics) pieces: Pieces,
    pub(in crate::metrics) gc_percent: u64,
    pub(in crate::metrics) memory_limit: u64,
    pub(in crate::metrics) heap_minimum: u64,
    pub(in crate::metrics) percent_goal: u64,
    pub(in crate::metrics) sweep_trigger: u64,
    pub(in crate::metrics) triggered: u64,
    pub(in crate::metrics) heap_live: u64,
    pub(in crate::metrics) heap_marked: u64,
    pub(in crate::metrics) heap_in_use: u64,
    pub(in crate::metrics) heap_released: u64,
    pub(in crate::metrics) heap_free: u64,
    pub(in crate::metrics) total_alloc: u64,
    pub(in crate::metrics) total_free: u64,
    pub(in crate::metrics) mapped_ready: u64,
}

impl Pacer {
    pub(super) fn new(layouts: &RuntimeLayouts<'_>) -> Result<Self, Unknown> {
        let mut w = Wanted::of(layouts, "runtime.gcControllerState");
        Ok(Self {
            gc_percent: w.must("gcPercent")?,
            memory_limit: w.must("memoryLimit")?,
            heap_minimum: w.must("heapMinimum")?,
            percent_goal: w.must("gcPercentHeapGoal")?,
            sweep_trigger: w.must("sweepDistMinTrigger")?,
            triggered: w.must("triggered")?,
            heap_live: w.must("heapLive")?,
            heap_marked: w.must("heapMarked")?,
            heap_in_use: w.must("heapInUse")?,
            heap_released: w.must("heapReleased")?,
            heap_free: w.must("heapFree")?,
            total_alloc: w.must("totalAlloc")?,
            total_free: w.must("totalFree")?,
            mapped_ready: w.must("mappedReady")?,
            pieces: w.pieces(),
        })
    }
}

/// The allocators of descriptors in `runtime.mheap`.
#[derive(Clone, Debug)]
pub(in crate::metrics) struct MheapLayout {
    pub(in crate::metrics) pieces: Pieces,
    pub(in crate::metrics) span: Allocator,
    pub(in crate::metrics) cache: Allocator,
}

/// A `fixalloc`.
#[derive(Clone, Copy, Debug)]
pub(in crate::metrics) struct Allocator {
    pub(in crate::metrics) size: u64,
    pub(in crate::metrics) inuse: u64,
    pub(in crate::metrics) stat: u64,
    /// Bytes of what it allocates, as its struct says.
    pub(in crate::metrics) element: u64,
}

impl MheapLayout {
    pub(super) fn new(layouts: &RuntimeLayouts<'_>) -> Result<Self, Unknown> {
        let mut w = Wanted::of(layouts, "runtime.mheap");
        let mut allocator = |field: &str, of: &str| {
            let (element, _) = layouts.size(of).map_err(|e| super::super::pieces::no_layout(&e))?;
            Ok(Allocator {
                size: w.must(&format!("{field}.size"))?,
                inuse: w.must(&format!("{field}.inuse"))?,
                stat: w.must(&format!("{field}.stat"))?,
                element: element.next_multiple_of(8),
            })
        };
        let span = allocator("spanalloc", "runtime.mspan")?;
        let cache = allocator("cachealloc", "runtime.mcache")?;
        Ok(Self { span, cache, pieces: w.pieces() })
    }
}

/// `runtime.workType`.
#[derive(Clone, Debug)]
pub(in crate::metrics) struct WorkLayout {
    pub(in crate::metrics) pieces: Pieces,
    pub(in crate::metrics) cycles: u64,
    /// `cpuStats`, since Go 1.20: offsets in the order of [`super::super::CpuTimes`].
    pub(in crate::metrics) cpu: Option<[u64; 11]>,
}

/// Fields of `runtime.cpuStats` in the order of [`super::super::CpuTimes`].
const CPU: [&str; 11] = [
    "GCAssistTime",
    "GCDedicatedTime",
    "GCIdleTime",
    "GCPauseTime",
    "GCTotalTime",
    "ScavengeAssistTime",
    "ScavengeBgTime",
    "ScavengeTotalTime",
    "IdleTime",
    "UserTime",
    "TotalTime",
];

impl WorkLayout {
    pub(super) fn new(layouts: &RuntimeLayouts<'_>) -> Result<Self, Unknown> {
        let mut w = Wanted::of(layouts, "runtime.workType");
        let cycles = w.must("cycles")?;
        let mut cpu = None;
        if let Some(base) = w.maybe("cpuStats")? {
            let mut inner = Wanted::of(layouts, "runtime.cpuStats");
            let mut offsets = [0; CPU.len()];
            for (offset, field) in offsets.iter_mut().zip(CPU) {
                *offset = base.saturating_add(inner.must(field)?);
            }
            cpu = Some(offsets);
        }
        Ok(Self { cycles, cpu, pieces: w.pieces() })
    }
}

/// `runtime.mcache` and `runtime.mspan`: what a processor allocated and did not count yet.
#[derive(Clone, Debug)]
pub(in crate::metrics) struct Spans {
    pub(in crate::metrics) cache: Pieces,
    pub(in crate::metrics) tiny_allocs: u64,
    pub(in crate::metrics) alloc: u64,
    /// Spans that a cache has.
    pub(in crate::metrics) spans: usize,
    pub(in crate::metrics) span: Pieces,
    pub(in crate::metrics) alloc_count: u64,
    pub(in crate::metrics) alloc_count_before: u64,
    pub(in crate::metrics) elem_size: u64,
}

impl Spans {
    pub(super) fn new(layouts: &RuntimeLayouts<'_>) -> Result<Self, Unknown> {
        let mut w = Wanted::of(layouts, "runtime.mcache");
        let (alloc, bytes) = w.sized("alloc")?;
        let tiny_allocs = w.must("tinyAllocs")?;
        let mut s = Wanted::of(layouts, "runtime.mspan");
        Ok(Self {
            tiny_allocs,
            alloc,
            spans: (bytes / 8) as usize,
            cache: w.pieces(),
            alloc_count: s.must("allocCount")?,
            alloc_count_before: s.must("allocCountBeforeCache")?,
            elem_size: s.must("elemsize")?,
            span: s.pieces(),
        })
    }
}
