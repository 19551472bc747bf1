//! Checked reads from untrusted bytes.

/// The little-endian `u32` at `offset`.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let end = offset.checked_add(4)?;
    Some(u32::from_le_bytes(bytes.get(offset..end)?.try_into().ok()?))
}

/// The little-endian `u64` at `offset`.
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let end = offset.checked_add(8)?;
    Some(u64::from_le_bytes(bytes.get(offset..end)?.try_into().ok()?))
}

/// An unsigned LEB128 number of at most 64 bits and the bytes after it.
pub(crate) fn uvarint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    for (index, &byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f).checked_shl(7 * index as u32)?;
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(index + 1..)?));
        }
    }
    None
}

/// The NUL-terminated string at `offset`, without its NUL.
pub(crate) fn c_string(bytes: &[u8], offset: usize) -> Option<&[u8]> {
    let rest = bytes.get(offset..)?;
    let end = rest.iter().position(|&byte| byte == 0)?;
    rest.get(..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uvarints_end_and_do_not_overflow() {
        assert_eq!(uvarint(&[0x05, 9]), Some((5, &[9][..])));
        assert_eq!(uvarint(&[0xac, 0x02]), Some((300, &[][..])));
        assert_eq!(uvarint(&[0x80]), None);
        assert_eq!(uvarint(&[0xff; 32]), None);
    }

    #[test]
    fn strings_need_their_terminator() {
        assert_eq!(c_string(b"ab\0c", 0), Some(&b"ab"[..]));
        assert_eq!(c_string(b"ab\0c", 3), None);
        assert_eq!(c_string(b"ab", 9), None);
    }
}
