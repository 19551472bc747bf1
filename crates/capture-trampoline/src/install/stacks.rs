//! Which part of which stack a stopped thread uses.
//!
//! Nothing returns into our code but what a signal interrupted there: the code calls nothing, and
//! the runtime preempts only where it knows the function. Such a PC stands in a signal frame,
//! and a signal frame that is in use lies between the SP of its thread and the upper end of
//! the stack that SP is in. Frames that were used once may lie anywhere for long.

use super::scan::Wanted;
use crate::memory::TargetMemory;
use crate::ptrace::Registers;
use address::{Avma, ReadMemory as _};
use binary::layout::RuntimeLayouts;
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
    /// By the executable's version; `None` when it is not a known one.
    pub(crate) fn of(executable: &Executable) -> Option<Self> {
        let layouts = RuntimeLayouts::new(executable.go_version(), None);
        let field = |structure, field| Some(layouts.field(structure, field).ok()?.offset);
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

/// Whether a word in the used part of the thread's stack lies in `wanted`.
pub(crate) fn holds(
    facts: Option<&StackFacts>,
    registers: &Registers,
    memory: &TargetMemory,
    wanted: &Wanted,
) -> bool {
    const PAGE: u64 = super::gap::PAGE;
    let used = used_stack(facts, registers, memory);
    let mut bytes = [0; PAGE as usize];
    let mut start = used.start;
    while start < used.end {
        // To the next page boundary: what lies behind the stack may not be mapped.
        let end = (start / PAGE + 1).saturating_mul(PAGE).min(used.end);
        let len = usize::try_from(end - start).unwrap_or_default();
        let Some(piece) = bytes.get_mut(..len) else { return false };
        if memory.read_memory(Avma(start), piece).is_err() {
            return false;
        }
        let mut words = piece.chunks_exact(8).filter_map(|word| word.try_into().ok());
        if words.any(|word| wanted.find(u64::from_le_bytes(word)).is_some()) {
            return true;
        }
        start = end;
    }
    false
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
