//! Which instructions the kernel lets a uprobe replace, and how it runs them then.
//!
//! A model of `arch/x86/kernel/uprobes.c` (Linux 6.6 to 6.18): `uprobe_init_insn`,
//! `good_insns_64`, `good_2byte_insns`, `is_prefix_bad`, `branch_setup_xol_ops`,
//! `push_setup_xol_ops`. One refused site fails a whole `uprobe_multi` link (ENOTSUPP, 524).
//! Where the model and the kernel differ, the model refuses more:
//! - the kernel looks up the *opcode byte* of VEX instructions in the tables of legacy ones
//!   and can take `vmovdqu` (7F) for `jg` or `vcmpps` (C2) for `ret`;
//! - it accepts every two-byte opcode, because 0F itself is good in its first table;
//! - it takes 90 for `nop` under any prefix, `xchg r8, rax` (41 90) included.
//!
//! An instruction may lie across a page boundary: `copy_insn` (`kernel/events/uprobes.c`)
//! reads both pages.

use iced_x86::{EncodingKind, Instruction};
use thiserror::Error;

/// How the kernel runs the instruction under a uprobe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProbeCost {
    /// In the breakpoint handler: about 1 microsecond a hit.
    Emulated,
    /// Single-stepped out of line, a second trap: about 15 microseconds a hit.
    SingleStepped,
}

/// Why the kernel refuses a uprobe on an instruction, or would run it wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Unprobeable {
    /// `int3` (CC): the kernel takes it for somebody's breakpoint.
    #[error("a breakpoint instruction")]
    Breakpoint,
    /// LOCK, or a segment override other than FS and GS.
    #[error("a lock or segment prefix, which uprobes do not support")]
    Prefix,
    /// VEX, EVEX, XOP, 3DNow.
    #[error("a vector (VEX or EVEX) encoding, which uprobes do not support")]
    Vector,
    /// Not in the kernel's table of good opcodes.
    #[error("an opcode that uprobes do not support")]
    Opcode,
    /// Does not decode.
    #[error("not an instruction")]
    Undecodable,
}

/// How a uprobe on `instruction`, encoded as `bytes`, would run.
pub(super) fn probe_cost(
    instruction: &Instruction,
    bytes: &[u8],
) -> Result<ProbeCost, Unprobeable> {
    if instruction.is_invalid() {
        return Err(Unprobeable::Undecodable);
    }
    if instruction.encoding() != EncodingKind::Legacy {
        return Err(Unprobeable::Vector);
    }
    let parts = Parts::of(bytes).ok_or(Unprobeable::Undecodable)?;
    if parts.bad_prefix {
        return Err(Unprobeable::Prefix);
    }
    let next = parts.rest.first().copied().unwrap_or(0);
    match parts.opcode {
        0xcc => Err(Unprobeable::Breakpoint),
        0x0f => two_byte(next, parts.operand_size),
        // mov ss, r: masks exceptions for one instruction (insn_masking_exception).
        0x8e if next & 0x38 == 0x10 => Err(Unprobeable::Opcode),
        0x90 if parts.rex.is_some_and(|rex| rex & 1 != 0) => Err(Unprobeable::Opcode),
        0x90 => Ok(ProbeCost::Emulated),
        0x50..=0x57 => Ok(push(&parts)),
        0xeb | 0xe9 | 0xe8 | 0x70..=0x7f => branch(parts.operand_size),
        opcode if is_bad_one_byte(opcode) => Err(Unprobeable::Opcode),
        _ => Ok(ProbeCost::SingleStepped),
    }
}

/// `push_setup_xol_ops`: one byte, or two with REX.B alone.
fn push(parts: &Parts<'_>) -> ProbeCost {
    match (parts.legacy_prefixes, parts.rex) {
        (0, None | Some(0x41)) => ProbeCost::Emulated,
        _ => ProbeCost::SingleStepped,
    }
}

/// `branch_setup_xol_ops`: 16-bit branches are refused.
fn branch(operand_size: bool) -> Result<ProbeCost, Unprobeable> {
    if operand_size { Err(Unprobeable::Opcode) } else { Ok(ProbeCost::Emulated) }
}

fn two_byte(opcode: u8, operand_size: bool) -> Result<ProbeCost, Unprobeable> {
    match opcode {
        0x80..=0x8f => branch(operand_size),
        // System instructions, syscall, ud2, wrmsr, sysenter, vmread, group 15.
        0x00 | 0x01 | 0x05..=0x09 | 0x0b | 0x30 | 0x34 | 0x35 | 0x37 | 0x78 | 0x79 | 0xae => {
            Err(Unprobeable::Opcode)
        }
        _ => Ok(ProbeCost::SingleStepped),
    }
}

/// The zeros of `good_insns_64`.
fn is_bad_one_byte(opcode: u8) -> bool {
    matches!(
        opcode,
        0x06 | 0x07
            | 0x0e
            | 0x16
            | 0x17
            | 0x1e
            | 0x1f
            | 0x27
            | 0x2f
            | 0x37
            | 0x3f
            | 0x60..=0x62
            | 0x6c..=0x6f
            | 0x82
            | 0x9a
            | 0xcc..=0xcf
            | 0xd4..=0xd6
            | 0xe4..=0xe7
            | 0xea
            | 0xec..=0xef
            | 0xf1
            | 0xf4
            | 0xfa
            | 0xfb
    )
}

/// An instruction taken apart as far as the tables need it.
struct Parts<'a> {
    legacy_prefixes: usize,
    bad_prefix: bool,
    operand_size: bool,
    rex: Option<u8>,
    opcode: u8,
    rest: &'a [u8],
}

impl<'a> Parts<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let is_prefix = |byte: &u8| {
            matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3)
        };
        let legacy_prefixes = bytes.iter().take_while(|byte| is_prefix(byte)).count();
        let (prefixes, rest) = bytes.split_at_checked(legacy_prefixes)?;
        let (&first, after) = rest.split_first()?;
        let (rex, opcode, rest) = if first & 0xf0 == 0x40 {
            let (&opcode, rest) = after.split_first()?;
            (Some(first), opcode, rest)
        } else {
            (None, first, after)
        };
        Some(Self {
            legacy_prefixes,
            bad_prefix: prefixes.iter().any(|p| matches!(p, 0x26 | 0x2e | 0x36 | 0x3e | 0xf0)),
            operand_size: prefixes.contains(&0x66),
            rex,
            opcode,
            rest,
        })
    }
}
