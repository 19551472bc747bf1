//! A goroutine as it was seen.

use crate::created_by::Place;
use crate::frames::{Code, Frame, Shown};
use crate::labels::Labels;
use crate::state::State;
use address::Avma;
use std::fmt;
use std::sync::Arc;

/// One goroutine.
#[derive(Clone, Debug)]
pub struct Goroutine {
    /// Its id; 0 for one that is only being made.
    pub goid: u64,
    /// Its descriptor, which is used again after its end.
    pub address: Avma,
    /// What it does.
    pub state: State,
    /// What it waits for; only when it waits.
    pub reason: Option<Arc<str>>,
    /// When a collection first found it waiting, in nanoseconds of the monotonic clock.
    pub wait_since_ns: Option<u64>,
    /// The `go` statement; `None` for the main goroutine.
    pub created_by: Option<Place>,
    /// The goroutine that executed it; not recorded before Go 1.21.
    pub parent_goid: Option<u64>,
    /// The function it began with.
    pub start: Option<Arc<str>>,
    /// `g.gopc`, `g.startpc` and the number of the wait reason (`g.waitreason`), as read.
    pub raw: Raw,
    /// pprof labels.
    pub labels: Labels,
    /// Whether it is wired to its thread.
    pub locked: bool,
    /// Number of its synctest bubble, since Go 1.25.
    pub bubble: Option<u64>,
    /// Whether it is one of the runtime's own.
    pub system: bool,
    /// Whether it moved each time it was read: what stands here is of different moments, and
    /// stack and labels are left out.
    pub torn: bool,
    /// Its stack.
    pub stack: Stack,
}

/// What a descriptor holds of where a goroutine is from, unresolved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Raw {
    /// Return address of the `go` statement's call.
    pub gopc: Avma,
    /// First instruction of the function it began with.
    pub startpc: Avma,
    /// Number of what it waits for, or waited for last.
    pub wait_reason: u8,
    /// `g.atomicstatus`.
    pub status: u32,
}

/// A goroutine's stack.
#[derive(Clone, Debug)]
pub struct Stack {
    pub(crate) codes: Vec<Arc<Code>>,
    /// How far it was followed, and why not further.
    pub end: StackEnd,
}

impl Stack {
    /// Every frame, innermost first, inlined ones before what they are inlined into.
    pub fn frames(&self) -> impl Iterator<Item = &Frame> {
        self.codes.iter().flat_map(|code| &code.frames)
    }

    /// The frames that are shown; all of them when that would be none, as Go does.
    pub fn shown(&self, which: Shown) -> Vec<&Frame> {
        let shown = which.of(self.frames());
        if shown.is_empty() { self.frames().collect() } else { shown }
    }
}

/// Where a stack ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StackEnd {
    /// At its outermost function.
    Complete,
    /// It was not asked for.
    NotRead,
    /// The goroutine runs: its stack changes, and what it saved is old.
    Running,
    /// The goroutine moved while its stack was read.
    Moved,
    /// Complete, but frame pointers lie elsewhere.
    Doubtful,
    /// At an address without Go code.
    NotGo,
    /// At a word outside the stack's bounds.
    OutOfBounds,
    /// At assembly that writes SP.
    WritesSp,
    /// After as many frames as are followed.
    TooDeep,
    /// At memory that could not be read.
    Unreadable,
}

impl StackEnd {
    /// Whether the outer end of a stack is missing.
    pub fn is_cut(self) -> bool {
        matches!(
            self,
            Self::NotGo | Self::OutOfBounds | Self::WritesSp | Self::TooDeep | Self::Unreadable
        )
    }

    /// Whether all that was asked for is there.
    pub fn is_whole(self) -> bool {
        matches!(self, Self::Complete | Self::NotRead)
    }
}

impl fmt::Display for StackEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Complete => "complete",
            Self::NotRead => "not read",
            Self::Running => "the goroutine runs",
            Self::Moved => "the goroutine moved each time its stack was read",
            Self::Doubtful => "frame pointers do not agree with it",
            Self::NotGo => "it leads to an address without Go code",
            Self::OutOfBounds => "it leads out of the goroutine's stack",
            Self::WritesSp => "it leads to assembly that switches stacks",
            Self::TooDeep => "it has more frames than are followed",
            Self::Unreadable => "its memory cannot be read",
        })
    }
}
