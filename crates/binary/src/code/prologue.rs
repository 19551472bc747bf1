//! The stack-bound check at a function's start, in the forms that
//! `cmd/internal/obj/x86/obj6.go` (`stacksplit`) gives it in Go 1.19 to 1.27:
//!
//! ```text
//! small    cmp rsp, [r14+10h]                                          jbe slow
//! large    lea r12, [rsp-N]            cmp r12, [r14+10h]              jbe slow
//! huge     mov r12, rsp  sub r12, N    jb slow  cmp r12, [r14+10h]     jbe slow
//! ABI0     mov r14|rcx, fs:[-8] (or two instructions), then the same with [r14|rcx+10h]
//! slow     spill arguments  call morestack  reload them  jmp entry
//! ```
//! `//go:systemstack` functions compare with `stackguard1`, at 18h.

use super::sweep::Sweep;
use crate::abi::Reg;
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

/// A check is over within so many instructions.
const MAX_CHECK: usize = 8;
/// The slow path spills and reloads at most 9 integer and 15 vector registers, twice.
const MAX_SLOW_PATH: usize = 64;

/// The stack-bound check of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StackCheck {
    /// Index of the first instruction after it.
    pub(super) body: usize,
    /// Index of the CALL of `morestack`.
    pub(super) call: usize,
    /// Index of the jump back to the entry.
    pub(super) back: usize,
    /// Index of the first instruction of the slow path.
    pub(super) slow: usize,
    /// Whether the slow path ends the process: it is `morestackc`'s, by the guard it compares
    /// with.
    pub(super) is_fatal: bool,
    /// The register that holds g.
    g: Register,
}

impl StackCheck {
    /// Whether the check overwrites a register.
    pub(super) fn writes(&self, reg: Reg) -> bool {
        let scratch = [Register::R12, Register::R13, self.g];
        scratch.iter().any(|scratch| reg == Reg::Int(scratch.number() as u8))
    }
}

/// Offset of `g.stackguard1` (runtime/runtime2.go).
const STACKGUARD1: u64 = 0x18;

/// Finds the check of a function that has one.
pub(super) fn stack_check(sweep: &Sweep) -> Option<StackCheck> {
    let mut compared = None;
    let mut jumped = None;
    for (index, instruction) in sweep.instructions.iter().take(MAX_CHECK).enumerate() {
        match instruction.mnemonic() {
            Mnemonic::Cmp if compares_guard(instruction) => compared = Some(instruction),
            Mnemonic::Jbe => {
                let target = instruction.near_branch_target();
                if jumped.is_some_and(|jumped| jumped != target) {
                    return None;
                }
                return slow_path(sweep, compared?, index + 1, target);
            }
            Mnemonic::Jb if compared.is_none() => jumped = Some(instruction.near_branch_target()),
            Mnemonic::Mov | Mnemonic::Lea | Mnemonic::Sub if writes_scratch(instruction) => {}
            _ => return None,
        }
    }
    None
}

/// `cmp rsp|r12, [g + stackguard]`.
fn compares_guard(instruction: &Instruction) -> bool {
    matches!(instruction.op0_register(), Register::RSP | Register::R12)
        && instruction.op1_kind() == OpKind::Memory
        && matches!(instruction.memory_base(), Register::R14 | Register::RCX)
        && instruction.memory_index() == Register::None
        && matches!(instruction.memory_displacement64(), 0x10 | 0x18)
}

fn writes_scratch(instruction: &Instruction) -> bool {
    matches!(
        instruction.op0_register(),
        Register::R12 | Register::R14 | Register::RCX | Register::ECX
    )
}

/// The check whose slow path begins at `target`.
fn slow_path(
    sweep: &Sweep,
    compared: &Instruction,
    body: usize,
    target: u64,
) -> Option<StackCheck> {
    let entry = sweep.instructions.first()?.ip();
    let slow = sweep.index_of(target)?;
    let mut call = None;
    for (index, instruction) in sweep.instructions.iter().enumerate().skip(slow).take(MAX_SLOW_PATH)
    {
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::Call if call.is_none() => call = Some(index),
            FlowControl::UnconditionalBranch if instruction.near_branch_target() == entry => {
                let is_fatal = compared.memory_displacement64() == STACKGUARD1;
                let g = compared.memory_base();
                return call.map(|call| StackCheck { body, call, back: index, slow, is_fatal, g });
            }
            _ => return None,
        }
    }
    None
}
