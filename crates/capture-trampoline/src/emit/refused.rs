//! Why nothing is emitted, for a function or at all.

use address::Svma;
use thiserror::Error;

/// Why a function of the plan carries no trampolines.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refused {
    /// Its code could not be read or is not what the plan was made from.
    #[error("its code cannot be read: {0}")]
    Unreadable(String),
    /// The analysis found no entry.
    #[error("{0}")]
    Code(#[from] binary::code::Refused),
    /// Written in assembly, or an ABI0 wrapper.
    #[error(
        "follows the assembly calling convention (ABI0), in which registers have other meanings"
    )]
    Abi0,
    /// Carries the hook that handles faults.
    #[error("is hooked by the tracer itself, to handle faults")]
    Hooked,
    /// Left to the other backend.
    #[error("is left to the other backend of this capture")]
    Elsewhere,
    /// The plan's site is not one that the code has.
    #[error("0x{:x} is neither where its calls begin nor where they end", .0.0)]
    NoSuchSite(Svma),
    /// No 5 bytes can be replaced.
    #[error("has no room for a jump at 0x{:x}: {why}", .at.0)]
    NoRoom {
        /// The site.
        at: Svma,
        /// What is in the way of the best range.
        why: Obstacle,
    },
    /// A scratch register holds something.
    #[error("uses {register} at 0x{:x} before it sets it", .at.0)]
    RegisterLive {
        /// The reading instruction.
        at: Svma,
        /// The register.
        register: &'static str,
    },
    /// The flags hold something.
    #[error("reads flags at 0x{:x} that were set before the site", .0.0)]
    FlagsLive(Svma),
    /// A jump table that cannot be followed.
    #[error("jumps through a table at 0x{:x} that cannot be read", .0.0)]
    JumpTable(Svma),
    /// A fetch program asks for a register that the recorder uses.
    #[error("its values need register {0} (in hardware order), which holds none at this site")]
    Register(u8),
    /// A fetch program that is not built from whole fields and bodies, or is too long.
    #[error("its fetch program {0}")]
    Program(&'static str),
    /// A fetch program asks for a vector register that the recorder uses.
    #[error("its values need vector register X{0}, which holds none at this site")]
    Vector(u8),
    /// A swap outside the runtime, where vector registers may hold anything.
    #[error("0x{:x} is a compare-and-swap outside the runtime", .0.0)]
    NotRuntime(Svma),
    /// A function with a swap names the vector registers that the recorder uses.
    #[error("names vector registers X9 to X14, which the record at 0x{:x} needs", .0.0)]
    VectorsNamed(Svma),
    /// A fetch program at a swap reads memory that may not be mapped.
    #[error("its values at 0x{:x} are behind pointers, which are not followed there", .0.0)]
    Reads(Svma),
    /// A fetch program emits more than a record holds.
    #[error("its values need {0} bytes, more than a record holds")]
    Payload(usize),
    /// A target of a moved instruction is out of reach.
    #[error("refers from 0x{:x} to an address too far from the code area", .0.0)]
    Reach(Svma),
}

/// What keeps 5 bytes from being replaced.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// The instructions before another block, call or the function's end are too short.
    #[error("the block is too short")]
    Short,
    /// Something jumps into the range.
    #[error("a branch leads into it")]
    Branch,
    /// A call would have to move.
    #[error("a call is in the way")]
    Call,
    /// An instruction that can fault would have to move.
    #[error("an instruction that can fault is in the way")]
    Fault,
    /// An instruction that cannot run elsewhere.
    #[error("an instruction that cannot move is in the way")]
    Fixed,
    /// The range lies across two pages.
    #[error("it lies across a page boundary")]
    Page,
}

/// Why no code can be made at all.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EmitError {
    /// Ring sizes that the code cannot address.
    #[error("rings of {bytes} bytes, {count} of them, are not powers of two in range")]
    Rings {
        /// Bytes of one.
        bytes: u32,
        /// How many.
        count: u32,
    },
    /// More sites than a record can name.
    #[error("{0} sites are more than a record can name; select fewer functions")]
    TooManySites(usize),
    /// The areas lie too far apart.
    #[error("the code area is more than 2 GB away from the rings or the control page")]
    Far,
    /// The recorder could not be assembled.
    #[error("failed to assemble the recorder: {0}")]
    Assemble(String),
}
