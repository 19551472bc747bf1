//! The accesses of a function to fixed addresses.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register,
};
use std::collections::HashSet;

/// What an instruction does at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Moves it to a register.
    Load,
    /// Moves a register or constant there.
    Store,
    /// Exchanges it with a register.
    Exchange,
    /// Exchanges it with its sum with a register.
    ExchangeAdd,
    /// Compares it.
    Compare,
    /// Adds to it.
    Add,
    /// Takes the address.
    Address,
    /// Calls with the address in a register: the first argument's, the second's, ...
    Argument(u8),
    /// Anything else.
    Other,
}

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) what: Use,
    /// Bytes; 0 for [`Use::Address`] and [`Use::Argument`].
    pub(super) size: usize,
    pub(super) address: u64,
    /// The constant that is stored, added or compared with, if it is one; what is called.
    pub(super) constant: Option<u64>,
}

/// Registers of integer arguments in Go's calling convention, in their order
/// (`cmd/compile/abi-internal.md`).
const ARGUMENTS: [Register; 3] = [Register::RAX, Register::RBX, Register::RCX];

/// All accesses of code at `entry`, in its order: RIP-relative ones, and those through a
/// register that a LEA set earlier in the same straight line.
pub(super) fn accesses(code: &[u8], entry: u64) -> Vec<Access> {
    let instructions: Vec<Instruction> =
        Decoder::with_ip(64, code, entry, DecoderOptions::NONE).into_iter().collect();
    let targets: HashSet<u64> = instructions
        .iter()
        .filter(|i| matches!(i.op0_kind(), OpKind::NearBranch64 | OpKind::NearBranch32))
        .map(Instruction::near_branch_target)
        .collect();
    let mut known = Known::default();
    let mut factory = InstructionInfoFactory::new();
    let mut found = Vec::new();
    for instruction in &instructions {
        if targets.contains(&instruction.ip()) {
            known = Known::default();
        }
        if instruction.is_invalid() {
            known = Known::default();
            continue;
        }
        let address = known.address_of(instruction);
        if let Some(address) = address {
            found.extend(access(instruction, address));
        }
        if instruction.is_call_near() {
            let call = Some(instruction.near_branch_target());
            found.extend((0..).zip(ARGUMENTS).filter_map(|(index, register)| {
                let address = (*known.slot(register)?)?;
                Some(Access { what: Use::Argument(index), size: 0, address, constant: call })
            }));
        }
        known.step(instruction, address, &mut factory);
    }
    found
}

fn access(instruction: &Instruction, address: u64) -> Option<Access> {
    let memory = |operand: u32| instruction.op_kind(operand) == OpKind::Memory;
    let what = match instruction.mnemonic() {
        Mnemonic::Nop => return None,
        Mnemonic::Lea => Use::Address,
        Mnemonic::Mov if memory(0) => Use::Store,
        Mnemonic::Mov => Use::Load,
        Mnemonic::Xchg => Use::Exchange,
        Mnemonic::Xadd => Use::ExchangeAdd,
        Mnemonic::Cmp => Use::Compare,
        Mnemonic::Add if memory(0) => Use::Add,
        _ => Use::Other,
    };
    let size = if what == Use::Address { 0 } else { instruction.memory_size().size() };
    let last = instruction.op_count().saturating_sub(1);
    let constant = instruction.try_immediate(last).ok();
    Some(Access { what, size, address, constant })
}

/// Registers that hold a fixed address.
#[derive(Default)]
struct Known([Option<u64>; 16]);

impl Known {
    fn slot(&mut self, register: Register) -> Option<&mut Option<u64>> {
        let register = register.full_register();
        if register.is_gpr64() { self.0.get_mut(register.number()) } else { None }
    }

    /// The fixed address that the instruction's memory operand is at.
    fn address_of(&mut self, instruction: &Instruction) -> Option<u64> {
        let has_memory = (0..instruction.op_count())
            .any(|operand| instruction.op_kind(operand) == OpKind::Memory);
        let plain = !matches!(instruction.memory_segment(), Register::FS | Register::GS)
            && instruction.memory_index() == Register::None;
        if !has_memory || !plain {
            return None;
        }
        if instruction.is_ip_rel_memory_operand() {
            return Some(instruction.ip_rel_memory_address());
        }
        let base = (*self.slot(instruction.memory_base())?)?;
        Some(base.wrapping_add(instruction.memory_displacement64()))
    }

    fn step(
        &mut self,
        instruction: &Instruction,
        address: Option<u64>,
        factory: &mut InstructionInfoFactory,
    ) {
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::ConditionalBranch => {}
            _ => *self = Self::default(),
        }
        for used in factory.info(instruction).used_registers() {
            let written = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
            if written && let Some(slot) = self.slot(used.register()) {
                *slot = None;
            }
        }
        if instruction.code() == Code::Lea_r64_m
            && let Some(slot) = self.slot(instruction.op0_register())
        {
            *slot = address;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_taken_is_followed_to_its_use() {
        // lea rcx,[rip+0x100]; mov rax,1; xchg [rcx+8],rax; call; xchg [rcx],rax
        let code = [
            0x48, 0x8d, 0x0d, 0x00, 0x01, 0x00, 0x00, 0x48, 0xc7, 0xc0, 1, 0, 0, 0, 0x48, 0x87,
            0x41, 0x08, 0xe8, 0, 0, 0, 0, 0x48, 0x87, 0x01,
        ];
        let found = accesses(&code, 0x1000);
        let expected = [
            access(Use::Address, 0, 0x1107, None),
            access(Use::Exchange, 8, 0x110f, None),
            access(Use::Argument(2), 0, 0x1107, Some(0x1017)),
        ];
        assert_eq!(found, expected);
    }

    fn access(what: Use, size: usize, address: u64, constant: Option<u64>) -> Access {
        Access { what, size, address, constant }
    }

    #[test]
    fn constants_and_arguments_are_told() {
        // cmp dword [rip+0x100],2; lea rax,[rip+0x200]; lea rcx,[rip+0x200]; call +0
        let code = [
            0x83, 0x3d, 0x00, 0x01, 0x00, 0x00, 0x02, 0x48, 0x8d, 0x05, 0x00, 0x02, 0x00, 0x00,
            0x48, 0x8d, 0x0d, 0x00, 0x02, 0x00, 0x00, 0xe8, 0, 0, 0, 0,
        ];
        let expected = [
            access(Use::Compare, 4, 0x1107, Some(2)),
            access(Use::Address, 0, 0x120e, None),
            access(Use::Address, 0, 0x1215, None),
            access(Use::Argument(0), 0, 0x120e, Some(0x101a)),
            access(Use::Argument(2), 0, 0x1215, Some(0x101a)),
        ];
        assert_eq!(accesses(&code, 0x1000), expected);
    }
}
