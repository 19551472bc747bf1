//! Memory of the heap and of the runtime.

use super::unknown::{Unknown, Value};

/// Memory, as `runtime.MemStats` and `runtime/metrics` count it. All sizes are bytes; what is
/// counted "since the start" only grows.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// All memory obtained from the operating system (`MemStats.Sys`).
    pub sys: Value<u64>,
    /// Objects on the heap, those not yet swept among them (`MemStats.Alloc` and `HeapAlloc`).
    pub heap_alloc: Value<u64>,
    /// Number of those objects, without tiny ones that share a block (`HeapObjects`).
    pub heap_objects: Value<u64>,
    /// Allocated since the start (`TotalAlloc`).
    pub total_alloc: Value<u64>,
    /// Freed since the start.
    pub total_free: Value<u64>,
    /// Objects allocated since the start, tiny ones among them (`Mallocs`).
    pub mallocs: Value<u64>,
    /// Objects freed since the start, all tiny ones among them (`Frees`).
    pub frees: Value<u64>,
    /// Tiny objects allocated since the start (`/gc/heap/tiny/allocs`).
    pub tiny_allocs: Value<u64>,
    /// Address space of the heap (`HeapSys`).
    pub heap_sys: Value<u64>,
    /// Spans without objects (`HeapIdle`).
    pub heap_idle: Value<u64>,
    /// Spans with objects (`HeapInuse`).
    pub heap_inuse: Value<u64>,
    /// Idle spans whose memory was returned to the operating system (`HeapReleased`).
    pub heap_released: Value<u64>,
    /// Stacks of goroutines (`StackInuse`).
    pub stack_inuse: Value<u64>,
    /// The same, and stacks of threads (`StackSys`).
    pub stack_sys: Value<u64>,
    /// Span descriptors in use (`MSpanInuse`).
    pub mspan_inuse: Value<u64>,
    /// Obtained for span descriptors (`MSpanSys`).
    pub mspan_sys: Value<u64>,
    /// Allocation caches in use (`MCacheInuse`).
    pub mcache_inuse: Value<u64>,
    /// Obtained for allocation caches (`MCacheSys`).
    pub mcache_sys: Value<u64>,
    /// Profiling bucket tables (`BuckHashSys`).
    pub buckhash_sys: Value<u64>,
    /// Data of the collector (`GCSys`).
    pub gc_sys: Value<u64>,
    /// Other memory of the runtime (`OtherSys`).
    pub other_sys: Value<u64>,
    /// Allocations by size class, smallest first; large objects are the last, of size 0.
    pub size_classes: Value<Vec<SizeClass>>,
    /// What is allocated and not yet in the figures above, when asked for.
    pub unflushed: Value<Unflushed>,
}

impl Memory {
    pub(crate) fn unknown(why: &Unknown) -> Self {
        let no = || Err(why.clone());
        Self {
            sys: no(),
            heap_alloc: no(),
            heap_objects: no(),
            total_alloc: no(),
            total_free: no(),
            mallocs: no(),
            frees: no(),
            tiny_allocs: no(),
            heap_sys: no(),
            heap_idle: no(),
            heap_inuse: no(),
            heap_released: no(),
            stack_inuse: no(),
            stack_sys: no(),
            mspan_inuse: no(),
            mspan_sys: no(),
            mcache_inuse: no(),
            mcache_sys: no(),
            buckhash_sys: no(),
            gc_sys: no(),
            other_sys: no(),
            size_classes: Err(why.clone()),
            unflushed: Err(why.clone()),
        }
    }
}

/// Allocations of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeClass {
    /// Bytes of an object; 0 for large objects, which have sizes of their own.
    pub size: u64,
    /// Objects allocated since the start; tiny ones count by their shared blocks.
    pub mallocs: u64,
    /// Objects freed since the start.
    pub frees: u64,
    /// Bytes allocated since the start.
    pub allocated: u64,
    /// Bytes freed since the start.
    pub freed: u64,
}

/// What was allocated from the spans that the processors cache since these were last counted.
/// Added to `total_alloc`, `heap_alloc`, `mallocs` and `heap_objects` it gives what
/// `runtime.ReadMemStats` would tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unflushed {
    /// Bytes.
    pub bytes: u64,
    /// Objects, tiny ones not among them.
    pub objects: u64,
    /// Tiny objects: in `mallocs` and `frees` both, in `heap_objects` not at all.
    pub tiny: u64,
}
