//! Which part of which stack a stopped thread uses.
//!
//! Nothing returns into our code but what a signal interrupted there: the code calls nothing, and
//! the runtime preempts only where it knows the function. Such a PC stands in a signal frame,
//! and a signal frame that is in use lies between the SP of its thread and the upper end of
//! the stack that SP is in. Frames that were used once may lie anywhere for long.
//!
//! The recorders leave R13 with the address of a stub, which signal frames and
//! `runtime.asyncPreempt` store. So a word counts only where a PC stands in a signal frame:
//! before EFLAGS and the segment registers (struct sigcontext, arch/x86/include/uapi/asm).

use super::scan::Wanted;
use crate::memory::TargetMemory;
use crate::offsets::Offsets;
use crate::ptrace::Registers;
use address::{Avma, ReadMemory as _};
use binary::{Executable, tls};
use std::ops::Range;

/// Bytes above SP that are looked through when the stack's end is not known: more than a
/// signal stack has.
const UNKNOWN: u64 = 128 << 10;

/// Bytes of a stack that are looked through at the most.
const MAX_STACK: u64 = 1 << 20;

/// The red zone of C code.
const RED_ZONE: u64 = 128;

/// Where the runtime keeps its stacks, offsets in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackFacts {
    tls_g: i64,
    g_stack_hi: u64,
    g_m: u64,
    m_g0: u64,
    m_gsignal: u64,
}

impl StackFacts {
    /// `None` when the executable's version is not known and it has no debug info.
    pub(crate) fn of(executable: &Executable) -> Option<Self> {
        let offsets = Offsets::of(executable);
        let field = |structure, field| offsets.field(structure, field);
        Some(Self {
            tls_g: tls::g_offset(executable).ok()?.0,
            g_stack_hi: field("runtime.g", "stack.hi")?,
            g_m: field("runtime.g", "m")?,
            m_g0: field("runtime.m", "g0")?,
            m_gsignal: field("runtime.m", "gsignal")?,
        })
    }

    /// Upper end of the stack that the thread's SP is in.
    fn stack_end(&self, registers: &Registers, memory: &TargetMemory) -> Option<u64> {
        let word = |address: u64| memory.read_word(Avma(address)).ok();
        let g = word(registers.fs_base.wrapping_add_signed(self.tls_g)).filter(|&g| g != 0)?;
        let m = word(g.wrapping_add(self.g_m))?;
        let of_m = |offset: u64| word(m.wrapping_add(offset));
        [Some(g), of_m(self.m_gsignal), of_m(self.m_g0)].into_iter().flatten().find_map(|g| {
            let hi = word(g.wrapping_add(self.g_stack_hi))?;
            let lo = word(g.wrapping_add(self.g_stack_hi).wrapping_sub(8))?;
            (lo..hi).contains(&registers.rsp).then_some(hi)
        })
    }
}

/// Whether a signal frame in the used part of the thread's stack holds a PC that lies in `wanted`.
pub(crate) fn holds(
    facts: Option<&StackFacts>,
    registers: &Registers,
    memory: &TargetMemory,
    wanted: &Wanted,
) -> bool {
    const PAGE: u64 = super::gap::PAGE;
    let used = used_stack(facts, registers, memory);
    let mut bytes = [0; PAGE as usize];
    let mut words = [0; 3];
    let mut start = used.start;
    while start < used.end {
        // To the next page boundary: what lies behind the stack may not be mapped.
        let end = (start / PAGE + 1).saturating_mul(PAGE).min(used.end);
        let len = usize::try_from(end - start).unwrap_or_default();
        let Some(piece) = bytes.get_mut(..len) else { return false };
        if memory.read_memory(Avma(start), piece).is_err() {
            return false;
        }
        for word in piece.chunks_exact(8).filter_map(|word| word.try_into().ok()) {
            words = [words[1], words[2], u64::from_le_bytes(word)];
            if is_saved_pc(words, registers.cs) && wanted.find(words[0]).is_some() {
                return true;
            }
        }
        start = end;
    }
    false
}

/// Whether the second and third word are the flags and segments of a signal frame. The code segment
/// is always the thread's own; the low flags have fixed bits.
fn is_saved_pc([_, flags, segments]: [u64; 3], cs: u64) -> bool {
    const ALWAYS_SET: u64 = 2;
    const ALL_FLAGS: u64 = (1 << 22) - 1;
    let is_flags = flags & ALWAYS_SET != 0 && flags & !ALL_FLAGS == 0;
    is_flags && segments & 0xffff == cs & 0xffff
}

fn used_stack(
    facts: Option<&StackFacts>,
    registers: &Registers,
    memory: &TargetMemory,
) -> Range<u64> {
    let start = registers.rsp.saturating_sub(RED_ZONE) & !7;
    let end = facts.and_then(|facts| facts.stack_end(registers, memory));
    let end = end.unwrap_or_else(|| registers.rsp.saturating_add(UNKNOWN));
    start..end.min(start.saturating_add(MAX_STACK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_pc_is_told_from_a_saved_register() {
        let (pc, cs) = (0x7f4f_5000, 0x33);
        // rip, eflags, cs and ss as the kernel writes them with UC_SIGCONTEXT_SS.
        assert!(is_saved_pc([pc, 0x246, 0x002b_0000_0000_0033], cs));
        // r13, r14 (g), r15.
        assert!(!is_saved_pc([pc, 0xc0_0000_6380, 0], cs));
        assert!(!is_saved_pc([pc, 0, 0x33], cs));
    }
}
