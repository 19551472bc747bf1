//! Why a function's calls cannot be traced.

use super::Unprobeable;
use address::Svma;
use thiserror::Error;

/// Why a function has no entry site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// No instruction before the padding.
    #[error("has no code")]
    NoCode,
    /// A marker or data that the linker puts among the functions.
    #[error("is a marker of the linker, not a function")]
    Marker,
    /// The runtime uses it by rules of its own.
    #[error("{0}")]
    Special(&'static str),
    /// Compiled from C.
    #[error("is C code, which follows another calling convention and has no goroutine")]
    C,
    /// Assembly that moves SP in ways pclntab cannot describe.
    #[error("is assembly that switches or rewrites its stack pointer")]
    SpWrite,
    /// Outermost frame of a stack.
    #[error("is the outermost frame of a stack: it is started, not called")]
    TopFrame,
    /// In the range that the FIPS self-check hashes.
    #[error(
        "lies in the text that the FIPS self-check hashes at start: a probe would make it fail"
    )]
    Fips,
    /// The bytes are not instructions.
    #[error("has bytes at 0x{:x} that do not decode", .0.0)]
    Undecodable(Svma),
    /// A branch inside the function leads to its first instruction.
    #[error("loops back to its first instruction (from 0x{:x}): a probe would count rounds", .0.0)]
    EntryIsLoop(Svma),
    /// A branch leads between the stack-bound check and the site.
    #[error("jumps to the end of its own stack check (from 0x{:x})", .0.0)]
    BodyIsLoop(Svma),
    /// A conditional jump leaves the function.
    #[error("leaves by a conditional jump at 0x{:x}, which a probe sees taken or not", .0.0)]
    ConditionalExit(Svma),
    /// No instruction that every call passes can carry a breakpoint of ours.
    #[error("begins with an instruction that cannot be probed: {0}")]
    Unprobeable(Unprobeable),
}
