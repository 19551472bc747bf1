//! A way back for a program that has not run yet.
//!
//! Before its first instruction a program has a whole stack to spare and one thread, so there is
//! no sleeping thread to borrow. A signal frame below its stack pointer holds the registers it
//! starts with; our calls are made from a `syscall; ret` of Go's text whose `ret` leads to Go's own
//! `rt_sigreturn`. When we die in between, the thread finds back to the program's
//! start by itself.
//!
//! ```text
//! R        address of `mov eax, 15; syscall`    <- rsp of our calls
//! R +   8  struct ucontext: flags, link, stack
//! R +  48  struct sigcontext: the registers
//! R + 304  the signal mask
//! ```
//! The frame is that of arch/x86/include/asm/sigframe.h. It names no floating point state, which
//! the kernel then sets to what a program starts with.

use super::sys::{self, Registers};
use super::thread::Thread;
use crate::Error;
use crate::memory::TargetMemory;
use address::{Avma, ReadMemory};
use std::ops::Range;

/// `syscall; ret`, as in `runtime.osyield`.
const CALL: &[u8] = &[0x0f, 0x05, 0xc3];

/// `mov eax, 15; syscall` in the two ways that Go's assembler has written it: the end of
/// `runtime.sigreturn__sigaction`.
const SIGRETURN: [&[u8]; 2] =
    [&[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05], &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05]];

/// Distance below the stack pointer; the kernel maps 128 KiB there.
const DISTANCE: u64 = 8192;

const FRAME_LEN: usize = 312;

/// UC_SIGCONTEXT_SS and UC_STRICT_RESTORE_SS.
const UC_FLAGS: u64 = 6;

/// SS_DISABLE.
const NO_ALTSTACK: u64 = 2;

/// Where calls are made from, and with which stack pointer.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartFrame {
    pub(super) gadget: u64,
    pub(super) stack: u64,
}

impl StartFrame {
    /// Writes the frame for a thread that stands at its program's start; `None` when Go's text has
    /// not what is needed.
    pub(super) fn write(
        thread: &Thread,
        own: &Registers,
        memory: &TargetMemory,
        text: &Range<Avma>,
    ) -> Result<Option<Self>, Error> {
        let Some(call) = find_bytes(text, memory, CALL) else { return Ok(None) };
        let back = SIGRETURN.iter().find_map(|bytes| find_bytes(text, memory, bytes));
        let Some(back) = back else { return Ok(None) };
        let mask = sys::signal_mask(thread.tid)
            .map_err(|e| Error::io(format!("read the signal mask of {}", thread.tid), e))?;
        let stack = own.rsp.wrapping_sub(DISTANCE) & !15;
        memory.write(Avma(stack), &frame(own, back, mask))?;
        Ok(Some(Self { gadget: call.0, stack }))
    }
}

fn frame(own: &Registers, back: Avma, mask: u64) -> [u8; FRAME_LEN] {
    let mut frame = [0; FRAME_LEN];
    let mut put = |at: usize, word: u64| {
        frame[at..at + 8].copy_from_slice(&word.to_le_bytes());
    };
    put(0, back.0);
    put(8, UC_FLAGS);
    put(32, NO_ALTSTACK);
    let registers = [
        own.r8, own.r9, own.r10, own.r11, own.r12, own.r13, own.r14, own.r15, own.rdi, own.rsi,
        own.rbp, own.rbx, own.rdx, own.rax, own.rcx, own.rsp, own.rip, own.eflags,
    ];
    for (index, register) in registers.into_iter().enumerate() {
        put(48 + 8 * index, register);
    }
    // cs, gs, fs, ss, 16 bits each; gs and fs are not looked at.
    put(48 + 144, own.cs & 0xffff | (own.ss & 0xffff) << 48);
    put(304, mask);
    frame
}

/// Where `range` holds `bytes`: any place will do.
pub(super) fn find_bytes(
    range: &Range<Avma>,
    memory: &dyn ReadMemory,
    bytes: &[u8],
) -> Option<Avma> {
    const PIECE: usize = 1 << 16;
    let mut buffer = vec![0; PIECE + bytes.len() - 1];
    let mut start = range.start;
    while start < range.end {
        let left = usize::try_from(range.end.since(start)?).unwrap_or(usize::MAX);
        let len = left.min(buffer.len());
        let piece = buffer.get_mut(..len)?;
        if memory.read_memory(start, piece).is_ok()
            && let Some(at) = piece.windows(bytes.len()).position(|found| found == bytes)
        {
            return Some(start.add(at as u64));
        }
        start = start.add(PIECE as u64);
    }
    None
}
