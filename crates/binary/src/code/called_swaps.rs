//! Compare-and-swaps that are calls, since nothing is inlined (`-gcflags=all=-l`, from Go 1.21 on, where the
//! runtime's fields are `atomic.Uint32`).
//!
//! `(*Uint32).CompareAndSwap` (internal/runtime/atomic/types.go; runtime/internal/atomic up to Go 1.23) is
//! compiled to five instructions, and what they leave behind tells all there is to know: where
//! it returns to, RDX holds the address of the field, EBX the old value, ECX the new one and the
//! zero flag the outcome. Nothing but those five is taken for it.

use super::sweep::Sweep;
use crate::{Error, Executable};
use address::Svma;
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

/// The function, by the names of its package.
const SWAPPING: [&str; 2] = [
    "internal/runtime/atomic.(*Uint32).CompareAndSwap",
    "runtime/internal/atomic.(*Uint32).CompareAndSwap",
];

/// Register that holds the field's address behind the call, in hardware order.
pub(super) const FIELD: u8 = 2;
/// Register that holds the old value.
pub(super) const OLD: u8 = 3;
/// Register that holds the new value.
pub(super) const NEW: u8 = 1;

/// How many instructions before the call its argument is looked for.
const MAX_LOOKBEHIND: usize = 8;

/// Where the functions begin that swap and leave it all in registers.
pub(super) fn swap_functions(executable: &Executable) -> Result<Vec<Svma>, Error> {
    let table = executable.functions()?;
    let mut found = Vec::new();
    for function in SWAPPING.iter().flat_map(|name| table.by_name(name)) {
        let size = function.end.since(function.entry).unwrap_or_default();
        let code = executable.image().read_vec(function.entry, size)?;
        if is_swap_function(&code, function.entry) {
            found.push(function.entry);
        }
    }
    Ok(found)
}

/// Whether `code` is `mov rdx, rax; mov eax, ebx; lock cmpxchg [rdx], ecx; sete al; ret`.
fn is_swap_function(code: &[u8], entry: Svma) -> bool {
    let sweep = Sweep::of(code, entry);
    let [field, old, swap, outcome, leave] = sweep.instructions.as_slice() else { return false };
    let moves = |instruction: &Instruction, to, from| {
        instruction.mnemonic() == Mnemonic::Mov
            && instruction.op0_register() == to
            && instruction.op1_register() == from
    };
    moves(field, Register::RDX, Register::RAX)
        && moves(old, Register::EAX, Register::EBX)
        && swap.mnemonic() == Mnemonic::Cmpxchg
        && swap.has_lock_prefix()
        && swap.op0_kind() == OpKind::Memory
        && swap.memory_base() == Register::RDX
        && swap.memory_index() == Register::None
        && swap.memory_displacement64() == 0
        && swap.segment_prefix() == Register::None
        && swap.op1_register() == Register::ECX
        && outcome.mnemonic() == Mnemonic::Sete
        && outcome.op0_register() == Register::AL
        && leave.mnemonic() == Mnemonic::Ret
}

/// The offset in its structure of the field whose address is the first argument (RAX) of the call
/// at `index`; `None` when straight-line code before the call does not tell.
pub(super) fn field_offset(
    sweep: &Sweep,
    index: usize,
    writes: &mut dyn FnMut(&Instruction, Register) -> bool,
) -> Option<u32> {
    let mut register = Register::RAX;
    let before = sweep.instructions.get(..index)?;
    for instruction in before.iter().rev().take(MAX_LOOKBEHIND) {
        if instruction.flow_control() != FlowControl::Next {
            return None;
        }
        if !writes(instruction, register) {
            continue;
        }
        let is_of = instruction.op0_register() == register;
        return match instruction.mnemonic() {
            Mnemonic::Mov if is_of && instruction.op1_register().is_gpr64() => {
                register = instruction.op1_register();
                continue;
            }
            Mnemonic::Lea if is_of && instruction.memory_index() == Register::None => {
                let is_plain = instruction.memory_base().is_gpr64();
                is_plain.then(|| u32::try_from(instruction.memory_displacement64()).ok())?
            }
            Mnemonic::Add if is_of => u32::try_from(instruction.try_immediate(1).ok()?).ok(),
            _ => None,
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `mov rdx, rax; mov eax, ebx; lock cmpxchg [rdx], ecx; sete al; ret`, and padding.
    const WHOLE: [u8; 16] = [
        0x48, 0x89, 0xc2, 0x89, 0xd8, 0xf0, 0x0f, 0xb1, 0x0a, 0x0f, 0x94, 0xc0, 0xc3, 0xcc, 0xcc,
        0xcc,
    ];

    #[test]
    fn only_the_five_instructions_are_a_swap() {
        assert!(is_swap_function(&WHOLE, Svma(0x1000)));
        // Without the lock; another field; another register; nothing.
        for (at, byte) in [(5, 0x90), (8, 0x4a), (2, 0xc1), (12, 0xcc)] {
            let mut other = WHOLE;
            other[at] = byte;
            assert!(!is_swap_function(&other, Svma(0x1000)), "{at}");
        }
        assert!(!is_swap_function(&[], Svma(0x1000)));
    }
}
