//! What of that which a caller passed is still there at a function's entry site.

use super::{Analysis, Spills};
use crate::abi::Reg;
use crate::argument_map::ArgumentMap;
use crate::{Executable, Function, flag};
use thiserror::Error;

/// Why a value at the entry site need not be what the caller passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Lost {
    /// An argument register of a function that uses none of them.
    #[error("not used by the function, so not kept when its stack grows")]
    Unused,
    /// A register that holds no argument, or of which nothing is known.
    #[error("register not kept when the stack grows")]
    Register,
    /// Of the register so many low bytes alone.
    #[error("only the low {} bits of the register are kept when the stack grows", u32::from(*.0) * 8)]
    Wide(u8),
    /// The pointer is there, but the runtime does not follow it.
    #[error("what it points to is not kept when the stack grows")]
    Pointee,
}

const RDX: Reg = Reg::Int(2);
const RSP: Reg = Reg::Int(4);
const RBP: Reg = Reg::Int(5);
const R14: Reg = Reg::Int(14);

/// What a function's entry site still has of that which its caller passed, however often the
/// stack grew or the goroutine was preempted at the check before it. Values on the stack stay.
///
/// The runtime goes on from `morestack` by `gogo` (runtime/asm_amd64.s, Go 1.19 to 1.27), which
/// restores SP, BP, g in R14 and the closure context in RDX; `morestack_noctxt` clears the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    spills: Spills,
    context: bool,
    g: bool,
    arguments: ArgumentMap,
}

impl Kept {
    /// Of a function without a check.
    pub fn all() -> Self {
        Self::by(Spills::Untouched, ArgumentMap::default())
    }

    /// Of a Go function that is no closure, by what its code spills and its pointer map at entry.
    pub fn by(spills: Spills, arguments: ArgumentMap) -> Self {
        Self { spills, context: false, g: true, arguments }
    }

    /// By the code of a function and the pointer maps of the executable.
    pub fn of(executable: &Executable, function: &Function, analysis: &Analysis) -> Self {
        if analysis.spills == Spills::Untouched {
            return Self::all();
        }
        let (called, arguments) = match executable.functions() {
            Ok(table) => (
                analysis.morestack.and_then(|address| table.find(address)),
                table.entry_arguments(function),
            ),
            Err(_) => (None, ArgumentMap::default()),
        };
        let called = called.map(|called| called.name).unwrap_or_default();
        Self {
            context: matches!(&called[..], "runtime.morestack" | "runtime.morestack.abi0"),
            g: function.flags & flag::ASM == 0 && !analysis.loads_g,
            ..Self::by(analysis.spills.clone(), arguments)
        }
    }

    /// Whether the low `bytes` bytes of a register are as the caller left them.
    pub fn register(&self, reg: Reg, bytes: u8) -> Result<(), Lost> {
        if self.spills == Spills::Untouched || self.is_restored(reg) {
            return Ok(());
        }
        let Spills::Reloaded(spills) = &self.spills else { return Err(Lost::Register) };
        match spills.iter().find(|spill| spill.reg == reg) {
            Some(spill) if spill.bytes >= bytes => Ok(()),
            Some(spill) => Err(Lost::Wide(spill.bytes)),
            None if spills.is_empty() && reg.is_argument() => Err(Lost::Unused),
            None => Err(Lost::Register),
        }
    }

    /// Whether what a register points to is still there too.
    pub fn behind_register(&self, reg: Reg) -> Result<(), Lost> {
        self.register(reg, 8)?;
        let Spills::Reloaded(spills) = &self.spills else { return Ok(()) };
        match spills.iter().find(|spill| spill.reg == reg) {
            Some(spill) if !self.is_restored(reg) => self.behind_stack(spill.offset.into()),
            _ => Ok(()),
        }
    }

    /// Whether what a pointer on the stack points to is still there: one that lies `offset` bytes
    /// from SP at the first instruction on. Of what is no argument nothing is known.
    pub fn behind_stack(&self, offset: i64) -> Result<(), Lost> {
        let is_followed = |offset| self.arguments.has_pointer(offset);
        let argument = offset.checked_sub(8).and_then(|offset| u32::try_from(offset).ok());
        match self.spills {
            Spills::Untouched => Ok(()),
            _ if argument.is_some_and(is_followed) => Ok(()),
            _ => Err(Lost::Pointee),
        }
    }

    fn is_restored(&self, reg: Reg) -> bool {
        matches!(reg, RSP | RBP) || (reg == RDX && self.context) || (reg == R14 && self.g)
    }
}
