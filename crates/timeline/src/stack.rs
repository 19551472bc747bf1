//! One stack: open frames, pending panics, a pending Goexit.

use crate::event::{Args, End, Panic};

/// Panics that may be pending on one stack at once; older ones are forgotten, which
/// only makes an inferred end `lost` that could have been `panic`.
const MAX_PANICS: usize = 32;

/// System stacks one goroutine is on at once: g0 and gsignal of its thread.
const MAX_OVER: usize = 4;

/// Frames that an idle stack keeps room for.
const MAX_KEPT: usize = 32;

/// An open call and where its frame lies. See [`crate::Call`] for what it has in common with that.
#[derive(Debug)]
pub(crate) struct Frame {
    /// Bytes from the stack's upper end to SP at the function's first instruction.
    pub depth: u64,
    /// Gaps seen when it was entered: a difference at its end means records were lost meanwhile.
    pub doubts: u64,
    /// From 1; grows with the depth.
    pub id: u64,
    /// 0 when there is none.
    pub parent: u64,
    pub goid: u64,
    pub start_ns: u64,
    pub below_ns: u64,
    pub caller: u64,
    pub function: u32,
    /// Traced calls open above it.
    pub level: u32,
    pub pid: u32,
    pub tid: u32,
    pub args: Args,
    /// What these hold in memory, bytes.
    pub args_bytes: usize,
}

impl Frame {
    /// What it holds in memory, bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.args_bytes
    }
}

/// `runtime.gopanic` runs at `depth`.
#[derive(Debug)]
pub(crate) struct Pending {
    pub depth: u64,
    pub value: Panic,
}

/// A goroutine's own stack, or a system stack.
///
/// Frames lie in strictly increasing depth: an entry closes everything at its depth or
/// deeper before it opens.
#[derive(Debug, Default)]
pub(crate) struct Stack {
    pub frames: Vec<Frame>,
    pub panics: Vec<Pending>,
    /// Depth of the innermost `runtime.Goexit`, which never returns.
    pub goexit: Option<u64>,
    /// The goroutine ends the process by a panic.
    pub fatal: bool,
    /// System stacks on which calls of this goroutine were opened; at most [`MAX_OVER`].
    pub over: Vec<u64>,
    /// Tells this stack from an earlier one under the same key.
    pub generation: u64,
}

impl Stack {
    /// Nothing is known of it that a later record could need.
    pub fn is_idle(&self) -> bool {
        self.frames.is_empty() && self.panics.is_empty() && self.goexit.is_none() && !self.fatal
    }

    /// Forgets what an idle stack still holds, for the next call on it.
    pub fn rest(&mut self) {
        self.over.clear();
        self.frames.shrink_to(MAX_KEPT);
    }

    /// Notes that a call of this goroutine is open on a system stack.
    pub fn went_over(&mut self, system: u64) {
        if self.over.len() < MAX_OVER && !self.over.contains(&system) {
            self.over.push(system);
        }
    }

    pub fn push_panic(&mut self, pending: Pending) {
        if self.panics.len() >= MAX_PANICS {
            self.panics.remove(0);
        }
        self.panics.push(pending);
    }

    /// A hit at `depth` shows that whatever lay at that depth or deeper is gone, gopanic's
    /// and Goexit's own frames included (deferred functions run deeper than both).
    pub fn forget_from(&mut self, depth: u64) {
        while self.panics.last().is_some_and(|p| p.depth >= depth) {
            self.panics.pop();
        }
        if self.goexit.is_some_and(|g| g >= depth) {
            self.goexit = None;
        }
    }

    /// How a frame of a goroutine's own stack ended that is gone without an exit record.
    /// `doubts` counts the places seen by now where records may be missing.
    pub fn inferred_end(&self, frame: &Frame, doubts: u64) -> End {
        if self.fatal {
            return End::Panic;
        }
        if self.goexit.is_some_and(|g| frame.depth <= g) {
            return End::Goexit;
        }
        // A panic above it that nobody was seen to recover: with records missing, the
        // recovery may have been deeper and the frame may have returned.
        let panicked = self.panics.iter().any(|p| p.depth >= frame.depth);
        if panicked && frame.doubts == doubts { End::Panic } else { End::Lost }
    }
}

/// How a frame of a system stack ended that is gone without an exit record.
pub(crate) fn inferred_system_end(frame: &Frame, doubts: u64) -> End {
    if frame.doubts == doubts { End::Switch } else { End::Lost }
}
