//! What the slow path of a stack-bound check does with registers.
//!
//! `morestack` leaves for the scheduler and comes back with other registers. The code around the
//! call stores the argument registers in the caller's frame and loads them again
//! (`cmd/internal/obj/x86/obj6.go`, `stacksplit`), all of them or none:
//! `cmd/compile/internal/amd64/ssa.go` asks for it where it meets a register argument that the
//! function uses (Go 1.19 to 1.27, with and without optimisation).

use super::prologue::StackCheck;
use super::sweep::Sweep;
use crate::abi::Reg;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// What becomes of the registers when the stack-bound check goes its slow path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Spills {
    /// No call that passed the check has been there: there is no check, or what it calls ends
    /// the process (`morestackc` of `//go:systemstack` functions).
    Untouched,
    /// These are stored before the call and loaded from the same place after it, in the order
    /// of the loads. Others are not.
    Reloaded(Vec<Spill>),
    /// The instructions do something else: nothing is known.
    #[default]
    Unknown,
}

/// A register in memory during the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spill {
    /// The register.
    pub reg: Reg,
    /// Where it is, in bytes from SP at the function's first instruction.
    pub offset: u32,
    /// How many of its low bytes.
    pub bytes: u8,
}

impl Spill {
    fn overlaps(&self, other: &Self) -> bool {
        let end = |spill: &Self| u64::from(spill.offset) + u64::from(spill.bytes);
        u64::from(self.offset) < end(other) && u64::from(other.offset) < end(self)
    }
}

/// Follows the slow path of a function's check.
pub(super) fn spills(sweep: &Sweep, check: Option<StackCheck>) -> Spills {
    let Some(check) = check else { return Spills::Untouched };
    if check.is_fatal {
        return Spills::Untouched;
    }
    let between = |start: usize, end: usize| sweep.instructions.get(start..end);
    let (Some(before), Some(after)) =
        (between(check.slow, check.call), between(check.call + 1, check.back))
    else {
        return Spills::Unknown;
    };
    let reloaded = stored(before).and_then(|stored| loaded(after, &stored));
    match reloaded {
        Some(mut reloaded) => {
            // The check itself has overwritten these before they were stored.
            reloaded.retain(|spill| !check.writes(spill.reg));
            Spills::Reloaded(reloaded)
        }
        None => Spills::Unknown,
    }
}

/// What is in memory at the call.
fn stored(before: &[Instruction]) -> Option<Vec<Spill>> {
    let mut stored: Vec<Spill> = Vec::new();
    for instruction in before.iter().filter(|instruction| !is_nop(instruction)) {
        let spill = move_of(instruction, OpKind::Memory, OpKind::Register)?;
        stored.retain(|earlier| !earlier.overlaps(&spill));
        stored.push(spill);
    }
    Some(stored)
}

/// What has come back from there.
fn loaded(after: &[Instruction], stored: &[Spill]) -> Option<Vec<Spill>> {
    let mut loaded: Vec<Spill> = Vec::new();
    for instruction in after.iter().filter(|instruction| !is_nop(instruction)) {
        let spill = move_of(instruction, OpKind::Register, OpKind::Memory)?;
        loaded.retain(|earlier| earlier.reg != spill.reg);
        if stored.contains(&spill) {
            loaded.push(spill);
        }
    }
    Some(loaded)
}

fn is_nop(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Nop
}

/// A move between a register and `[rsp+N]` of the caller's frame, in the given direction.
fn move_of(instruction: &Instruction, to: OpKind, from: OpKind) -> Option<Spill> {
    let is_move = matches!(
        instruction.mnemonic(),
        Mnemonic::Mov
            | Mnemonic::Movzx
            | Mnemonic::Movss
            | Mnemonic::Movsd
            | Mnemonic::Movups
            | Mnemonic::Vmovdqu
            | Mnemonic::Vmovdqu64
    );
    let is_direct = instruction.memory_base() == Register::RSP
        && instruction.memory_index() == Register::None
        && !instruction.has_segment_prefix();
    if !is_move
        || !is_direct
        || instruction.op_count() != 2
        || (instruction.op0_kind(), instruction.op1_kind()) != (to, from)
    {
        return None;
    }
    let register = if to == OpKind::Register {
        instruction.op0_register()
    } else {
        instruction.op1_register()
    };
    // Below 8 is the return address.
    let offset = u32::try_from(instruction.memory_displacement64()).ok().filter(|&at| at >= 8)?;
    let bytes = u8::try_from(instruction.memory_size().size()).ok().filter(|&bytes| bytes > 0)?;
    Some(Spill { reg: reg_of(register)?, offset, bytes })
}

fn reg_of(register: Register) -> Option<Reg> {
    let is_high_byte =
        matches!(register, Register::AH | Register::BH | Register::CH | Register::DH);
    let number = u8::try_from(register.full_register().number()).ok()?;
    if register.is_gpr() && !is_high_byte {
        Some(Reg::Int(number))
    } else {
        register.is_vector_register().then_some(Reg::Float(number))
    }
}
