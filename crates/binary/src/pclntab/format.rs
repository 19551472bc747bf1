//! What differs from one Go version to the next in pclntab and moduledata.

/// First word of a pclntab, Go 1.18 and 1.19.
pub(crate) const MAGIC_118: u32 = 0xffff_fff0;
/// First word of a pclntab since Go 1.20.
pub(crate) const MAGIC_120: u32 = 0xffff_fff1;
/// First words of the tables before Go 1.18: Go 1.2 and Go 1.16.
pub(crate) const OLD_MAGICS: [u32; 2] = [0xffff_fffb, 0xffff_fffa];

/// Layout of `runtime._func` (`runtime/runtime2.go`), offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FuncLayout {
    pub size: usize,
    pub start_line: Option<usize>,
    pub func_id: usize,
    pub flag: usize,
    pub nfuncdata: usize,
}

/// Layout of `runtime.inlinedCall` (`runtime/symtabinl.go`), offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InlineLayout {
    pub size: usize,
    pub func_id: usize,
    pub name: usize,
    pub parent_pc: usize,
    pub start_line: Option<usize>,
}

/// Offsets of `runtime.moduledata` fields (`runtime/symtab.go`) that are not at the same
/// place in every version, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModuleLayout {
    pub size: usize,
    pub types: usize,
    pub etypes: usize,
    pub rodata: usize,
    pub gofunc: usize,
    pub epclntab: Option<usize>,
    pub typelinks: Option<usize>,
    pub itablinks: Option<usize>,
    pub typedesclen: Option<usize>,
    pub itaboffset: Option<usize>,
    pub itabsize: Option<usize>,
    pub hasmain: usize,
}

/// All that a version decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// Go 1.x.
    pub minor: u32,
    pub magic: u32,
    pub func: FuncLayout,
    pub inline: InlineLayout,
    /// `internal/abi.FuncIDWrapper`.
    pub wrapper_id: u8,
    pub module: ModuleLayout,
    /// Size of `abi.MapType` (`internal/abi/map_swiss.go`, `map.go`, `map_noswiss.go`, `type.go`), bytes:
    /// behind it lies what is known of a named map.
    pub map_type: u64,
}

const FUNC_119: FuncLayout =
    FuncLayout { size: 40, start_line: None, func_id: 36, flag: 37, nfuncdata: 39 };
const FUNC_121: FuncLayout =
    FuncLayout { size: 44, start_line: Some(36), func_id: 40, flag: 41, nfuncdata: 43 };

const INLINE_119: InlineLayout =
    InlineLayout { size: 20, func_id: 2, name: 12, parent_pc: 16, start_line: None };
const INLINE_121: InlineLayout =
    InlineLayout { size: 16, func_id: 0, name: 4, parent_pc: 8, start_line: Some(12) };

const MODULE_119: ModuleLayout = ModuleLayout {
    size: 552,
    types: 280,
    etypes: 288,
    rodata: 296,
    gofunc: 304,
    epclntab: None,
    typelinks: Some(336),
    itablinks: Some(360),
    typedesclen: None,
    itaboffset: None,
    itabsize: None,
    hasmain: 488,
};
const MODULE_121: ModuleLayout = ModuleLayout {
    size: 592,
    types: 296,
    etypes: 304,
    rodata: 312,
    gofunc: 320,
    typelinks: Some(352),
    itablinks: Some(376),
    hasmain: 528,
    ..MODULE_119
};
const MODULE_123: ModuleLayout = ModuleLayout { size: 584, ..MODULE_121 };
const MODULE_126: ModuleLayout = ModuleLayout {
    size: 592,
    epclntab: Some(328),
    typelinks: Some(360),
    itablinks: Some(384),
    hasmain: 536,
    ..MODULE_121
};
const MODULE_127: ModuleLayout = ModuleLayout {
    size: 568,
    types: 296,
    etypes: 312,
    rodata: 336,
    gofunc: 344,
    epclntab: Some(352),
    typelinks: None,
    itablinks: None,
    typedesclen: Some(304),
    itaboffset: Some(320),
    itabsize: Some(328),
    hasmain: 512,
};

const fn row(minor: u32, wrapper_id: u8, module: ModuleLayout, map_type: u64) -> Format {
    let (func, inline) = (FUNC_121, INLINE_121);
    Format { minor, magic: MAGIC_120, func, inline, wrapper_id, module, map_type }
}

/// One row a version, measured on that version's DWARF (Go 1.20 was not measured: it has
/// no row).
const FORMATS: [Format; 8] = [
    Format {
        minor: 19,
        magic: MAGIC_118,
        func: FUNC_119,
        inline: INLINE_119,
        wrapper_id: 21,
        module: MODULE_119,
        map_type: 88,
    },
    row(21, 21, MODULE_121, 88),
    row(22, 22, MODULE_121, 88),
    row(23, 22, MODULE_123, 88),
    row(24, 22, MODULE_123, 112),
    row(25, 23, MODULE_123, 112),
    row(26, 23, MODULE_126, 112),
    row(27, 23, MODULE_127, 136),
];

impl Format {
    /// The rows to try on a file, best first: the version's own; for a version without a
    /// row (newer than the table, or unknown) all of that magic, newest first, which is
    /// only sound because the caller checks each against the file.
    pub fn candidates(minor: Option<u32>, magic: u32) -> Vec<&'static Format> {
        let oldest = FORMATS.first().map_or(0, |format| format.minor);
        let newest = FORMATS.last().map_or(0, |format| format.minor);
        let rows = FORMATS.iter().filter(|format| format.magic == magic);
        match minor {
            Some(minor) if (oldest..=newest).contains(&minor) => {
                rows.filter(|format| format.minor == minor).collect()
            }
            Some(minor) if minor < oldest => Vec::new(),
            _ => rows.rev().collect(),
        }
    }
}
