//! Payloads as they lie in the rings, and how they become what `wire` defines.
//!
//! A fetch program that reads no memory which could fault emits fields of known widths: only their
//! data lie in the ring, one behind the other. Other payloads lie there as on the wire.

use crate::layout::UNIT;
use wire::{FIELD_HEADER, FieldStatus};

/// Fields of a packed payload at the most.
pub const MAX_PACKED: usize = 64;

/// Bytes of a packed payload's predecessor on a system stack: the address of the system g.
const STACK: usize = 8;

/// Stands behind the last field of a payload that does not always have the same number of them; the
/// first byte is no status of a field.
pub const END: u64 = 0xff;

/// Which fields a packed payload has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Two bits for each field: the logarithm of its width.
    widths: u128,
    /// One bit for each field: it could not be read, and has no data.
    unread: u64,
    count: u8,
}

impl Packed {
    /// From the widths of the fields (1, 2, 4 or 8 bytes; `None` for one that is not read), of
    /// which there are [`MAX_PACKED`] at the most.
    pub fn new(fields: impl IntoIterator<Item = Option<u8>>) -> Self {
        let mut packed = Self::default();
        for (index, width) in fields.into_iter().take(MAX_PACKED).enumerate() {
            packed.count += 1;
            match width {
                Some(width) => {
                    packed.widths |= u128::from(width.trailing_zeros() & 3) << (2 * index);
                }
                None => packed.unread |= 1 << index,
            }
        }
        packed
    }

    /// The widths.
    fn fields(self) -> impl Iterator<Item = Option<usize>> {
        (0..usize::from(self.count)).map(move |index| {
            let is_read = self.unread >> index & 1 == 0;
            is_read.then(|| 1 << (self.widths >> (2 * index) & 3))
        })
    }

    /// Bytes in the ring.
    pub fn len(self) -> usize {
        self.fields().flatten().sum()
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    fn unpack(self, data: &[u8], out: &mut Vec<u8>) {
        let mut at = 0;
        for field in self.fields() {
            let status = if field.is_some() { FieldStatus::Ok } else { FieldStatus::Unread };
            let width = field.unwrap_or(0);
            out.extend_from_slice(&[status as u8, 0, width as u8, 0, width as u8, 0, 0, 0]);
            if width > 0 {
                let mut word = [0; 8];
                if let (Some(place), Some(data)) = (word.get_mut(..width), data.get(at..at + width))
                {
                    place.copy_from_slice(data);
                }
                out.extend_from_slice(&word);
                at += width;
            }
        }
    }
}

/// What the payload of a site's records looks like in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Data alone.
    Packed(Packed),
    /// As on the wire; the length varies with what the fields hold.
    Wire {
        /// Bytes before it, in which the code kept what it needed.
        before: u16,
        /// Bytes at the most.
        most: u16,
        /// How many fields; `None` where that varies: behind the last one lies [`END`].
        fields: Option<u16>,
    },
}

impl Default for Payload {
    fn default() -> Self {
        Self::Packed(Packed::default())
    }
}

impl Payload {
    /// Bytes in the ring at the most.
    pub fn size(&self) -> usize {
        match self {
            Self::Packed(packed) => packed.len(),
            Self::Wire { most, .. } => usize::from(*most),
        }
    }

    /// Where it begins in a record.
    pub fn offset(&self, on_system_stack: bool) -> usize {
        match (on_system_stack, self) {
            (false, Self::Packed(_)) => UNIT,
            (true, Self::Packed(_)) => UNIT + STACK,
            (false, Self::Wire { before, .. }) => UNIT + usize::from(*before),
            (true, Self::Wire { before, .. }) => 2 * UNIT + usize::from(*before),
        }
    }

    /// Appends the payload as `wire` defines it. `data` begins where it begins in the ring. Never
    /// gives more than a whole payload, whatever the target wrote there.
    pub fn unpack(&self, data: &[u8], out: &mut Vec<u8>) {
        match *self {
            Self::Packed(packed) => packed.unpack(data, out),
            Self::Wire { most, fields, .. } => {
                let data = data.get(..usize::from(most)).unwrap_or(data);
                out.extend_from_slice(data.get(..whole_fields(data, fields)).unwrap_or_default());
            }
        }
    }
}

/// Bytes of the first `fields` fields in `data`, or of those before [`END`], as far as they lie
/// in it.
fn whole_fields(data: &[u8], fields: Option<u16>) -> usize {
    let mut len = 0;
    for _ in 0..fields.map_or(usize::MAX, usize::from) {
        let Some(header) = data.get(len..len + FIELD_HEADER) else { break };
        if fields.is_none() && header[0] == END as u8 {
            break;
        }
        let bytes = u16::from_le_bytes([header[2], header[3]]);
        let next = len + FIELD_HEADER + usize::from(bytes).next_multiple_of(8);
        if next > data.len() {
            break;
        }
        len = next;
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Field, Fields};

    #[test]
    fn packed_fields_get_their_headers_back() {
        let packed = Packed::new([Some(8), Some(1), None, Some(4), Some(2)]);
        assert_eq!(packed.len(), 15);
        let data: Vec<u8> = (1..=20).collect();
        let mut out = Vec::new();
        Payload::Packed(packed).unpack(&data, &mut out);
        let fields: Vec<_> = Fields::new(&out).map(|field| (field.status, field.data)).collect();
        assert_eq!(
            fields,
            [
                (FieldStatus::Ok, &data[..8]),
                (FieldStatus::Ok, &data[8..9]),
                (FieldStatus::Unread, &[][..]),
                (FieldStatus::Ok, &data[9..13]),
                (FieldStatus::Ok, &data[13..15]),
            ]
        );
        assert_eq!(out.len(), 4 * 16 + 8);
    }

    #[test]
    fn as_many_fields_as_a_program_has_fit() {
        let packed = Packed::new(vec![Some(8); MAX_PACKED]);
        assert_eq!(packed.len(), 8 * MAX_PACKED);
        let mut out = Vec::new();
        Payload::Packed(packed).unpack(&[], &mut out);
        let is_zero = |field: Field<'_>| field.as_u64() == Some(0);
        assert_eq!(Fields::new(&out).filter(|field| is_zero(*field)).count(), MAX_PACKED);
    }

    #[test]
    fn what_the_target_writes_gives_no_more_than_a_payload() {
        let payload = Payload::Wire { before: 0, most: 32, fields: Some(2) };
        let mut out = Vec::new();
        payload.unpack(&[0xff; 64], &mut out);
        assert!(out.is_empty());
        let mut data = [0; 64];
        data[2] = 8;
        data[18] = 200;
        payload.unpack(&data, &mut out);
        assert_eq!(out, data[..16]);
    }
}
