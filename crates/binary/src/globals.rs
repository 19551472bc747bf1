//! Where the runtime keeps its global variables, also in executables without symbols.
//!
//! A symbol says it. Without one, code that the pclntab names says it: each recipe is one
//! way in which one function of the runtime uses the variable, the same in Go 1.19 to 1.27.
//! A recipe whose function looks otherwise abstains; those that answer vote. What comes out
//! are candidates: whoever reads memory there confirms them first.

mod operand;
mod recipe;
mod thread_link;
mod wait_reasons;

use crate::layout::Provenance;
use crate::{Error, Executable};
use address::Svma;
use recipe::RECIPES;

pub use thread_link::thread_link;
pub use wait_reasons::WaitReasons;

/// A global variable of package runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Global {
    /// `allgs []*g`: every goroutine descriptor there ever was.
    Allgs,
    /// `allglen uintptr`: how many of them readers without the lock may use.
    Allglen,
    /// `waitReasonStrings [...]string`.
    WaitReasonStrings,
    /// `allm *m`: the list of threads, linked by `m.alllink`.
    Allm,
    /// `allp []*p`: the processors, `GOMAXPROCS` of them.
    Allp,
    /// `sched schedt`: the scheduler.
    Sched,
    /// `memstats mstats`: counts of the heap and the collector.
    Memstats,
    /// `gcController gcControllerState`: the collector's pacing.
    GcController,
    /// `mheap_ mheap`: the heap.
    Mheap,
    /// `work workType`: the collector's work; since Go 1.20 also CPU times.
    Work,
    /// `gcphase uint32`: what the collector does.
    GcPhase,
    /// `class_to_size [68]uint16`, since Go 1.25 `internal/runtime/gc.SizeClassToSize`: bytes of
    /// an object by size class.
    SizeClasses,
    /// `ncgocall uint64`: calls to C by threads that are gone.
    CgoCalls,
}

impl Global {
    /// Every variable.
    pub const ALL: [Self; 13] = [
        Self::Allgs,
        Self::Allglen,
        Self::WaitReasonStrings,
        Self::Allm,
        Self::Allp,
        Self::Sched,
        Self::Memstats,
        Self::GcController,
        Self::Mheap,
        Self::Work,
        Self::GcPhase,
        Self::SizeClasses,
        Self::CgoCalls,
    ];

    /// Symbol name, in the newest Go version if it changed.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Allgs => "runtime.allgs",
            Self::Allglen => "runtime.allglen",
            Self::WaitReasonStrings => "runtime.waitReasonStrings",
            Self::Allm => "runtime.allm",
            Self::Allp => "runtime.allp",
            Self::Sched => "runtime.sched",
            Self::Memstats => "runtime.memstats",
            Self::GcController => "runtime.gcController",
            Self::Mheap => "runtime.mheap_",
            Self::Work => "runtime.work",
            Self::GcPhase => "runtime.gcphase",
            Self::SizeClasses => "internal/runtime/gc.SizeClassToSize",
            Self::CgoCalls => "runtime.ncgocall",
        }
    }

    /// What older Go versions call it.
    const fn older_symbol(self) -> Option<&'static str> {
        match self {
            // Up to Go 1.24 (runtime/sizeclasses.go).
            Self::SizeClasses => Some("runtime.class_to_size"),
            _ => None,
        }
    }
}

/// A place where a global variable may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The variable's first byte.
    pub address: Svma,
    /// How many recipes say so; 0 when it is a symbol.
    pub votes: u32,
    /// [`Provenance::Symbol`] or [`Provenance::Code`].
    pub provenance: Provenance,
}

/// Where the variable may be: the symbol alone when there is one, else what recipes say,
/// most votes first; empty when all abstain.
///
/// Fails when there is no symbol and the function table cannot be read.
pub fn find(executable: &Executable, global: Global) -> Result<Vec<Candidate>, Error> {
    let symbols = executable.symbols();
    let older = || symbols.by_name(global.older_symbol()?);
    if let Some(symbol) = symbols.by_name(global.symbol()).or_else(older) {
        let address = Svma(symbol.value);
        return Ok(vec![Candidate { address, votes: 0, provenance: Provenance::Symbol }]);
    }
    from_code(executable, global)
}

/// What recipes say, most votes first, whether or not there is a symbol.
pub fn from_code(executable: &Executable, global: Global) -> Result<Vec<Candidate>, Error> {
    let mut candidates: Vec<Candidate> = Vec::new();
    for recipe in RECIPES.iter().filter(|recipe| recipe.global == global) {
        let Some(address) = recipe.answer(executable)? else { continue };
        match candidates.iter_mut().find(|candidate| candidate.address == address) {
            Some(candidate) => candidate.votes += 1,
            None => {
                candidates.push(Candidate { address, votes: 1, provenance: Provenance::Code });
            }
        }
    }
    candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.votes));
    Ok(candidates)
}
