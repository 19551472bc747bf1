//! A `runtime.g` as bytes, and what its fields say.

use crate::error::Error;
use crate::state::State;
use address::{Avma, MemoryError, ReadMemory};
use binary::layout::{LayoutError, RuntimeLayouts};

/// No known `g` is larger; a layout that says so is wrong.
const MAX_SIZE: u64 = 4096;

/// Where the fields of `runtime.g` are, in bytes from its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Bytes read of each descriptor: up to the last field that matters.
    pub(crate) size: usize,
    stack_lo: usize,
    stack_hi: usize,
    m: usize,
    sched_sp: usize,
    sched_pc: usize,
    sched_g: usize,
    sched_bp: usize,
    syscall_sp: usize,
    syscall_pc: usize,
    /// Since Go 1.23.
    syscall_bp: Option<usize>,
    status: usize,
    goid: usize,
    wait_since: usize,
    wait_reason: usize,
    sequence: usize,
    locked_m: usize,
    /// Since Go 1.21.
    parent_goid: Option<usize>,
    gopc: usize,
    startpc: usize,
    labels: usize,
    /// Since Go 1.25: the synctest bubble, and the place of its number.
    bubble: Option<usize>,
    pub(crate) bubble_id: Option<u64>,
}

impl Layout {
    pub(crate) fn new(layouts: &RuntimeLayouts<'_>) -> Result<Self, Error> {
        let mut size = 0;
        let mut must = |field: &str| -> Result<usize, LayoutError> {
            let layout = layouts.field("runtime.g", field)?;
            let end = layout.offset.saturating_add(layout.size.max(8));
            size = size.max(end.min(MAX_SIZE));
            Ok(usize::try_from(layout.offset).unwrap_or(usize::MAX))
        };
        let maybe = |found: Result<usize, LayoutError>| match found {
            Ok(offset) => Ok(Some(offset)),
            Err(LayoutError::NoField { .. }) => Ok(None),
            Err(error) => Err(error),
        };
        Ok(Self {
            stack_lo: must("stack.lo")?,
            stack_hi: must("stack.hi")?,
            m: must("m")?,
            sched_sp: must("sched.sp")?,
            sched_pc: must("sched.pc")?,
            sched_g: must("sched.g")?,
            sched_bp: must("sched.bp")?,
            syscall_sp: must("syscallsp")?,
            syscall_pc: must("syscallpc")?,
            syscall_bp: maybe(must("syscallbp"))?,
            status: must("atomicstatus")?,
            goid: must("goid")?,
            wait_since: must("waitsince")?,
            wait_reason: must("waitreason")?,
            sequence: must("trackingSeq")?,
            locked_m: must("lockedm")?,
            parent_goid: maybe(must("parentGoid"))?,
            gopc: must("gopc")?,
            startpc: must("startpc")?,
            labels: must("labels")?,
            bubble: maybe(must("bubble"))?,
            bubble_id: layouts.field("runtime.synctestBubble", "id").ok().map(|id| id.offset),
            size: usize::try_from(size).unwrap_or_default(),
        })
    }
}

/// The few bytes of a descriptor that tell its state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatusAt {
    /// From the start of the descriptor.
    pub(crate) start: usize,
    /// Bytes.
    pub(crate) len: usize,
    status: usize,
    wait_reason: usize,
}

impl StatusAt {
    /// Status and wait reason; `bytes` are the [`Self::len`] ones at [`Self::start`].
    pub(crate) fn of(&self, bytes: &[u8]) -> (u32, u8) {
        let status = bytes.get(self.status..self.status + 4).and_then(|b| b.try_into().ok());
        let reason = bytes.get(self.wait_reason).copied();
        (status.map_or(0, u32::from_le_bytes), reason.unwrap_or_default())
    }
}

impl Layout {
    pub(crate) fn status_at(&self) -> StatusAt {
        let start = self.status.min(self.wait_reason);
        let end = (self.status + 4).max(self.wait_reason + 1);
        let (status, wait_reason) = (self.status - start, self.wait_reason - start);
        StatusAt { start, len: end - start, status, wait_reason }
    }
}

/// One reading of a descriptor. Addresses are the target's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) address: Avma,
    pub(crate) status: u32,
    pub(crate) goid: u64,
    pub(crate) stack_lo: u64,
    pub(crate) stack_hi: u64,
    pub(crate) m: u64,
    pub(crate) sched_sp: u64,
    pub(crate) sched_pc: u64,
    pub(crate) sched_g: u64,
    pub(crate) sched_bp: u64,
    pub(crate) syscall_sp: u64,
    pub(crate) syscall_pc: u64,
    pub(crate) syscall_bp: u64,
    pub(crate) wait_since: u64,
    pub(crate) wait_reason: u8,
    /// `trackingSeq`: one more each time the goroutine stops running (modulo 256).
    sequence: u8,
    pub(crate) locked_m: u64,
    pub(crate) parent_goid: Option<u64>,
    pub(crate) gopc: u64,
    pub(crate) startpc: u64,
    pub(crate) labels: u64,
    pub(crate) bubble: u64,
}

impl Descriptor {
    /// `bytes` begin at `address`; what they lack reads as 0.
    pub(crate) fn parse(layout: &Layout, address: Avma, bytes: &[u8]) -> Self {
        let word = |at: usize| word_at(bytes, at);
        let byte = |at: usize| bytes.get(at).copied().unwrap_or_default();
        Self {
            address,
            status: word(layout.status) as u32,
            goid: word(layout.goid),
            stack_lo: word(layout.stack_lo),
            stack_hi: word(layout.stack_hi),
            m: word(layout.m),
            sched_sp: word(layout.sched_sp),
            sched_pc: word(layout.sched_pc),
            sched_g: word(layout.sched_g),
            sched_bp: word(layout.sched_bp),
            syscall_sp: word(layout.syscall_sp),
            syscall_pc: word(layout.syscall_pc),
            syscall_bp: layout.syscall_bp.map_or(0, word),
            wait_since: word(layout.wait_since),
            wait_reason: byte(layout.wait_reason),
            sequence: byte(layout.sequence),
            locked_m: word(layout.locked_m),
            parent_goid: layout.parent_goid.map(word),
            gopc: word(layout.gopc),
            startpc: word(layout.startpc),
            labels: word(layout.labels),
            bubble: layout.bubble.map_or(0, word),
        }
    }

    /// Reads one descriptor.
    pub(crate) fn read(
        layout: &Layout,
        memory: &dyn ReadMemory,
        address: Avma,
    ) -> Result<Self, MemoryError> {
        let mut bytes = [0; MAX_SIZE as usize];
        let bytes = bytes.get_mut(..layout.size).unwrap_or_default();
        memory.read_memory(address, bytes)?;
        Ok(Self::parse(layout, address, bytes))
    }

    pub(crate) fn state(&self) -> State {
        State::of(self.status)
    }

    /// Whether nothing that is shown of the goroutine can have changed between two readings
    /// that gave `self` and `later`.
    ///
    /// A goroutine that ran in between and stopped at the same place has another sequence
    /// number, except when it is back in a system call (Go 1.26 counts only slow ones).
    pub(crate) fn is_unmoved(&self, later: &Self) -> bool {
        let same = self.state() == later.state() && self.goid == later.goid;
        // A set of labels never changes, and nobody frees it while a descriptor leads to it.
        let same = same && self.labels == later.labels;
        // What a running goroutine saved last says nothing.
        let running = self.state() == State::Running;
        same && (running || Self { status: 0, m: 0, ..*self } == Self { status: 0, m: 0, ..*later })
    }

    /// Whether it can be a `g`.
    pub(crate) fn is_plausible(&self) -> bool {
        let alive = self.state().is_alive() && self.state() != State::Idle;
        let stack = self.stack_lo < self.stack_hi;
        !matches!(self.state(), State::Unknown(_))
            && (stack || (!alive && self.stack_lo == 0 && self.stack_hi == 0))
            && (!alive || self.goid != 0)
            && (self.sched_g == 0 || self.sched_g == self.address.0)
    }
}

/// The little-endian word at `at`; 0 past the end.
pub(crate) fn word_at(bytes: &[u8], at: usize) -> u64 {
    let word = at.checked_add(8).and_then(|end| bytes.get(at..end)?.try_into().ok());
    word.map_or(0, u64::from_le_bytes)
}
