//! Unwinding a goroutine's stack with the stack depths of the function table.

use crate::descriptor::{Descriptor, word_at};
use crate::frames::{Code, Codes};
use crate::goroutine::StackEnd;
use address::{Avma, ReadMemory};
use std::cell::RefCell;
use std::sync::Arc;

/// Frames followed of one stack.
const MAX_FRAMES: usize = 4096;

/// Bytes of stack read at a time.
const CHUNK: u64 = 4096;

/// Where a thread was stopped, for goroutines that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// RIP.
    pub pc: u64,
    /// RSP.
    pub sp: u64,
    /// RBP.
    pub bp: u64,
}

/// A stack as it was followed.
#[derive(Clone, Debug)]
pub(crate) struct Unwound {
    /// Innermost first.
    pub(crate) codes: Vec<Arc<Code>>,
    pub(crate) end: StackEnd,
    /// Return addresses and where they lay, to compare two readings.
    pub(crate) trail: Vec<(u64, u64)>,
}

/// Where to begin.
pub(crate) struct Start {
    pub(crate) registers: Registers,
    /// Whether `pc` is the instruction that runs next, not a return address.
    exact: bool,
    /// Assembly that a system call left by was followed by the runtime itself.
    is_syscall: bool,
}

impl Start {
    /// What the runtime saved when the goroutine stopped (`unwinder.initAt`,
    /// runtime/traceback.go).
    pub(crate) fn saved(of: &Descriptor) -> Self {
        let is_syscall = of.syscall_sp != 0;
        let registers = if is_syscall {
            Registers { pc: of.syscall_pc, sp: of.syscall_sp, bp: of.syscall_bp }
        } else {
            Registers { pc: of.sched_pc, sp: of.sched_sp, bp: of.sched_bp }
        };
        Self { registers, exact: false, is_syscall }
    }

    /// Where a thread was stopped.
    pub(crate) fn stopped(registers: Registers) -> Self {
        Self { registers, exact: true, is_syscall: false }
    }
}

/// Follows the stack of `of` from `start`.
pub(crate) fn unwind(
    memory: &dyn ReadMemory,
    codes: &Codes<'_>,
    of: &Descriptor,
    start: &Start,
) -> Unwound {
    let window = Window { memory, lo: of.stack_lo, hi: of.stack_hi, read: RefCell::default() };
    let mut walk = Walk {
        window,
        codes,
        sp: start.registers.sp,
        pc: start.registers.pc,
        exact: start.exact,
        found: Unwound { codes: Vec::new(), end: StackEnd::Complete, trail: Vec::new() },
    };
    let end = walk.run(start.is_syscall);
    let mut found = walk.found;
    found.end = match end {
        Err(end) => end,
        Ok(()) if frame_pointers_agree(&walk.window, start.registers.bp, &found.trail) => {
            StackEnd::Complete
        }
        Ok(()) => StackEnd::Doubtful,
    };
    found
}

struct Walk<'a, 'b> {
    window: Window<'a>,
    codes: &'a Codes<'b>,
    sp: u64,
    pc: u64,
    exact: bool,
    found: Unwound,
}

impl Walk<'_, '_> {
    fn run(&mut self, is_syscall: bool) -> Result<(), StackEnd> {
        // A call of a nil function: it begins in the caller.
        if self.pc == 0 {
            self.pc = self.window.word(self.sp)?;
            self.sp = self.sp.wrapping_add(8);
        }
        for depth in 0..MAX_FRAMES {
            let code = self.codes.at(Avma(self.pc), self.exact).ok_or(StackEnd::NotGo)?;
            let delta = code.sp_delta.ok_or(StackEnd::NotGo)?;
            let frame_end = self.sp.checked_add(delta).and_then(|end| end.checked_add(8));
            let frame_end = frame_end.ok_or(StackEnd::OutOfBounds)?;
            self.found.codes.push(Arc::clone(&code));
            self.found.trail.push((self.pc, frame_end));
            if code.is_top {
                return Ok(());
            }
            if code.writes_sp && !(depth == 0 && is_syscall) {
                return Err(StackEnd::WritesSp);
            }
            self.pc = self.window.word(frame_end.wrapping_sub(8))?;
            self.sp = frame_end;
            self.exact = code.is_injected;
        }
        Err(StackEnd::TooDeep)
    }
}

/// Whether each saved frame pointer, from the innermost on, lies where the unwinding puts
/// one: below the return address of a frame. Functions without one are passed over. The chain
/// ends at 0 and where it leaves the stack: in Go that C called, it goes on in C's frames.
fn frame_pointers_agree(window: &Window<'_>, mut bp: u64, trail: &[(u64, u64)]) -> bool {
    let mut rest = trail.iter();
    while window.lo <= bp && bp < window.hi {
        if !rest.any(|&(_, frame_end)| frame_end.wrapping_sub(16) == bp) {
            return false;
        }
        match window.word(bp) {
            Ok(next) => bp = next,
            Err(_) => return false,
        }
    }
    true
}

/// The goroutine's stack, read in pieces.
struct Window<'a> {
    memory: &'a dyn ReadMemory,
    lo: u64,
    hi: u64,
    read: RefCell<(u64, Vec<u8>)>,
}

impl Window<'_> {
    fn word(&self, at: u64) -> Result<u64, StackEnd> {
        let end = at.checked_add(8).ok_or(StackEnd::OutOfBounds)?;
        if at < self.lo || end > self.hi {
            return Err(StackEnd::OutOfBounds);
        }
        let mut read = self.read.borrow_mut();
        let (start, bytes) = &mut *read;
        let inside = at >= *start && end <= start.saturating_add(bytes.len() as u64);
        if !inside {
            let size = (self.hi - at).min(CHUNK);
            *start = at;
            bytes.resize(usize::try_from(size).unwrap_or_default(), 0);
            if self.memory.read_memory(Avma(at), bytes).is_err() {
                bytes.clear();
                return Err(StackEnd::Unreadable);
            }
        }
        Ok(word_at(bytes, usize::try_from(at - *start).unwrap_or(usize::MAX)))
    }
}
