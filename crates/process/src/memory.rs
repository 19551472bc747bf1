//! Memory of another process.

use crate::error::Error;
use address::{Avma, MemoryError, Part, ReadMemory};
use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Parts of one call: the kernel takes no more (`UIO_MAXIOV`).
const MAX_PARTS: usize = 1024;

/// Reads a process's memory while it runs; what is read may be torn.
#[derive(Debug)]
pub struct ProcessMemory {
    pid: libc::pid_t,
    /// `/proc/PID/mem`, where process_vm_readv is missing or filtered (seccomp, gVisor).
    file: Option<File>,
}

impl ProcessMemory {
    pub(crate) fn open(pid: u32, dir: &std::path::Path) -> Result<Self, Error> {
        let path = dir.join("mem");
        let raw = libc::pid_t::try_from(pid).map_err(|_| Error::NoProcess(pid))?;
        let file = File::open(&path).map_err(|e| Error::of_process(pid, path, e))?;
        Ok(Self { pid: raw, file: Some(file) })
    }

    /// Whether the address space is still the one that was opened; `mapped` is any address in it
    /// that can be read. After an execve - also of the same file, where pid, start time and
    /// executable stay as they were - and after the end it is not, and what is read by address
    /// may be another program's.
    pub fn is_current(&self, mapped: Avma) -> bool {
        let file = self.file.as_ref();
        file.is_some_and(|file| file.read_exact_at(&mut [0], mapped.0).is_ok())
    }

    /// Whole or not at all.
    fn read_remote(&self, address: u64, buf: &mut [u8]) -> bool {
        let local = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
        let Ok(start) = usize::try_from(address) else { return false };
        let remote =
            libc::iovec { iov_base: std::ptr::without_provenance_mut(start), iov_len: buf.len() };
        // SAFETY: the kernel writes at most `buf.len()` bytes to `buf`, which is borrowed mutably
        // for the call; the remote range is only looked at in the other process.
        let read = unsafe { libc::process_vm_readv(self.pid, &local, 1, &remote, 1, 0) };
        usize::try_from(read) == Ok(buf.len())
    }

    /// All of them or not at all; at most [`MAX_PARTS`].
    fn read_remote_parts(&self, parts: &mut [Part<'_>]) -> bool {
        let mut local = Vec::with_capacity(parts.len());
        let mut remote = Vec::with_capacity(parts.len());
        let mut wanted = 0;
        for part in parts {
            let Ok(start) = usize::try_from(part.address.0) else { return false };
            let iov_len = part.bytes.len();
            wanted += iov_len;
            local.push(libc::iovec { iov_base: part.bytes.as_mut_ptr().cast(), iov_len });
            let iov_base = std::ptr::without_provenance_mut(start);
            remote.push(libc::iovec { iov_base, iov_len });
        }
        let count = local.len() as libc::c_ulong;
        // SAFETY: both arrays have `count` elements and live through the call. The kernel writes
        // at most each local part's length to it, and each is borrowed mutably by its `Part`; the
        // remote ranges are only looked at in the other process.
        let read = unsafe {
            libc::process_vm_readv(self.pid, local.as_ptr(), count, remote.as_ptr(), count, 0)
        };
        usize::try_from(read) == Ok(wanted)
    }
}

impl ReadMemory for ProcessMemory {
    fn read_memory(&self, address: Avma, buf: &mut [u8]) -> Result<(), MemoryError> {
        if buf.is_empty() || self.read_remote(address.0, buf) {
            return Ok(());
        }
        // The descriptor stays with the address space it was opened on: after execve, and when
        // the pid is another's, it reads nothing.
        let file = self.file.as_ref().ok_or(MemoryError(address))?;
        file.read_exact_at(buf, address.0).map_err(|_| MemoryError(address))
    }

    fn read_parts(&self, parts: &mut [Part<'_>]) -> Result<(), MemoryError> {
        for some in parts.chunks_mut(MAX_PARTS) {
            if !self.read_remote_parts(some) {
                some.iter_mut().try_for_each(|part| self.read_memory(part.address, part.bytes))?;
            }
        }
        Ok(())
    }
}
