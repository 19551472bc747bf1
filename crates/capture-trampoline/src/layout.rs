//! What the code in the target and the reader outside share: rings and records.
//!
//! ```text
//! rings:   ring 0 | ring 1 | …      each `stride` bytes, one for each CPU (or thread, without rdpid)
//! ring:    header page | data: `bytes`, a power of two | slack
//! header:   0 head  u64   bytes reserved since the start; the target adds to it
//!           8 drops u64   records that found the ring full; the target counts
//!          16 rejected u64 hits that a condition rejected; the target counts
//!          64 limit u64   head may not pass it; the reader sets it to bytes consumed + `bytes`
//! ```
//! A record is reserved by a compare-and-swap of `head`, then filled, then its time is
//! taken, and the time is written last: a record whose first word is 0 is not there yet.
//! The reader zeroes the first word of each unit it has consumed *before* it raises `limit`.
//! A record lies at `head % bytes` and may run into the slack; it never wraps.
//!
//! Record, little-endian, in units of 32 bytes:
//! ```text
//!  0 tsc    u64   time stamp counter, never 0
//!  8 goid   u48   0 when there is no goroutine
//! 14 tid    u16   low bits of the thread id
//! 16 caller u48   at an entry site, return address; elsewhere:
//! 16   done u8      at a swap, whether it swapped
//! 18   drops u32    low bits of `drops` when the record was reserved
//! 22 tid    u8    high bits of the thread id
//! 23 drops  u8    at an entry site, low bits of `drops` when the record was reserved
//! 24 tag    u32   site, units and SYSTEM_STACK
//! 28 depth  u32   g.stack.hi - SP where the record is made, bytes
//! ```
//! With SYSTEM_STACK the next word is the address of the system g; goid is then that of `m.curg`. The
//! payload ends the record (see [`crate::payload`]).

use address::Avma;

/// Granularity of records, bytes.
pub const UNIT: usize = 32;
/// Offset of `head` in a ring.
pub const HEAD: u32 = 0;
/// Offset of `drops` in a ring.
pub const DROPS: u32 = 8;
/// Offset of `rejected` in a ring.
pub const REJECTED: u32 = 16;
/// Offset of `limit` in a ring; a cache line of its own, since the reader writes it.
pub const LIMIT: u32 = 64;
/// Offset of the data in a ring: one page.
pub const DATA: u32 = 4096;
/// Bytes after the data that the last record may run into: a header, the unit of a system
/// stack and the longest payload, in whole pages.
pub const SLACK: u32 = 8192;

/// Offsets in a record.
pub mod record {
    /// Time stamp, the commit word.
    pub const TSC: u32 = 0;
    /// Goroutine, 48 bits.
    pub const GOID: u32 = 8;
    /// Low 16 bits of the thread id.
    pub const TID_LOW: u32 = 14;
    /// Return address, 48 bits.
    pub const CALLER: u32 = 16;
    /// Bits 16 to 23 of the thread id.
    pub const TID_HIGH: u32 = 22;
    /// Low 8 bits of the ring's drops, beside a return address.
    pub const DROPS: u32 = 23;
    /// Low 32 bits of the ring's drops, where there is no return address.
    pub const WIDE_DROPS: u32 = 18;
    /// Site, units and flag.
    pub const TAG: u32 = 24;
    /// Depth on the stack.
    pub const DEPTH: u32 = 28;
}

/// Bits of the tag that hold the site's index in the plan.
pub const TAG_SITE: u32 = (1 << 23) - 1;
/// Where the number of units starts in the tag: 8 bits.
pub const TAG_UNITS_SHIFT: u32 = 23;
/// Set in the tag when the hit ran on a system stack.
pub const TAG_SYSTEM_STACK: u32 = 1 << 31;

/// Offset of the enable word (u32) in the control page: 0 makes every hit return at once and
/// uncounted. The page is private and MADV_WIPEONFORK, so a forked child finds 0.
pub const ENABLED: u32 = 0;

/// Offset of the process id (u32) in the control page. A forked child finds 0: what is in it belongs to
/// no tracer.
pub const OWNER: u32 = 8;

/// Offset of [`CONTROL_MARK`] in the control page.
pub const MARK: u32 = 16;

/// What tells a control page from any other page. It is written first, so that a page whose tracer
/// died before it had mapped more is known; a forked child finds zeroes.
pub const CONTROL_MARK: [u8; 24] = *b"gospect: control page\xd2\x9b\x07";

/// Where the rings lie in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rings {
    /// First byte of ring 0.
    pub base: Avma,
    /// Number of rings, a power of two up to 4096. Fewer than CPUs is right too: they share.
    pub count: u32,
    /// Bytes of data of one ring, a power of two, at least [`SLACK`].
    pub bytes: u32,
}

impl Rings {
    /// Bytes from one ring to the next.
    pub const fn stride(&self) -> u32 {
        DATA + self.bytes + SLACK
    }

    /// Bytes of all rings.
    pub const fn size(&self) -> u64 {
        self.stride() as u64 * self.count as u64
    }

    /// Whether the numbers are ones that code can be made for.
    pub const fn is_valid(&self) -> bool {
        self.count.is_power_of_two()
            && self.count <= 4096
            && self.bytes.is_power_of_two()
            && self.bytes >= SLACK
            && self.bytes <= 1 << 28
    }
}

/// The fixed part of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Time stamp counter; 0: not committed.
    pub tsc: u64,
    /// Goroutine.
    pub goid: u64,
    /// Thread; 0 when the code was made without the offset of `m.procid`.
    pub tid: u32,
    /// Return address (avma) at entry sites; other things elsewhere.
    pub caller: u64,
    /// Low 8 bits of the ring's drops before this record, at entry sites.
    pub drops: u8,
    /// Index into the plan's sites. Not validated.
    pub site: u32,
    /// Units of the whole record. Not validated.
    pub units: u32,
    /// Whether the address of the system g follows.
    pub system_stack: bool,
    /// Distance to the stack's upper end, bytes.
    pub depth: u32,
}

impl Header {
    /// Takes a unit apart. Nothing is validated: a hostile target writes what it likes.
    pub fn read(unit: &[u8; UNIT]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&unit[at..at + 8]);
            u64::from_le_bytes(word)
        };
        Self::of([word(0), word(8), word(16), word(24)])
    }

    /// As [`Header::read`], of words.
    #[inline]
    pub fn of([tsc, goid, caller, last]: [u64; UNIT / 8]) -> Self {
        let low = (1 << 48) - 1;
        let tag = last as u32;
        Self {
            tsc,
            goid: goid & low,
            tid: (goid >> 48) as u32 | ((caller >> 48) as u32 & 0xff) << 16,
            caller: caller & low,
            drops: (caller >> 56) as u8,
            site: tag & TAG_SITE,
            units: tag >> TAG_UNITS_SHIFT & 0xff,
            system_stack: tag & TAG_SYSTEM_STACK != 0,
            depth: (last >> 32) as u32,
        }
    }
}

impl Header {
    /// How many records the ring had dropped before this one, beyond `known`: of an entry's the low
    /// 7 bits. The reader knows more (`reader::losses`).
    pub fn drops_since(&self, known: u64, is_entry: bool) -> u64 {
        let (step, back) = if is_entry {
            (u64::from(self.drops.wrapping_sub(known as u8)), 1 << 7)
        } else {
            let wide = (self.caller >> 16) as u32;
            (u64::from(wide.wrapping_sub(known as u32)), 1 << 31)
        };
        if step < back { step } else { 0 }
    }
}

/// The tag of a record at a site.
pub const fn tag(site: u32, units: u32) -> u32 {
    site & TAG_SITE | (units & 0xff) << TAG_UNITS_SHIFT
}
