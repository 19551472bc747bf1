//! The reader of the BPF ring buffer.
//!
//! Instead of libbpf's, which wants a callback that lives as long as the ring: this one
//! hands records to a borrowed sink and stops at a budget. The layout is the
//! kernel's ABI (kernel/bpf/ringbuf.c): a page with the consumer position, a page with
//! the producer position, then the data mapped twice in a row, so that no record is
//! split; each record is a 4-byte length with two flag bits, 4 bytes of the kernel's own,
//! then the data, aligned to 8.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const BUSY: u32 = 1 << 31;
const DISCARD: u32 = 1 << 30;
const RECORD_HEADER: u64 = 8;

/// A mapped ring.
#[derive(Debug)]
pub(crate) struct Ring {
    consumer: Mapping,
    producer: Mapping,
    page: usize,
    /// Bytes of data, a power of two.
    size: u64,
}

#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; all access goes through atomics
// or through `&mut Ring`.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, protection: i32, offset: usize, len: usize) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a new shared mapping at an address the kernel chooses touches no memory of ours.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), len, protection, libc::MAP_SHARED, fd.as_raw_fd(), offset)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { start, len })
    }

    fn position(&self) -> &AtomicU64 {
        // SAFETY: the mapping is at least a page, page-aligned and lives as long as `self`; its first
        // word is a position that kernel and reader access atomically.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly what `new` mapped, and nothing borrows from it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

impl Ring {
    /// Maps the ring buffer `fd` of `size` bytes.
    pub(crate) fn new(fd: BorrowedFd<'_>, size: u32) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let data = usize::try_from(size).map_err(|_| io::ErrorKind::InvalidInput)?;
        if !data.is_power_of_two() || data < page {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self {
            consumer: Mapping::new(fd, libc::PROT_READ | libc::PROT_WRITE, 0, page)?,
            producer: Mapping::new(fd, libc::PROT_READ, page, page + 2 * data)?,
            page,
            size: u64::from(size),
        })
    }

    /// Hands at most `budget` records to `sink`; true in the second place when more may wait.
    pub(crate) fn consume(&mut self, budget: usize, sink: &mut dyn FnMut(&[u8])) -> (usize, bool) {
        let mut handed = 0;
        let mut consumer = self.consumer.position().load(Ordering::Relaxed);
        let mut producer = self.producer.position().load(Ordering::Acquire);
        while handed < budget {
            if consumer >= producer {
                producer = self.producer.position().load(Ordering::Acquire);
                if consumer >= producer {
                    return (handed, false);
                }
            }
            let header = self.record_header(consumer);
            if header & BUSY != 0 {
                // Its writer was preempted; what follows must wait for it.
                return (handed, false);
            }
            let len = u64::from(header & !(BUSY | DISCARD)).min(self.size - RECORD_HEADER);
            if header & DISCARD == 0 {
                sink(self.data(consumer, len));
                handed += 1;
            }
            consumer += (len + RECORD_HEADER).next_multiple_of(8);
            // Released record by record: room for the producers, also when the sink panics.
            self.consumer.position().store(consumer, Ordering::Release);
        }
        (handed, true)
    }

    fn data_start(&self, position: u64) -> *mut u8 {
        let at = (position & (self.size - 1)) as usize;
        // SAFETY: the producer mapping is a page and twice `size` bytes long; `at` is below `size`.
        unsafe { self.producer.start.as_ptr().add(self.page + at) }
    }

    fn record_header(&self, position: u64) -> u32 {
        let header = self.data_start(position).cast::<u32>();
        // SAFETY: positions are multiples of 8 and the data is page-aligned; the word lies in the
        // mapping, and the kernel writes it atomically.
        unsafe { AtomicU32::from_ptr(header) }.load(Ordering::Acquire)
    }

    fn data(&self, position: u64, len: u64) -> &[u8] {
        let start = self.data_start(position);
        // SAFETY: header and `len` together are at most `size`, and the data is mapped twice in a row,
        // so the range is mapped; the kernel does not write a committed record before the
        // consumer position passes it, which happens only after the borrow ends.
        unsafe { std::slice::from_raw_parts(start.add(RECORD_HEADER as usize), len as usize) }
    }
}
