//! Whether what a recorder overwrites is dead where it runs.
//!
//! The calling convention says that R12, R13, R15 and the flags hold nothing at a function's
//! beginning and at its end; the bytes must agree.

use super::Refused;
use super::body::{Body, is_last};
use address::Svma;
use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register, RflagsBits,
};

/// So far the straight line behind a site is followed.
const MAX_SCAN: usize = 64;
/// What arithmetic sets and the recorder changes; not the direction flag.
const ARITHMETIC: u32 = RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::CF
    | RflagsBits::PF;

/// `sbb r, r`: all bits of the carry flag, whatever the register held.
fn is_mask(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Sbb
        && instruction.op0_register() == instruction.op1_register()
        && instruction.op0_register() != Register::None
}

/// What is not yet known to be dead.
struct Unknown {
    registers: Vec<(Register, &'static str)>,
    flags: u32,
}

/// Looks at the instructions from `index` on, up to the next call or the end of the line.
/// RDX must be dead too where a recorder does not save it: at returns.
pub(super) fn check_dead(
    body: &Body<'_>,
    index: usize,
    is_return: bool,
    info: &mut InstructionInfoFactory,
) -> Result<(), Refused> {
    let mut registers =
        vec![(Register::R12, "R12"), (Register::R13, "R13"), (Register::R15, "R15")];
    if is_return {
        registers.push((Register::RDX, "RDX"));
    }
    let mut unknown = Unknown { registers, flags: ARITHMETIC };
    for instruction in body.instructions.iter().skip(index).take(MAX_SCAN) {
        let at = Svma(instruction.ip());
        if instruction.rflags_read() & unknown.flags != 0 {
            return Err(Refused::FlagsLive(at));
        }
        let used = info.info(instruction).used_registers();
        for used in used {
            let full = used.register().full_register();
            let live = unknown.registers.iter().find(|(register, _)| *register == full);
            if let Some(&(_, register)) = live
                && !matches!(used.access(), OpAccess::Write | OpAccess::None)
                && !is_mask(instruction)
            {
                return Err(Refused::RegisterLive { at, register });
            }
        }
        unknown.flags &= !instruction.rflags_modified();
        unknown.registers.retain(|(register, _)| {
            !used.iter().any(|used| {
                // A write of 32 bits clears the rest; shorter ones leave it.
                (used.access() == OpAccess::Write || is_mask(instruction))
                    && used.register().full_register() == *register
                    && used.register().size() >= 4
            })
        });
        let calls =
            matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
        if is_last(instruction) || calls || (unknown.flags == 0 && unknown.registers.is_empty()) {
            break;
        }
    }
    Ok(())
}
