//! The facade: one executable, its facts computed when first asked for.

use crate::build_info::BuildInfo;
use crate::function::FunctionTable;
use crate::go_version::GoVersion;
use crate::made_type::MadeTypes;
use crate::module_data::ModuleData;
use crate::pclntab::{Format, Header};
use crate::relocation::Words;
use crate::symbol::SymbolTable;
use crate::symbolizer::Frame;
use crate::{BuildMode, Error, Image, detect, note, rtype};
use address::{ReadAt, Svma};
use std::sync::{Arc, OnceLock};

/// A Go executable. Opening reads headers and build info only; every other fact is found
/// when it is first asked for, and kept.
#[derive(Debug)]
pub struct Executable {
    image: Image,
    words: Words,
    header: Header,
    build_info: Option<BuildInfo>,
    go_version: OnceLock<GoVersion>,
    build_id: OnceLock<Option<String>>,
    module: OnceLock<(ModuleData, &'static Format)>,
    functions: OnceLock<FunctionTable>,
    symbols: OnceLock<SymbolTable>,
    runtime_types: OnceLock<rtype::RuntimeTypes>,
    made_types: MadeTypes,
}

impl Executable {
    /// Reads the headers and decides whether this is a Go executable of a supported kind.
    ///
    /// Fails with [`Error::NotElf`], [`Error::WrongMachine`], [`Error::NotGo`] or
    /// [`Error::UnsupportedKind`] when it is not, each with what it is instead.
    pub fn open(source: Arc<dyn ReadAt>) -> Result<Self, Error> {
        let image = Image::open(source)?;
        let build_info = BuildInfo::read(&image);
        let words = Words::new(image.clone());
        let header = detect::find_pclntab(&image, &words, &build_info)?;
        detect::check_settings(&build_info)?;
        let executable = Self {
            image,
            words,
            header,
            build_info: build_info.ok(),
            go_version: OnceLock::new(),
            build_id: OnceLock::new(),
            module: OnceLock::new(),
            functions: OnceLock::new(),
            symbols: OnceLock::new(),
            runtime_types: OnceLock::new(),
            made_types: MadeTypes::default(),
        };
        if executable.build_setting("-buildmode").is_none() {
            detect::check_module(executable.module()?)?;
        }
        Ok(executable)
    }

    fn build_setting(&self, key: &str) -> Option<&str> {
        self.build_info.as_ref()?.setting(key)
    }

    /// The ELF file.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The build info the linker embedded.
    pub fn build_info(&self) -> Result<&BuildInfo, Error> {
        self.build_info.as_ref().ok_or_else(|| Error::Missing("build info".into()))
    }

    /// The Go version that built the executable: from the build info, else from
    /// `runtime.buildVersion`; [`GoVersion::is_known`] tells whether there was one.
    pub fn go_version(&self) -> &GoVersion {
        self.go_version.get_or_init(|| match &self.build_info {
            Some(info) => info.go_version.clone(),
            None => self.build_version().unwrap_or_default(),
        })
    }

    /// `runtime.buildVersion`, by its symbol.
    fn build_version(&self) -> Option<GoVersion> {
        let symbol = Svma(self.symbols().by_name("runtime.buildVersion")?.value);
        let start = self.read_word(symbol).ok()?;
        let len = self.read_word(symbol.add(8)).ok()?.min(256);
        let text = self.image.read_vec(Svma(start), len).ok()?;
        Some(GoVersion::parse(&String::from_utf8_lossy(&text)))
    }

    /// The Go build id, else the GNU one in hex.
    pub fn build_id(&self) -> Option<&str> {
        self.build_id.get_or_init(|| note::build_id(&self.image)).as_deref()
    }

    /// How many functions the executable has, without reading their table.
    pub fn function_count(&self) -> u64 {
        self.header.function_count
    }

    /// The function table.
    pub fn functions(&self) -> Result<&FunctionTable, Error> {
        if let Some(functions) = self.functions.get() {
            return Ok(functions);
        }
        let (module, format) = self.module_and_format()?;
        let functions = FunctionTable::read(&self.image, &self.header, module, format)?;
        Ok(self.functions.get_or_init(|| functions))
    }

    /// The first module's `runtime.moduledata`.
    pub fn module(&self) -> Result<&ModuleData, Error> {
        Ok(&self.module_and_format()?.0)
    }

    fn module_and_format(&self) -> Result<&(ModuleData, &'static Format), Error> {
        if let Some(module) = self.module.get() {
            return Ok(module);
        }
        let version = self.go_version();
        let minor = version.is_known().then_some(version.minor);
        let module = ModuleData::read(&self.image, &self.words, &self.header, minor)?;
        Ok(self.module.get_or_init(|| module))
    }

    /// Function, file and line at an address, innermost inlined frame first; empty where
    /// there is no Go code. For a return address pass the byte before it.
    pub fn symbolize(&self, address: Svma) -> Vec<Frame> {
        self.functions().map(|functions| functions.symbolize(address)).unwrap_or_default()
    }

    /// How the executable was linked.
    pub fn build_mode(&self) -> BuildMode {
        if self.image.is_pie() { BuildMode::Pie } else { BuildMode::Exe }
    }

    /// Whether the symbol table is gone (`-s`).
    pub fn is_stripped(&self) -> bool {
        self.image.section(".symtab").is_none()
    }

    /// The ELF symbol table; empty when stripped.
    pub fn symbols(&self) -> &SymbolTable {
        self.symbols.get_or_init(|| SymbolTable::read(&self.image))
    }

    /// The word at a stated address with the file's relative relocations applied: what a
    /// process finds there at its start, less the bias.
    pub fn read_word(&self, address: Svma) -> Result<u64, Error> {
        self.words.read(address)
    }

    /// Bytes of a map's descriptor, without what lies behind it of a named one.
    pub(crate) fn map_type_size(&self) -> Result<u64, Error> {
        Ok(self.module_and_format()?.1.map_type)
    }

    /// What was found of the type descriptors.
    pub(crate) fn runtime_types(&self) -> &rtype::RuntimeTypes {
        self.runtime_types.get_or_init(rtype::RuntimeTypes::default)
    }

    /// Types that were put together for it.
    pub(crate) fn made_types(&self) -> &MadeTypes {
        &self.made_types
    }

    /// Name (as `%T` prints it) and `reflect.Kind` of the type whose descriptor is at an
    /// address of the file's type data; `None` when there is no such descriptor.
    pub fn type_name(&self, descriptor: Svma) -> Option<(String, u8)> {
        rtype::type_name(&self.image, self.module().ok()?, descriptor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_executable_serves_many_threads() {
        fn check<T: Send + Sync>() {}
        check::<Executable>();
    }
}
