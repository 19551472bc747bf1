//! A function's instructions, and what may be done with each.

use super::FunctionCode;
use address::Svma;
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    Register,
};
use std::ops::Range;

/// The decoded code of a function.
pub(super) struct Body<'a> {
    /// Its bytes and facts.
    pub(super) code: &'a FunctionCode,
    /// First byte.
    pub(super) entry: Svma,
    /// In address order, without padding.
    pub(super) instructions: Vec<Instruction>,
}

/// Registers an instruction writes, apart from flags.
fn is_write(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

impl<'a> Body<'a> {
    pub(super) fn of(code: &'a FunctionCode, entry: Svma) -> Self {
        let mut decoder = Decoder::with_ip(64, &code.bytes, entry.0, DecoderOptions::NONE);
        let mut instructions = Vec::new();
        while decoder.can_decode() && decoder.ip() < code.analysis.end.0 {
            instructions.push(decoder.decode());
        }
        Self { code, entry, instructions }
    }

    /// Place in the list of the instruction that begins at `address`.
    pub(super) fn index_of(&self, address: Svma) -> Option<usize> {
        self.instructions.binary_search_by_key(&address.0, Instruction::ip).ok()
    }

    /// Where instruction `index` begins; for the number of instructions, the end of the last.
    pub(super) fn address(&self, index: usize) -> Svma {
        self.instructions
            .get(index)
            .map_or(self.code.analysis.end, |instruction| Svma(instruction.ip()))
    }

    /// The bytes of a range.
    pub(super) fn bytes(&self, range: Range<Svma>) -> Option<&'a [u8]> {
        let start = range.start.since(self.entry)?;
        let end = range.end.since(self.entry)?;
        self.code.bytes.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    }

    /// Whether something jumps to an address in the range, those in `except` left aside.
    pub(super) fn has_target(&self, range: Range<Svma>, except: &[Svma]) -> bool {
        let within = |targets: &[Svma]| {
            let from = targets.partition_point(|target| *target < range.start);
            let to = targets.partition_point(|target| *target < range.end);
            let inside = targets.get(from..to.max(from)).unwrap_or_default();
            inside.iter().any(|target| !except.contains(target))
        };
        within(&self.code.analysis.branch_targets) || within(&self.code.table_targets)
    }
}

/// Whether an instruction can run at another address.
pub(super) fn can_move(instruction: &Instruction) -> bool {
    match instruction.flow_control() {
        FlowControl::Next | FlowControl::Return | FlowControl::IndirectBranch => {
            !matches!(instruction.mnemonic(), Mnemonic::Syscall | Mnemonic::Sysenter)
                && !instruction.is_invalid()
        }
        FlowControl::UnconditionalBranch => instruction.is_jmp_short_or_near(),
        // loop and jrcxz have no long form.
        FlowControl::ConditionalBranch => instruction.is_jcc_short_or_near(),
        _ => false,
    }
}

/// Whether control always leaves behind this instruction.
pub(super) fn is_last(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
    )
}

/// Whether an instruction can raise a signal. The stack, g and the image's own data are
/// always mapped.
pub(super) fn can_fault(instruction: &Instruction, info: &mut InstructionInfoFactory) -> bool {
    if matches!(instruction.mnemonic(), Mnemonic::Div | Mnemonic::Idiv) {
        return true;
    }
    let is_safe = |base: Register, index: Register| {
        index == Register::None && matches!(base, Register::RSP | Register::R14 | Register::RIP)
    };
    info.info(instruction).used_memory().iter().any(|used| {
        !(instruction.is_ip_rel_memory_operand() && used.base() == Register::None)
            && used.access() != OpAccess::NoMemAccess
            && !is_safe(used.base(), used.index())
    })
}

/// Whether all that an instruction writes is SP, RBP, R12, R13, flags and the function's own
/// frame, `sp_delta` bytes deep here: no argument, result or program variable. What lies above
/// the frame is the caller's: arguments and results on the stack among it.
pub(super) fn spares_values(
    instruction: &Instruction,
    sp_delta: i32,
    info: &mut InstructionInfoFactory,
) -> bool {
    if instruction.flow_control() != FlowControl::Next {
        return false;
    }
    let info = info.info(instruction);
    info.used_registers().iter().filter(|used| is_write(used.access())).all(|used| {
        matches!(
            used.register().full_register(),
            Register::RSP | Register::RBP | Register::R12 | Register::R13
        )
    }) && info.used_memory().iter().filter(|used| is_write(used.access())).all(|used| {
        let end = (used.displacement() as i64).checked_add(used.memory_size().size() as i64);
        used.base() == Register::RSP
            && used.index() == Register::None
            && end.is_some_and(|end| end <= i64::from(sp_delta))
    })
}

/// By how many bytes an instruction lowers SP; `None` when that cannot be told.
pub(super) fn sp_change(instruction: &Instruction) -> Option<i32> {
    let immediate = || i32::try_from(instruction.immediate(1) as i64).ok();
    let on_sp = instruction.op_count() > 0 && instruction.op0_register() == Register::RSP;
    match instruction.mnemonic() {
        Mnemonic::Push => Some(8),
        Mnemonic::Pop if !on_sp => Some(-8),
        Mnemonic::Sub if on_sp && is_immediate(instruction) => immediate(),
        Mnemonic::Add if on_sp && is_immediate(instruction) => immediate()?.checked_neg(),
        _ if on_sp && instruction.mnemonic() != Mnemonic::Cmp => None,
        _ if instruction.is_stack_instruction() => None,
        _ => Some(0),
    }
}

fn is_immediate(instruction: &Instruction) -> bool {
    instruction.op_count() == 2
        && matches!(
            instruction.op1_kind(),
            iced_x86::OpKind::Immediate8to64 | iced_x86::OpKind::Immediate32to64
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::code_asm::{CodeAssembler, qword_ptr, r12, rax, rbx, rcx, rdi, rsp};

    fn first(write: impl Fn(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>) -> Instruction {
        let mut asm = CodeAssembler::new(64).expect("64 bits");
        write(&mut asm).expect("an instruction");
        asm.take_instructions()[0]
    }

    #[test]
    fn only_writes_into_the_own_frame_spare_values() {
        let spares = |instruction: &Instruction, sp_delta| {
            spares_values(instruction, sp_delta, &mut InstructionInfoFactory::new())
        };
        let push = first(|asm| asm.push(rbx));
        let frame = first(|asm| asm.sub(rsp, 24));
        let local = first(|asm| asm.mov(qword_ptr(rsp + 16), rax));
        let indexed = first(|asm| asm.mov(qword_ptr(rsp + rcx * 8), rax));
        let read = first(|asm| asm.mov(r12, qword_ptr(rdi)));
        let variable = first(|asm| asm.mov(qword_ptr(rdi), rax));
        let result = first(|asm| asm.mov(rax, qword_ptr(rsp + 16)));
        assert!(spares(&push, 0) && spares(&frame, 0) && spares(&read, 0));
        // 24 bytes of frame hold it; with 23 it would reach the return address, and in a
        // function without a frame it is the caller's: an argument or a result.
        assert!(spares(&local, 24));
        assert!(!spares(&local, 23) && !spares(&local, 0));
        assert!(!spares(&indexed, 64) && !spares(&variable, 64) && !spares(&result, 64));
    }
}
