//! Where the figures are in the runtime's structs; each struct apart, so that one that is
//! not known leaves the others be.

mod heap;
mod machine;

pub(super) use heap::{GENERATIONS, HeapStats, MheapLayout, Mstats, Pacer, Spans, WorkLayout};
pub(super) use machine::{HistogramAt, Processor, SchedLayout, Thread};

use super::unknown::Unknown;
use binary::layout::RuntimeLayouts;

/// All of them.
#[derive(Clone, Debug)]
pub(super) struct Layouts {
    pub(super) sched: Result<SchedLayout, Unknown>,
    pub(super) processor: Result<Processor, Unknown>,
    pub(super) thread: Result<Thread, Unknown>,
    pub(super) mstats: Result<Mstats, Unknown>,
    pub(super) pacer: Result<Pacer, Unknown>,
    pub(super) mheap: Result<MheapLayout, Unknown>,
    pub(super) work: Result<WorkLayout, Unknown>,
    pub(super) spans: Result<Spans, Unknown>,
}

impl Layouts {
    pub(super) fn new(layouts: &RuntimeLayouts<'_>) -> Self {
        Self {
            sched: SchedLayout::new(layouts),
            processor: Processor::new(layouts),
            thread: Thread::new(layouts),
            mstats: Mstats::new(layouts),
            pacer: Pacer::new(layouts),
            mheap: MheapLayout::new(layouts),
            work: WorkLayout::new(layouts),
            spans: Spans::new(layouts),
        }
    }
}
