//! Finding a type by its name.

use super::sections::Slice;
use super::unit::Unit;
use super::{DebugInfo, malformed};
use crate::Error;
use crate::types::TypeId;
use gimli::constants;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// More types than any program has; a bound on hostile input.
const MAX_TYPES: usize = 1 << 22;

/// Hashes of the names of all types with their places, sorted. The names stay in the
/// section.
#[derive(Debug, Default)]
pub(super) struct TypeIndex(Vec<(u64, u64)>);

fn hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

impl DebugInfo {
    /// The type of that exact name, as debug info spells it (`net/http.Request`,
    /// `[]uint8`, `*main.T`). The first call reads the unit that has nearly all types, the
    /// first for a name that is not among them reads the others.
    pub fn find_type(&self, name: &str) -> Result<Option<TypeId>, Error> {
        let dwarf = self.dwarf(false)?;
        let wanted = hash(name.as_bytes());
        for part in Part::BOTH {
            let index = self.type_index(&dwarf, part)?;
            let first = index.0.partition_point(|entry| entry.0 < wanted);
            let same = index.0.get(first..).unwrap_or_default();
            for (_, offset) in same.iter().take_while(|entry| entry.0 == wanted) {
                let id = TypeId(*offset);
                if &*self.type_info(id)?.name == name {
                    return Ok(Some(id));
                }
            }
        }
        Ok(None)
    }

    /// All Go types by name with their ids, unsorted; a name may come more than once. For
    /// listings and for the nearest names to one that was not found.
    pub fn type_names(&self) -> Result<Vec<(String, TypeId)>, Error> {
        let dwarf = self.dwarf(false)?;
        let mut names = Vec::new();
        for part in Part::BOTH {
            self.each_type(&dwarf, part, |name, offset| {
                names.push((String::from_utf8_lossy(name).into_owned(), TypeId(offset)));
            })?;
        }
        Ok(names)
    }

    fn type_index(&self, dwarf: &gimli::Dwarf<Slice<'_>>, part: Part) -> Result<&TypeIndex, Error> {
        let [runtime, others] = &self.type_index;
        let cell = if part == Part::Runtime { runtime } else { others };
        if let Some(index) = cell.get() {
            return Ok(index);
        }
        let mut entries = Vec::new();
        self.each_type(dwarf, part, |name, offset| entries.push((hash(name), offset)))?;
        entries.sort_unstable();
        Ok(cell.get_or_init(|| TypeIndex(entries)))
    }

    /// Calls `found` for every named type of the Go units of a part.
    fn each_type(
        &self,
        dwarf: &gimli::Dwarf<Slice<'_>>,
        part: Part,
        mut found: impl FnMut(&[u8], u64),
    ) -> Result<(), Error> {
        let mut left = MAX_TYPES;
        let is_runtime = part == Part::Runtime;
        let units = self.units()?.entries.iter();
        for entry in units.filter(|unit| unit.is_go && unit.is_runtime == is_runtime) {
            let unit = self.load_unit(dwarf, entry.start)?;
            types_of_unit(&unit, dwarf, &mut left, &mut found).map_err(malformed)?;
        }
        Ok(())
    }
}

/// Which units. The linker puts the types of the whole program into package runtime's
/// (`cmd/link/internal/ld/dwarf.go`, dwtypes); a few stand with their packages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Runtime,
    Others,
}

impl Part {
    const BOTH: [Self; 2] = [Self::Runtime, Self::Others];
}

fn types_of_unit(
    unit: &Unit<'_>,
    dwarf: &gimli::Dwarf<Slice<'_>>,
    left: &mut usize,
    found: &mut impl FnMut(&[u8], u64),
) -> Result<(), gimli::Error> {
    let base = unit.header.offset().as_debug_info_offset().map_or(0, |offset| offset.0);
    let mut entries = unit.entries_raw(None)?;
    while !entries.is_empty() && *left > 0 {
        let offset = entries.next_offset();
        let depth = entries.next_depth();
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        if depth != 1 || !is_type(abbreviation.tag()) {
            entries.skip_attributes(abbreviation.attributes())?;
            continue;
        }
        for spec in abbreviation.attributes() {
            let attribute = entries.read_attribute(*spec)?;
            if attribute.name() == constants::DW_AT_name
                && let Ok(name) = dwarf.attr_string(unit, attribute.value())
            {
                *left -= 1;
                found(name.slice(), (base + offset.0) as u64);
                if *left == 0 {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

fn is_type(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        constants::DW_TAG_base_type
            | constants::DW_TAG_structure_type
            | constants::DW_TAG_array_type
            | constants::DW_TAG_pointer_type
            | constants::DW_TAG_subroutine_type
            | constants::DW_TAG_typedef
    )
}
