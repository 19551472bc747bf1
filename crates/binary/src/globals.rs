//! Where the runtime keeps its global variables, also in executables without symbols.
//!
//! A symbol says it. Without one, code that the pclntab names says it: each recipe is one
//! way in which one function of the runtime uses the variable, the same in Go 1.19 to 1.27.
//! A recipe whose function looks otherwise abstains; those that answer vote. What comes out
//! are candidates: whoever reads memory there confirms them first.

mod operand;
mod recipe;
mod wait_reasons;

use crate::layout::Provenance;
use crate::{Error, Executable};
use address::Svma;
use recipe::RECIPES;

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
}

impl Global {
    /// Symbol name.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Allgs => "runtime.allgs",
            Self::Allglen => "runtime.allglen",
            Self::WaitReasonStrings => "runtime.waitReasonStrings",
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
    if let Some(symbol) = executable.symbols().by_name(global.symbol()) {
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
