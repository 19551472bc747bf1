//! The tables of a pclntab, in memory.

use super::format::Format;
use super::header::Header;
use super::values::Ranges;
use crate::Error;
use crate::bytes::{c_string, u32_at};
use crate::image::Image;
use crate::module_data::ModuleData;
use std::borrow::Cow;

/// Offsets in `runtime._func` that no version changed, in bytes.
mod field {
    pub const ENTRY: usize = 0;
    pub const NAME: usize = 4;
    pub const ARGS: usize = 8;
    pub const DEFERRETURN: usize = 12;
    pub const PCSP: usize = 16;
    pub const PCFILE: usize = 20;
    pub const PCLN: usize = 24;
    pub const NPCDATA: usize = 28;
    pub const CU: usize = 32;
}

/// `internal/abi.PCDATA_InlTreeIndex`.
const PCDATA_INLINE_INDEX: usize = 2;
/// `internal/abi.FUNCDATA_ArgsPointerMaps`.
const FUNCDATA_ARGUMENT_MAPS: usize = 0;
/// `internal/abi.FUNCDATA_ArgInfo`.
const FUNCDATA_ARGUMENT_INFO: usize = 5;
/// `internal/abi.FUNCDATA_InlTree`.
const FUNCDATA_INLINE_TREE: usize = 3;
/// A funcdata offset or a file index that stands for none.
const NONE: u32 = u32::MAX;
/// Longer names are damage; without a bound a table without terminators would be walked
/// to its end for each function.
const MAX_NAME: usize = 1 << 16;

/// One `_func`: its place and the bytes that its size bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// Place in the function table.
    pub index: usize,
    /// Bytes from the start of text to the entry.
    pub entry: u64,
    /// Bytes from the entry to the next function's.
    pub size: u64,
    /// Offset of the `_func` in the table's bytes.
    at: usize,
}

/// A pclntab read into memory.
#[derive(Debug)]
pub(crate) struct Table {
    /// From the header on.
    bytes: Vec<u8>,
    count: usize,
    funcname: usize,
    cutab: usize,
    filetab: usize,
    pctab: usize,
    pcln: usize,
    format: &'static Format,
    text_size: u64,
}

impl Table {
    /// Reads the table and checks that its functions are sorted and lie in the module's text.
    pub fn read(
        image: &Image,
        header: &Header,
        module: &ModuleData,
        format: &'static Format,
    ) -> Result<Self, Error> {
        let corrupt = |detail: &str| Error::corrupt("pclntab", detail);
        let end = module.pclntab_end.since(header.address).unwrap_or(header.limit);
        let bytes = image.read_vec(header.address, end.min(header.limit))?;
        let offset = |offset: u64| {
            usize::try_from(offset)
                .ok()
                .filter(|&offset| offset <= bytes.len())
                .ok_or_else(|| corrupt("a table starts past the end"))
        };
        let table = Self {
            count: usize::try_from(header.function_count)
                .map_err(|_| corrupt("too many functions"))?,
            funcname: offset(header.funcname)?,
            cutab: offset(header.cutab)?,
            filetab: offset(header.filetab)?,
            pctab: offset(header.pctab)?,
            pcln: offset(header.pcln)?,
            text_size: module.etext.since(module.text).unwrap_or_default(),
            format,
            bytes,
        };
        let entries = table
            .ftab()
            .ok_or_else(|| corrupt("the function table does not fit"))?
            .chunks_exact(8)
            .filter_map(|pair| u32_at(pair, 0));
        if !entries.is_sorted() {
            return Err(corrupt("functions are not sorted by address"));
        }
        Ok(table)
    }

    /// The pairs (entry offset, `_func` offset), without the last, unpaired entry.
    fn ftab(&self) -> Option<&[u8]> {
        let end = self.count.checked_mul(8)?.checked_add(self.pcln)?;
        // The end entry is there too.
        u32_at(&self.bytes, end)?;
        self.bytes.get(self.pcln..end)
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn format(&self) -> &'static Format {
        self.format
    }

    /// Entry offset of a function, or, for `index == len()`, the end of the last one.
    fn entry(&self, index: usize) -> Option<u64> {
        u32_at(&self.bytes, self.pcln.checked_add(index.checked_mul(8)?)?).map(u64::from)
    }

    /// The function at a place in the table.
    pub fn record(&self, index: usize) -> Option<Record> {
        if index >= self.count {
            return None;
        }
        let pair = self.pcln.checked_add(index.checked_mul(8)?)?;
        let entry = self.entry(index)?.min(self.text_size);
        let at = self.pcln.checked_add(u32_at(&self.bytes, pair.checked_add(4)?)? as usize)?;
        self.bytes.get(at..at.checked_add(self.format.func.size)?)?;
        let end = self.entry(index.checked_add(1)?)?.min(self.text_size);
        Some(Record { index, entry, size: end.saturating_sub(entry), at })
    }

    /// Place of the function that holds an offset from the start of text.
    pub fn find(&self, offset: u64) -> Option<usize> {
        let ftab = self.ftab()?;
        let (mut low, mut high) = (0, ftab.len() / 8);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry(middle)? <= offset { low = middle + 1 } else { high = middle }
        }
        let index = low.checked_sub(1)?;
        (offset < self.entry(index.checked_add(1)?)?).then_some(index)
    }

    fn word(&self, record: &Record, offset: usize) -> Option<u32> {
        u32_at(&self.bytes, record.at.checked_add(offset)?)
    }

    fn byte(&self, record: &Record, offset: usize) -> u8 {
        record.at.checked_add(offset).and_then(|at| self.bytes.get(at)).copied().unwrap_or_default()
    }

    /// Offset of the function's name in the name table.
    pub fn name_offset(&self, record: &Record) -> u32 {
        self.word(record, field::NAME).unwrap_or(NONE)
    }

    /// The name at an offset of the name table; empty when there is none.
    pub fn name(&self, offset: u32) -> Cow<'_, str> {
        let names = self.bytes.get(self.funcname..self.cutab).unwrap_or_default();
        String::from_utf8_lossy(bounded_string(names, offset).unwrap_or_default())
    }

    pub fn args(&self, record: &Record) -> i32 {
        self.word(record, field::ARGS).unwrap_or_default() as i32
    }

    /// Offset of the deferreturn call from the entry; 0 for none.
    pub fn deferreturn(&self, record: &Record) -> u32 {
        self.word(record, field::DEFERRETURN).unwrap_or_default()
    }

    pub fn func_id(&self, record: &Record) -> u8 {
        self.byte(record, self.format.func.func_id)
    }

    pub fn flags(&self, record: &Record) -> u8 {
        self.byte(record, self.format.func.flag)
    }

    pub fn start_line(&self, record: &Record) -> Option<u32> {
        self.word(record, self.format.func.start_line?)
    }

    /// The stream at an offset of pctab; empty for 0, which stands for none.
    fn ranges(&self, record: &Record, offset: Option<u32>) -> Ranges<'_> {
        let stream = match offset {
            None | Some(0) => None,
            Some(offset) => {
                self.bytes.get(self.pctab..self.pcln).unwrap_or_default().get(offset as usize..)
            }
        };
        Ranges::new(stream.unwrap_or_default(), record.size)
    }

    /// Bytes that SP has been lowered by.
    pub fn sp_deltas(&self, record: &Record) -> Ranges<'_> {
        self.ranges(record, self.word(record, field::PCSP))
    }

    pub fn lines(&self, record: &Record) -> Ranges<'_> {
        self.ranges(record, self.word(record, field::PCLN))
    }

    /// File indexes within the function's compilation unit: see [`Self::file`].
    pub fn files(&self, record: &Record) -> Ranges<'_> {
        self.ranges(record, self.word(record, field::PCFILE))
    }

    /// Indexes in the inline tree; negative where the code is the function's own.
    pub fn inline_indexes(&self, record: &Record) -> Ranges<'_> {
        let npcdata = self.word(record, field::NPCDATA).unwrap_or_default();
        let present = (npcdata as usize) > PCDATA_INLINE_INDEX;
        let at = self.format.func.size + PCDATA_INLINE_INDEX * 4;
        self.ranges(record, if present { self.word(record, at) } else { None })
    }

    /// Offset of the inline tree from `moduledata.gofunc`.
    pub fn inline_tree(&self, record: &Record) -> Option<u32> {
        self.funcdata(record, FUNCDATA_INLINE_TREE)
    }

    /// Offset of the pointer maps of the arguments from `moduledata.gofunc`.
    pub fn argument_maps(&self, record: &Record) -> Option<u32> {
        self.funcdata(record, FUNCDATA_ARGUMENT_MAPS)
    }

    /// Offset of what tracebacks know of the arguments from `moduledata.gofunc`.
    pub fn argument_info(&self, record: &Record) -> Option<u32> {
        self.funcdata(record, FUNCDATA_ARGUMENT_INFO)
    }

    fn funcdata(&self, record: &Record, number: usize) -> Option<u32> {
        if usize::from(self.byte(record, self.format.func.nfuncdata)) <= number {
            return None;
        }
        let npcdata = self.word(record, field::NPCDATA)? as usize;
        let word = npcdata.checked_add(number)?;
        let at = self.format.func.size.checked_add(word.checked_mul(4)?)?;
        self.word(record, at).filter(|&offset| offset != NONE)
    }

    /// The path of a file of the function's compilation unit.
    pub fn file(&self, record: &Record, index: i32) -> Option<Cow<'_, str>> {
        let cu = self.word(record, field::CU)? as usize;
        let slot = cu.checked_add(usize::try_from(index).ok()?)?.checked_mul(4)?;
        let offset = u32_at(self.bytes.get(self.cutab..self.filetab)?, slot)?;
        if offset == NONE {
            return None;
        }
        let name = bounded_string(self.bytes.get(self.filetab..self.pctab)?, offset)?;
        Some(String::from_utf8_lossy(name))
    }

    /// Whether the `_func` repeats the entry that the function table has for it.
    pub fn is_consistent(&self, record: &Record) -> bool {
        self.word(record, field::ENTRY).map(u64::from) == self.entry(record.index)
    }
}

/// The string at an offset, unless it is longer than any name.
fn bounded_string(bytes: &[u8], offset: u32) -> Option<&[u8]> {
    let rest = bytes.get(offset as usize..)?;
    c_string(rest.get(..MAX_NAME).unwrap_or(rest), 0)
}
