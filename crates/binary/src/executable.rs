//! The facade: one executable, its facts computed when first asked for.

use crate::build_info::{BuildInfo, GoVersion};
use crate::function::{Frame, FunctionTable};
use crate::module_data::ModuleData;
use crate::symbol::SymbolTable;
use crate::{BuildMode, Error, Image};
use address::{ReadAt, Svma};
use std::sync::{Arc, OnceLock};

/// A Go executable. Every fact is found when it is first asked for and kept.
#[derive(Debug)]
pub struct Executable {
    image: Image,
    functions: OnceLock<FunctionTable>,
}

impl Executable {
    /// Reads the headers and decides whether this is a Go executable of a supported kind.
    pub fn open(source: Arc<dyn ReadAt>) -> Result<Self, Error> {
        Ok(Self { image: Image::open(source)?, functions: OnceLock::new() })
    }

    /// The ELF file.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The build info the linker embedded.
    pub fn build_info(&self) -> Result<&BuildInfo, Error> {
        Err(Error::Missing("build info".into()))
    }

    /// The Go version that built the executable.
    pub fn go_version(&self) -> &GoVersion {
        unimplemented!()
    }

    /// The Go build id, or the GNU one in hex.
    pub fn build_id(&self) -> Option<&str> {
        None
    }

    /// The function table.
    pub fn functions(&self) -> Result<&FunctionTable, Error> {
        self.functions.get().ok_or(Error::Missing("function table".into()))
    }

    /// The first module's `runtime.moduledata`.
    pub fn module(&self) -> Result<&ModuleData, Error> {
        Err(Error::Missing("moduledata".into()))
    }

    /// Function, file and line at an address, innermost inlined frame first.
    pub fn symbolize(&self, _address: Svma) -> Vec<Frame> {
        Vec::new()
    }

    /// How the executable was linked.
    pub fn build_mode(&self) -> BuildMode {
        BuildMode::Exe
    }

    /// Whether the symbol table is gone (`-s`).
    pub fn is_stripped(&self) -> bool {
        false
    }

    /// The ELF symbol table; empty when stripped.
    pub fn symbols(&self) -> &SymbolTable {
        unimplemented!()
    }

    /// The word at a stated address with the file's relative relocations applied: what a
    /// process sees there before it runs, less the bias.
    pub fn read_word(&self, address: Svma) -> Result<u64, Error> {
        self.image.read_u64(address)
    }

    /// Name (as `%T` prints it) and `reflect.Kind` of the type whose descriptor is at an
    /// address of the file's type data; `None` when there is no such descriptor.
    pub fn type_name(&self, _descriptor: Svma) -> Option<(String, u8)> {
        None
    }
}
