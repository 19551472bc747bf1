//! The scheduler, its processors and threads.

use crate::metrics::histogram::TimeHistogram;
use crate::metrics::pieces::{Pieces, View, Wanted};
use crate::metrics::unknown::Unknown;
use binary::layout::RuntimeLayouts;

/// A `timeHistogram` in a struct.
#[derive(Clone, Copy, Debug)]
pub(in crate::metrics) struct HistogramAt {
    offset: u64,
    buckets: usize,
    words: usize,
}

impl HistogramAt {
    /// `None` when this version's struct has no such field.
    pub(super) fn of(wanted: &mut Wanted<'_>, field: &str) -> Result<Option<Self>, Unknown> {
        let Some((_, bytes)) = wanted.sized_maybe(&format!("{field}.counts"))? else {
            return Ok(None);
        };
        let Some((offset, size)) = wanted.sized_maybe(field)? else { return Ok(None) };
        let buckets = (bytes / 8) as usize;
        let words = (size / 8) as usize;
        let known = TimeHistogram::size(buckets) == Some(words * 8);
        known.then_some(Some(Self { offset, buckets, words })).ok_or_else(|| {
            Unknown::NoLayout(format!("a histogram of {buckets} buckets is not known").into())
        })
    }

    pub(in crate::metrics) fn read(&self, view: View<'_>) -> Option<TimeHistogram> {
        let words: Vec<u64> = view.words(self.offset, self.words).collect();
        TimeHistogram::of_words(self.buckets, &words)
    }
}

/// `runtime.schedt`.
#[derive(Clone, Debug)]
pub(in crate::metrics) struct SchedLayout {
    /// What changes often and is small.
    pub(in crate::metrics) pieces: Pieces,
    pub(in crate::metrics) goidgen: u64,
    pub(in crate::metrics) nmidle: u64,
    pub(in crate::metrics) nmidlelocked: u64,
    pub(in crate::metrics) mnext: u64,
    pub(in crate::metrics) maxmcount: u64,
    pub(in crate::metrics) nmfreed: u64,
    pub(in crate::metrics) ngsys: u64,
    pub(in crate::metrics) no_processor: Option<u64>,
    pub(in crate::metrics) pidle: u64,
    pub(in crate::metrics) npidle: u64,
    pub(in crate::metrics) nmspinning: u64,
    pub(in crate::metrics) runq_size: u64,
    pub(in crate::metrics) gfree_size: u64,
    /// Since Go 1.25 dead goroutines without a stack are counted apart.
    pub(in crate::metrics) gfree_no_stack: Option<u64>,
    pub(in crate::metrics) created: Option<u64>,
    pub(in crate::metrics) mutex_wait: Option<u64>,
    pub(in crate::metrics) lock_wait: Option<u64>,
    /// What is large.
    pub(in crate::metrics) histograms: Pieces,
    pub(in crate::metrics) time_to_run: Option<HistogramAt>,
    pub(in crate::metrics) stopping_gc: Option<HistogramAt>,
    pub(in crate::metrics) stopping_other: Option<HistogramAt>,
    pub(in crate::metrics) total_gc: Option<HistogramAt>,
    pub(in crate::metrics) total_other: Option<HistogramAt>,
}

impl SchedLayout {
    pub(super) fn new(layouts: &RuntimeLayouts<'_>) -> Result<Self, Unknown> {
        let mut large = Wanted::of(layouts, "runtime.schedt");
        let mut w = Wanted::of(layouts, "runtime.schedt");
        Ok(Self {
            goidgen: w.must("goidgen")?,
            nmidle: w.must("nmidle")?,
            nmidlelocked: w.must("nmidlelocked")?,
            mnext: w.must("mnext")?,
            maxmcount: w.must("maxmcount")?,
            nmfreed: w.must("nmfreed")?,
            ngsys: w.must("ngsys")?,
            no_processor: w.maybe("nGsyscallNoP")?,
            pidle: w.must("pidle")?,
            npidle: w.must("npidle")?,
            nmspinning: w.must("nmspinning")?,
            runq_size: w.must("runq.size")?,
            gfree_size: w.must("gFree.stack.size")?,
            gfree_no_stack: w.maybe("gFree.noStack.size")?,
            created: w.maybe("goroutinesCreated")?,
            mutex_wait: w.maybe("totalMutexWaitTime")?,
            lock_wait: w.maybe("totalRuntimeLockWaitTime")?,
            time_to_run: HistogramAt::of(&mut large, "timeToRun")?,
            stopping_gc: HistogramAt::of(&mut large, "stwStoppingTimeGC")?,
            stopping_other: HistogramAt::of(&mut large, "stwStoppingTimeOther")?,
            total_gc: HistogramAt::of(&mut large, "stwTotalTimeGC")?,
            total_other: HistogramAt::of(&mut large, "stwTotalTimeOther")?,
            pieces: w.pieces(),
            histograms: large.pieces(),
        })
    }
}

/// `runtime.p`.
#[derive(Clone, Debug)]
pub(in crate::metrics) struct Processor {
    pub(in crate::metrics) pieces: Pieces,
    /// The count of dead goroutines alone.
    pub(in crate::metrics) free: Pieces,
    pub(in crate::metrics) id: u64,
    pub(in crate::metrics) status: u64,
    pub(in crate::metrics) m: u64,
    pub(in crate::metrics) mcache: u64,
    /// `runqtail` follows.
    pub(in crate::metrics) runqhead: u64,
    pub(in crate::metrics) runqtail: u64,
    pub(in crate::metrics) runnext: u64,
    pub(in crate::metrics) gfree_size: u64,
    pub(in crate::metrics) created: Option<u64>,
}

impl Processor {
    pub(super) fn new(layouts: &RuntimeLayouts<'_>) -> Result<Self, Unknown> {
        let mut w = Wanted::of(layouts, "runtime.p");
        let mut free = Wanted::of(layouts, "runtime.p");
        free.must("gFree.size")?;
        Ok(Self {
            free: free.pieces(),
            id: w.must("id")?,
            status: w.must("status")?,
            m: w.must("m")?,
            mcache: w.must("mcache")?,
            runqhead: w.must("runqhead")?,
            runqtail: w.must("runqtail")?,
            runnext: w.must("runnext")?,
            gfree_size: w.must("gFree.size")?,
            created: w.maybe("goroutinesCreated")?,
            pieces: w.pieces(),
        })
    }
}

/// `runtime.m`.
#[derive(Clone, Debug)]
pub(in crate::metrics) struct Thread {
    pub(in crate::metrics) pieces: Pieces,
    pub(in crate::metrics) g0: u64,
    pub(in crate::metrics) id: u64,
    pub(in crate::metrics) ncgocall: u64,
    pub(in crate::metrics) alllink: u64,
    pub(in crate::metrics) lock_wait: Option<u64>,
    /// `runtime.g.m`, from the start of a `g`.
    pub(in crate::metrics) g_m: u64,
}

impl Thread {
    pub(super) fn new(layouts: &RuntimeLayouts<'_>) -> Result<Self, Unknown> {
        let g_m = Wanted::of(layouts, "runtime.g").must("m")?;
        let mut w = Wanted::of(layouts, "runtime.m");
        Ok(Self {
            g0: w.must("g0")?,
            id: w.must("id")?,
            ncgocall: w.must("ncgocall")?,
            alllink: w.must("alllink")?,
            lock_wait: w.maybe("mLockProfile.waitTime")?,
            g_m,
            pieces: w.pieces(),
        })
    }
}
