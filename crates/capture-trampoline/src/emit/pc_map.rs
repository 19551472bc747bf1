//! Which moved instruction is which.

use address::{Avma, Svma};

/// What an address in the code area stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrampolinePc {
    /// First byte of the piece, which ends where the next one starts.
    pub start: Avma,
    /// The instruction that the target would be about to run without us. In a piece that is
    /// not moved code, all registers but R12, R13, R15, RAX, RDX and X15, at a swap X9 to X14
    /// instead of R15 and X15, are as there.
    pub original: Svma,
    /// Whether `start` begins a moved instruction: a fault there is the target's own.
    pub is_moved: bool,
}

/// The two ways between original and moved instructions.
#[derive(Clone, Debug, Default)]
pub struct PcMap {
    pieces: Vec<TrampolinePc>,
    end: Avma,
    moved: Vec<(Svma, Avma)>,
}

impl PcMap {
    pub(super) fn new(pieces: Vec<TrampolinePc>, end: Avma, mut moved: Vec<(Svma, Avma)>) -> Self {
        moved.sort_unstable_by_key(|moved| moved.0);
        Self { pieces, end, moved }
    }

    /// What `pc` in a stub stands for; `None` in recorders and outside.
    pub fn original(&self, pc: Avma) -> Option<TrampolinePc> {
        let index = self.pieces.partition_point(|piece| piece.start <= pc).checked_sub(1)?;
        (pc < self.end).then(|| self.pieces.get(index).copied()).flatten()
    }

    /// Where a thread that is about to run `pc`, strictly inside a patched range, goes on. The
    /// start of a patch is not in it: a thread there runs the jump.
    pub fn relocated(&self, pc: Svma) -> Option<Avma> {
        let index = self.moved.binary_search_by_key(&pc, |moved| moved.0).ok()?;
        self.moved.get(index).map(|moved| moved.1)
    }

    /// All pieces, sorted: for the table that the fault translation in the target uses.
    pub fn pieces(&self) -> &[TrampolinePc] {
        &self.pieces
    }

    /// End of the last piece.
    pub fn end(&self) -> Avma {
        self.end
    }

    /// Original places strictly inside patched ranges, sorted, and where they went.
    pub fn moved(&self) -> &[(Svma, Avma)] {
        &self.moved
    }
}
