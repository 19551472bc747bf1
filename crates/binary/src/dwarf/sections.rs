//! The debug sections, loaded when first needed.

use crate::{Error, Image, Section};
use gimli::{EndianSlice, LittleEndian, SectionId};
use object::elf;
use std::io::Read as _;
use std::sync::OnceLock;

/// A view of a section's bytes.
pub(super) type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Compressed bytes read to inflate a unit header.
const PREFIX: u64 = 4096;

/// Size of a compression header (`Elf64_Chdr`) in bytes.
const COMPRESSION_HEADER: usize = 24;

/// Sections by the id gimli has for them. Each is read, and inflated, once.
#[derive(Debug)]
pub(super) struct Sections {
    image: Image,
    info: Lazy,
    abbrev: Lazy,
    addr: Lazy,
    strings: Lazy,
    line_strings: Lazy,
    ranges: Lazy,
    range_lists: Lazy,
    locations: Lazy,
    location_lists: Lazy,
}

/// The bytes, or why there are none; the message stays for later calls.
type Lazy = OnceLock<Result<Vec<u8>, String>>;

impl Sections {
    pub(super) fn new(image: Image) -> Self {
        Self {
            image,
            info: Lazy::new(),
            abbrev: Lazy::new(),
            addr: Lazy::new(),
            strings: Lazy::new(),
            line_strings: Lazy::new(),
            ranges: Lazy::new(),
            range_lists: Lazy::new(),
            locations: Lazy::new(),
            location_lists: Lazy::new(),
        }
    }

    /// All that types and signatures need; location lists only when `locations` is set.
    pub(super) fn dwarf(&self, locations: bool) -> Result<gimli::Dwarf<Slice<'_>>, Error> {
        gimli::Dwarf::load(|id| {
            let cell = match id {
                SectionId::DebugInfo => &self.info,
                SectionId::DebugAbbrev => &self.abbrev,
                SectionId::DebugAddr => &self.addr,
                SectionId::DebugStr => &self.strings,
                SectionId::DebugLineStr => &self.line_strings,
                SectionId::DebugRanges => &self.ranges,
                SectionId::DebugRngLists => &self.range_lists,
                SectionId::DebugLoc if locations => &self.locations,
                SectionId::DebugLocLists if locations => &self.location_lists,
                _ => return Ok(EndianSlice::new(&[], LittleEndian)),
            };
            let loaded = cell.get_or_init(|| load(&self.image, id.name()));
            match loaded {
                Ok(bytes) => Ok(EndianSlice::new(bytes, LittleEndian)),
                Err(message) => Err(Error::corrupt("debug info", message.clone())),
            }
        })
    }
}

fn load(image: &Image, name: &str) -> Result<Vec<u8>, String> {
    match image.section(name) {
        Some(section) => image.section_data(section).map_err(|error| error.to_string()),
        None => Ok(Vec::new()),
    }
}

/// The first bytes of a section, at most `len`, without reading or inflating the rest.
pub(super) fn prefix(image: &Image, section: &Section, len: usize) -> Result<Vec<u8>, Error> {
    let mut raw = vec![0; usize::try_from(section.size.min(PREFIX)).unwrap_or(0)];
    let what = "debug section";
    image
        .source()
        .read_exact_at(section.offset.0, &mut raw)
        .map_err(|source| Error::Io { what, source })?;
    if section.flags & u64::from(elf::SHF_COMPRESSED) == 0 {
        raw.truncate(len);
        return Ok(raw);
    }
    let stream = raw.get(COMPRESSION_HEADER..).unwrap_or_default();
    let mut bytes = vec![0; len];
    let mut decoder = flate2::read::ZlibDecoder::new(stream);
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match decoder.read(rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) => return Err(Error::corrupt(what, error.to_string())),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}
