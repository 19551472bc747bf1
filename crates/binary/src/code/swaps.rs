//! Compare-and-swaps in the middle of functions: where the runtime changes what others watch.

use super::sweep::Sweep;
use crate::{Error, Executable, Function};
use address::Svma;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// One `lock cmpxchg [base + displacement], new` of 4 bytes: EAX holds the expected value, and
/// the zero flag says afterwards whether it was there and `new` is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swap {
    /// The instruction.
    pub address: Svma,
    /// The next one.
    pub after: Svma,
    /// Register that holds the structure's address, in hardware order.
    pub base: u8,
    /// Offset in the structure, bytes.
    pub displacement: u32,
    /// Register that holds the new value, in hardware order.
    pub new: u8,
    /// Whether something jumps to `after`: who stops there sees more than this swap.
    pub after_is_target: bool,
}

/// All swaps of the 4 bytes at `displacement` of a structure in `code`, which begins at
/// `entry`, in address order.
pub fn swaps(code: &[u8], entry: Svma, displacement: u32) -> Vec<Swap> {
    let sweep = Sweep::of(code, entry);
    let targets = |address: u64| {
        sweep.instructions.iter().any(|instruction| {
            instruction.op0_kind() == OpKind::NearBranch64
                && instruction.near_branch_target() == address
        })
    };
    let found = sweep.instructions.iter().filter_map(swap);
    found
        .filter(|swap| swap.displacement == displacement)
        .map(|swap| Swap { after_is_target: targets(swap.after.0), ..swap })
        .collect()
}

/// The same in a function of an executable. Fails when the file does not hold its bytes.
pub fn swaps_of_function(
    executable: &Executable,
    function: &Function,
    displacement: u32,
) -> Result<Vec<Swap>, Error> {
    let size = function.end.since(function.entry).unwrap_or_default();
    let code = executable.image().read_vec(function.entry, size)?;
    Ok(swaps(&code, function.entry, displacement))
}

fn swap(instruction: &Instruction) -> Option<Swap> {
    let number = |register: Register| u8::try_from(register.full_register().number()).ok();
    let is_swap = instruction.mnemonic() == Mnemonic::Cmpxchg
        && instruction.has_lock_prefix()
        && instruction.op0_kind() == OpKind::Memory
        && instruction.op1_register().size() == 4
        && instruction.memory_base().size() == 8
        && instruction.memory_base() != Register::RIP
        && instruction.memory_index() == Register::None
        && instruction.segment_prefix() == Register::None;
    if !is_swap {
        return None;
    }
    Some(Swap {
        address: Svma(instruction.ip()),
        after: Svma(instruction.next_ip()),
        base: number(instruction.memory_base())?,
        displacement: u32::try_from(instruction.memory_displacement64()).ok()?,
        new: number(instruction.op1_register())?,
        after_is_target: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swaps_are_found_with_their_registers() {
        // lock cmpxchg [rdi+90h], ecx; sete r8b; lock cmpxchg [r8+90h], r9d;
        // lock cmpxchg [rdi+94h], ecx; cmpxchg [rdi+90h], ecx; jmp to the first sete; ret
        let code = [
            0xf0, 0x0f, 0xb1, 0x8f, 0x90, 0, 0, 0, 0x41, 0x0f, 0x94, 0xc0, 0xf0, 0x45, 0x0f, 0xb1,
            0x88, 0x90, 0, 0, 0, 0xf0, 0x0f, 0xb1, 0x8f, 0x94, 0, 0, 0, 0x0f, 0xb1, 0x8f, 0x90, 0,
            0, 0, 0xeb, 0xe2, 0xc3,
        ];
        let found = swaps(&code, Svma(0x1000), 0x90);
        let swap = |address, len, base, new, after_is_target| Swap {
            address: Svma(address),
            after: Svma(address + len),
            base,
            displacement: 0x90,
            new,
            after_is_target,
        };
        assert_eq!(found, [swap(0x1000, 8, 7, 1, true), swap(0x100c, 9, 8, 9, false)]);
    }
}
