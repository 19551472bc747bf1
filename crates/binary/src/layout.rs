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

use crate::globals::thread_link;
use crate::types::{Kind, TypeId};
use crate::{DebugInfo, Error, Executable, GoVersion};
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
    /// Where code has `runtime.m.alllink`.
    thread_link: Option<u64>,
}

/// The struct whose fields code tells to have moved, and the field that it tells of.
const THREAD: (&str, &str) = ("runtime.m", "alllink");

impl<'a> RuntimeLayouts<'a> {
    /// Layouts of an executable of that version, with its debug info if it has any.
    pub fn new(version: &'a GoVersion, debug: Option<&'a DebugInfo>) -> Self {
        Self { version, debug, thread_link: None }
    }

    /// The same with what the executable's code says, where the version alone does not: whether
    /// a patch release has the field that a later one inserted into `runtime.m`.
    pub fn with_code(self, executable: &Executable) -> Self {
        Self { thread_link: thread_link(executable).ok().flatten(), ..self }
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
        let (offset, provenance) = self.without_backports(&column, structure, offset)?;
        Ok(FieldLayout { offset, size, provenance })
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
        self.without_backports(&column, structure, size)
    }

    fn described(&self, structure: &str) -> Result<Option<(&'a DebugInfo, TypeId)>, Error> {
        let Some(debug) = self.debug else { return Ok(None) };
        Ok(find_struct(debug, structure)?.map(|id| (debug, id)))
    }

    /// The offset in this release of what the column has at `offset`: other when it lies behind
    /// a field that a later patch release inserted. Refused when code does not say whether it
    /// is there.
    fn without_backports(
        &self,
        column: &table::Column<'_>,
        structure: &str,
        offset: u64,
    ) -> Result<(u64, Provenance), LayoutError> {
        let listed = column.field(THREAD.0, THREAD.1).map(|(offset, _)| offset);
        let in_code = self.thread_link.zip(listed).filter(|_| structure == THREAD.0);
        for backport in names().backports_of(structure) {
            let older = backport.release.minor == self.version.minor
                && self.version.patch < backport.release.patch;
            let Some((inserted, size)) = column.field(structure, backport.field) else { continue };
            if !older || offset < inserted {
                continue;
            }
            return match in_code {
                Some((found, listed)) if found == listed => Ok((offset, Provenance::Code)),
                Some((found, listed)) if found.checked_add(size) == Some(listed) => {
                    Ok((offset.saturating_sub(size), Provenance::Code))
                }
                _ => Err(LayoutError::Moved {
                    structure: structure.to_owned(),
                    inserted: backport.field.to_owned(),
                    release: backport.release.to_string(),
                    version: self.version.to_string(),
                }),
            };
        }
        Ok((offset, Provenance::Table))
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
