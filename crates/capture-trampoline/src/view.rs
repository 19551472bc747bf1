//! Memory that a target and we share, seen from here.
//!
//! The target can change every byte at any time, so all access goes through atomics and
//! nothing is ever borrowed from it.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

/// A shared mapping of a memfd that can neither shrink nor grow, so that no access faults.
#[derive(Debug)]
pub(crate) struct View {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread, and is accessed by atomics only.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl View {
    /// Maps the first `len` bytes of `fd`, which the caller has sealed at that length or more.
    pub(crate) fn new(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new shared mapping at an address the kernel chooses touches no memory of ours.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), len, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { start, len })
    }

    /// Makes all pages present, charged to us and not to the target.
    pub(crate) fn populate(&self) -> io::Result<()> {
        // SAFETY: the range is our own mapping; populating changes no content.
        let code = unsafe {
            libc::madvise(self.start.as_ptr().cast(), self.len, libc::MADV_POPULATE_WRITE)
        };
        if code == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) {
            return Err(error);
        }
        // A kernel before 5.14. Memory of a new file is zero, so nothing changes.
        for page in (0..self.len).step_by(4096) {
            self.store(page, 0);
        }
        Ok(())
    }

    /// The word at a multiple of 8; `None` outside.
    fn word(&self, offset: usize) -> Option<&AtomicU64> {
        let end = offset.checked_add(8)?;
        if end > self.len || !offset.is_multiple_of(8) {
            return None;
        }
        // SAFETY: the word lies inside the mapping, which lives as long as `self`, and is aligned, since
        // the mapping begins at a page; it is only ever accessed atomically.
        Some(unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) })
    }

    /// Reads the word at `offset`; 0 outside.
    pub(crate) fn load(&self, offset: usize) -> u64 {
        self.word(offset).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Writes the word at `offset`; nothing outside.
    pub(crate) fn store(&self, offset: usize, value: u64) {
        if let Some(word) = self.word(offset) {
            word.store(value, Ordering::Release);
        }
    }

    /// `N` words from a multiple of 8; `None` outside.
    pub(crate) fn words<const N: usize>(&self, offset: usize) -> Option<&[AtomicU64; N]> {
        let end = offset.checked_add(8 * N)?;
        if end > self.len || !offset.is_multiple_of(8) {
            return None;
        }
        // SAFETY: the words lie inside the mapping, which lives as long as `self`, and are aligned, since
        // the mapping begins at a page; an AtomicU64 has the layout of a u64, and they are only
        // ever accessed atomically.
        Some(unsafe { self.start.add(offset).cast::<[AtomicU64; N]>().as_ref() })
    }

    /// Copies whole words from a multiple of 8 into `out`, as far as both reach.
    pub(crate) fn copy(&self, offset: usize, out: &mut [u8]) {
        for (index, chunk) in out.chunks_exact_mut(8).enumerate() {
            let Some(word) = self.word(offset + 8 * index) else { return };
            chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
    }

    /// Writes bytes from a multiple of 8; the last word is filled up with zeros.
    pub(crate) fn fill(&self, offset: usize, bytes: &[u8]) {
        for (index, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.store(offset + 8 * index, u64::from_le_bytes(word));
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: the range is exactly what `new` mapped, and nothing borrows from it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
