//! Build ids from ELF notes.

use crate::bytes::u32_at;
use crate::image::Image;
use object::elf;

/// Notes larger than this are not build ids.
const MAX_NOTES: u64 = 1 << 16;

/// `ELF_NOTE_GOBUILDID_TAG` of `cmd/internal/buildid/note.go`.
const GO_BUILD_ID: u32 = 4;

/// What names the build of an image; a separate debug file carries the same ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildIds {
    /// The Go linker's, as `go tool buildid` prints it.
    pub go: Option<String>,
    /// The GNU one in hex: of externally linked programs, and of all from Go 1.24 on.
    pub gnu: Option<String>,
}

impl BuildIds {
    /// Reads the notes of an image.
    pub fn read(image: &Image) -> Self {
        let mut ids = Self::default();
        for bytes in note_areas(image) {
            let mut rest = &bytes[..];
            while let Some((note, next)) = split_note(rest) {
                match (note.name, note.kind) {
                    (b"Go\0\0", GO_BUILD_ID) if !note.body.is_empty() && ids.go.is_none() => {
                        ids.go = Some(String::from_utf8_lossy(note.body).into_owned());
                    }
                    (b"GNU\0", elf::NT_GNU_BUILD_ID) if ids.gnu.is_none() => {
                        let hex = note.body.iter().map(|byte| format!("{byte:02x}")).collect();
                        ids.gnu = Some(hex);
                    }
                    _ => {}
                }
                rest = next;
            }
        }
        ids
    }
}

/// The Go build id, else the GNU one in hex.
pub(crate) fn build_id(image: &Image) -> Option<String> {
    let ids = BuildIds::read(image);
    ids.go.or(ids.gnu)
}

/// The contents of the note sections, then of the note segments: a file may have no section
/// headers, Go's own linker puts only its own note into a segment, and the segments of a
/// separate debug file point nowhere.
fn note_areas(image: &Image) -> impl Iterator<Item = Vec<u8>> + '_ {
    let sections = image.sections().iter().filter(|section| section.kind == elf::SHT_NOTE);
    let sections = sections.map(|section| (section.offset.0, section.size));
    let segments = image.segments().iter().filter(|segment| segment.kind == elf::PT_NOTE);
    let segments = segments.map(|segment| (segment.offset.0, segment.file_size));
    sections.chain(segments).filter_map(|(offset, size)| {
        let mut bytes = vec![0; size.min(MAX_NOTES).min(image.source().size()) as usize];
        image.source().read_exact_at(offset, &mut bytes).ok().map(|()| bytes)
    })
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
