//! Memory of our own for code, and for what it writes.

use address::Avma;
use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

/// An anonymous mapping that is written first and then executed in part.
#[derive(Debug)]
pub(super) struct Area {
    start: NonNull<u8>,
    len: usize,
    executable: Range<usize>,
}

// SAFETY: a mapping belongs to the process, not to a thread; what several threads access at once are words, by atomics
// or by code that locks.
unsafe impl Sync for Area {}

impl Area {
    pub(super) fn new(len: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address the kernel chooses touches no memory of ours.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { start, len, executable: 0..0 })
    }

    /// Where an offset lies in this process.
    pub(super) fn at(&self, offset: usize) -> Avma {
        Avma((self.start.as_ptr().addr() + offset) as u64)
    }

    /// Writes bytes, nothing outside of the area or over code that is executable already.
    pub(super) fn put(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset.saturating_add(bytes.len());
        let is_code = offset < self.executable.end && self.executable.start < end;
        if end > self.len || is_code {
            return;
        }
        // SAFETY: the range lies inside the mapping, is writable, and nobody else has it: `self` is borrowed alone.
        unsafe {
            self.start.add(offset).as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        };
    }

    /// Makes whole pages executable, and no longer writable. Once.
    pub(super) fn make_executable(&mut self, pages: Range<usize>) -> io::Result<()> {
        if pages.end > self.len || pages.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let protection = libc::PROT_READ | libc::PROT_EXEC;
        // SAFETY: the pages are ours, and hold code that nobody writes again (see `put`).
        let code = unsafe {
            libc::mprotect(self.start.add(pages.start).as_ptr().cast(), pages.len(), protection)
        };
        if code != 0 {
            return Err(io::Error::last_os_error());
        }
        self.executable = pages;
        Ok(())
    }

    /// The word at a multiple of 8 behind the code; the last one for what lies elsewhere.
    pub(super) fn word(&self, offset: usize) -> &AtomicU64 {
        let last = self.len - 8;
        let offset = if offset < self.executable.end { last } else { offset.min(last) & !7 };
        // SAFETY: the word lies inside the mapping, which lives as long as `self`, is aligned, since the mapping begins
        // at a page, and is only ever accessed by atomics or by code that locks.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    /// Runs what has been put at `offset`; nothing when that is no code.
    pub(super) fn call(&self, offset: usize, args: [u64; 3]) {
        if !self.executable.contains(&offset) {
            return;
        }
        // SAFETY: what is executable was put there by this crate's calibration and not changed since: it begins with a
        // function of three words by the C convention that keeps what that wants kept (`calibrate::caller`), calls
        // code that writes to this area only, and returns after `args[0]` rounds.
        unsafe {
            let code: extern "sysv64" fn(u64, u64, u64) =
                std::mem::transmute(self.start.as_ptr().add(offset));
            code(args[0], args[1], args[2]);
        }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the range is exactly what `new` mapped; no code of it runs and nothing borrows from it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
