//! Compare-and-swaps in the middle of functions, where the runtime changes what others watch:
//! where they are, and where their outcome shows. In code without inlining they are calls
//! (`called_swaps`).

use super::called_swaps::{FIELD, NEW, OLD, field_offset, swap_functions};
use super::kernel::{ProbeCost, Unprobeable, probe_cost};
use super::sweep::Sweep;
use crate::{Error, Executable, Function};
use address::Svma;
use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

/// How many instructions after a swap a cheap site is looked for.
const MAX_LOOKAHEAD: usize = 8;

/// A place behind a swap at which its outcome is in the zero flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The instruction: every swap gets there next, and nothing else does. Its operands still
    /// hold what they held at the swap, if it swapped.
    pub address: Svma,
    /// What the zero flag is there after a swap that swapped.
    pub zero: bool,
    /// What a uprobe costs there.
    pub cost: ProbeCost,
}

/// One `lock cmpxchg [base + displacement], new` of 4 bytes: EAX holds the expected value. Or a call
/// of a function that is nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swap {
    /// The instruction.
    pub address: Svma,
    /// The next one.
    pub after: Svma,
    /// Whether it is a call. Then the registers hold what is said of them behind it only.
    pub is_call: bool,
    /// Register that holds the structure's address, in hardware order; that of the field itself
    /// behind a call.
    pub base: u8,
    /// Offset in the structure, bytes.
    pub displacement: u32,
    /// Register that holds the old value, behind a swap that swapped too; in hardware order.
    pub old: u8,
    /// Register that holds the new value, in hardware order.
    pub new: u8,
    /// Where the outcome can be seen without replacing the instruction, which uprobes do not do;
    /// `None` when something jumps right behind it.
    pub outcome: Option<Outcome>,
}

/// All swaps of the 4 bytes at `displacement` of a structure in `code`, which begins at
/// `entry`, in address order. `functions`: what does nothing but swap the 4 bytes at its first
/// argument.
pub fn swaps(code: &[u8], entry: Svma, displacement: u32, functions: &[Svma]) -> Vec<Swap> {
    let sweep = Sweep::of(code, entry);
    let finder = Finder { code, entry, sweep: &sweep, functions };
    let found = (0..sweep.instructions.len()).filter_map(|index| finder.swap(index));
    found.filter(|swap| swap.displacement == displacement).collect()
}

/// The same in a function of an executable. Fails when the file does not hold its bytes.
pub fn swaps_of_function(
    executable: &Executable,
    function: &Function,
    displacement: u32,
) -> Result<Vec<Swap>, Error> {
    let size = function.end.since(function.entry).unwrap_or_default();
    let code = executable.image().read_vec(function.entry, size)?;
    // Decoding takes much longer than a look for the operand.
    let operand = displacement.to_le_bytes();
    if !code.windows(operand.len()).any(|bytes| bytes == operand) {
        return Ok(Vec::new());
    }
    Ok(swaps(&code, function.entry, displacement, &swap_functions(executable)?))
}

struct Finder<'a> {
    code: &'a [u8],
    entry: Svma,
    sweep: &'a Sweep,
    functions: &'a [Svma],
}

impl Finder<'_> {
    fn swap(&self, index: usize) -> Option<Swap> {
        let swap = self.sweep.instructions.get(index)?;
        let (base, new) = (swap.memory_base(), swap.op1_register());
        let is_swap = swap.mnemonic() == Mnemonic::Cmpxchg
            && swap.has_lock_prefix()
            && swap.op0_kind() == OpKind::Memory
            && new.size() == 4
            && base.is_gpr64()
            && swap.memory_index() == Register::None
            && swap.segment_prefix() == Register::None;
        if !is_swap {
            return self.called(index);
        }
        Some(Swap {
            address: Svma(swap.ip()),
            after: Svma(swap.next_ip()),
            is_call: false,
            base: number(base)?,
            displacement: u32::try_from(swap.memory_displacement64()).ok()?,
            old: 0,
            new: number(new)?,
            outcome: self.outcome(index, [base, new, Register::EAX], None),
        })
    }

    fn called(&self, index: usize) -> Option<Swap> {
        let call = self.sweep.instructions.get(index)?;
        let is_swap = call.mnemonic() == Mnemonic::Call
            && call.op0_kind() == OpKind::NearBranch64
            && self.functions.contains(&Svma(call.near_branch_target()));
        if !is_swap || self.is_target(call.ip()) {
            return None;
        }
        let mut info = InstructionInfoFactory::new();
        let mut writes =
            |instruction: &Instruction, register| writes(&mut info, instruction, register);
        let needed = [Register::RDX, Register::EBX, Register::ECX];
        Some(Swap {
            address: Svma(call.ip()),
            after: Svma(call.next_ip()),
            is_call: true,
            base: FIELD,
            displacement: field_offset(self.sweep, index, &mut writes)?,
            old: OLD,
            new: NEW,
            outcome: self.outcome(index, needed, Some(Register::AL)),
        })
    }

    fn is_target(&self, address: u64) -> bool {
        self.sweep.instructions.iter().any(|instruction| {
            instruction.op0_kind() == OpKind::NearBranch64
                && instruction.mnemonic() != Mnemonic::Call
                && instruction.near_branch_target() == address
        })
    }

    /// The first instruction that the kernel emulates, within straight-line code that leaves
    /// flag and `needed` registers in place; without one the next instruction. `flag_of`: the
    /// register that has the outcome already.
    fn outcome(
        &self,
        index: usize,
        needed: [Register; 3],
        mut flag_of: Option<Register>,
    ) -> Option<Outcome> {
        let first = self.sweep.instructions.get(index + 1)?;
        if self.is_target(first.ip()) {
            return None;
        }
        let outcome = |instruction: &Instruction, zero| {
            let cost = self.cost(instruction).ok()?;
            Some(Outcome { address: Svma(instruction.ip()), zero, cost })
        };
        let mut info = InstructionInfoFactory::new();
        let mut zero = true;
        for instruction in self.sweep.instructions.iter().skip(index + 1).take(MAX_LOOKAHEAD) {
            if instruction.ip() != first.ip() && self.is_target(instruction.ip()) {
                break;
            }
            if self.cost(instruction) == Ok(ProbeCost::Emulated) {
                return outcome(instruction, zero);
            }
            let clobbers =
                needed.into_iter().any(|register| writes(&mut info, instruction, register));
            if clobbers || instruction.flow_control() != FlowControl::Next {
                break;
            }
            if instruction.mnemonic() == Mnemonic::Sete && flag_of.is_none() {
                flag_of = Some(instruction.op0_register());
            } else if is_test_of(instruction, flag_of) {
                zero = false;
            } else if instruction.rflags_modified() != 0 {
                break;
            }
        }
        outcome(first, true)
    }

    fn cost(&self, instruction: &Instruction) -> Result<ProbeCost, Unprobeable> {
        let start = instruction.ip().wrapping_sub(self.entry.0) as usize;
        let bytes = self.code.get(start..start.saturating_add(instruction.len()));
        probe_cost(instruction, bytes.unwrap_or_default())
    }
}

/// `test r, r` of the register that holds the outcome.
fn is_test_of(instruction: &Instruction, flag: Option<Register>) -> bool {
    instruction.mnemonic() == Mnemonic::Test
        && Some(instruction.op0_register()) == flag
        && Some(instruction.op1_register()) == flag
}

fn writes(
    info: &mut InstructionInfoFactory,
    instruction: &Instruction,
    register: Register,
) -> bool {
    info.info(instruction).used_registers().iter().any(|used| {
        used.register().full_register() == register.full_register()
            && !matches!(used.access(), OpAccess::None | OpAccess::Read | OpAccess::CondRead)
    })
}

fn number(register: Register) -> Option<u8> {
    u8::try_from(register.full_register().number()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swap(address: u64, len: u64, base: u8, new: u8, outcome: Option<Outcome>) -> Swap {
        let (address, after) = (Svma(address), Svma(address + len));
        let (is_call, displacement, old) = (false, 0x90, 0);
        Swap { address, after, is_call, base, displacement, old, new, outcome }
    }

    #[test]
    fn swaps_are_found_with_their_registers() {
        // lock cmpxchg [rdi+90h], ecx; sete r8b; lock cmpxchg [r8+90h], r9d;
        // lock cmpxchg [rdi+94h], ecx; cmpxchg [rdi+90h], ecx; jmp to the first sete; ret
        let code = [
            0xf0, 0x0f, 0xb1, 0x8f, 0x90, 0, 0, 0, 0x41, 0x0f, 0x94, 0xc0, 0xf0, 0x45, 0x0f, 0xb1,
            0x88, 0x90, 0, 0, 0, 0xf0, 0x0f, 0xb1, 0x8f, 0x94, 0, 0, 0, 0x0f, 0xb1, 0x8f, 0x90, 0,
            0, 0, 0xeb, 0xe2, 0xc3,
        ];
        let found = swaps(&code, Svma(0x1000), 0x90, &[]);
        // Behind the second stands an instruction that no uprobe can replace.
        assert_eq!(found, [swap(0x1000, 8, 7, 1, None), swap(0x100c, 9, 8, 9, None)]);
    }

    #[test]
    fn the_outcome_is_at_the_branch_that_tests_it() {
        // mov eax,ebx; lock cmpxchg [rdi+0x90],ecx; sete r8b; test r8b,r8b; jne +0
        let code = [
            0x89, 0xd8, 0xf0, 0x0f, 0xb1, 0x8f, 0x90, 0, 0, 0, 0x41, 0x0f, 0x94, 0xc0, 0x45, 0x84,
            0xc0, 0x75, 0x00, 0xc3,
        ];
        let outcome = Outcome { address: Svma(0x1011), zero: false, cost: ProbeCost::Emulated };
        assert_eq!(swaps(&code, Svma(0x1000), 0x90, &[]), [swap(0x1002, 8, 7, 1, Some(outcome))]);
    }

    #[test]
    fn an_operand_that_is_overwritten_leaves_the_next_instruction() {
        // lock cmpxchg [rdi+0x90],r8d; sete dil; jmp +0
        let code =
            [0xf0, 0x44, 0x0f, 0xb1, 0x87, 0x90, 0, 0, 0, 0x40, 0x0f, 0x94, 0xc7, 0xeb, 0x00, 0xc3];
        let outcome = Outcome { address: Svma(0x1009), zero: true, cost: ProbeCost::SingleStepped };
        assert_eq!(swaps(&code, Svma(0x1000), 0x90, &[]), [swap(0x1000, 9, 7, 8, Some(outcome))]);
    }

    #[test]
    fn a_call_that_swaps_is_one() {
        // lea rsi,[rdx+0x90]; mov [rsp+38],rsi; mov ebx,[rsp+58]; mov rax,rsi; mov ecx,[rsp+5c];
        // call 2000; test al,al; jne +0; add rax,0x90; call 2000; nop; add rax,0x98; call 2000; nop;
        // lea rax,[rdi+0x90]; call 3000; ret
        let code = [
            0x48, 0x8d, 0xb2, 0x90, 0, 0, 0, 0x48, 0x89, 0x74, 0x24, 0x38, 0x8b, 0x5c, 0x24, 0x58,
            0x48, 0x89, 0xf0, 0x8b, 0x4c, 0x24, 0x5c, 0xe8, 0xe4, 0x0f, 0, 0, 0x84, 0xc0, 0x75, 0,
            0x48, 0x05, 0x90, 0, 0, 0, 0xe8, 0xd5, 0x0f, 0, 0, 0x90, 0x48, 0x05, 0x98, 0, 0, 0,
            0xe8, 0xc9, 0x0f, 0, 0, 0x90, 0x48, 0x8d, 0x87, 0x90, 0, 0, 0, 0xe8, 0xbc, 0x1f, 0, 0,
            0xc3,
        ];
        let called = |address, outcome, zero| Swap {
            address: Svma(address),
            after: Svma(address + 5),
            is_call: true,
            base: 2,
            displacement: 0x90,
            old: 3,
            new: 1,
            outcome: Some(Outcome { address: Svma(outcome), zero, cost: ProbeCost::Emulated }),
        };
        let expected = [called(0x1017, 0x101e, false), called(0x1026, 0x102b, true)];
        assert_eq!(swaps(&code, Svma(0x1000), 0x90, &[Svma(0x2000)]), expected);
        assert_eq!(swaps(&code, Svma(0x1000), 0x90, &[]), []);
    }
}
