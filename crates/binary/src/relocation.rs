//! Words of a position-independent image as the loader will leave them.
//!
//! Go's own linker and GNU ld write a relative relocation's value into the file too;
//! lld writes zeros, so that the value is in the relocation table only.

use crate::Error;
use crate::bytes::u64_at;
use crate::image::Image;
use address::Svma;
use object::elf;
use std::sync::OnceLock;

/// Size of `Elf64_Rela`.
const RELA_SIZE: u64 = 24;

/// Bytes of the table read at a time: a multiple of [`RELA_SIZE`].
const CHUNK: u64 = RELA_SIZE << 15;

/// Reads words and applies `R_X86_64_RELATIVE` (with bias 0) where the file has zero. The
/// relocation table is read when the first zero of a PIE is met.
#[derive(Debug)]
pub(crate) struct Words {
    image: Image,
    /// (place, value), sorted by place.
    relative: OnceLock<Vec<(u64, u64)>>,
}

impl Words {
    pub(crate) fn new(image: Image) -> Self {
        Self { image, relative: OnceLock::new() }
    }

    /// The word at an address.
    pub(crate) fn read(&self, address: Svma) -> Result<u64, Error> {
        let raw = self.image.read_u64(address)?;
        Ok(self.resolve(address, raw))
    }

    /// The value of the word at `address`, given what the file has there.
    pub(crate) fn resolve(&self, address: Svma, raw: u64) -> u64 {
        if raw != 0 || !self.image.is_pie() {
            return raw;
        }
        let table = self.relative();
        match table.binary_search_by_key(&address.0, |&(place, _)| place) {
            Ok(found) => table.get(found).map_or(0, |&(_, value)| value),
            Err(_) => 0,
        }
    }

    /// All places whose relocated value is `value`.
    pub(crate) fn places_of(&self, value: Svma) -> impl Iterator<Item = Svma> + '_ {
        self.relative()
            .iter()
            .filter(move |&&(_, addend)| addend == value.0)
            .map(|&(place, _)| Svma(place))
    }

    fn relative(&self) -> &[(u64, u64)] {
        self.relative.get_or_init(|| {
            let mut table = read_relative(&self.image).unwrap_or_default();
            table.sort_unstable();
            table
        })
    }
}

/// Finds the relocation table through the dynamic segment, so that stripped section
/// headers do not matter.
fn read_relative(image: &Image) -> Option<Vec<(u64, u64)>> {
    let rela = dynamic_value(image, elf::DT_RELA.into())?;
    let size = dynamic_value(image, elf::DT_RELASZ.into())?.min(image.source().size());
    let mut table = Vec::new();
    let mut at = 0;
    while at < size {
        let piece = image.read_vec(Svma(rela).add(at), (size - at).min(CHUNK)).ok()?;
        for entry in piece.chunks_exact(RELA_SIZE as usize) {
            let (place, info, addend) = (u64_at(entry, 0)?, u64_at(entry, 8)?, u64_at(entry, 16)?);
            if info & 0xffff_ffff == u64::from(elf::R_X86_64_RELATIVE) {
                table.push((place, addend));
            }
        }
        at += CHUNK;
    }
    Some(table)
}

/// The value of the first dynamic entry with that tag.
pub(crate) fn dynamic_value(image: &Image, tag: u64) -> Option<u64> {
    let segment = image.segments().iter().find(|segment| segment.kind == elf::PT_DYNAMIC)?;
    let size = segment.file_size.min(1 << 16).min(image.source().size());
    let mut bytes = vec![0; size as usize];
    image.source().read_exact_at(segment.offset.0, &mut bytes).ok()?;
    bytes
        .chunks_exact(16)
        .map(|entry| (u64_at(entry, 0), u64_at(entry, 8)))
        .take_while(|&(tag, _)| tag != Some(0))
        .find_map(|(found, value)| if found == Some(tag) { value } else { None })
}
