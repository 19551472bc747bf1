//! Debug info (DWARF 4 and 5): signatures of functions and layouts of types.
//!
//! Nothing is read before it is asked for, and of the units only those that hold the
//! answer are parsed. Quirks of Go's debug info, by version, are beside the code that
//! meets them.

mod constants;
mod field_path;
mod func_type;
mod location;
mod package_variable;
mod placement;
mod sections;
mod signature;
mod type_index;
mod type_reader;
mod unit;
mod unnamed;

pub use field_path::{PathStep, TypePath};
pub use location::{Described, DescribedAt};
pub use package_variable::PackageVariable;
pub use placement::{
    FunctionKey, PlacedSignature, PlacedVariable, convention_of, dictionary_position,
};
pub use signature::{Captured, Signature, Variable};

use crate::types::{TypeId, TypeInfo};
use crate::{Error, Image, SymbolTable};
use sections::{Sections, Slice};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use type_index::TypeIndex;
use unit::UnitTable;

/// The debug info of one image (which may be a separate debug file's).
#[derive(Debug)]
pub struct DebugInfo {
    sections: Sections,
    image: Image,
    symbols: OnceLock<SymbolTable>,
    version: u16,
    units: OnceLock<UnitTable>,
    abbreviations: Mutex<HashMap<usize, Arc<gimli::Abbreviations>>>,
    subprograms: Mutex<HashMap<usize, Subprograms>>,
    types: Mutex<HashMap<TypeId, Arc<TypeInfo>>>,
    type_index: [OnceLock<TypeIndex>; 2],
    constants: Mutex<HashMap<Box<str>, constants::PackageConstants>>,
    package_variables: OnceLock<package_variable::PackageVariables>,
}

/// Functions of a unit: first instruction and place of the entry in `.debug_info`, sorted.
type Subprograms = Arc<[(u64, u64)]>;

impl DebugInfo {
    /// Finds the debug info of an image; `None` when it has none. Reads one unit header.
    pub fn open(image: &Image) -> Result<Option<Self>, Error> {
        let Some(section) = image.section(".debug_info").filter(|s| s.has_data() && s.size > 0)
        else {
            return Ok(None);
        };
        let header = sections::prefix(image, section, 6)?;
        let version = match header.get(4..6) {
            Some(&[low, high]) => u16::from_le_bytes([low, high]),
            _ => return Err(Error::corrupt("debug info", "no unit header")),
        };
        if !matches!(version, 4 | 5) {
            let detail = format!("DWARF version {version}; 4 and 5 are supported");
            return Err(Error::UnsupportedKind(detail));
        }
        Ok(Some(Self {
            sections: Sections::new(image.clone()),
            image: image.clone(),
            symbols: OnceLock::new(),
            version,
            units: OnceLock::new(),
            abbreviations: Mutex::default(),
            subprograms: Mutex::default(),
            types: Mutex::default(),
            type_index: Default::default(),
            constants: Mutex::default(),
            package_variables: OnceLock::new(),
        }))
    }

    /// DWARF version of the first unit: 4 up to Go 1.24, 5 from 1.25. With cgo other units
    /// may differ.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// The symbols beside the debug info: a stripped executable's are in its debug file.
    fn symbols(&self) -> &SymbolTable {
        self.symbols.get_or_init(|| SymbolTable::read(&self.image))
    }

    fn dwarf(&self, locations: bool) -> Result<gimli::Dwarf<Slice<'_>>, Error> {
        self.sections.dwarf(locations)
    }

    /// The table of units, built at the first call from their root entries.
    fn units(&self) -> Result<&UnitTable, Error> {
        if let Some(units) = self.units.get() {
            return Ok(units);
        }
        let built = UnitTable::build(self)?;
        Ok(self.units.get_or_init(|| built))
    }
}

/// A lock whose data stays usable when another thread panicked while holding it: the
/// maps are caches, complete at every step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// gimli's errors, as ours.
fn malformed(error: gimli::Error) -> Error {
    Error::corrupt("debug info", error.to_string())
}
