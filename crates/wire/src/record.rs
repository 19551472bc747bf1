//! One record per hit: a 64-byte header and the fields its fetch program emitted.

use thiserror::Error;

/// Bytes of a record before its payload.
pub const HEADER_SIZE: usize = 64;

/// The longest payload a record carries, in bytes.
pub const MAX_PAYLOAD: usize = 4096;

/// What a record reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RecordKind {
    /// A site of the plan was hit; `site` is its index.
    Hit = 1,
    /// The process replaced its image by execve; `site` is 0.
    Exec = 2,
    /// The process (its whole thread group) is gone; `site` is 0.
    ProcessExit = 3,
    /// The process is about to have its first hit in this image; comes before it, perhaps
    /// more than once, and again after an execve. `site` is the site that was hit and `caller`
    /// the address of its instruction in the process (avma): together they give the bias,
    /// also when the process is gone by now.
    Process = 4,
    /// A goroutine that was found in memory, not told of by a site: what the reader of state
    /// changes begins with. `ts_ns` is when the reading began, `goid` whose it is, 0 behind the
    /// last one of a reading. Fields of its payload: state, wait reason, gopc and startpc (avma),
    /// parent.
    Goroutine = 5,
}

/// Bits of [`Record::flags`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordFlags(pub u16);

impl RecordFlags {
    /// The hit ran on a system stack (g0 or gsignal): `stack` tells which.
    pub const SYSTEM_STACK: u16 = 1 << 0;
    /// g or one of the fields read through it could not be read: goid and depth are 0.
    pub const NO_G: u16 = 1 << 1;
    /// `caller` could not be read and is 0.
    pub const NO_CALLER: u16 = 1 << 2;

    /// Records of another CPU (or ring) were lost somewhere around this one: between the one
    /// of that CPU that came before and the one that comes next. Set by the readers.
    pub const BESIDE_LOSS: u16 = 1 << 3;

    /// No record of the same goroutine that comes later tells of something earlier: the capture
    /// proves its order.
    pub const ORDERED: u16 = 1 << 4;

    /// Whether all bits of `bit` are set.
    pub const fn has(self, bit: u16) -> bool {
        self.0 & bit == bit
    }
}

/// A parsed record; the payload is borrowed.
///
/// Layout, little-endian, no implicit padding (`bpf/wire.h` mirrors it):
/// ```text
///  0 ts_ns u64    CLOCK_MONOTONIC, or TSC where the file header says so
///  8 goid  u64    goroutine; on a system stack the one the M runs for (m.curg), else 0
/// 16 stack u64    0 on a goroutine's own stack; address of g0 or gsignal otherwise
/// 24 depth u64    g.stack.hi - SP as at the function's first instruction, bytes
/// 32 caller u64   return address of the function (avma), entry sites only; see Process
/// 40 site  u32    index into Plan::sites
/// 44 pid   u32    thread group id in the initial pid namespace
/// 48 tid   u32
/// 52 lost  u32    records lost on this CPU (or ring) since the capture began, wrapping
/// 56 cpu   u16
/// 58 flags u16
/// 60 kind  u8
/// 61 zero  u8
/// 62 payload_len u16
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Time of the hit, nanoseconds on the capture's clock.
    pub ts_ns: u64,
    /// Goroutine id; see the layout above.
    pub goid: u64,
    /// 0 on a goroutine's own stack, else the address of the system g (avma).
    pub stack: u64,
    /// Distance in bytes from the stack's upper end to SP at the function's first instruction.
    pub depth: u64,
    /// Return address at an entry site (avma), else 0; for `Process` where the site is.
    pub caller: u64,
    /// Index of the site in the plan.
    pub site: u32,
    /// Process (thread group).
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Running count of records lost on `cpu` before this one, wrapping.
    pub lost: u32,
    /// CPU, or ring, the record came from: the scope of `lost`.
    pub cpu: u16,
    /// See [`RecordFlags`].
    pub flags: RecordFlags,
    /// What the record reports.
    pub kind: RecordKind,
    /// Fields the fetch program emitted.
    pub payload: &'a [u8],
}

/// Bytes that are not a record.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RecordError {
    /// Fewer bytes than a header, or than the header announces.
    #[error("record of {have} bytes is shorter than the {need} it needs")]
    Short {
        /// Bytes present.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// The kind byte is unknown.
    #[error("unknown record kind {0}")]
    Kind(u8),
    /// The payload is longer than any fetch program may emit.
    #[error("record payload of {0} bytes is over the limit")]
    Payload(usize),
}

fn u64_at(bytes: &[u8; HEADER_SIZE], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn u32_at(bytes: &[u8; HEADER_SIZE], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u16_at(bytes: &[u8; HEADER_SIZE], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

impl<'a> Record<'a> {
    /// Parses one record from the start of `bytes`; trailing bytes are ignored.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let header: &[u8; HEADER_SIZE] = bytes
            .first_chunk()
            .ok_or(RecordError::Short { have: bytes.len(), need: HEADER_SIZE })?;
        let payload_len = usize::from(u16_at(header, 62));
        if payload_len > MAX_PAYLOAD {
            return Err(RecordError::Payload(payload_len));
        }
        let need = HEADER_SIZE + payload_len;
        let payload =
            bytes.get(HEADER_SIZE..need).ok_or(RecordError::Short { have: bytes.len(), need })?;
        let kind = match header[60] {
            1 => RecordKind::Hit,
            2 => RecordKind::Exec,
            3 => RecordKind::ProcessExit,
            4 => RecordKind::Process,
            5 => RecordKind::Goroutine,
            other => return Err(RecordError::Kind(other)),
        };
        Ok(Self {
            ts_ns: u64_at(header, 0),
            goid: u64_at(header, 8),
            stack: u64_at(header, 16),
            depth: u64_at(header, 24),
            caller: u64_at(header, 32),
            site: u32_at(header, 40),
            pid: u32_at(header, 44),
            tid: u32_at(header, 48),
            lost: u32_at(header, 52),
            cpu: u16_at(header, 56),
            flags: RecordFlags(u16_at(header, 58)),
            kind,
            payload,
        })
    }

    /// Length in bytes on the wire: header and payload, without alignment.
    pub fn wire_len(&self) -> usize {
        HEADER_SIZE + self.payload.len()
    }

    /// Appends the wire form; the inverse of [`Record::parse`]. Payloads over
    /// [`MAX_PAYLOAD`] are cut there.
    pub fn write(&self, out: &mut Vec<u8>) {
        let payload = &self.payload[..self.payload.len().min(MAX_PAYLOAD)];
        let mut header = [0; HEADER_SIZE];
        let words = [self.ts_ns, self.goid, self.stack, self.depth, self.caller];
        for (place, word) in header.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let words = [self.site, self.pid, self.tid, self.lost];
        for (place, word) in header[40..56].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let kind = u16::from(self.kind as u8);
        let words = [self.cpu, self.flags.0, kind, payload.len() as u16];
        for (place, word) in header[56..].chunks_exact_mut(2).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&header);
        out.extend_from_slice(payload);
    }
}

/// Sets the time of a record in wire form, and its count of losses to the larger (as wrapping
/// numbers) of its own and `told`; gives that count. Bytes that are too few stay as they are.
pub fn stamp(record: &mut [u8], ts_ns: u64, told: u32) -> u32 {
    let Some(header) = record.first_chunk_mut::<HEADER_SIZE>() else { return told };
    header[..8].copy_from_slice(&ts_ns.to_le_bytes());
    let own = u32_at(header, 52);
    if own.wrapping_sub(told) <= u32::MAX / 2 {
        return own;
    }
    header[52..56].copy_from_slice(&told.to_le_bytes());
    told
}

/// Notes in a record's wire form that records of others were lost around it
/// ([`RecordFlags::BESIDE_LOSS`]).
pub fn mark_beside_loss(record: &mut [u8]) {
    if let Some(header) = record.first_chunk_mut::<HEADER_SIZE>() {
        let flags = u16_at(header, 58) | RecordFlags::BESIDE_LOSS;
        header[58..60].copy_from_slice(&flags.to_le_bytes());
    }
}

/// Takes back [`RecordFlags::ORDERED`] in a record's wire form: it is put among records of another
/// capture.
pub fn clear_ordered(record: &mut [u8]) {
    if let Some(header) = record.first_chunk_mut::<HEADER_SIZE>() {
        let flags = u16_at(header, 58) & !RecordFlags::ORDERED;
        header[58..60].copy_from_slice(&flags.to_le_bytes());
    }
}

/// The count of lost records in a record's wire form; 0 for what is none.
pub fn lost_so_far(record: &[u8]) -> u32 {
    record.first_chunk::<HEADER_SIZE>().map_or(0, |header| u32_at(header, 52))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(payload: &[u8]) -> Record<'_> {
        Record {
            ts_ns: 1,
            goid: 2,
            stack: 3,
            depth: 4,
            caller: 5,
            site: 6,
            pid: 7,
            tid: 8,
            lost: 9,
            cpu: 10,
            flags: RecordFlags(3),
            kind: RecordKind::Hit,
            payload,
        }
    }

    #[test]
    fn a_record_survives_the_wire() {
        let mut bytes = Vec::new();
        sample(b"payload!").write(&mut bytes);
        assert_eq!(bytes.len(), HEADER_SIZE + 8);
        assert_eq!(Record::parse(&bytes), Ok(sample(b"payload!")));
    }

    #[test]
    fn a_loss_beside_a_record_is_marked_and_nothing_else_changes() {
        let mut bytes = Vec::new();
        sample(b"payload!").write(&mut bytes);
        assert_eq!(lost_so_far(&bytes), 9);
        mark_beside_loss(&mut bytes);
        let flags = RecordFlags(3 | RecordFlags::BESIDE_LOSS);
        assert_eq!(Record::parse(&bytes), Ok(Record { flags, ..sample(b"payload!") }));
        mark_beside_loss(&mut bytes[..10]);
        assert_eq!(lost_so_far(&bytes[..10]), 0);
    }

    #[test]
    fn every_kind_survives_the_wire() {
        use RecordKind::*;
        for kind in [Hit, Exec, ProcessExit, Process, Goroutine] {
            let mut bytes = Vec::new();
            let record = Record { kind, ..sample(b"") };
            record.write(&mut bytes);
            assert_eq!(Record::parse(&bytes), Ok(record));
        }
    }

    #[test]
    fn a_stamp_changes_time_and_losses_alone() {
        let mut bytes = Vec::new();
        sample(b"payload!").write(&mut bytes);
        assert_eq!(stamp(&mut bytes, 100, 8), 9);
        assert_eq!(Record::parse(&bytes), Ok(Record { ts_ns: 100, ..sample(b"payload!") }));
        // Not backwards, and over the end of the numbers.
        assert_eq!(stamp(&mut bytes, 101, 10), 10);
        assert_eq!(stamp(&mut bytes, 101, u32::MAX), 10);
        let expected = Record { ts_ns: 101, lost: 10, ..sample(b"payload!") };
        assert_eq!(Record::parse(&bytes), Ok(expected));
        assert_eq!(stamp(&mut bytes[..HEADER_SIZE - 1], 102, 11), 11);
    }

    #[test]
    fn every_truncation_is_an_error() {
        let mut bytes = Vec::new();
        sample(b"payload!").write(&mut bytes);
        for len in 0..bytes.len() {
            assert!(Record::parse(&bytes[..len]).is_err(), "length {len}");
        }
    }

    #[test]
    fn unknown_kinds_and_long_payloads_are_refused() {
        let mut bytes = Vec::new();
        sample(b"").write(&mut bytes);
        bytes[60] = 77;
        assert_eq!(Record::parse(&bytes), Err(RecordError::Kind(77)));
        bytes[62..64].copy_from_slice(&0xffffu16.to_le_bytes());
        assert_eq!(Record::parse(&bytes), Err(RecordError::Payload(0xffff)));
    }
}
