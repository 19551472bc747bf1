//! Packets as bytes: nothing is read or written outside them.

use crate::{MAX_PACKET, VERSION};

/// Bytes before a packet's body.
pub const HEADER: usize = 16;

const MAGIC: u32 = u32::from_le_bytes(*b"gosp");

/// Takes a packet apart, front to back.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    /// The kind and the body of `packet`, when that is one of ours and whole.
    pub fn open(packet: &'a [u8]) -> Option<(u16, Self)> {
        let mut reader = Self { left: packet };
        let (magic, version) = (reader.u32()?, reader.u16()?);
        let (kind, length, zero) = (reader.u16()?, reader.u32()?, reader.u32()?);
        let is_ours = magic == MAGIC && version == VERSION && zero == 0;
        let is_whole = usize::try_from(length).ok()? == packet.len() && packet.len() <= MAX_PACKET;
        (is_ours && is_whole).then_some((kind, reader))
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.left.split_first_chunk::<N>()?;
        self.left = rest;
        Some(*first)
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    /// The next four.
    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    /// The next eight.
    pub fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// What is left.
    pub fn rest(self) -> &'a [u8] {
        self.left
    }

    /// `Some` when nothing is left.
    pub fn end(self) -> Option<()> {
        self.left.is_empty().then_some(())
    }
}

/// Puts a packet together in a buffer that somebody else has.
#[derive(Debug)]
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    at: usize,
    is_full: bool,
}

impl<'a> Writer<'a> {
    /// Begins a packet of this kind.
    pub fn new(buffer: &'a mut [u8], kind: u16) -> Self {
        let mut writer = Self { buffer, at: 0, is_full: false };
        writer.u32(MAGIC);
        writer.u16(VERSION);
        writer.u16(kind);
        writer.u64(0);
        writer
    }

    fn put(&mut self, bytes: &[u8]) {
        let end = self.at.wrapping_add(bytes.len());
        match self.buffer.get_mut(self.at..end) {
            Some(place) => {
                place.copy_from_slice(bytes);
                self.at = end;
            }
            None => self.is_full = true,
        }
    }

    /// Two bytes.
    pub fn u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }

    /// Four.
    pub fn u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    /// Eight.
    pub fn u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }

    /// The packet's length; `None` when the buffer or a packet has no room for it.
    pub fn finish(self) -> Option<usize> {
        if self.is_full || self.at > MAX_PACKET {
            return None;
        }
        let length = u32::try_from(self.at).ok()?;
        self.buffer.get_mut(8..12)?.copy_from_slice(&length.to_le_bytes());
        Some(self.at)
    }
}
