//! Build ids from ELF notes.

use crate::bytes::u32_at;
use crate::image::Image;
use object::elf;

/// Notes larger than this are not build ids.
const MAX_NOTES: u64 = 1 << 16;

/// `ELF_NOTE_GOBUILDID_TAG` of `cmd/internal/buildid/note.go`.
const GO_BUILD_ID: u32 = 4;

/// The Go build id, else the GNU one in hex.
pub(crate) fn build_id(image: &Image) -> Option<String> {
    let mut gnu = None;
    for bytes in note_areas(image) {
        let mut rest = &bytes[..];
        while let Some((note, next)) = split_note(rest) {
            match (note.name, note.kind) {
                (b"Go\0\0", GO_BUILD_ID) if !note.body.is_empty() => {
                    return Some(String::from_utf8_lossy(note.body).into_owned());
                }
                (b"GNU\0", elf::NT_GNU_BUILD_ID) if gnu.is_none() => {
                    gnu = Some(note.body.iter().map(|byte| format!("{byte:02x}")).collect());
                }
                _ => {}
            }
            rest = next;
        }
    }
    gnu
}

/// The contents of the note segments, or of the note sections where there is no segment.
fn note_areas(image: &Image) -> Vec<Vec<u8>> {
    let read = |offset: u64, size: u64| {
        let mut bytes = vec![0; size.min(MAX_NOTES).min(image.source().size()) as usize];
        image.source().read_exact_at(offset, &mut bytes).ok().map(|()| bytes)
    };
    let segments = image.segments().iter().filter(|segment| segment.kind == elf::PT_NOTE);
    let areas: Vec<_> =
        segments.filter_map(|segment| read(segment.offset.0, segment.file_size)).collect();
    if !areas.is_empty() {
        return areas;
    }
    let sections = image.sections().iter().filter(|section| section.kind == elf::SHT_NOTE);
    sections.filter_map(|section| read(section.offset.0, section.size)).collect()
}

struct Note<'a> {
    name: &'a [u8],
    kind: u32,
    body: &'a [u8],
}

/// The first note and what follows it.
fn split_note(bytes: &[u8]) -> Option<(Note<'_>, &[u8])> {
    let name_size = u32_at(bytes, 0)? as usize;
    let body_size = u32_at(bytes, 4)? as usize;
    let kind = u32_at(bytes, 8)?;
    let name = bytes.get(12..12usize.checked_add(name_size)?)?;
    let body_start = 12 + name_size.checked_next_multiple_of(4)?;
    let body_end = body_start.checked_add(body_size)?;
    let body = bytes.get(body_start..body_end)?;
    // The last note need not be padded.
    let next = bytes.get(body_end.checked_next_multiple_of(4)?..).unwrap_or_default();
    Some((Note { name, kind, body }, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_split_from_the_next() {
        let mut bytes = vec![4, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0];
        bytes.extend_from_slice(b"Go\0\0abc\0rest");
        let (note, rest) = split_note(&bytes).unwrap();
        assert_eq!((note.name, note.kind, note.body), (&b"Go\0\0"[..], 4, &b"abc"[..]));
        assert_eq!(rest, b"rest");
        assert!(split_note(&bytes[..13]).is_none());
    }
}
