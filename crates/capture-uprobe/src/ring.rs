//! The rings that the programs write (`bpf/ring.h` states their layout), mapped, and the bell
//! that tells of them.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use wire::{HEADER_SIZE, MAX_PAYLOAD};

/// Granularity of records, bytes.
pub(crate) const UNIT: usize = 8;
/// Offsets in a ring.
const TAIL: usize = 64;
const DATA: usize = 128;
/// Of `payload_len` in a record.
const PAYLOAD_LEN: usize = 62;
const MAX_RECORD: usize = HEADER_SIZE + MAX_PAYLOAD;

/// A ring is no smaller on account of its CPU being one of many: they share.
const SHARED_BELOW: usize = 2 << 20;

/// How many rings there are, and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingLayout {
    pub(crate) count: u32,
    /// Bytes of data in each: a power of two.
    pub(crate) bytes: u32,
}

impl RingLayout {
    /// At most `total` bytes for `cpus` CPUs, at least a page; and no map value that is larger
    /// than `takes` says the kernel accepts.
    pub(crate) fn new(total: usize, cpus: usize, takes: impl Fn(u32) -> bool) -> Self {
        let total = total.clamp(4096, 1 << 30);
        let count = (total / SHARED_BELOW).clamp(1, cpus.max(1));
        // The verifier adds no more than 2^29 to a pointer.
        let mut bytes = 1u32 << (total / count).ilog2().min(28);
        let layout = |bytes| Self { count: u32::try_from(count).unwrap_or(1), bytes };
        while bytes > 4096 && !takes(layout(bytes).value_size()) {
            bytes /= 2;
        }
        layout(bytes)
    }

    /// Of a map that was made by one.
    pub(crate) fn of_map(entries: u32, value_size: u32) -> Self {
        Self { count: entries, bytes: value_size.saturating_sub((DATA + MAX_RECORD) as u32) }
    }

    /// Bytes of one ring with all that belongs to it.
    pub(crate) fn value_size(self) -> u32 {
        self.bytes + (DATA + MAX_RECORD) as u32
    }
}

/// Shared memory of our process.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; all access goes through atomics
// or to records that nobody else touches at the time.
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

    /// Memory without a kernel behind it.
    #[cfg(test)]
    pub(crate) fn anonymous(len: usize) -> Self {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: as above.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), len, access, kind | libc::MAP_ANONYMOUS, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        Self { start: NonNull::new(start.cast()).unwrap(), len }
    }

    /// The word at `at`, a multiple of 8.
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.len, "{at} of {}", self.len);
        // SAFETY: the word lies in the mapping, which is page-aligned and lives as long as `self`;
        // who else writes to it does so in one store of 8 bytes.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at).cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly what `new` mapped, and nothing borrows from it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// All rings of a capture. Positions count bytes since the start.
#[derive(Debug)]
pub(crate) struct Rings {
    memory: Mapping,
    layout: RingLayout,
}

impl Rings {
    /// Maps the rings of the map `fd`.
    pub(crate) fn new(fd: BorrowedFd<'_>, layout: RingLayout) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        Ok(Self::over(Mapping::new(fd, access, 0, Self::len(layout))?, layout))
    }

    /// Rings in memory that is [`Self::len`] bytes long.
    pub(crate) fn over(memory: Mapping, layout: RingLayout) -> Self {
        assert!(layout.bytes.is_power_of_two() && memory.len >= Self::len(layout));
        Self { memory, layout }
    }

    /// Bytes of memory they take, in whole pages.
    pub(crate) fn len(layout: RingLayout) -> usize {
        let bytes = layout.count as usize * layout.value_size() as usize;
        bytes.next_multiple_of(rustix::param::page_size())
    }

    pub(crate) fn count(&self) -> usize {
        self.layout.count as usize
    }

    /// Bytes of data in each.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.layout.bytes)
    }

    fn start(&self, ring: usize) -> usize {
        assert!(ring < self.count(), "ring {ring}");
        ring * self.layout.value_size() as usize
    }

    fn place(&self, ring: usize, position: u64) -> usize {
        self.start(ring) + DATA + (position & (self.bytes() - 1)) as usize
    }

    /// Bytes reserved since the start. What is written to the records before is seen after this.
    pub(crate) fn head(&self, ring: usize) -> u64 {
        self.memory.word(self.start(ring)).load(Ordering::Acquire)
    }

    /// Gives everything before `position`, which was cleared, back to the writers.
    pub(crate) fn set_tail(&self, ring: usize, position: u64) {
        self.memory.word(self.start(ring) + TAIL).store(position, Ordering::Release);
    }

    /// Time of the record at `position`, 0 when it is reserved and not written yet.
    pub(crate) fn time(&self, ring: usize, position: u64) -> u64 {
        self.memory.word(self.place(ring, position)).load(Ordering::Acquire)
    }

    /// The record at `position`, whose [`Self::time`] was seen.
    pub(crate) fn record(&self, ring: usize, position: u64) -> &[u8] {
        let at = self.place(ring, position);
        let last = self.memory.word(at + PAYLOAD_LEN / 8 * 8).load(Ordering::Relaxed);
        let len = HEADER_SIZE + usize::from((last >> 48) as u16).min(MAX_PAYLOAD);
        // SAFETY: a record begins in the data and ends in what follows it, all of it mapped; no
        // program writes to it before `set_tail`, which needs the borrow to be over to clear it.
        unsafe { std::slice::from_raw_parts(self.memory.start.as_ptr().add(at), len) }
    }

    /// The CPU of the record at `position`, and what was lost there before it.
    pub(crate) fn loss(&self, ring: usize, position: u64) -> (u16, u32) {
        let at = self.place(ring, position);
        let word = |offset| self.memory.word(at + offset).load(Ordering::Relaxed);
        (word(56) as u16, (word(48) >> 32) as u32)
    }

    /// Marks the record at `position` as one beside which others were lost.
    pub(crate) fn mark_beside_loss(&self, ring: usize, position: u64) {
        let flags = u64::from(wire::RecordFlags::BESIDE_LOSS) << 16;
        self.memory.word(self.place(ring, position) + 56).fetch_or(flags, Ordering::Relaxed);
    }

    /// Makes the record at `position`, which was read, a place for new ones; gives its length
    /// in the ring.
    pub(crate) fn clear(&mut self, ring: usize, position: u64) -> u64 {
        let len = room(self.record(ring, position).len());
        let at = self.place(ring, position);
        for word in (at..at + len as usize).step_by(8) {
            self.memory.word(word).store(0, Ordering::Relaxed);
        }
        len
    }

    /// What a program would do: reserves a record, and commits it unless `ts_ns` is 0.
    #[cfg(test)]
    pub(crate) fn write(&self, ring: usize, ts_ns: u64, payload: usize) -> u64 {
        let position = self.head(ring);
        let after = position + room(HEADER_SIZE + payload);
        self.memory.word(self.start(ring)).store(after, Ordering::Release);
        self.memory
            .word(self.place(ring, position) + 56)
            .store(payload as u64 * (1 << 48), Ordering::Relaxed);
        self.commit(ring, position, ts_ns);
        position
    }

    #[cfg(test)]
    pub(crate) fn commit(&self, ring: usize, position: u64, ts_ns: u64) {
        self.memory.word(self.place(ring, position)).store(ts_ns, Ordering::Release);
    }

    /// The CPU of a record, and what it had lost before.
    #[cfg(test)]
    pub(crate) fn set_loss(&self, ring: usize, position: u64, cpu: u16, lost: u32) {
        let at = self.place(ring, position);
        self.memory.word(at + 48).store(u64::from(lost) << 32, Ordering::Relaxed);
        self.memory.word(at + 56).fetch_or(u64::from(cpu), Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn tail(&self, ring: usize) -> u64 {
        self.memory.word(self.start(ring) + TAIL).load(Ordering::Acquire)
    }
}

/// Bytes that a record of `len` bytes takes in a ring.
pub(crate) fn room(len: usize) -> u64 {
    len.next_multiple_of(UNIT) as u64
}

/// The BPF ring buffer that programs write to when the reader is to wake up. What
/// its two words mean is the kernel's ABI (kernel/bpf/ringbuf.c).
#[derive(Debug)]
pub(crate) struct Bell {
    consumer: Mapping,
    producer: Mapping,
}

impl Bell {
    pub(crate) fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let page = rustix::param::page_size();
        Ok(Self {
            consumer: Mapping::new(fd, libc::PROT_READ | libc::PROT_WRITE, 0, page)?,
            producer: Mapping::new(fd, libc::PROT_READ, page, page)?,
        })
    }

    /// Makes room for it to ring again.
    pub(crate) fn silence(&mut self) {
        let rung = self.producer.word(0).load(Ordering::Acquire);
        self.consumer.word(0).store(rung, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::RingLayout;

    fn layout(total: usize, cpus: usize, largest: u32) -> (u32, u32) {
        let layout = RingLayout::new(total, cpus, |size| size <= largest);
        assert_eq!(RingLayout::of_map(layout.count, layout.value_size()), layout);
        (layout.count, layout.bytes)
    }

    #[test]
    fn rings_share_what_was_asked_for() {
        const ANY: u32 = u32::MAX;
        assert_eq!(layout(8 << 20, 2, ANY), (2, 4 << 20));
        assert_eq!(layout(8 << 20, 3, ANY), (3, 2 << 20));
        assert_eq!(layout(8 << 20, 64, ANY), (4, 2 << 20));
        assert_eq!(layout(1 << 20, 64, ANY), (1, 1 << 20));
        assert_eq!(layout(1, 2, ANY), (1, 4096));
        assert_eq!(layout(usize::MAX, 1, ANY), (1, 1 << 28));
        assert_eq!(layout(8 << 20, 2, 4 << 20), (2, 2 << 20));
    }
}
