//! What the program's own headers say, as the kernel has put them into memory.

use handover::Span;

/// `Elf64_Phdr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Header {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    file_size: u64,
    memory_size: u64,
    align: u64,
}

const LOAD: u32 = 1;
const NOTE: u32 = 4;
const HEADERS: u32 = 6;
const EXECUTE: u32 = 1;
const WRITE: u32 = 2;
const READ: u32 = 4;

/// Bytes of an ELF header, behind which a linker puts the program headers.
const ELF_HEADER: u64 = 64;

/// Program headers at the most.
pub(crate) const MAX_HEADERS: u64 = 128;

/// Bytes of notes that are looked at.
const MAX_NOTES: u64 = 1 << 12;

/// `cmd/link/internal/ld/elf.go`: the name and the type of Go's build id.
const NOTE_NAME: [u8; 4] = *b"Go\0\0";
const NOTE_BUILD_ID: u32 = 4;

/// `debug/buildinfo`: what stands at a multiple of 16 in the first 64 KiB of the data of every Go
/// program, also of those that were linked with `-buildid=`.
const BUILD_INFO: [u8; 14] = *b"\xff Go buildinf:";
const MAX_DATA: u64 = 1 << 16;

/// Where a Go program lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// What to add to stated addresses.
    pub bias: u64,
    /// Its code: the file's bytes of the largest executable segment.
    pub text: Span,
    /// Their place in the file.
    pub text_offset: u64,
}

impl Program {
    /// Looks at the headers at `at`; `None` for a program that is none of Go's.
    ///
    /// # Safety
    /// `at` and `count` are the kernel's `AT_PHDR` and `AT_PHNUM` of this process, whose segments are
    /// mapped as they say.
    pub(crate) unsafe fn look(at: u64, count: u64) -> Option<Self> {
        if at == 0 || !at.is_multiple_of(8) || !(1..=MAX_HEADERS).contains(&count) {
            return None;
        }
        // SAFETY: as the caller says; nobody writes there.
        let headers = unsafe { core::slice::from_raw_parts(at as *const Header, count as usize) };
        let bias = bias(headers, at)?;
        // SAFETY: only bytes of readable segments are asked for.
        let read = |span: Span| unsafe {
            core::slice::from_raw_parts(span.start as *const u8, span.len as usize)
        };
        if !is_go(headers, bias, &read) {
            return None;
        }
        let code = headers.iter().filter(|h| h.kind == LOAD && h.flags & EXECUTE != 0);
        let code = code.max_by_key(|header| header.file_size)?;
        let text = Span { start: code.address.wrapping_add(bias), len: code.file_size };
        Some(Self { bias, text, text_offset: code.offset })
    }
}

/// How far from the stated addresses the image lies, whose headers are at `at`.
fn bias(headers: &[Header], at: u64) -> Option<u64> {
    if let Some(own) = headers.iter().find(|header| header.kind == HEADERS) {
        return Some(at.wrapping_sub(own.address));
    }
    // They lie in the segment that begins with the file.
    let first = headers.iter().find(|header| header.kind == LOAD && header.offset == 0)?;
    (first.file_size > ELF_HEADER).then(|| at.wrapping_sub(ELF_HEADER).wrapping_sub(first.address))
}

/// Whether Go's linker has made it.
fn is_go<'a>(headers: &[Header], bias: u64, read: &dyn Fn(Span) -> &'a [u8]) -> bool {
    // What a header states, as far as a readable segment of the file holds it.
    let bytes = |header: &Header, most: u64| {
        let len = header.file_size.min(most);
        let is_inside = |load: &Header| {
            let span = Span { start: load.address, len: load.file_size };
            load.kind == LOAD && load.flags & READ != 0 && span.holds(header.address, len)
        };
        let span = Span { start: header.address.wrapping_add(bias), len };
        if headers.iter().any(is_inside) { read(span) } else { &[] }
    };
    let mut notes = headers.iter().filter(|header| header.kind == NOTE);
    if notes.any(|header| has_build_id(bytes(header, MAX_NOTES), header.align)) {
        return true;
    }
    let data = headers.iter().filter(|header| header.kind == LOAD && header.flags & WRITE != 0);
    data.take(2).any(|header| {
        // Of the file and of memory the same distance from a multiple of 16.
        let skip = header.address.wrapping_neg() & 15;
        let places = bytes(header, MAX_DATA).get(skip as usize..).unwrap_or_default().chunks(16);
        places.into_iter().any(|place| place.starts_with(&BUILD_INFO))
    })
}

fn has_build_id(mut notes: &[u8], align: u64) -> bool {
    let align = if align == 8 { 8 } else { 4 };
    loop {
        let word = |at: usize| {
            let chunk = notes.get(at..).and_then(<[u8]>::first_chunk::<4>);
            chunk.map(|chunk| u32::from_le_bytes(*chunk))
        };
        let (Some(name), Some(data), Some(kind)) = (word(0), word(4), word(8)) else {
            return false;
        };
        let (name, data) = (name as usize, data as usize);
        let is_gos = name == NOTE_NAME.len() && kind == NOTE_BUILD_ID;
        if is_gos && notes.get(12..16) == Some(&NOTE_NAME) {
            return true;
        }
        let end = (12 + name).next_multiple_of(align).saturating_add(data);
        let Some(rest) = end.checked_next_multiple_of(align).and_then(|end| notes.get(end..))
        else {
            return false;
        };
        notes = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image of one page: ELF header, program headers, and what the test puts behind them.
    #[repr(C, align(4096))]
    struct Image {
        bytes: [u8; 4096],
    }

    const NOTES: u64 = 0x400;
    const DATA: u64 = 0x801;

    /// Headers of a program that is stated to lie at 0x40_0000.
    fn headers(with_own: bool) -> Vec<Header> {
        let header = |kind, flags, offset, file_size| Header {
            kind,
            flags,
            offset,
            address: 0x40_0000 + offset,
            file_size,
            align: 4,
            ..Header::default()
        };
        let own = with_own.then(|| header(HEADERS, READ, 64, 56 * 6));
        let others = [
            header(NOTE, READ, NOTES, 64),
            header(LOAD, READ, 0, 4096),
            header(LOAD, READ | EXECUTE, 0x700, 16),
            header(LOAD, READ | EXECUTE, 0x720, 0x60),
            header(LOAD, READ | WRITE, DATA, 0x200),
        ];
        own.into_iter().chain(others).collect()
    }

    fn look(headers: &[Header], content: &[(u64, &[u8])]) -> Option<(Program, u64)> {
        let mut image = Box::new(Image { bytes: [0; 4096] });
        for (index, header) in headers.iter().enumerate() {
            let words = [
                u64::from(header.kind) | u64::from(header.flags) << 32,
                header.offset,
                header.address,
                0,
                header.file_size,
                0,
                header.align,
            ];
            for (word, value) in words.into_iter().enumerate() {
                let at = 64 + index * 56 + word * 8;
                image.bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
        }
        for (at, bytes) in content {
            let at = *at as usize;
            image.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        }
        let start = image.bytes.as_ptr() as u64;
        // SAFETY: the headers state ranges of this image only.
        unsafe { Program::look(start + 64, headers.len() as u64) }.map(|program| (program, start))
    }

    const GO_NOTE: &[u8] = b"\x04\0\0\0\x03\0\0\0\x04\0\0\0Go\0\0abc\0";
    const GNU_NOTE: &[u8] = b"\x04\0\0\0\x04\0\0\0\x03\0\0\0GNU\0\x01\x02\x03\x04";

    #[test]
    fn a_build_id_of_gos_tells_it() {
        for with_own in [true, false] {
            let both = [GNU_NOTE, GO_NOTE].concat();
            let (program, start) = look(&headers(with_own), &[(NOTES, &both)]).unwrap();
            let text = Span { start: start + 0x720, len: 0x60 };
            let bias = start.wrapping_sub(0x40_0000);
            assert_eq!(program, Program { bias, text, text_offset: 0x720 });
        }
    }

    #[test]
    fn its_build_information_tells_it_without_a_build_id() {
        assert!(look(&headers(true), &[(0x900, &BUILD_INFO)]).is_some());
        // Not at a multiple of 16, and outside the data.
        assert!(look(&headers(true), &[(0x908, &BUILD_INFO)]).is_none());
        assert!(look(&headers(true), &[(0xb00, &BUILD_INFO)]).is_none());
    }

    #[test]
    fn other_programs_are_none() {
        assert_eq!(look(&headers(true), &[(NOTES, GNU_NOTE)]), None);
        assert_eq!(look(&headers(true), &[(NOTES, &[0xff; 64])]), None);
        assert_eq!(look(&headers(true), &[]), None);
        let mut outside = headers(true);
        outside[1].address = 0x7f00_0000_0000;
        assert_eq!(look(&outside, &[(NOTES, GO_NOTE)]), None);
        // SAFETY: nothing is looked at.
        let none =
            unsafe { [Program::look(0, 3), Program::look(64, 0), Program::look(64, 1 << 20)] };
        assert_eq!(none, [None; 3]);
    }
}
