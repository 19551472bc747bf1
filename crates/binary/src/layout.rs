//! Where the fields of the runtime's structs are, from whatever knows it best.
//!
//! Debug info comes first; then the table that `cargo xtask offsets` derives from the
//! toolchains. A build that is not a plain release of a known line (a vendor's, a
//! development version, one with a GOEXPERIMENT) never gets a neighbour's row.

mod derive;
mod error;
mod headroom;
mod names;
mod table;

pub use derive::{DerivedField, DerivedStruct, check_names, derive_structs, render_table};
pub use error::LayoutError;
pub use headroom::LimitHeadroom;

use crate::types::{Kind, TypeId};
use crate::{DebugInfo, Error, GoVersion};
use names::names;
use std::fmt;
use table::table;

/// Parts of a field path; a bound on the walk.
const MAX_PATH: usize = 16;

/// What a fact about the runtime was taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Provenance {
    /// The executable's own debug info.
    Dwarf,
    /// The executable's own instructions.
    Code,
    /// The executable's symbol table and headers.
    Symbol,
    /// The generated table, by Go version.
    Table,
    /// What the toolchain does whenever the executable has no sign of the contrary.
    Convention,
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dwarf => "dwarf",
            Self::Code => "code",
            Self::Symbol => "symbol",
            Self::Table => "table",
            Self::Convention => "convention",
        })
    }
}

/// Where a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldLayout {
    /// Bytes from the start of the struct.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Who says so.
    pub provenance: Provenance,
}

/// Layouts of the runtime's structs in one executable.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeLayouts<'a> {
    version: &'a GoVersion,
    debug: Option<&'a DebugInfo>,
}

impl<'a> RuntimeLayouts<'a> {
    /// Layouts of an executable of that version, with its debug info if it has any.
    pub fn new(version: &'a GoVersion, debug: Option<&'a DebugInfo>) -> Self {
        Self { version, debug }
    }

    /// A field by struct and dotted path (`"runtime.g", "stack.hi"`), in the names of the
    /// newest Go version; older names are found through the file of names. `stats[]` is
    /// the first element of the array `stats`.
    ///
    /// Debug info that has the struct has the last word; when it lacks the struct or is
    /// damaged, the table is asked.
    pub fn field(&self, structure: &str, field: &str) -> Result<FieldLayout, LayoutError> {
        match self.described_field(structure, field) {
            Ok(Some(found)) => Ok(found),
            Ok(None) => self.table_field(structure, field),
            Err(LayoutError::Binary(damage)) => {
                self.table_field(structure, field).map_err(|_| damage.into())
            }
            Err(error) => Err(error),
        }
    }

    fn described_field(
        &self,
        structure: &str,
        field: &str,
    ) -> Result<Option<FieldLayout>, LayoutError> {
        let Some((debug, id)) = self.described(structure)? else { return Ok(None) };
        for name in names().field_names(structure, field) {
            if let Some((offset, size)) = walk(debug, id, name)? {
                return Ok(Some(FieldLayout { offset, size, provenance: Provenance::Dwarf }));
            }
        }
        Err(self.no_field(structure, field))
    }

    fn table_field(&self, structure: &str, field: &str) -> Result<FieldLayout, LayoutError> {
        let column = table().column(self.version, structure)?;
        let names = names().field_names(structure, field);
        let found = names.into_iter().find_map(|name| column.field(structure, name));
        let (offset, size) = found.ok_or_else(|| self.no_field(structure, field))?;
        self.check_backports(&column, structure, offset)?;
        Ok(FieldLayout { offset, size, provenance: Provenance::Table })
    }

    fn no_field(&self, structure: &str, field: &str) -> LayoutError {
        LayoutError::NoField {
            structure: structure.to_owned(),
            field: field.to_owned(),
            version: self.version.to_string(),
        }
    }

    /// Size of a struct in bytes, with its source.
    pub fn size(&self, structure: &str) -> Result<(u64, Provenance), LayoutError> {
        if let Some((debug, id)) = self.described(structure)? {
            return Ok((debug.type_info(id)?.size, Provenance::Dwarf));
        }
        let column = table().column(self.version, structure)?;
        let size = column.size(structure).ok_or_else(|| LayoutError::NoStruct {
            structure: structure.to_owned(),
            version: self.version.to_string(),
        })?;
        self.check_backports(&column, structure, size)?;
        Ok((size, Provenance::Table))
    }

    fn described(&self, structure: &str) -> Result<Option<(&'a DebugInfo, TypeId)>, Error> {
        let Some(debug) = self.debug else { return Ok(None) };
        Ok(find_struct(debug, structure)?.map(|id| (debug, id)))
    }

    /// Refuses what lies behind a field that a later patch release inserted.
    fn check_backports(
        &self,
        column: &table::Column<'_>,
        structure: &str,
        offset: u64,
    ) -> Result<(), LayoutError> {
        for backport in names().backports_of(structure) {
            let older = backport.release.minor == self.version.minor
                && self.version.patch < backport.release.patch;
            let inserted = column.field(structure, backport.field).map(|(offset, _)| offset);
            if older && inserted.is_some_and(|inserted| offset >= inserted) {
                return Err(LayoutError::Moved {
                    structure: structure.to_owned(),
                    inserted: backport.field.to_owned(),
                    release: backport.release.to_string(),
                    version: self.version.to_string(),
                });
            }
        }
        Ok(())
    }
}

/// The struct's type, under whichever of its names the debug info has.
fn find_struct(debug: &DebugInfo, structure: &str) -> Result<Option<TypeId>, Error> {
    for name in names().struct_names(structure) {
        if let Some(id) = debug.find_type(name)?
            && matches!(debug.type_info(id)?.kind, Kind::Struct { .. })
        {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// Offset and size of a field by path.
fn walk(debug: &DebugInfo, id: TypeId, path: &str) -> Result<Option<(u64, u64)>, Error> {
    let (mut at, mut offset) = (id, 0u64);
    for part in path.split('.').take(MAX_PATH) {
        let (name, element) = match part.strip_suffix("[]") {
            Some(name) => (name, true),
            None => (part, false),
        };
        let info = debug.type_info(at)?;
        let Kind::Struct { fields } = &info.kind else { return Ok(None) };
        let Some(field) = fields.iter().find(|field| &*field.name == name) else {
            return Ok(None);
        };
        offset = offset.saturating_add(field.offset);
        at = field.ty;
        if element {
            let Kind::Array { elem, .. } = debug.type_info(at)?.kind else { return Ok(None) };
            at = elem;
        }
    }
    Ok(Some((offset, debug.type_info(at)?.size)))
}

#[cfg(test)]
mod tests;
