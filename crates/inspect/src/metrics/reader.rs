//! A memory that counts what is read of it.

use super::Effort;
use super::pieces::Pieces;
use address::{Avma, MemoryError, Part, ReadMemory};
use std::cell::Cell;

/// Reads, and counts.
pub(super) struct Reader<'m> {
    memory: &'m dyn ReadMemory,
    effort: Cell<Effort>,
}

impl<'m> Reader<'m> {
    pub(super) fn new(memory: &'m dyn ReadMemory) -> Self {
        Self { memory, effort: Cell::default() }
    }

    pub(super) fn effort(&self) -> Effort {
        self.effort.get()
    }

    /// Counts a second reading of the same.
    pub(super) fn again(&self) {
        let effort = self.effort.get();
        self.effort.set(Effort { again: effort.again + 1, ..effort });
    }

    /// The pieces of a struct at `base`.
    pub(super) fn pieces(&self, base: Avma, pieces: &Pieces) -> Result<Vec<u8>, MemoryError> {
        let mut bytes = vec![0; pieces.size()];
        self.read_parts(&mut pieces.parts(base, &mut bytes))?;
        Ok(bytes)
    }
}

impl ReadMemory for Reader<'_> {
    fn read_memory(&self, address: Avma, buf: &mut [u8]) -> Result<(), MemoryError> {
        self.count(1, buf.len());
        self.memory.read_memory(address, buf)
    }

    fn read_parts(&self, parts: &mut [Part<'_>]) -> Result<(), MemoryError> {
        self.count(1, parts.iter().map(|part| part.bytes.len()).sum());
        self.memory.read_parts(parts)
    }
}

impl Reader<'_> {
    fn count(&self, reads: u64, bytes: usize) {
        let effort = self.effort.get();
        self.effort.set(Effort {
            reads: effort.reads + reads,
            bytes: effort.bytes + bytes as u64,
            ..effort
        });
    }
}
