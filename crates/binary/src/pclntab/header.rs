//! `runtime.pcHeader`, and how to find it.

use super::format::{MAGIC_118, MAGIC_120, OLD_MAGICS};
use crate::bytes::{u32_at, u64_at};
use crate::image::Image;
use crate::scan::{self, Order};
use address::Svma;

/// Bytes of the header that are used.
const SIZE: u64 = 72;

/// The linker aligns the table to at least a word.
const ALIGN: usize = 8;

/// More tables than this are not looked at.
const MAX_CANDIDATES: usize = 16;

/// Names of the section, by Go version and link mode.
const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];

/// The header of a pclntab. Offsets count from the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub address: Svma,
    pub magic: u32,
    pub function_count: u64,
    pub funcname: u64,
    pub cutab: u64,
    pub filetab: u64,
    pub pctab: u64,
    pub pcln: u64,
    /// Bytes from the header to the end of what can be the table.
    pub limit: u64,
}

/// What was found where a pclntab should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Locate {
    Found(Header),
    /// What looks like one; a program that carries another one as data has several.
    Candidates(Vec<Header>),
    /// The table of a Go older than 1.18.
    TooOld,
    /// A section of that name, whose content is not a pclntab: its first word.
    Disguised(u32),
    /// Nothing.
    Absent,
}

impl Header {
    /// Finds the table: by section, by moduledata's own section (Go 1.26), else by its magic.
    pub fn locate(image: &Image) -> Locate {
        let mut disguised = None;
        for section in SECTIONS.iter().filter_map(|name| image.section(name)) {
            let Ok(head) = image.read_vec(section.address, SIZE) else { continue };
            match Self::parse(image, section.address, &head) {
                Ok(Some(header)) => return Locate::Found(header),
                Ok(None) => disguised = u32_at(&head, 0),
                Err(TooOld) => return Locate::TooOld,
            }
        }
        if let Some(header) = Self::from_module_section(image) {
            return Locate::Found(header);
        }
        if let Some(magic) = disguised {
            return Locate::Disguised(magic);
        }
        Self::search(image)
    }

    /// `moduledata.pcHeader`, the first word of `.go.module`.
    fn from_module_section(image: &Image) -> Option<Self> {
        let address = Svma(image.read_u64(image.section(".go.module")?.address).ok()?);
        let head = image.read_vec(address, SIZE).ok()?;
        Self::parse(image, address, &head).ok().flatten()
    }

    fn search(image: &Image) -> Locate {
        let mut found = Vec::new();
        let mut too_old = false;
        scan::search(image, Order::ReadOnlyFirst, SIZE, |start, piece| {
            for at in (0..piece.len()).step_by(ALIGN) {
                let head = piece.get(at..).unwrap_or_default();
                // Every magic ends so: this rules out nearly all words at once.
                if head.get(1..4) != Some(&[0xff, 0xff, 0xff]) {
                    continue;
                }
                match Self::parse(image, start.add(at as u64), head) {
                    Ok(Some(header)) if !found.contains(&header) => found.push(header),
                    Ok(_) => {}
                    Err(TooOld) => too_old = true,
                }
            }
            (found.len() >= MAX_CANDIDATES).then_some(())
        });
        match (found.is_empty(), too_old) {
            (false, _) => Locate::Candidates(found),
            (true, true) => Locate::TooOld,
            (true, false) => Locate::Absent,
        }
    }

    /// The header whose bytes are `head`, if they can be one.
    fn parse(image: &Image, address: Svma, head: &[u8]) -> Result<Option<Self>, TooOld> {
        let Some(magic) = u32_at(head, 0) else { return Ok(None) };
        // pad, pad, minLC (1 on x86-64), ptrSize.
        if head.get(4..8) != Some(&[0, 0, 1, 8]) {
            return Ok(None);
        }
        if OLD_MAGICS.contains(&magic) {
            return Err(TooOld);
        }
        if magic != MAGIC_118 && magic != MAGIC_120 {
            return Ok(None);
        }
        Ok(Self::parse_fields(image, address, head, magic))
    }

    fn parse_fields(image: &Image, address: Svma, head: &[u8], magic: u32) -> Option<Self> {
        let segment = image.segments().iter().find(|segment| segment.backs(address))?;
        let limit = segment.file_size.checked_sub(address.since(segment.address)?)?;
        let header = Self {
            address,
            magic,
            function_count: u64_at(head, 8)?,
            funcname: u64_at(head, 32)?,
            cutab: u64_at(head, 40)?,
            filetab: u64_at(head, 48)?,
            pctab: u64_at(head, 56)?,
            pcln: u64_at(head, 64)?,
            limit: limit.min(image.source().size()),
        };
        let offsets = [
            SIZE,
            header.funcname,
            header.cutab,
            header.filetab,
            header.pctab,
            header.pcln,
            header.limit,
        ];
        // ftab: a pair of u32 for each function and one u32 for the end.
        let ftab = header.function_count.checked_mul(8)?.checked_add(4)?;
        let sound = offsets.is_sorted()
            && header.function_count > 0
            && header.pcln.checked_add(ftab)? <= header.limit;
        sound.then_some(header)
    }
}

/// The magic is that of a Go older than 1.18.
struct TooOld;
