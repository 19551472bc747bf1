//! A stopped thread that makes system calls for us.
//!
//! A thread that was stopped inside a system call stands behind a `syscall` instruction. To
//! make a call of ours it is set back onto that instruction, with our number and arguments, and
//! gets its own registers back at the end. Nothing is written to the target.
//!
//! We may die at any moment in between. Then the thread goes on from where it is: it makes our
//! call (or has made it) and returns from its own one with a strange result and other argument
//! registers. So a thread is taken that does not mind: one that waits in `runtime.futex` or
//! `runtime.usleep`, whose callers look at no result, and whose convention (ABI0) keeps no register
//! but SP over a call (Go 1.19 to 1.27, `runtime/sys_linux_amd64.s`). C code that is linked into
//! the executable sleeps in the same calls and may look at what they give: it is not taken. sysmon
//! nearly always stands there. The first choice fails only when every such thread is awake.

use super::start_frame::{StartFrame, find_bytes};
use super::stopped::Stopped;
use super::sys::{self, Registers, Waited};
use super::thread::{State, Thread};
use crate::Error;
use crate::memory::TargetMemory;
use crate::step;
use address::{Avma, MemoryError, ReadMemory};
use std::io;
use std::ops::Range;
use std::time::Duration;

/// `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Calls whose Go wrappers are used for sleeping only.
const SLEEPS: [u64; 2] = [libc::SYS_futex as u64, libc::SYS_nanosleep as u64];

/// What a sleep that a stop interrupted shows as its result: ERESTARTSYS, ERESTARTNOINTR,
/// ERESTARTNOHAND and ERESTART_RESTARTBLOCK (include/linux/errno.h).
const RESTARTS: [i64; 4] = [-512, -513, -514, -516];

/// How long one system call may take.
const CALL_LIMIT: Duration = Duration::from_secs(2);

/// Events that are not the call's before we give up.
const MAX_EVENTS: usize = 64;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Called {
    /// It was made; the result is that of the kernel, negative error numbers included.
    Returned(i64),
    /// A signal came first; the call was not made, and the thread is of no more use.
    Disturbed,
}

/// The thread; [`Borrowed::give_back`] restores it, and so does dropping it.
#[derive(Debug)]
pub(crate) struct Borrowed<'a> {
    thread: &'a mut Thread,
    own: Registers,
    gadget: u64,
    /// Stack pointer of our calls, when not its own.
    stack: Option<u64>,
    /// Whether our death at any moment leaves the target well.
    pub(crate) is_safe: bool,
    /// Whether the thread has left the stop it was found in.
    moved: bool,
}

impl<'a> Borrowed<'a> {
    /// A thread that sleeps in one of Go's own wrappers, `sleepers`.
    pub(crate) fn sleeping(
        stopped: &'a mut Stopped,
        sleepers: &[Range<Avma>],
        memory: &dyn ReadMemory,
    ) -> Result<Option<Self>, Error> {
        let mut found = None;
        for thread in stopped.threads().filter(|t| t.is_stopped()) {
            let Some(own) = thread.registers()? else { continue };
            if sleeps(&own, sleepers, memory) {
                found = Some((thread.tid, own));
                break;
            }
        }
        let Some((tid, own)) = found else { return Ok(None) };
        let gadget = own.rip.wrapping_sub(SYSCALL.len() as u64);
        Self::take(stopped, tid, own, gadget, true)
    }

    /// The one thread of a program that has not run yet, with a way back on its stack.
    pub(crate) fn at_start(
        stopped: &'a mut Stopped,
        text: &Range<Avma>,
        memory: &TargetMemory,
    ) -> Result<Option<Self>, Error> {
        let Some(thread) = stopped.threads().next() else { return Ok(None) };
        let Some(own) = thread.registers()? else { return Ok(None) };
        let Some(frame) = StartFrame::write(thread, &own, memory, text)? else { return Ok(None) };
        let tid = thread.tid;
        let mut taken = Self::take(stopped, tid, own, frame.gadget, true)?;
        if let Some(taken) = &mut taken {
            taken.stack = Some(frame.stack);
        }
        Ok(taken)
    }

    /// Any thread, and a `syscall` instruction anywhere; our death in between can kill the target.
    pub(crate) fn any(stopped: &'a mut Stopped, gadget: Avma) -> Result<Option<Self>, Error> {
        let mut found = None;
        for thread in stopped.threads() {
            if let Some(own) = thread.registers()? {
                found = Some((thread.tid, own));
                break;
            }
        }
        let Some((tid, own)) = found else { return Ok(None) };
        Self::take(stopped, tid, own, gadget.0, false)
    }

    fn take(
        stopped: &'a mut Stopped,
        tid: u32,
        own: Registers,
        gadget: u64,
        is_safe: bool,
    ) -> Result<Option<Self>, Error> {
        // Our death ends the suspension, and the filter would see the call that is under way.
        let is_safe = !stopped.suspend_seccomp(tid)? && is_safe;
        let thread = stopped.threads_mut().find(|thread| thread.tid == tid);
        Ok(thread.map(|thread| Self { thread, own, gadget, stack: None, is_safe, moved: false }))
    }

    /// Thread id.
    pub(crate) fn tid(&self) -> u32 {
        self.thread.tid
    }

    /// Makes one system call.
    pub(crate) fn call(&mut self, number: i64, arguments: [u64; 6]) -> Result<Called, Error> {
        let mut registers = self.own;
        registers.rip = self.gadget;
        registers.rsp = self.stack.unwrap_or(registers.rsp);
        registers.rax = number as u64;
        // No call is to be restarted when the thread leaves its stop.
        registers.orig_rax = u64::MAX;
        let [a, b, c, d, e, f] = arguments;
        (registers.rdi, registers.rsi, registers.rdx) = (a, b, c);
        (registers.r10, registers.r8, registers.r9) = (d, e, f);
        self.thread.set_registers(&registers)?;
        self.moved = true;
        step::at("call prepared");
        if !self.run_to_syscall()? {
            return Ok(Called::Disturbed);
        }
        step::at("call entered");
        // A signal can't come before its exit.
        if !self.run_to_syscall()? {
            return Ok(Called::Disturbed);
        }
        step::at("call returned");
        match self.thread.registers()? {
            Some(registers) => Ok(Called::Returned(registers.rax as i64)),
            None => Err(self.gone()),
        }
    }

    fn run_to_syscall(&mut self) -> Result<bool, Error> {
        for _ in 0..MAX_EVENTS {
            sys::resume_to_syscall(self.thread.tid).map_err(|error| self.lost(error))?;
            match self.thread.wait_event(CALL_LIMIT)? {
                Waited::Syscall => return Ok(true),
                Waited::Signal(signal) => {
                    self.deliver(signal)?;
                    return Ok(false);
                }
                Waited::Exec | Waited::Gone => {
                    self.thread.state = State::Gone;
                    return Err(self.gone());
                }
                Waited::Interrupted | Waited::GroupStop | Waited::Running => {}
            }
        }
        Err(super::access::unstoppable(self.thread.pid, self.thread.tid, CALL_LIMIT))
    }

    /// Lets a signal in as if it had interrupted the thread where it was, and stops it
    /// again at the first instruction of the handler.
    fn deliver(&mut self, signal: i32) -> Result<(), Error> {
        self.thread.set_registers(&self.own)?;
        self.moved = false;
        self.stop_again(signal)?;
        if let Some(own) = self.thread.registers()? {
            self.own = own;
        }
        // It stands in a handler now, which does not take strange results.
        self.is_safe = false;
        Ok(())
    }

    fn stop_again(&mut self, signal: i32) -> Result<(), Error> {
        self.thread.state = State::Running;
        self.thread.interrupt()?;
        let mut signal = signal;
        for _ in 0..MAX_EVENTS {
            sys::resume(self.thread.tid, signal).map_err(|error| self.lost(error))?;
            signal = 0;
            match self.thread.wait_event(CALL_LIMIT)? {
                Waited::Interrupted | Waited::GroupStop => {
                    self.thread.state = State::Stopped;
                    return Ok(());
                }
                Waited::Signal(next) => signal = next,
                Waited::Exec | Waited::Gone => {
                    self.thread.state = State::Gone;
                    return Err(self.gone());
                }
                Waited::Syscall | Waited::Running => {}
            }
        }
        Err(super::access::unstoppable(self.thread.pid, self.thread.tid, CALL_LIMIT))
    }

    /// Gives the thread its registers back, in a stop from which its own call is restarted.
    fn restore(&mut self) -> Result<(), Error> {
        if !self.moved || self.thread.state == State::Gone {
            return Ok(());
        }
        // The exit of a call is no place to restart another one from: the kernel looks for that only
        // behind a signal or this kind of stop.
        self.stop_quietly()?;
        step::at("thread stopped again");
        self.moved = false;
        self.thread.set_registers(&self.own)
    }

    /// From the exit of our call to an interrupt's stop, signals held back: their handler must not
    /// see our registers.
    fn stop_quietly(&mut self) -> Result<(), Error> {
        sys::interrupt(self.thread.tid).map_err(|error| self.lost(error))?;
        sys::resume(self.thread.tid, 0).map_err(|error| self.lost(error))?;
        for _ in 0..MAX_EVENTS {
            match self.thread.wait_event(CALL_LIMIT)? {
                Waited::Interrupted | Waited::GroupStop => {
                    self.thread.state = State::Stopped;
                    return Ok(());
                }
                Waited::Signal(signal) => {
                    // With its own registers back, it may be interrupted as if we had never been.
                    self.thread.set_registers(&self.own)?;
                    self.stop_again(signal)?;
                    if let Some(own) = self.thread.registers()? {
                        self.own = own;
                    }
                    return Ok(());
                }
                Waited::Exec | Waited::Gone => {
                    self.thread.state = State::Gone;
                    return Err(self.gone());
                }
                Waited::Syscall | Waited::Running => {
                    sys::resume(self.thread.tid, 0).map_err(|error| self.lost(error))?;
                }
            }
        }
        Err(super::access::unstoppable(self.thread.pid, self.thread.tid, CALL_LIMIT))
    }

    /// Ends the loan.
    pub(crate) fn give_back(mut self) -> Result<(), Error> {
        self.restore()
    }

    fn gone(&self) -> Error {
        Error::Gone(self.thread.pid)
    }

    fn lost(&self, error: io::Error) -> Error {
        match error.raw_os_error() {
            Some(libc::ESRCH) => self.gone(),
            _ => Error::io(format!("run thread {}", self.thread.tid), error),
        }
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        // What can be done was done; the error was given to the caller before, or by `give_back`.
        let _ = self.restore();
    }
}

fn sleeps(registers: &Registers, sleepers: &[Range<Avma>], memory: &dyn ReadMemory) -> bool {
    let instruction = Avma(registers.rip.wrapping_sub(SYSCALL.len() as u64));
    SLEEPS.contains(&registers.orig_rax)
        && RESTARTS.contains(&(registers.rax as i64))
        && sleepers.iter().any(|function| function.contains(&instruction))
        && holds_syscall(memory, instruction)
}

fn holds_syscall(memory: &dyn ReadMemory, address: Avma) -> bool {
    let mut bytes = [0; 2];
    let read: Result<(), MemoryError> = memory.read_memory(address, &mut bytes);
    read.is_ok() && bytes == SYSCALL
}

/// A `syscall` instruction in `range`, for [`Borrowed::any`]: any two bytes will do.
pub(crate) fn find_syscall(range: &Range<Avma>, memory: &dyn ReadMemory) -> Option<Avma> {
    find_bytes(range, memory, &SYSCALL)
}
