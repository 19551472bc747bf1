//! What the machine code of one function says: where a call of it begins and ends, what it
//! calls, and what a probe at those places costs. Pure: bytes in, facts out.
//!
//! The entry site lies after the stack-bound check. Go runs the check again after it has
//! grown a stack, and whenever a preemption request was pending: both go through
//! `morestack` and jump back to the function's first byte, so a probe there counts twice.

mod analyze;
mod called_swaps;
mod kept;
mod kernel;
mod liveness;
mod of_function;
mod prologue;
mod refused;
mod special;
mod spills;
mod swaps;
mod sweep;

pub use analyze::analyze;
pub use kept::{Kept, Lost};
pub use kernel::{ProbeCost, Unprobeable};
pub use liveness::{GeneralSet, Liveness, LivenessFacts, named_vectors};
pub use of_function::analyze_function;
pub use refused::Refused;
pub use spills::{Spill, Spills};
pub use swaps::{Outcome, Swap, swaps, swaps_of_function};

use address::Svma;
use std::ops::Range;

/// What is known about a function besides its bytes.
#[derive(Clone, Copy)]
pub struct CodeFacts<'a> {
    /// Address of the first byte.
    pub entry: Svma,
    /// Symbol name as pclntab has it.
    pub name: &'a str,
    /// `abi.FuncFlagAsm`.
    pub is_assembly: bool,
    /// `abi.FuncFlagSPWrite`.
    pub sp_write: bool,
    /// `abi.FuncFlagTopFrame`.
    pub is_top_frame: bool,
    /// Where a recovered panic resumes, if the function defers.
    pub deferreturn: Option<Svma>,
    /// `go:textfipsstart` to `go:textfipsend`, when the process may still have its FIPS
    /// self-check before it (a launched one); `None` when it is known to be past it.
    pub fips: Option<&'a Range<Svma>>,
    /// Bytes that SP is lowered by at an address (pcsp); `None` where unknown.
    pub sp_delta: &'a dyn Fn(Svma) -> Option<i32>,
}

/// One instruction to probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeSite {
    /// Address of the instruction.
    pub address: Svma,
    /// SP at the function's first instruction minus SP here, bytes.
    pub sp_delta: i32,
    /// Length of the instruction in bytes.
    pub len: u8,
    /// Whether the kernel accepts a uprobe here and how it runs the instruction then.
    pub uprobe: Result<ProbeCost, Unprobeable>,
}

/// How a function is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitKind {
    /// RET.
    Return,
    /// A jump to another function, which returns to our caller. `None` for a jump through a
    /// register or memory (interface method wrappers from Go 1.27 on).
    Tail(Option<Svma>),
}

/// One place where a function is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitSite {
    /// The leaving instruction.
    pub site: CodeSite,
    /// How it leaves.
    pub kind: ExitKind,
}

/// One CALL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Address of the CALL.
    pub address: Svma,
    /// Where it goes; `None` for a call through a register or memory.
    pub target: Option<Svma>,
}

/// What the code of one function says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Analysis {
    /// Where a call begins, each call passing it exactly once, with every argument register
    /// as the caller left it unless the stack grew: see [`Kept`]. The address of an exit too when the function is that one
    /// instruction (an empty body): the entry comes first then.
    pub entry: Result<CodeSite, Refused>,
    /// First instruction after the stack-bound check, or the first one when there is no check.
    pub body: Svma,
    /// Whether there is a stack-bound check.
    pub has_stack_check: bool,
    /// The `morestack` that the check calls.
    pub morestack: Option<Svma>,
    /// Registers that the code keeps over that call.
    pub spills: Spills,
    /// Every RET and every jump out of the function, in address order. Empty for functions
    /// that only panic, throw or loop.
    pub exits: Vec<ExitSite>,
    /// Every CALL but the one of `morestack`, in address order.
    pub calls: Vec<Call>,
    /// Addresses inside the function that something jumps to, sorted: branches, and
    /// `deferreturn`. Targets of jump tables are not in it.
    pub branch_targets: Vec<Svma>,
    /// Jumps through a table.
    pub table_jumps: Vec<Svma>,
    /// Whether the code loads g from thread-local storage into R14: an ABI0 function or
    /// wrapper, in which R14 need not be g at the entry. Other assembly need not keep g in
    /// R14 either: read g from thread-local storage in both.
    pub loads_g: bool,
    /// End of the last instruction before the padding.
    pub end: Svma,
    /// Places that did not decode.
    pub decode_errors: u32,
}
