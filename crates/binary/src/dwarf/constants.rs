//! Named constants of integer types.

use super::sections::Slice;
use super::signature::reference;
use super::unit::Unit;
use super::{DebugInfo, lock, malformed};
use crate::Error;
use crate::types::TypeId;
use gimli::{AttributeValue, constants};
use std::collections::HashMap;
use std::sync::Arc;

/// More constants than any package has; a bound on hostile input.
const MAX_CONSTANTS: usize = 1 << 16;

/// Values and names, sorted by value; of several names of a value the first in the source.
pub(super) type Constants = Arc<[(i64, Arc<str>)]>;

/// The constants of a package by their types.
pub(super) type PackageConstants = Arc<HashMap<TypeId, Constants>>;

impl DebugInfo {
    /// Integer constants that the package of a type (`net/http` for `net/http.ConnState`) declares
    /// with it, without the package's name. The compiler describes those of packages that it
    /// compiles (`cmd/compile/internal/gc/obj.go`, dumpGlobalConst).
    pub fn constants_of(&self, id: TypeId, package: &str) -> Result<Constants, Error> {
        let known = lock(&self.constants).get(package).cloned();
        let of_package = match known {
            Some(known) => known,
            None => {
                let read = Arc::new(self.read_constants(package)?);
                lock(&self.constants).insert(package.into(), Arc::clone(&read));
                read
            }
        };
        Ok(of_package.get(&id).cloned().unwrap_or_default())
    }

    fn read_constants(&self, package: &str) -> Result<HashMap<TypeId, Constants>, Error> {
        let dwarf = self.dwarf(false)?;
        let mut found: HashMap<TypeId, Vec<(i64, Arc<str>)>> = HashMap::new();
        let is_wanted = |unit: &&super::unit::UnitEntry| unit.is_go && *unit.name == *package;
        for entry in self.units()?.entries.iter().filter(is_wanted) {
            let unit = self.load_unit(&dwarf, entry.start)?;
            constants_of_unit(&unit, &dwarf, package, &mut found).map_err(malformed)?;
        }
        let sorted = found.into_iter().map(|(id, mut names)| {
            names.sort_by_key(|(value, _)| *value);
            names.dedup_by_key(|(value, _)| *value);
            (id, names.into())
        });
        Ok(sorted.collect())
    }
}

/// One pass over the children of the unit's root entry.
fn constants_of_unit(
    unit: &Unit<'_>,
    dwarf: &gimli::Dwarf<Slice<'_>>,
    package: &str,
    found: &mut HashMap<TypeId, Vec<(i64, Arc<str>)>>,
) -> Result<(), gimli::Error> {
    let mut left = MAX_CONSTANTS;
    let mut entries = unit.entries_raw(None)?;
    while !entries.is_empty() && left > 0 {
        let depth = entries.next_depth();
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        if depth != 1 || abbreviation.tag() != constants::DW_TAG_constant {
            entries.skip_attributes(abbreviation.attributes())?;
            continue;
        }
        let (mut name, mut value, mut ty) = (None, None, None);
        for spec in abbreviation.attributes() {
            let attribute = entries.read_attribute(*spec)?;
            match attribute.name() {
                constants::DW_AT_name => name = dwarf.attr_string(unit, attribute.value()).ok(),
                constants::DW_AT_const_value => value = number(&attribute.value()),
                constants::DW_AT_type => ty = reference(unit, &attribute.value()).map(TypeId),
                _ => {}
            }
        }
        if let (Some(name), Some(value), Some(ty)) = (name, value, ty) {
            let full = name.to_string_lossy();
            let short = full.strip_prefix(package).and_then(|rest| rest.strip_prefix('.'));
            found.entry(ty).or_default().push((value, short.unwrap_or(&full).into()));
            left -= 1;
        }
    }
    Ok(())
}

fn number(value: &AttributeValue<Slice<'_>>) -> Option<i64> {
    match value {
        AttributeValue::Sdata(value) => Some(*value),
        AttributeValue::Udata(value) => i64::try_from(*value).ok(),
        other => other.sdata_value(),
    }
}
