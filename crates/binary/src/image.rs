//! The ELF file: headers, sections, segments, and bytes by file offset or stated address.

use crate::Error;
use address::{FileOffset, ReadAt, Svma};
use object::elf;
use object::pod;
use object::{LittleEndian, read::elf::FileHeader as _};
use std::io::Read as _;
use std::sync::Arc;

/// Headers larger than this are not an executable's.
const MAX_HEADERS: u64 = 65_535;

/// Deflate cannot expand by more than this (RFC 1951 implies about 1032:1).
const MAX_INFLATE_RATIO: u64 = 1040;

/// Bytes that are made room for without asking how long the file is now.
const MAX_UNASKED: u64 = 1 << 16;

/// A section header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Name, lossily decoded.
    pub name: String,
    /// `sh_type`.
    pub kind: u32,
    /// `sh_flags`.
    pub flags: u64,
    /// Address in the image; 0 when not loaded.
    pub address: Svma,
    /// Place in the file.
    pub offset: FileOffset,
    /// Size in bytes (in the file, unless `SHT_NOBITS`).
    pub size: u64,
    /// `sh_link`.
    pub link: u32,
}

impl Section {
    /// Whether the content is in the file.
    pub fn has_data(&self) -> bool {
        self.kind != elf::SHT_NOBITS && self.kind != elf::SHT_NULL
    }
}

/// A program header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// `p_type`.
    pub kind: u32,
    /// `p_flags`.
    pub flags: u32,
    /// Address in the image.
    pub address: Svma,
    /// Place in the file.
    pub offset: FileOffset,
    /// Bytes in the file.
    pub file_size: u64,
    /// Bytes in memory.
    pub memory_size: u64,
    /// Alignment in bytes.
    pub align: u64,
}

impl Segment {
    /// Whether it names the loader that is run before the program.
    pub fn names_loader(&self) -> bool {
        self.kind == elf::PT_INTERP
    }

    /// Whether `address` lies in the part that the file backs.
    pub fn backs(&self, address: Svma) -> bool {
        self.kind == elf::PT_LOAD
            && address.since(self.address).is_some_and(|delta| delta < self.file_size)
    }
}

/// An ELF executable, read on demand.
#[derive(Clone)]
pub struct Image {
    source: Arc<dyn ReadAt>,
    /// `e_type`.
    elf_type: u16,
    /// `e_entry`.
    entry: Svma,
    sections: Arc<[Section]>,
    segments: Arc<[Segment]>,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image").field("sections", &self.sections.len()).finish_non_exhaustive()
    }
}

impl Image {
    /// Reads the headers. Fails on anything that is not 64-bit little-endian x86-64 ELF.
    pub fn open(source: Arc<dyn ReadAt>) -> Result<Self, Error> {
        let head = read_up_to(&*source, 0, 64, "ELF header")?;
        if head.len() < 20 || head[..4] != elf::ELFMAG {
            return Err(Error::NotElf);
        }
        check_machine(&head)?;
        if head.len() < 64 {
            return Err(Error::Truncated { what: "ELF header", offset: 0, size: 64 });
        }
        let header = elf::FileHeader64::<LittleEndian>::parse(&head[..])
            .map_err(|error| Error::corrupt("ELF header", error.to_string()))?;
        let segments = read_segments(&*source, header)?;
        let sections = read_sections(&*source, header)?;
        let endian = LittleEndian;
        Ok(Self {
            elf_type: header.e_type.get(endian),
            entry: Svma(header.e_entry.get(endian)),
            source,
            sections: sections.into(),
            segments: segments.into(),
        })
    }

    /// The bytes the image is read from.
    pub fn source(&self) -> &dyn ReadAt {
        &*self.source
    }

    /// All sections; empty when the section headers were stripped.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The first section of that name.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// All program headers.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// `e_entry`: where the process starts.
    pub fn entry(&self) -> Svma {
        self.entry
    }

    /// Whether the image is position independent (`ET_DYN`).
    pub fn is_pie(&self) -> bool {
        self.elf_type == elf::ET_DYN
    }

    /// The lowest PT_LOAD's address: what the process's first mapping is compared with to
    /// get the bias.
    pub fn base(&self) -> Svma {
        self.segments
            .iter()
            .filter(|segment| segment.kind == elf::PT_LOAD)
            .map(|segment| segment.address)
            .min()
            .unwrap_or_default()
    }

    /// Whether the file holds the byte at a stated address.
    pub fn is_backed(&self, address: Svma) -> bool {
        self.segments.iter().any(|segment| segment.backs(address))
    }

    /// `e_type`: `ET_EXEC`, `ET_DYN`, ...
    pub fn elf_type(&self) -> u16 {
        self.elf_type
    }

    /// Place in the file of a stated address; `None` where the file does not back it.
    pub fn file_offset(&self, address: Svma) -> Option<FileOffset> {
        let segment = self.segments.iter().find(|segment| segment.backs(address))?;
        Some(segment.offset.add(address.since(segment.address)?))
    }

    /// Stated address of a place in the file.
    pub fn svma(&self, offset: FileOffset) -> Option<Svma> {
        self.segments.iter().filter(|segment| segment.kind == elf::PT_LOAD).find_map(|segment| {
            let delta = offset.since(segment.offset)?;
            (delta < segment.file_size).then(|| segment.address.add(delta))
        })
    }

    /// Fills `buf` from a stated address. Bytes past the file's part of a segment (bss)
    /// are not in the file: [`Error::Unmapped`].
    pub fn read(&self, address: Svma, buf: &mut [u8]) -> Result<(), Error> {
        let unmapped = Error::Unmapped { address: address.0 };
        let Some(segment) = self.segments.iter().find(|segment| segment.backs(address)) else {
            return Err(unmapped);
        };
        let delta = address.since(segment.address).unwrap_or_default();
        if (buf.len() as u64) > segment.file_size - delta {
            return Err(unmapped);
        }
        read_exact(&*self.source, segment.offset.0.wrapping_add(delta), buf, "segment")
    }

    /// Reads `len` bytes from a stated address. The length is checked against the segment
    /// before anything is allocated.
    pub fn read_vec(&self, address: Svma, len: u64) -> Result<Vec<u8>, Error> {
        let available = self
            .segments
            .iter()
            .find(|segment| segment.backs(address))
            .map(|segment| segment.file_size - address.since(segment.address).unwrap_or_default())
            .ok_or(Error::Unmapped { address: address.0 })?;
        // A file that became shorter fails to be read; only what is long is worth asking first.
        let is_long = len > MAX_UNASKED;
        if len > available || (is_long && len > self.source.size()) {
            return Err(Error::Unmapped { address: address.0.saturating_add(available) });
        }
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    /// The little-endian word at a stated address, as it stands in the file (relocations
    /// not applied).
    pub fn read_u64(&self, address: Svma) -> Result<u64, Error> {
        let mut word = [0; 8];
        self.read(address, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// The raw content of a section, as it stands in the file.
    pub fn section_raw(&self, section: &Section) -> Result<Vec<u8>, Error> {
        if !section.has_data() {
            return Ok(Vec::new());
        }
        let end = section.offset.0.checked_add(section.size);
        if end.is_none_or(|end| end > self.source.size()) {
            return Err(Error::Truncated {
                what: "section",
                offset: section.offset.0,
                size: section.size,
            });
        }
        let mut bytes = vec![0; usize::try_from(section.size).unwrap_or(0)];
        read_exact(&*self.source, section.offset.0, &mut bytes, "section")?;
        Ok(bytes)
    }

    /// The content of a section, inflated when it is compressed (SHF_COMPRESSED with zlib).
    pub fn section_data(&self, section: &Section) -> Result<Vec<u8>, Error> {
        let raw = self.section_raw(section)?;
        if section.flags & u64::from(elf::SHF_COMPRESSED) == 0 {
            return Ok(raw);
        }
        let header_size = size_of::<elf::CompressionHeader64<LittleEndian>>();
        let (header, _) = pod::from_bytes::<elf::CompressionHeader64<LittleEndian>>(&raw)
            .map_err(|()| Error::corrupt("compressed section", "no header"))?;
        if header.ch_type.get(LittleEndian) != elf::ELFCOMPRESS_ZLIB {
            return Err(Error::UnsupportedKind("debug sections not compressed by zlib".into()));
        }
        let stated = header.ch_size.get(LittleEndian);
        inflate(&raw[header_size..], stated)
    }
}

/// Inflates a zlib stream that says it holds `stated` bytes.
fn inflate(stream: &[u8], stated: u64) -> Result<Vec<u8>, Error> {
    if stated > (stream.len() as u64).saturating_mul(MAX_INFLATE_RATIO) {
        return Err(Error::corrupt("compressed section", "impossible size"));
    }
    let mut bytes = Vec::new();
    flate2::read::ZlibDecoder::new(stream)
        .take(stated)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::corrupt("compressed section", error.to_string()))?;
    if bytes.len() as u64 != stated {
        return Err(Error::corrupt("compressed section", "shorter than stated"));
    }
    Ok(bytes)
}

fn read_exact(
    source: &dyn ReadAt,
    offset: u64,
    buf: &mut [u8],
    what: &'static str,
) -> Result<(), Error> {
    source.read_exact_at(offset, buf).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            Error::Truncated { what, offset, size: buf.len() as u64 }
        }
        _ => Error::Io { what, source: error },
    })
}

/// At most `len` bytes: fewer when the file is shorter.
fn read_up_to(
    source: &dyn ReadAt,
    offset: u64,
    len: usize,
    what: &'static str,
) -> Result<Vec<u8>, Error> {
    let available = usize::try_from(source.size().saturating_sub(offset)).unwrap_or(len);
    let mut bytes = vec![0; len.min(available)];
    read_exact(source, offset, &mut bytes, what)?;
    Ok(bytes)
}

/// Class, byte order and machine, with names for the ones people meet.
fn check_machine(head: &[u8]) -> Result<(), Error> {
    let class = head[4];
    let machine = u16::from_le_bytes([head[18], head[19]]);
    let bits = if class == elf::ELFCLASS32 { "32-bit" } else { "64-bit" };
    let name = match machine {
        elf::EM_X86_64 => "x86-64",
        elf::EM_386 => "x86",
        elf::EM_AARCH64 => "arm64",
        elf::EM_ARM => "arm",
        _ => "another machine",
    };
    if class != elf::ELFCLASS64 || head[5] != elf::ELFDATA2LSB || machine != elf::EM_X86_64 {
        return Err(Error::WrongMachine(format!("{bits} {name}")));
    }
    Ok(())
}

/// Reads `count` table entries of `T` after checking that they are in the file.
fn read_table<T: pod::Pod + Copy>(
    source: &dyn ReadAt,
    offset: u64,
    count: u64,
    what: &'static str,
) -> Result<Vec<T>, Error> {
    if count > MAX_HEADERS {
        return Err(Error::corrupt(what, format!("{count} entries")));
    }
    let size = count * size_of::<T>() as u64;
    if offset.checked_add(size).is_none_or(|end| end > source.size()) {
        return Err(Error::Truncated { what, offset, size });
    }
    let mut bytes = vec![0; size as usize];
    read_exact(source, offset, &mut bytes, what)?;
    let (entries, _) = pod::slice_from_bytes::<T>(&bytes, count as usize)
        .map_err(|()| Error::corrupt(what, "misaligned"))?;
    Ok(entries.to_vec())
}

fn read_segments(
    source: &dyn ReadAt,
    header: &elf::FileHeader64<LittleEndian>,
) -> Result<Vec<Segment>, Error> {
    let e = LittleEndian;
    let table = read_table::<elf::ProgramHeader64<LittleEndian>>(
        source,
        header.e_phoff.get(e),
        u64::from(header.e_phnum.get(e)),
        "program headers",
    )?;
    Ok(table
        .iter()
        .map(|header| Segment {
            kind: header.p_type.get(e),
            flags: header.p_flags.get(e),
            address: Svma(header.p_vaddr.get(e)),
            offset: FileOffset(header.p_offset.get(e)),
            file_size: header.p_filesz.get(e),
            memory_size: header.p_memsz.get(e),
            align: header.p_align.get(e),
        })
        .collect())
}

fn read_sections(
    source: &dyn ReadAt,
    header: &elf::FileHeader64<LittleEndian>,
) -> Result<Vec<Section>, Error> {
    let e = LittleEndian;
    let offset = header.e_shoff.get(e);
    if offset == 0 || header.e_shnum.get(e) == 0 {
        return Ok(Vec::new());
    }
    let table = read_table::<elf::SectionHeader64<LittleEndian>>(
        source,
        offset,
        u64::from(header.e_shnum.get(e)),
        "section headers",
    )?;
    let names = match table.get(usize::from(header.e_shstrndx.get(e))) {
        Some(names) => read_up_to(
            source,
            names.sh_offset.get(e),
            names.sh_size.get(e).min(1 << 20) as usize,
            "section names",
        )?,
        None => Vec::new(),
    };
    let name_at = |at: u32| {
        let rest = names.get(at as usize..).unwrap_or_default();
        let end = rest.iter().position(|&b| b == 0).unwrap_or(rest.len());
        String::from_utf8_lossy(&rest[..end]).into_owned()
    };
    Ok(table
        .iter()
        .map(|section| Section {
            name: name_at(section.sh_name.get(e)),
            kind: section.sh_type.get(e),
            flags: section.sh_flags.get(e),
            address: Svma(section.sh_addr.get(e)),
            offset: FileOffset(section.sh_offset.get(e)),
            size: section.sh_size.get(e),
            link: section.sh_link.get(e),
        })
        .collect())
}
