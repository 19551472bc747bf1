//! `runtime.moduledata`: where the parts of a Go module lie.

use crate::Error;
use crate::bytes::u64_at;
use crate::image::Image;
use crate::pclntab::{Format, Header};
use crate::relocation::Words;
use crate::scan::{self, Order};
use address::Svma;

/// Offsets that no version changed, in bytes (`runtime/symtab.go`).
mod field {
    pub const PCLNTABLE: usize = 104;
    pub const PCLNTABLE_LEN: usize = 112;
    pub const FTAB_LEN: usize = 136;
    pub const MIN_PC: usize = 160;
    pub const MAX_PC: usize = 168;
    pub const TEXT: usize = 176;
    pub const ETEXT: usize = 184;
    pub const NOPTRDATA: usize = 192;
    pub const DATA: usize = 208;
    pub const BSS: usize = 224;
    pub const NOPTRBSS: usize = 240;
}

/// The fields of the first module's `runtime.moduledata` that matter here, as stated
/// addresses. (Further modules exist only with plugins, which are refused.)
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleData {
    /// Where the structure itself lies.
    pub address: Svma,
    /// `pcHeader`: start of the pclntab.
    pub pc_header: Svma,
    /// End of the pclntab.
    pub pclntab_end: Svma,
    /// Lowest function address.
    pub min_pc: Svma,
    /// End of the last function.
    pub max_pc: Svma,
    /// Start of Go text: what `_func.entryOff` counts from. Not `.text`'s address with cgo.
    pub text: Svma,
    /// End of Go text.
    pub etext: Svma,
    /// Start of the type data.
    pub types: Svma,
    /// End of the type data.
    pub etypes: Svma,
    /// Start of read-only data.
    pub rodata: Svma,
    /// What funcdata offsets count from.
    pub gofunc: Svma,
    /// `noptrdata` start and end.
    pub noptrdata: (Svma, Svma),
    /// `data` start and end.
    pub data: (Svma, Svma),
    /// `bss` start and end.
    pub bss: (Svma, Svma),
    /// `noptrbss` start and end.
    pub noptrbss: (Svma, Svma),
    /// Offsets of type descriptors from `types` (address, count of i32); up to Go 1.26.
    pub typelinks: Option<(Svma, u64)>,
    /// Pointers to itabs (address, count); up to Go 1.26.
    pub itablinks: Option<(Svma, u64)>,
    /// Bytes of contiguous type descriptors at `types`; from Go 1.27.
    pub typedesc_len: Option<u64>,
    /// Contiguous itabs (start, bytes); from Go 1.27.
    pub itabs: Option<(Svma, u64)>,
    /// Whether the module holds `main.main`: not in a C library or a plugin.
    pub has_main: bool,
}

impl ModuleData {
    /// Finds the structure and reads it by the first of the formats that fits the file.
    pub(crate) fn read(
        image: &Image,
        words: &Words,
        header: &Header,
        minor: Option<u32>,
    ) -> Result<(Self, &'static Format), Error> {
        let formats = Format::candidates(minor, header.magic);
        if formats.is_empty() {
            return Err(Error::UnsupportedKind(match minor {
                Some(minor) => {
                    format!("Go 1.{minor} is not supported; Go 1.19 and Go 1.21 to 1.27 are")
                }
                None => "unknown Go version".into(),
            }));
        }
        let address = locate(image, words, header)
            .ok_or_else(|| Error::Missing("moduledata that refers to its pclntab".into()))?;
        let mut failure = None;
        for format in formats {
            match Self::read_as(image, words, header, address, format) {
                Ok(module) => return Ok((module, format)),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or_else(|| Error::Missing("moduledata".into())))
    }

    fn read_as(
        image: &Image,
        words: &Words,
        header: &Header,
        address: Svma,
        format: &Format,
    ) -> Result<Self, Error> {
        let layout = &format.module;
        let raw = image.read_vec(address, layout.size as u64)?;
        let word = |offset: usize| {
            let raw = u64_at(&raw, offset).unwrap_or_default();
            words.resolve(address.add(offset as u64), raw)
        };
        let at = |offset: usize| Svma(word(offset));
        let span = |offset: usize| (at(offset), at(offset + 8));
        let slice = |offset: Option<usize>| offset.map(|offset| (at(offset), word(offset + 8)));
        let table_end = at(field::PCLNTABLE).add(word(field::PCLNTABLE_LEN));
        let types = at(layout.types);
        let module = Self {
            address,
            pc_header: at(0),
            pclntab_end: layout.epclntab.map_or(table_end, at),
            min_pc: at(field::MIN_PC),
            max_pc: at(field::MAX_PC),
            text: at(field::TEXT),
            etext: at(field::ETEXT),
            types,
            etypes: at(layout.etypes),
            rodata: at(layout.rodata),
            gofunc: at(layout.gofunc),
            noptrdata: span(field::NOPTRDATA),
            data: span(field::DATA),
            bss: span(field::BSS),
            noptrbss: span(field::NOPTRBSS),
            typelinks: slice(layout.typelinks),
            itablinks: slice(layout.itablinks),
            typedesc_len: layout.typedesclen.map(word),
            itabs: layout
                .itaboffset
                .zip(layout.itabsize)
                .map(|(offset, size)| (types.add(word(offset)), word(size))),
            has_main: raw.get(layout.hasmain) == Some(&1),
        };
        module.check(image, header, raw.get(layout.hasmain).copied())?;
        for offset in [layout.typelinks, layout.itablinks].into_iter().flatten() {
            // The linker makes slices without spare capacity.
            if word(offset + 8) != word(offset + 16) {
                return Err(Error::corrupt("moduledata", "a slice's length is not its capacity"));
            }
        }
        Ok(module)
    }

    /// What a layout of the wrong version would hardly pass.
    fn check(&self, image: &Image, header: &Header, has_main: Option<u8>) -> Result<(), Error> {
        let fail = |what: &str| Err(Error::corrupt("moduledata", what));
        if self.pc_header != header.address {
            return fail("pcHeader is another");
        }
        let text = image.segments().iter().find(|segment| segment.backs(self.text));
        let text_room = text
            .and_then(|segment| segment.file_size.checked_sub(self.text.since(segment.address)?));
        if text_room < self.etext.since(self.text) || self.etext < self.text {
            return fail("text is not in the file");
        }
        if !image.is_backed(self.types) || self.etypes < self.types {
            return fail("types are not in the file");
        }
        if !image.is_backed(self.gofunc) || !image.is_backed(self.rodata) {
            return fail("gofunc or rodata is not in the file");
        }
        if self.pclntab_end <= self.pc_header {
            return fail("the pclntab has no end");
        }
        if !matches!(has_main, Some(0 | 1)) {
            return fail("hasmain is no bool");
        }
        Ok(())
    }

    /// Whether the file has a moduledata that refers to this pclntab.
    pub(crate) fn is_of(image: &Image, words: &Words, header: &Header) -> bool {
        locate(image, words, header).is_some()
    }

    /// Whether an address lies among the type descriptors.
    pub fn has_type(&self, descriptor: Svma) -> bool {
        self.types <= descriptor && descriptor < self.etypes
    }
}

/// Finds the structure: in its own section (Go 1.26), else by its first word, which is the
/// header's address, and its count of functions.
fn locate(image: &Image, words: &Words, header: &Header) -> Option<Svma> {
    let fits = |address: Svma| {
        let count = image.read_u64(address.add(field::FTAB_LEN as u64)).ok();
        count == header.function_count.checked_add(1)
    };
    if let Some(section) = image.section(".go.module")
        && words.read(section.address).ok() == Some(header.address.0)
        && fits(section.address)
    {
        return Some(section.address);
    }
    let needle = header.address.0.to_le_bytes();
    scan::search(image, Order::WritableFirst, 8, |start, piece| {
        piece
            .chunks_exact(8)
            .zip(0u64..)
            .filter(|(word, _)| *word == needle)
            .map(|(_, index)| start.add(index * 8))
            .find(|&address| fits(address))
    })
    .or_else(|| {
        let mut places = words.places_of(header.address);
        image.is_pie().then(|| places.find(|&address| fits(address))).flatten()
    })
}
