//! What kind of executable a file is, and which kinds are refused.

use crate::Error;
use crate::build_info::BuildInfo;
use crate::image::Image;
use crate::module_data::ModuleData;
use crate::pclntab::{Header, Locate};
use crate::relocation::{Words, dynamic_value};
use object::elf;

/// How an executable was linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildMode {
    /// At fixed addresses.
    Exe,
    /// Position independent.
    Pie,
}

impl BuildMode {
    /// As `-buildmode` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exe => "exe",
            Self::Pie => "pie",
        }
    }
}

/// `-buildmode` values whose result is no executable of its own.
const LIBRARY_MODES: [&str; 4] = ["c-shared", "c-archive", "plugin", "shared"];

/// Bytes at the start of a file among which UPX leaves its mark.
const PACKER_AREA: usize = 4096;

/// Finds the pclntab of a Go executable, or says why the file is none.
pub(crate) fn find_pclntab(
    image: &Image,
    words: &Words,
    info: &Result<BuildInfo, Error>,
) -> Result<Header, Error> {
    if !matches!(image.elf_type(), elf::ET_EXEC | elf::ET_DYN) {
        let kind = match image.elf_type() {
            elf::ET_CORE => "a core dump",
            elf::ET_REL => "an object file",
            _ => "no executable",
        };
        return Err(Error::NotGo(kind.into()));
    }
    match Header::locate(image) {
        Locate::Found(header) => Ok(header),
        Locate::Candidates(headers) => headers
            .into_iter()
            .find(|header| ModuleData::is_of(image, words, header))
            .ok_or_else(|| not_go(image, info)),
        Locate::TooOld => Err(Error::UnsupportedKind(
            "built with a Go older than 1.18; Go 1.19 and newer are supported".into(),
        )),
        Locate::Disguised(magic) => Err(Error::UnsupportedKind(format!(
            "its function table starts with 0x{magic:08x}, which is not Go's (obfuscated by garble?)"
        ))),
        Locate::Absent => Err(not_go(image, info)),
    }
}

/// Refuses libraries, by their build settings. A file without settings is judged by
/// [`check_module`].
pub(crate) fn check_settings(info: &Result<BuildInfo, Error>) -> Result<(), Error> {
    match info {
        Ok(info) => match info.setting("-buildmode") {
            Some(mode) if LIBRARY_MODES.contains(&mode) => Err(library(mode)),
            _ => Ok(()),
        },
        Err(Error::UnsupportedKind(why)) => Err(Error::UnsupportedKind(why.clone())),
        Err(_) => Ok(()),
    }
}

/// Refuses a module that was linked without `main.main`: the linker sets `hasmain` for
/// `exe` and `pie` only (`cmd/link/internal/ld/symtab.go`).
pub(crate) fn check_module(module: &ModuleData) -> Result<(), Error> {
    if module.has_main { Ok(()) } else { Err(library("c-shared, c-archive or plugin")) }
}

fn library(mode: &str) -> Error {
    Error::UnsupportedKind(format!(
        "Go code built as a library (-buildmode={mode}); only executables are supported"
    ))
}

/// Why a file without a pclntab is not Go, as well as can be told.
fn not_go(image: &Image, info: &Result<BuildInfo, Error>) -> Error {
    if is_packed(image) {
        return Error::UnsupportedKind("packed with UPX; unpack it with upx -d first".into());
    }
    if dynamic_names(image).is_some_and(|names| contains(&names, b"libgo.so")) {
        return Error::NotGo("built with gccgo, which is not supported".into());
    }
    let has = |prefix: &str| image.sections().iter().any(|s| s.name.starts_with(prefix));
    if has(".go_export") {
        return Error::NotGo("built with gccgo, which is not supported".into());
    }
    if has(".tinygo") {
        return Error::NotGo("built with TinyGo, which is not supported".into());
    }
    if info.is_ok() {
        return Error::NotGo(
            "it has Go build info and no function table: built with gccgo or TinyGo, or damaged"
                .into(),
        );
    }
    Error::NotGo("no Go function table in it".into())
}

fn is_packed(image: &Image) -> bool {
    let size = image.source().size().min(PACKER_AREA as u64);
    let mut head = vec![0; size as usize];
    image.source().read_exact_at(0, &mut head).is_ok() && contains(&head, b"UPX!")
}

/// The dynamic string table, up to a bound.
fn dynamic_names(image: &Image) -> Option<Vec<u8>> {
    let table = dynamic_value(image, elf::DT_STRTAB.into())?;
    let size = dynamic_value(image, elf::DT_STRSZ.into())?;
    image.read_vec(address::Svma(table), size.min(1 << 20)).ok()
}

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}
