//! `/proc/self/maps`.

use handover::Span;

/// One mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Where.
    pub span: Span,
    /// Whether it can be read and run, not written, and is private: as text is.
    pub is_text: bool,
    /// What its start shows of the file.
    pub offset: u64,
    /// Whether there is a file.
    pub has_file: bool,
}

/// All mappings that the text of the file names; ends at the first line that is none.
pub(crate) fn mappings(text: &[u8]) -> impl Iterator<Item = Mapping> + Clone + '_ {
    text.split(|&byte| byte == b'\n').map_while(mapping)
}

/// `START-END rwxp OFFSET MAJOR:MINOR INODE   PATH`
fn mapping(line: &[u8]) -> Option<Mapping> {
    let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let range = words.next()?;
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let (start, end) = (hex(range.get(..dash)?)?, hex(range.get(dash + 1..)?)?);
    let is_text = words.next()? == b"r-xp";
    let offset = hex(words.next()?)?;
    let has_file = words.nth(1)? != b"0";
    let span = Span { start, len: end.checked_sub(start)? };
    Some(Mapping { span, is_text, offset, has_file })
}

fn hex(digits: &[u8]) -> Option<u64> {
    let mut value = 0u64;
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    for &digit in digits {
        let digit = char::from(digit).to_digit(16)?;
        value = value << 4 | u64::from(digit);
    }
    Some(value)
}

/// Whether all of `text` is mapped as text, from `offset` of its file on.
pub(crate) fn is_whole(mappings: impl Iterator<Item = Mapping>, text: Span, offset: u64) -> bool {
    let Some(end) = text.end() else { return false };
    let mut at = text.start;
    for mapping in mappings.filter(|mapping| mapping.span.meets(text)) {
        let before = at.wrapping_sub(mapping.span.start);
        let wanted = offset.wrapping_add(at.wrapping_sub(text.start));
        let is_it = mapping.span.holds(at, 1) && mapping.offset.wrapping_add(before) == wanted;
        if !is_it || !mapping.is_text || !mapping.has_file {
            return false;
        }
        at = mapping.span.end().unwrap_or(u64::MAX);
    }
    at >= end
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"\
55d4c0a00000-55d4c0b00000 r--p 00000000 08:01 42                         /srv/app\n\
55d4c0b00000-55d4c0c00000 r-xp 00100000 08:01 42                         /srv/app\n\
55d4c0c00000-55d4c0d00000 rw-p 00000000 00:00 0 \n\
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]\n\
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";

    #[test]
    fn lines_are_mappings() {
        let found: Vec<_> = mappings(TEXT).collect();
        assert_eq!(found.len(), 5);
        let text = Span { start: 0x55d4_c0b0_0000, len: 0x10_0000 };
        let expected = Mapping { span: text, is_text: true, offset: 0x10_0000, has_file: true };
        assert_eq!(found[1], expected);
        assert!(!found[2].has_file && !found[2].is_text);
        // Cut off in the middle of a line.
        assert_eq!(mappings(&TEXT[..100]).count(), 1);
        for wrong in [&b"x-y"[..], b"1-2", b"2-1 r-xp 0 08:01 42", b"-- r-xp", b""] {
            assert_eq!(mappings(wrong).count(), 0, "{wrong:?}");
        }
    }

    #[test]
    fn text_has_to_be_the_file_all_through() {
        let text = |start, len| Span { start, len };
        let whole = |span, offset| is_whole(mappings(TEXT), span, offset);
        assert!(whole(text(0x55d4_c0b0_0000, 0x10_0000), 0x10_0000));
        assert!(whole(text(0x55d4_c0b0_0120, 0x1000), 0x10_0120));
        assert!(!whole(text(0x55d4_c0b0_0000, 0x10_0000), 0));
        assert!(!whole(text(0x55d4_c0b0_0000, 0x10_0001), 0x10_0000));
        assert!(!whole(text(0x55d4_c0af_f000, 0x2000), 0xf_f000));
        assert!(!whole(text(0x1000, 0x2000), 0));
        assert!(!whole(text(u64::MAX, 2), 0));
    }
}
