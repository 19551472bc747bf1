//! All goroutines at (nearly) one moment.

use crate::created_by::Place;
use crate::descriptor::{Descriptor, Layout};
use crate::error::Error;
use crate::frames::Codes;
use crate::goroutine::{Goroutine, Raw, Stack, StackEnd};
use crate::list::AllGoroutines;
use crate::stack::{Registers, Start, Unwound, unwind};
use crate::state::State;
use crate::system::is_system;
use crate::{Labels, WaitReasons};
use address::{Avma, Bias, ReadMemory};
use binary::Executable;
use binary::layout::RuntimeLayouts;
use std::sync::Arc;

/// Descriptors read together, then read again after their stacks.
const BATCH: usize = 512;

/// Descriptors whose distance is less than this are read in one piece, bytes.
const GAP: u64 = 2048;

/// Bytes of one piece.
const PIECE: u64 = 1 << 18;

/// Readings of a goroutine that moves before it is called torn.
const TRIES: usize = 8;

/// Where `systemstack` says that a goroutine is meanwhile (runtime/asm_amd64.s).
const LEFT: &str = "runtime.systemstack_switch";

/// What calls the kernel's code on the system stack, and does not save where the goroutine is
/// for that (runtime/sys_linux_amd64.s, runtime/time_linux_amd64.s).
const CLOCKS: [&str; 3] = ["runtime.nanotime1", "runtime.walltime", "time.now"];

/// What to read.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether stacks are followed.
    pub stacks: bool,
}

/// What a walk met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// Goroutines handed out.
    pub goroutines: u64,
    /// Of these, torn ones.
    pub torn: u64,
    /// Descriptors whose memory could not be read.
    pub unreadable: u64,
}

/// Finds the registers of a stopped thread by its id, for goroutines that ran.
pub type ThreadRegisters<'a> = dyn Fn(Avma) -> Option<Registers> + 'a;

/// The goroutines of one process or core dump.
pub struct Snapshot<'a> {
    executable: &'a Executable,
    memory: &'a dyn ReadMemory,
    bias: Bias,
    layout: Layout,
    list: AllGoroutines,
    reasons: Vec<Arc<str>>,
    codes: Codes<'a>,
    registers: Option<&'a ThreadRegisters<'a>>,
}

impl<'a> Snapshot<'a> {
    /// Finds the list of goroutines and confirms it in memory.
    pub fn open(
        executable: &'a Executable,
        layouts: &RuntimeLayouts<'_>,
        memory: &'a dyn ReadMemory,
        bias: Bias,
    ) -> Result<Self, Error> {
        executable.functions()?;
        let layout = Layout::new(layouts)?;
        let list = AllGoroutines::find(executable, memory, bias, &layout)?;
        let reasons = WaitReasons::of(executable);
        let names = reasons.iter().flat_map(|reasons| reasons.names());
        let reasons = names.map(|name| Arc::from(name.as_str())).collect();
        let codes = Codes::new(executable, bias);
        Ok(Self { executable, memory, bias, layout, list, reasons, codes, registers: None })
    }

    /// Takes the registers of threads from `registers`, which is handed the address of a
    /// thread's `runtime.m`: nothing may run then (a core dump).
    pub fn with_registers(self, registers: &'a ThreadRegisters<'a>) -> Self {
        Self { registers: Some(registers), ..self }
    }

    /// The list the goroutines come from.
    pub fn list(&self) -> &AllGoroutines {
        &self.list
    }

    /// Hands each goroutine to `out`, in the order in which their descriptors were made.
    pub fn walk(&self, options: Options, out: &mut dyn FnMut(Goroutine)) -> Result<Walked, Error> {
        let mut walked = Walked::default();
        let name = binary::globals::Global::Allgs.symbol();
        let addresses = self.list.addresses(self.memory).map_err(|_| Error::NotConfirmed(name))?;
        for batch in addresses.chunks(BATCH) {
            let before = self.read_batch(batch);
            let seen: Vec<Option<Seen>> =
                before.iter().map(|descriptor| self.see((*descriptor)?, options)).collect();
            let after = self.read_batch(batch);
            for (((address, before), seen), after) in batch.iter().zip(&before).zip(seen).zip(after)
            {
                let Some(before) = before else {
                    walked.unreadable += 1;
                    continue;
                };
                if !before.state().is_alive() {
                    continue;
                }
                let settled = match (seen, after) {
                    (Some(seen), Some(after)) if self.is_sound(&seen, &after) => Some(seen),
                    _ => self.settle(*address, options),
                };
                let Some(seen) = settled else { continue };
                walked.goroutines += 1;
                walked.torn += u64::from(seen.torn);
                out(self.goroutine(seen));
            }
        }
        Ok(walked)
    }

    /// Reads descriptors, neighbours together.
    fn read_batch(&self, addresses: &[Avma]) -> Vec<Option<Descriptor>> {
        let mut order: Vec<usize> = (0..addresses.len()).collect();
        let address = |index: usize| addresses.get(index).copied().unwrap_or_default();
        order.sort_by_key(|&index| address(index));
        let mut found = vec![None; addresses.len()];
        let mut bytes = Vec::new();
        let near = |&a: &usize, &b: &usize| {
            address(b).0.saturating_sub(address(a).0) < GAP + self.layout.size as u64
        };
        let pieces = order.chunk_by(near).flat_map(|run| {
            let most = (PIECE / (GAP + self.layout.size as u64)).max(1);
            run.chunks(most as usize)
        });
        for piece in pieces {
            let (Some(&first), Some(&last)) = (piece.first(), piece.last()) else { continue };
            let start = address(first);
            let len =
                address(last).0.saturating_sub(start.0).saturating_add(self.layout.size as u64);
            bytes.resize(usize::try_from(len).unwrap_or_default(), 0);
            let whole = self.memory.read_memory(start, &mut bytes).is_ok();
            for &index in piece {
                let at = address(index);
                let offset = usize::try_from(at.0.wrapping_sub(start.0)).unwrap_or(usize::MAX);
                let descriptor = if whole {
                    bytes.get(offset..).map(|rest| Descriptor::parse(&self.layout, at, rest))
                } else {
                    Descriptor::read(&self.layout, self.memory, at).ok()
                };
                if let Some(slot) = found.get_mut(index) {
                    *slot = descriptor;
                }
            }
        }
        found
    }

    /// Reads what belongs to a descriptor; `None` when it is out of use.
    fn see(&self, descriptor: Descriptor, options: Options) -> Option<Seen> {
        let state = descriptor.state();
        if !state.is_alive() {
            return None;
        }
        let labels =
            Labels::read(self.memory, self.executable.go_version(), Avma(descriptor.labels));
        let unwound = if options.stacks {
            self.unwind(&descriptor)
        } else {
            Unwound { codes: Vec::new(), end: StackEnd::NotRead, trail: Vec::new() }
        };
        Some(Seen { descriptor, labels, unwound, torn: false })
    }

    fn unwind(&self, of: &Descriptor) -> Unwound {
        let none = |end| Unwound { codes: Vec::new(), end, trail: Vec::new() };
        match of.state() {
            State::Running => match self.registers_of(of) {
                Some(start) => unwind(self.memory, &self.codes, of, &start),
                None => none(StackEnd::Running),
            },
            State::CopyStack => none(StackEnd::Moved),
            State::Idle => none(StackEnd::Complete),
            _ => unwind(self.memory, &self.codes, of, &Start::saved(of)),
        }
    }

    /// Where a running goroutine was stopped: in its own code, or on its thread's system
    /// stack, for which `systemstack` saved where it came from. `None` when that is not known.
    fn registers_of(&self, of: &Descriptor) -> Option<Start> {
        let registers = self.registers?(Avma(of.m))?;
        if of.stack_lo <= registers.sp && registers.sp < of.stack_hi {
            return Some(Start::stopped(registers));
        }
        let at = |pc| self.codes.at(Avma(pc), true);
        let asks = at(registers.pc).is_none_or(|code| CLOCKS.contains(&&*code.func));
        let saved = at(of.sched_pc).is_some_and(|code| &*code.func == LEFT);
        (saved && !asks).then(|| Start::saved(of))
    }

    /// Whether what was seen is of one moment.
    fn is_sound(&self, seen: &Seen, after: &Descriptor) -> bool {
        let moved = !seen.descriptor.is_unmoved(after)
            || seen.descriptor.state() == State::CopyStack
            || !matches!(
                seen.unwound.end,
                StackEnd::Complete | StackEnd::NotRead | StackEnd::Running
            );
        if moved || self.registers.is_some() {
            // Nothing moves in a core dump.
            return self.registers.is_some();
        }
        // System calls leave no count of how often they were made.
        seen.descriptor.state() != State::Syscall
            || seen.unwound.trail.is_empty()
            || self.unwind(after).trail == seen.unwound.trail
    }

    /// Reads a goroutine that moved by itself, until it holds still; torn when it does not.
    /// `None` when it has ended.
    fn settle(&self, address: Avma, options: Options) -> Option<Seen> {
        let read = || Descriptor::read(&self.layout, self.memory, address).ok();
        let mut last: Option<Seen> = None;
        for _ in 0..TRIES {
            let seen = self.see(read()?, options)?;
            let after = read()?;
            if self.is_sound(&seen, &after) {
                return Some(seen);
            }
            // Unmoved, with a stack that cannot be followed to its end: twice the same is so.
            if let Some(last) = &last
                && seen.descriptor.is_unmoved(&after)
                && last.descriptor.is_unmoved(&seen.descriptor)
                && seen.descriptor.state() != State::CopyStack
                && last.unwound.trail == seen.unwound.trail
            {
                return Some(seen);
            }
            last = Some(seen);
        }
        let seen = last?;
        let unwound = Unwound { codes: Vec::new(), end: StackEnd::Moved, trail: Vec::new() };
        Some(Seen { unwound, labels: Labels::unknown(), torn: true, ..seen })
    }

    fn goroutine(&self, seen: Seen) -> Goroutine {
        let descriptor = &seen.descriptor;
        let state = descriptor.state();
        let reason = matches!(state, State::Waiting | State::Leaked)
            .then(|| self.reasons.get(usize::from(descriptor.wait_reason)))
            .flatten()
            .filter(|reason| !reason.is_empty())
            .cloned();
        let start =
            self.codes.at(Avma(descriptor.startpc), true).map(|code| Arc::clone(&code.func));
        let waits = matches!(state, State::Waiting | State::Syscall);
        let system =
            start.as_deref().is_some_and(|start| is_system(start, state, reason.as_deref()));
        Goroutine {
            goid: descriptor.goid,
            address: descriptor.address,
            state,
            wait_since_ns: Some(descriptor.wait_since).filter(|&since| waits && since != 0),
            created_by: self.created_by(descriptor),
            parent_goid: descriptor.parent_goid.filter(|&goid| goid != 0),
            start,
            raw: Raw {
                gopc: Avma(descriptor.gopc),
                startpc: Avma(descriptor.startpc),
                wait_reason: descriptor.wait_reason,
                status: descriptor.status,
            },
            labels: seen.labels,
            locked: descriptor.locked_m != 0,
            bubble: self.bubble(descriptor),
            system,
            torn: seen.torn,
            stack: Stack { codes: seen.unwound.codes, end: seen.unwound.end },
            reason,
        }
    }

    fn bubble(&self, of: &Descriptor) -> Option<u64> {
        let id = Avma(of.bubble).add(self.layout.bubble_id?);
        if of.bubble == 0 { None } else { self.memory.read_word(id).ok() }
    }

    /// As the runtime says it (`printcreatedby1`): the function with its own name, the place
    /// in what is inlined there.
    fn created_by(&self, of: &Descriptor) -> Option<Place> {
        if of.goid == 1 || of.gopc == 0 {
            return None;
        }
        let code = self.codes.at(Avma(of.gopc), false)?;
        let innermost = code.frames.first()?;
        Some(Place {
            func: Arc::clone(&code.func),
            file: Arc::clone(&innermost.file),
            line: innermost.line,
            offset: innermost.offset,
        })
    }

    /// What to add to stated addresses.
    pub fn bias(&self) -> Bias {
        self.bias
    }
}

/// A goroutine as far as it was read.
struct Seen {
    descriptor: Descriptor,
    labels: Labels,
    unwound: Unwound,
    torn: bool,
}
