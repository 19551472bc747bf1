//! Where the threads of a core dump stood, as goroutines see it.

use super::{CoreDump, u32_at, u64_at};
use crate::target::Target;
use address::{Avma, ReadMemory};
use binary::layout::RuntimeLayouts;
use inspect::Registers;

/// Offsets in `struct elf_prstatus` of x86-64 (`linux/elfcore.h`, `user_regs_struct`).
mod prstatus {
    pub(super) const PID: usize = 32;
    pub(super) const BP: usize = 112 + 4 * 8;
    pub(super) const PC: usize = 112 + 16 * 8;
    pub(super) const SP: usize = 112 + 19 * 8;
}

/// Offsets in the `ucontext_t` of x86-64 that the kernel lays on a signal stack
/// (`struct ucontext` and `struct sigcontext`, arch/x86/include/uapi/asm).
mod ucontext {
    /// Start and size of the signal stack itself (`uc_stack`).
    pub(super) const STACK: u64 = 16;
    pub(super) const STACK_SIZE: u64 = 32;
    const REGISTERS: u64 = 40;
    pub(super) const BP: u64 = REGISTERS + 10 * 8;
    pub(super) const SP: u64 = REGISTERS + 15 * 8;
    pub(super) const PC: u64 = REGISTERS + 16 * 8;
}

/// Bytes of a signal stack that are looked through.
const MAX_SIGNAL_STACK: u64 = 1 << 17;

/// One thread.
pub(super) struct Stopped {
    tid: u32,
    registers: Registers,
}

impl Stopped {
    pub(super) fn parse(desc: &[u8]) -> Option<Self> {
        let word = |at| u64_at(desc, at);
        let registers =
            Registers { pc: word(prstatus::PC)?, sp: word(prstatus::SP)?, bp: word(prstatus::BP)? };
        Some(Self { tid: u32_at(desc, prstatus::PID)?, registers })
    }
}

/// Threads by their `runtime.m`.
pub struct Threads<'a> {
    threads: &'a [Stopped],
    memory: &'a dyn ReadMemory,
    procid: u64,
    gsignal: u64,
}

impl CoreDump {
    /// Prepares to tell where goroutines that ran stood.
    pub fn goroutine_registers<'a>(
        &'a self,
        target: &Target,
        memory: &'a dyn ReadMemory,
    ) -> anyhow::Result<Threads<'a>> {
        let executable = &target.executable;
        let plain = RuntimeLayouts::new(executable.go_version(), None);
        let debug =
            if plain.field("runtime.m", "gsignal").is_err() { target.debug_info()? } else { None };
        let layouts = RuntimeLayouts::new(executable.go_version(), debug.as_ref());
        Ok(Threads {
            threads: &self.threads,
            memory,
            procid: layouts.field("runtime.m", "procid")?.offset,
            gsignal: layouts.field("runtime.m", "gsignal")?.offset,
        })
    }
}

impl Threads<'_> {
    /// Where the thread of `m` stood in its own code: a thread that was in a signal handler,
    /// as all are when Go itself dumps core, where the signal found it.
    pub fn of(&self, m: Avma) -> Option<Registers> {
        let tid = self.memory.read_word(m.add(self.procid)).ok()?;
        let thread = self.threads.iter().find(|thread| u64::from(thread.tid) == tid)?;
        let gsignal = Avma(self.memory.read_word(m.add(self.gsignal)).ok()?);
        // `g.stack` is the first field of a g.
        let lo = self.memory.read_word(gsignal).ok()?;
        let hi = self.memory.read_word(gsignal.add(8)).ok()?;
        let sp = thread.registers.sp;
        if lo <= sp && sp < hi { self.before_signal(sp, lo, hi) } else { Some(thread.registers) }
    }

    /// What the first of nested signals interrupted: its frame is the outermost. The frame
    /// names the stack it lies on.
    fn before_signal(&self, sp: u64, lo: u64, hi: u64) -> Option<Registers> {
        let first = (sp & !7).max(hi.saturating_sub(MAX_SIGNAL_STACK));
        let is = |at: u64, value| self.memory.read_word(Avma(at)) == Ok(value);
        let is_frame = |&at: &u64| {
            let size = at.saturating_add(ucontext::STACK_SIZE);
            is(at.saturating_add(ucontext::STACK), lo) && is(size, hi.wrapping_sub(lo))
        };
        let frame = (first..hi).step_by(8).filter(is_frame).last()?;
        let word = |offset: u64| self.memory.read_word(Avma(frame).add(offset)).ok();
        Some(Registers {
            pc: word(ucontext::PC)?,
            sp: word(ucontext::SP)?,
            bp: word(ucontext::BP)?,
        })
    }
}
