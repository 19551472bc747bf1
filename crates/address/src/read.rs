//! How the pure crates get at bytes they do not own.

use crate::Avma;
use std::io;

/// A file-like source of bytes that is read with explicit offsets.
///
/// Never memory-mapped: a file that shrinks while it is open must give an error,
/// not a SIGBUS.
pub trait ReadAt: Send + Sync {
    /// Size in bytes at the time of the call.
    fn size(&self) -> u64;

    /// Fills `buf` from `offset`; fails when fewer bytes are there.
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
}

impl ReadAt for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let bytes = usize::try_from(offset)
            .ok()
            .and_then(|start| self.get(start..start.checked_add(buf.len())?))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(bytes);
        Ok(())
    }
}

/// The memory at an address could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryError(pub Avma);

impl std::fmt::Display for MemoryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "failed to read memory at 0x{:x}", self.0)
    }
}

impl std::error::Error for MemoryError {}

/// Memory of one process (or core dump, or test image), read by address.
pub trait ReadMemory {
    /// Fills `buf` from `address`, whole or not at all.
    fn read_memory(&self, address: Avma, buf: &mut [u8]) -> Result<(), MemoryError>;

    /// The little-endian word at `address`.
    fn read_word(&self, address: Avma) -> Result<u64, MemoryError> {
        let mut word = [0; 8];
        self.read_memory(address, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// Fills all parts, in their order; fails when one of them cannot be read, and then what
    /// is in the others is not known. Cheaper than one by one where the memory has a call for
    /// it.
    fn read_parts(&self, parts: &mut [Part<'_>]) -> Result<(), MemoryError> {
        parts.iter_mut().try_for_each(|part| self.read_memory(part.address, part.bytes))
    }
}

/// A piece of memory to read, and where to.
#[derive(Debug)]
pub struct Part<'b> {
    /// Where it begins.
    pub address: Avma,
    /// Filled from there.
    pub bytes: &'b mut [u8],
}

impl<F: Fn(Avma, &mut [u8]) -> Result<(), MemoryError>> ReadMemory for F {
    fn read_memory(&self, address: Avma, buf: &mut [u8]) -> Result<(), MemoryError> {
        self(address, buf)
    }
}
