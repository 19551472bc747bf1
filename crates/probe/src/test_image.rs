//! Memory for tests.

use address::{Avma, MemoryError, ReadMemory};

/// One readable range of memory.
#[derive(Debug)]
pub(crate) struct Image {
    /// Address of the first byte.
    pub(crate) base: u64,
    /// Content.
    pub(crate) bytes: Vec<u8>,
}

impl ReadMemory for Image {
    fn read_memory(&self, address: Avma, buf: &mut [u8]) -> Result<(), MemoryError> {
        let error = MemoryError(address);
        let start = address.0.checked_sub(self.base).ok_or(error)?;
        let start = usize::try_from(start).map_err(|_| error)?;
        let end = start.checked_add(buf.len()).ok_or(error)?;
        buf.copy_from_slice(self.bytes.get(start..end).ok_or(error)?);
        Ok(())
    }
}
