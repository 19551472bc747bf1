//! The recipes: which function uses which variable how.
//!
//! Measured on builds of Go 1.19 to 1.27 with symbols (exe, PIE, cgo, race, PGO, `-N -l`):
//! where a recipe answers, it is right; inlining changes (`-l=4`, `-cover`) make some
//! abstain.

use super::Global;
use super::operand::{Access, Use, accesses};
use crate::{Error, Executable};
use address::Svma;

/// Longer functions are not decoded to their end.
const MAX_CODE: u64 = 1 << 16;

/// How one function gives away one variable.
pub(super) struct Recipe {
    pub(super) global: Global,
    /// The first of them that exists.
    functions: &'static [&'static str],
    pick: Pick,
}

/// Which operand is the variable.
enum Pick {
    /// The distinct addresses so used lie at these distances from the variable, and no others
    /// are so used.
    Exactly(Use, usize, &'static [u64]),
    /// The first such use.
    First(Use, usize),
    /// The last such use.
    Last(Use, usize),
}

#[rustfmt::skip]
pub(super) const RECIPES: &[Recipe] = &[
    // proc.go, forEachG: `for _, gp := range allgs`.
    Recipe { global: Global::Allgs, functions: &["runtime.forEachG"],
        pick: Pick::Exactly(Use::Load, 8, &[0, 8]) },
    // proc.go, allgadd: `allgs = append(allgs, gp)`.
    Recipe { global: Global::Allgs, functions: &["runtime.allgadd"],
        pick: Pick::Exactly(Use::Store, 8, &[0, 8, 16]) },
    // proc.go, allgadd: `atomic.Storeuintptr(&allglen, uintptr(len(allgs)))` at its end.
    Recipe { global: Global::Allglen, functions: &["runtime.allgadd"],
        pick: Pick::Last(Use::Exchange, 8) },
    // proc.go, atomicAllG: `length := atomic.Loaduintptr(&allglen)`.
    Recipe { global: Global::Allglen, functions: &["runtime.atomicAllG", "runtime.forEachGRace"],
        pick: Pick::First(Use::Load, 8) },
    // runtime2.go, waitReason.String: `return waitReasonStrings[w]` after the bound check.
    Recipe { global: Global::WaitReasonStrings, functions: &["runtime.waitReason.String"],
        pick: Pick::Last(Use::Address, 0) },
    Recipe { global: Global::WaitReasonStrings, functions: &["runtime.(*waitReason).String"],
        pick: Pick::Last(Use::Address, 0) },
];

impl Recipe {
    /// What this recipe says; `None` when it abstains.
    pub(super) fn answer(&self, executable: &Executable) -> Result<Option<Svma>, Error> {
        let table = executable.functions()?;
        for name in self.functions {
            let bodies = table.by_name(name);
            if bodies.is_empty() {
                continue;
            }
            let mut found = Vec::new();
            for body in bodies {
                let size = body.end.since(body.entry).unwrap_or_default().min(MAX_CODE);
                let code = executable.image().read_vec(body.entry, size)?;
                found.extend(accesses(&code, body.entry.0));
            }
            return Ok(self.pick.from(&found).map(Svma));
        }
        Ok(None)
    }
}

impl Pick {
    fn from(&self, accesses: &[Access]) -> Option<u64> {
        let of = |what: Use, size: usize| {
            accesses.iter().filter(move |a| a.what == what && a.size == size).map(|a| a.address)
        };
        match *self {
            Self::First(what, size) => of(what, size).next(),
            Self::Last(what, size) => of(what, size).next_back(),
            Self::Exactly(what, size, distances) => {
                let mut places: Vec<u64> = of(what, size).collect();
                places.sort_unstable();
                places.dedup();
                let base = *places.first()?;
                let found = places.iter().map(|place| place - base);
                found.eq(distances.iter().copied()).then_some(base)
            }
        }
    }
}
