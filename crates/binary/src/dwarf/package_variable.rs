//! Package variables by name, and where the descriptors of types lie.

use super::sections::Slice;
use super::signature::reference;
use super::unit::Unit;
use super::{DebugInfo, malformed};
use crate::Error;
use crate::types::TypeId;
use address::Svma;
use gimli::{AttributeValue, Operation, UnitOffset, constants};
use std::collections::HashMap;

/// `cmd/internal/dwarf/dwarf.go`: the address of a type's descriptor.
const DW_AT_GO_RUNTIME_TYPE: gimli::DwAt = gimli::DwAt(0x2904);

/// More package variables than any program has; a bound on hostile input.
const MAX_VARIABLES: usize = 1 << 22;

/// A variable of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackageVariable {
    /// Where it lies.
    pub address: Svma,
    /// Its type.
    pub ty: TypeId,
}

/// Typedefs followed to one with a descriptor.
const MAX_TYPEDEFS: usize = 4;

/// All of them by their symbol names (`net/http.DefaultClient`).
pub(super) type PackageVariables = HashMap<Box<str>, PackageVariable>;

impl DebugInfo {
    /// The package variable of that symbol name. The first call reads every unit of Go.
    pub fn package_variable(&self, name: &str) -> Result<Option<PackageVariable>, Error> {
        Ok(self.package_variables()?.get(name).copied())
    }

    /// The names of all package variables of a package (`net/http`), sorted.
    pub fn package_variable_names(&self, package: &str) -> Result<Vec<String>, Error> {
        let of_package = |name: &str| {
            name.strip_prefix(package)
                .is_some_and(|rest| rest.strip_prefix('.').is_some_and(|rest| !rest.contains('/')))
        };
        let all = self.package_variables()?.keys();
        let mut names: Vec<String> =
            all.filter(|name| of_package(name)).map(|name| String::from(&**name)).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn package_variables(&self) -> Result<&PackageVariables, Error> {
        if let Some(known) = self.package_variables.get() {
            return Ok(known);
        }
        let dwarf = self.dwarf(false)?;
        let mut found = PackageVariables::new();
        for entry in self.units()?.entries.iter().filter(|unit| unit.is_go) {
            let unit = self.load_unit(&dwarf, entry.start)?;
            variables_of_unit(&unit, &dwarf, &mut found).map_err(malformed)?;
        }
        Ok(self.package_variables.get_or_init(|| found))
    }

    /// Where the executable has the descriptor (`abi.Type`) of a type; `None` when nothing in the
    /// program needs it.
    pub fn type_descriptor(&self, id: TypeId) -> Result<Option<Svma>, Error> {
        let dwarf = self.dwarf(false)?;
        let mut at = id;
        for _ in 0..MAX_TYPEDEFS {
            let unit = self.unit_of_offset(&dwarf, at.0)?;
            let start = unit.header.offset().as_debug_info_offset().map_or(0, |offset| offset.0);
            let offset = usize::try_from(at.0).ok().and_then(|offset| offset.checked_sub(start));
            let offset =
                offset.ok_or_else(|| Error::corrupt("debug info", "a type outside its unit"))?;
            let entry = unit.entry(UnitOffset(offset)).map_err(malformed)?;
            if let Some(value) = entry.attr_value(DW_AT_GO_RUNTIME_TYPE).map_err(malformed)? {
                let address = dwarf.attr_address(&unit, value).map_err(malformed)?;
                return Ok(address.filter(|address| *address != 0).map(Svma));
            }
            // A named type is a typedef of one that has its name, its kind and its descriptor.
            let target = entry.attr_value(constants::DW_AT_type).map_err(malformed)?;
            match target.and_then(|target| reference(&unit, &target)) {
                Some(next) if entry.tag() == constants::DW_TAG_typedef => at = TypeId(next),
                _ => break,
            }
        }
        Ok(None)
    }
}

/// One pass over the children of the unit's root entry.
fn variables_of_unit(
    unit: &Unit<'_>,
    dwarf: &gimli::Dwarf<Slice<'_>>,
    found: &mut PackageVariables,
) -> Result<(), gimli::Error> {
    let mut entries = unit.entries_raw(None)?;
    while !entries.is_empty() {
        let depth = entries.next_depth();
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        if depth != 1 || abbreviation.tag() != constants::DW_TAG_variable {
            entries.skip_attributes(abbreviation.attributes())?;
            continue;
        }
        let (mut name, mut address, mut ty) = (None, None, None);
        for spec in abbreviation.attributes() {
            let attribute = entries.read_attribute(*spec)?;
            match attribute.name() {
                constants::DW_AT_name => {
                    name = dwarf.attr_string(unit, attribute.value()).ok();
                }
                constants::DW_AT_location => {
                    address = fixed_address(unit, dwarf, attribute.value());
                }
                constants::DW_AT_type => ty = reference(unit, &attribute.value()).map(TypeId),
                _ => {}
            }
        }
        if let (Some(name), Some(address), Some(ty)) = (name, address, ty)
            && found.len() < MAX_VARIABLES
        {
            let name = name.to_string_lossy().into_owned().into_boxed_str();
            found.insert(name, PackageVariable { address, ty });
        }
    }
    Ok(())
}

/// The address that a location is, if it is nothing but an address. Go writes it as a block or as an
/// expression.
fn fixed_address<'a>(
    unit: &Unit<'a>,
    dwarf: &gimli::Dwarf<Slice<'a>>,
    location: AttributeValue<Slice<'a>>,
) -> Option<Svma> {
    let expression = match location {
        AttributeValue::Exprloc(expression) => expression,
        AttributeValue::Block(bytes) => gimli::Expression(bytes),
        _ => return None,
    };
    match expression.operations(unit.encoding()).next().ok()?? {
        Operation::Address { address } => Some(Svma(address)),
        Operation::AddressIndex { index } => dwarf.address(unit, index).ok().map(Svma),
        _ => None,
    }
}
