//! The jumps, as they lie in the third descriptor.
//!
//! ```text
//! 0 offset      u32  of the first byte from the start of the text segment
//! 4 original    5 bytes
//! 9 replacement 5 bytes, `jmp rel32` into the code
//! 14 zero       u16
//! ```

use crate::Span;

/// Bytes of a patch in the text.
pub const PATCH_LEN: usize = 5;

/// Bytes of an entry.
pub const PATCH: usize = 16;

/// Entries at the most.
pub const MAX_PATCHES: u32 = 1 << 22;

/// `jmp rel32`.
pub const JUMP: u8 = 0xe9;

const PAGE: u64 = 4096;

/// One place to write, whatever address the image has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// First byte, from the start of the text segment.
    pub offset: u32,
    /// What has to be there.
    pub original: [u8; PATCH_LEN],
    /// What is to be there.
    pub replacement: [u8; PATCH_LEN],
}

/// Why a patch is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchError {
    /// It is no entry.
    Entry,
    /// It lies outside the text, or across a page boundary.
    Place,
    /// It lies before the end of the one before.
    Order,
    /// It is no jump into the code.
    Jump,
}

impl Patch {
    /// The entry's bytes.
    pub fn write(&self) -> [u8; PATCH] {
        let mut bytes = [0; PATCH];
        let (offset, rest) = bytes.split_at_mut(4);
        offset.copy_from_slice(&self.offset.to_le_bytes());
        let (original, rest) = rest.split_at_mut(PATCH_LEN);
        original.copy_from_slice(&self.original);
        rest[..PATCH_LEN].copy_from_slice(&self.replacement);
        bytes
    }

    /// What an entry says.
    pub fn read(entry: &[u8; PATCH]) -> Result<Self, PatchError> {
        let [a, b, c, d, original @ .., _, _, _, _, _, _, _] = *entry;
        let [.., e, f, g, h, i, zero, zero_too] = *entry;
        if (zero, zero_too) != (0, 0) {
            return Err(PatchError::Entry);
        }
        let offset = u32::from_le_bytes([a, b, c, d]);
        Ok(Self { offset, original, replacement: [e, f, g, h, i] })
    }

    /// Its address in a process with this text.
    pub fn address(&self, text: Span) -> u64 {
        text.start.wrapping_add(self.offset.into())
    }

    /// Looks at where it is and where it leads; `after` is the first free offset, to be the
    /// end of the patch before it. Gives its own end.
    pub fn check(&self, text: Span, code: Span, after: u64) -> Result<u64, PatchError> {
        let address = self.address(text);
        let len = PATCH_LEN as u64;
        if !text.holds(address, len) || address % PAGE + len > PAGE {
            return Err(PatchError::Place);
        }
        if u64::from(self.offset) < after {
            return Err(PatchError::Order);
        }
        let [JUMP, a, b, c, d] = self.replacement else { return Err(PatchError::Jump) };
        let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
        let to = address.wrapping_add(len).wrapping_add_signed(distance);
        if !code.holds(to, 1) {
            return Err(PatchError::Jump);
        }
        Ok(u64::from(self.offset) + len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: Span = Span { start: 0x40_1000, len: 0x10_0000 };
    const CODE: Span = Span { start: 0x4000_0000, len: 0x1000 };

    fn to(offset: u32, target: u64) -> Patch {
        let distance = target as i64 - (TEXT.start + u64::from(offset) + 5) as i64;
        let [a, b, c, d] = (distance as i32).to_le_bytes();
        let original = [0x48, 0x89, 0x44, 0x24, 0x08];
        Patch { offset, original, replacement: [JUMP, a, b, c, d] }
    }

    #[test]
    fn an_entry_is_read_as_written() {
        let patch = to(0x1234, CODE.start);
        let entry = patch.write();
        assert_eq!(Patch::read(&entry), Ok(patch));
        assert_eq!(Patch::read(&[0xff; PATCH]), Err(PatchError::Entry));
    }

    #[test]
    fn only_jumps_from_the_text_into_the_code_are_good() {
        let check = |patch: &Patch| patch.check(TEXT, CODE, 0);
        assert_eq!(check(&to(0x10, CODE.start)), Ok(0x15));
        assert_eq!(check(&to(0xffb, CODE.start + 0xfff)), Ok(0x1000));
        assert_eq!(check(&to(0xffc, CODE.start)), Err(PatchError::Place));
        assert_eq!(check(&to(0x10_0000 - 4, CODE.start)), Err(PatchError::Place));
        assert_eq!(check(&to(0x20_0000, CODE.start)), Err(PatchError::Place));
        assert_eq!(check(&to(0x10, CODE.start - 1)), Err(PatchError::Jump));
        assert_eq!(check(&to(0x10, CODE.start + 0x1000)), Err(PatchError::Jump));
        assert_eq!(check(&to(0x10, TEXT.start)), Err(PatchError::Jump));
        let call = Patch { replacement: [0xe8, 0, 0, 0, 0], ..to(0x10, CODE.start) };
        assert_eq!(check(&call), Err(PatchError::Jump));
        assert_eq!(to(0x14, CODE.start).check(TEXT, CODE, 0x15), Err(PatchError::Order));
    }
}
