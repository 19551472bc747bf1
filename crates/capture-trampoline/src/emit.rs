//! From a plan to machine code: a patch of 5 bytes for each place, a stub for each site, and
//! recorders that the stubs share. Pure: bytes in, bytes out; no process.
//!
//! ```text
//! target            stub                          recorder
//! jmp stub  ──────▶ lea r13, [back]
//!                   jmp recorder  ──────────────▶ reserve, fill, rdtsc, commit
//!                   dd tag               ┌─────── jmp r13
//!            back:  moved instructions ◀─┘
//! next   ◀───────── jmp next
//! ```
//! The code uses no stack, calls nothing and blocks on nothing. It may use what is dead where
//! a Go function begins or ends (`cmd/compile/abi-internal.md`, Go 1.17 to 1.27): R12, R13,
//! R15 and the flags; RDX at returns; X15, which is 0 by convention and is set to 0 again.
#![deny(unsafe_code)]

mod pc_map;
mod refused;

pub use pc_map::{PcMap, TrampolinePc};
pub use refused::{EmitError, Refused};

use crate::layout::Rings;
use address::{Avma, Bias, Svma};
use binary::code::Analysis;
use std::ops::Range;

/// Bytes of a patch: `jmp rel32`.
pub const PATCH_LEN: usize = 5;

/// Gives the code of the plan's functions.
pub trait CodeSource {
    /// The function that begins at `entry`.
    fn function(&self, entry: Svma) -> Result<FunctionCode, Refused>;
}

/// The code of one function.
#[derive(Clone, Debug)]
pub struct FunctionCode {
    /// Its bytes, with the padding up to the next function.
    pub bytes: Vec<u8>,
    /// What they say.
    pub analysis: Analysis,
    /// `abi.FuncFlagAsm`.
    pub is_assembly: bool,
    /// Where jump tables lead, sorted.
    pub table_targets: Vec<Svma>,
}

/// What the code is made for.
#[derive(Clone, Copy, Debug)]
pub struct EmitOptions {
    /// Where [`Emitted::code`] will be mapped: within 2 GB of the text, the control page and
    /// the rings.
    pub code_base: Avma,
    /// Where the image lies.
    pub bias: Bias,
    /// The control page, see [`crate::layout::ENABLED`].
    pub control: Avma,
    /// The rings.
    pub rings: Rings,
    /// Whether the CPU has `rdpid`: a ring for each CPU; else for each M, by its address.
    pub has_rdpid: bool,
    /// Offset of `m.procid`, for the thread id.
    pub m_procid: Option<u32>,
    /// Whether a fault in a moved instruction is translated to its original place before the Go
    /// runtime sees it (by [`Emitted::pc_map`]). If not, instructions that can fault stay
    /// where they are, and some functions are refused for it.
    pub translates_faults: bool,
}

/// One write into the text. Never crosses a page boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Index of the function in the plan.
    pub function: u32,
    /// First byte.
    pub address: Svma,
    /// What must be there before.
    pub original: [u8; PATCH_LEN],
    /// What is there afterwards.
    pub replacement: [u8; PATCH_LEN],
    /// End of the last moved instruction: PCs strictly between `address` and this must not be
    /// resumed at (a thread, a saved PC) while the patch is in. It may lie before the end
    /// of the patch, whose rest is padding then.
    pub end: Svma,
}

/// What a reader needs to know about the records of one site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteRecord {
    /// Whether the site is installed.
    pub installed: bool,
    /// Exact payload length in bytes, wire form.
    pub payload: u16,
    /// Units of a record on a goroutine's own stack; one more on a system stack.
    pub units: u8,
}

/// Everything to install.
#[derive(Clone, Debug, Default)]
pub struct Emitted {
    /// To be mapped R+X at [`EmitOptions::code_base`].
    pub code: Vec<u8>,
    /// Shared recorders, as a range of `code`: a PC in it belongs to the site that R13 leads
    /// back to, and its registers are in use; let it run.
    pub recorders: Range<usize>,
    /// Sorted by address, no two overlap.
    pub patches: Vec<Patch>,
    /// Functions of the plan that are not installed: index and reason. All sites of a function
    /// are installed or none.
    pub refused: Vec<(u32, Refused)>,
    /// Original places and their copies.
    pub pc_map: PcMap,
    /// For each site of the plan.
    pub sites: Vec<SiteRecord>,
}
