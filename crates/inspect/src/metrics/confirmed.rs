//! Candidates held against the memory of one process.

use super::checks::Checks;
use super::plan::MetricsPlan;
use super::unknown::Unknown;
use crate::list::AllGoroutines;
use address::{Avma, Bias, ReadMemory};
use binary::globals::{Candidate, Global};

/// Looks at a candidate: a process changes meanwhile, and a counter may be between two values.
const TRIES: usize = 8;

/// A global variable that passed: its address and the candidate it was.
pub type Found = Result<(Avma, Candidate), Unknown>;

/// The global variables of one process that passed.
#[derive(Clone, Debug)]
pub struct Confirmed {
    pub(super) goroutines: Result<AllGoroutines, Unknown>,
    pub(super) allm: Found,
    pub(super) allp: Found,
    pub(super) sched: Found,
    pub(super) memstats: Found,
    pub(super) pacer: Found,
    pub(super) mheap: Found,
    pub(super) work: Found,
    pub(super) phase: Found,
    pub(super) cgo_calls: Found,
}

impl Confirmed {
    /// In the order in which they support each other.
    pub(super) fn new(plan: &MetricsPlan, memory: &dyn ReadMemory, bias: Bias) -> Self {
        let mut checks = Checks::new(&plan.layouts, memory);
        let goroutines = plan.goroutines.as_ref().map_err(Unknown::clone).and_then(|layout| {
            let slices = plan.candidates(Global::Allgs)?;
            let lens = plan.candidates(Global::Allglen).unwrap_or_default();
            AllGoroutines::confirm(slices, lens, memory, bias, layout)
                .ok_or(Unknown::NotConfirmed(Global::Allgs.symbol()))
        });
        let mut confirm = |global: Global| -> Found {
            let candidates = plan.candidates(global)?;
            for candidate in candidates {
                let address = bias.to_avma(candidate.address);
                for _ in 0..TRIES {
                    if checks.check(global, address)? {
                        return Ok((address, *candidate));
                    }
                }
            }
            Err(Unknown::NotConfirmed(global.symbol()))
        };
        Self {
            goroutines,
            allp: confirm(Global::Allp),
            allm: confirm(Global::Allm),
            sched: confirm(Global::Sched),
            memstats: confirm(Global::Memstats),
            mheap: confirm(Global::Mheap),
            pacer: confirm(Global::GcController),
            work: confirm(Global::Work),
            phase: confirm(Global::GcPhase),
            cgo_calls: confirm(Global::CgoCalls),
        }
    }

    /// Whether looking again cannot find more: what is missing is not known of the executable.
    /// If false, a process that has just begun may be confirmed a little later.
    pub fn is_complete(&self) -> bool {
        self.globals().iter().all(|(_, found)| {
            matches!(found, Ok(_) | Err(Unknown::NoGlobal(_) | Unknown::NoLayout(_)))
        })
    }

    /// Whether every global variable was found.
    pub fn is_whole(&self) -> bool {
        self.globals().iter().all(|(_, found)| found.is_ok())
    }

    /// Every global variable with its address in the process and what it was found by, or
    /// why it is not known.
    pub fn globals(&self) -> Vec<(Global, Found)> {
        let list = self.goroutines.as_ref().map_err(Unknown::clone);
        let allgs = list.map(|list| (list.address(), list.candidate()));
        vec![
            (Global::Allgs, allgs),
            (Global::Allp, self.allp.clone()),
            (Global::Allm, self.allm.clone()),
            (Global::Sched, self.sched.clone()),
            (Global::Memstats, self.memstats.clone()),
            (Global::GcController, self.pacer.clone()),
            (Global::Mheap, self.mheap.clone()),
            (Global::Work, self.work.clone()),
            (Global::GcPhase, self.phase.clone()),
            (Global::CgoCalls, self.cgo_calls.clone()),
        ]
    }
}

/// The address alone.
pub(super) fn address(found: &Found) -> Result<Avma, Unknown> {
    found.as_ref().map(|(address, _)| *address).map_err(Unknown::clone)
}
