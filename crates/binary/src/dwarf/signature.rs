//! What debug info says about one function.

use super::location::{self, Described};
use super::sections::Slice;
use super::unit::Unit;
use super::{DebugInfo, malformed};
use crate::Error;
use crate::types::TypeId;
use address::Svma;
use gimli::{AttributeValue, DebuggingInformationEntry, UnitOffset, constants};

/// Offset of a captured variable in its closure (from Go 1.23), bytes.
const DW_AT_GO_CLOSURE_OFFSET: gimli::DwAt = gimli::DwAt(0x2907);

/// Name of a generic's hidden parameter (from Go 1.27).
const DICTIONARY: &str = ".dict";

/// More variables than a function has; a bound on hostile input.
const MAX_VARIABLES: usize = 1024;

/// Parameters and results of a function, in the order of the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    /// Symbol name as debug info has it: instantiations in full (`main.Map[go.shape.int]`).
    pub name: String,
    /// Whether it is marked as a wrapper.
    pub is_trampoline: bool,
    /// Receiver, then parameters. Up to Go 1.21 unnamed and blank ones are missing.
    pub params: Vec<Variable>,
    /// Results.
    pub results: Vec<Variable>,
    /// Variables a closure captured (from Go 1.23).
    pub captured: Vec<Captured>,
    /// After how many parameters debug info lists a generic's hidden dictionary (from
    /// Go 1.27). True for closures that capture it; for others the rule holds, see
    /// [`crate::dictionary_position`].
    pub dictionary: Option<usize>,
}

/// A parameter or result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Name; `~p0`, `~r0`, `_` for unnamed ones.
    pub name: String,
    /// Its type.
    pub ty: TypeId,
    /// Where debug info says it is at the first instruction, if it was asked for.
    pub described: Option<Described>,
}

/// A variable that a closure captured: it lies in the object that RDX points to at entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Name; `&x` when captured by reference.
    pub name: String,
    /// Its type.
    pub ty: TypeId,
    /// Place in the closure object, bytes.
    pub offset: u64,
}

type Entry<'a, 'u> = DebuggingInformationEntry<'u, 'u, Slice<'a>>;

impl DebugInfo {
    /// The signature of the Go function whose first instruction is at `entry`. By address,
    /// since an ABI0 function and its ABIInternal twin have one name. `None` when debug
    /// info has no such Go function (assembly has none).
    pub fn signature(&self, entry: Svma) -> Result<Option<Signature>, Error> {
        self.read_signature(entry, false)
    }

    /// As [`Self::signature`], with [`Variable::described`] filled in.
    pub fn signature_with_locations(&self, entry: Svma) -> Result<Option<Signature>, Error> {
        self.read_signature(entry, true)
    }

    fn read_signature(&self, entry: Svma, locations: bool) -> Result<Option<Signature>, Error> {
        let units = self.units()?;
        let Some(index) = units.of_address(entry.0) else { return Ok(None) };
        let Some(known) = units.entries.get(index).filter(|unit| unit.is_go) else {
            return Ok(None);
        };
        let dwarf = self.dwarf(locations)?;
        let unit = self.load_unit(&dwarf, known.start)?;
        let functions = self.subprograms(index, &unit, &dwarf)?;
        let Ok(found) = functions.binary_search_by_key(&entry.0, |function| function.0) else {
            return Ok(None);
        };
        let Some(offset) = functions.get(found).and_then(|f| in_unit(&unit, f.1)) else {
            return Ok(None);
        };
        let reader = Reader { debug: self, dwarf: &dwarf, unit: &unit, entry: entry.0, locations };
        reader.function(offset).map(Some)
    }

    /// The addresses of all Go functions that debug info describes, unsorted. Parses every
    /// unit: for checks over whole programs.
    pub fn described_functions(&self) -> Result<Vec<Svma>, Error> {
        let dwarf = self.dwarf(false)?;
        let mut all = Vec::new();
        for (index, entry) in self.units()?.entries.iter().enumerate() {
            if entry.is_go {
                let unit = self.load_unit(&dwarf, entry.start)?;
                let functions = self.subprograms(index, &unit, &dwarf)?;
                all.extend(functions.iter().map(|function| Svma(function.0)));
            }
        }
        Ok(all)
    }
}

/// An offset of `.debug_info` relative to its unit.
fn in_unit(unit: &Unit<'_>, offset: u64) -> Option<UnitOffset> {
    let start = unit.header.offset().as_debug_info_offset()?.0;
    Some(UnitOffset(usize::try_from(offset).ok()?.checked_sub(start)?))
}

struct Reader<'a, 'u> {
    debug: &'u DebugInfo,
    dwarf: &'u gimli::Dwarf<Slice<'a>>,
    unit: &'u Unit<'a>,
    entry: u64,
    locations: bool,
}

/// A parameter's or result's entry, before it is sorted into one of the lists.
struct Parameter {
    /// Where it is in `.debug_info`; that of its origin for a concrete instance.
    identity: u64,
    variable: Variable,
    is_result: bool,
}

impl<'a> Reader<'a, '_> {
    fn function(&self, offset: UnitOffset) -> Result<Signature, Error> {
        let entry = self.unit.entry(offset).map_err(malformed)?;
        let mut signature = Signature {
            name: self.name(self.unit, &entry)?,
            is_trampoline: has(&entry, constants::DW_AT_trampoline)?,
            ..Signature::default()
        };
        let (mut parameters, captured) = self.children(self.unit, offset)?;
        signature.captured = captured;
        // A concrete instance of an inlinable function names its origin, which has all
        // parameters; the instance's children have the places.
        if let Some(origin) = self.origin(self.unit, &entry)? {
            let unit = self.unit_of(origin)?;
            let Some(at) = in_unit(&unit, origin) else {
                return Err(Error::corrupt("debug info", "abstract origin outside its unit"));
            };
            let entry = unit.entry(at).map_err(malformed)?;
            signature.name = self.name(&unit, &entry)?;
            let (mut abstracts, _) = self.children(&unit, at)?;
            for parameter in &mut abstracts {
                let same = parameters.iter().find(|p| p.identity == parameter.identity);
                parameter.variable.described = same.and_then(|p| p.variable.described.clone());
            }
            // Only the instance has the dictionary, at a place that says nothing.
            let dictionary = parameters.iter().position(|p| p.variable.name == DICTIONARY);
            let dictionary = dictionary.map(|at| parameters.remove(at));
            if abstracts.len() >= parameters.len() {
                parameters = abstracts;
            }
            parameters.extend(dictionary);
        }
        sort_into(&mut signature, parameters);
        Ok(signature)
    }

    fn children(
        &self,
        unit: &Unit<'a>,
        offset: UnitOffset,
    ) -> Result<(Vec<Parameter>, Vec<Captured>), Error> {
        let (mut parameters, mut captured) = (Vec::new(), Vec::new());
        let mut tree = unit.entries_tree(Some(offset)).map_err(malformed)?;
        let root = tree.root().map_err(malformed)?;
        let mut children = root.children();
        while let Some(child) = children.next().map_err(malformed)? {
            let entry = child.entry();
            if parameters.len() + captured.len() >= MAX_VARIABLES {
                return Err(Error::corrupt("debug info", "a function with too many variables"));
            }
            match entry.tag() {
                constants::DW_TAG_formal_parameter => {
                    parameters.extend(self.parameter(unit, entry)?);
                }
                constants::DW_TAG_variable => captured.extend(self.captured(unit, entry)?),
                _ => {}
            }
        }
        Ok((parameters, captured))
    }

    fn parameter(
        &self,
        unit: &Unit<'a>,
        entry: &Entry<'a, '_>,
    ) -> Result<Option<Parameter>, Error> {
        let place = match entry.attr_value(constants::DW_AT_location).map_err(malformed)? {
            Some(location) if self.locations => Some(location),
            _ => None,
        };
        let (identity, mut parameter) = match self.origin(unit, entry)? {
            Some(origin) => {
                let home = self.unit_of(origin)?;
                let Some(at) = in_unit(&home, origin) else { return Ok(None) };
                let entry = home.entry(at).map_err(malformed)?;
                (origin, self.plain_parameter(&home, &entry)?)
            }
            None => (self.global(unit, entry.offset()), self.plain_parameter(unit, entry)?),
        };
        if let Some(parameter) = &mut parameter {
            parameter.identity = identity;
            if let Some(location) = place {
                parameter.variable.described =
                    location::at_entry(self.dwarf, unit, location, self.entry);
            }
        }
        Ok(parameter)
    }

    fn plain_parameter(
        &self,
        unit: &Unit<'a>,
        entry: &Entry<'a, '_>,
    ) -> Result<Option<Parameter>, Error> {
        let Some(ty) = self.ty(unit, entry)? else { return Ok(None) };
        let name = self.name(unit, entry)?;
        let is_result = has(entry, constants::DW_AT_variable_parameter)?;
        let variable = Variable { name, ty, described: None };
        Ok(Some(Parameter { identity: 0, variable, is_result }))
    }

    fn captured(&self, unit: &Unit<'a>, entry: &Entry<'a, '_>) -> Result<Option<Captured>, Error> {
        let offset = entry.attr_value(DW_AT_GO_CLOSURE_OFFSET).map_err(malformed)?;
        let Some(offset) = offset.and_then(|value| value.udata_value()) else { return Ok(None) };
        let Some(ty) = self.ty(unit, entry)? else { return Ok(None) };
        Ok(Some(Captured { name: self.name(unit, entry)?, ty, offset }))
    }

    fn name(&self, unit: &Unit<'a>, entry: &Entry<'a, '_>) -> Result<String, Error> {
        let Some(value) = entry.attr_value(constants::DW_AT_name).map_err(malformed)? else {
            return Ok(String::new());
        };
        let text = self.dwarf.attr_string(unit, value).map_err(malformed)?;
        Ok(text.to_string_lossy().into_owned())
    }

    fn origin(&self, unit: &Unit<'a>, entry: &Entry<'a, '_>) -> Result<Option<u64>, Error> {
        let value = entry.attr_value(constants::DW_AT_abstract_origin).map_err(malformed)?;
        Ok(value.and_then(|value| reference(unit, &value)))
    }

    fn ty(&self, unit: &Unit<'a>, entry: &Entry<'a, '_>) -> Result<Option<TypeId>, Error> {
        let value = entry.attr_value(constants::DW_AT_type).map_err(malformed)?;
        Ok(value.and_then(|value| reference(unit, &value)).map(TypeId))
    }

    fn unit_of(&self, offset: u64) -> Result<Unit<'a>, Error> {
        self.debug.unit_of_offset(self.dwarf, offset)
    }

    fn global(&self, unit: &Unit<'a>, offset: UnitOffset) -> u64 {
        offset.to_debug_info_offset(&unit.header).map_or(0, |offset| offset.0 as u64)
    }
}

impl DebugInfo {
    /// The unit that holds an offset of `.debug_info`.
    pub(super) fn unit_of_offset<'a>(
        &self,
        dwarf: &gimli::Dwarf<Slice<'a>>,
        offset: u64,
    ) -> Result<Unit<'a>, Error> {
        let units = self.units()?;
        let start = usize::try_from(offset)
            .ok()
            .and_then(|offset| units.of_offset(offset))
            .and_then(|index| units.entries.get(index))
            .ok_or_else(|| Error::corrupt("debug info", "a reference to no unit"))?
            .start;
        self.load_unit(dwarf, start)
    }
}

/// A reference to another entry, as an offset of `.debug_info`.
pub(super) fn reference(unit: &Unit<'_>, value: &AttributeValue<Slice<'_>>) -> Option<u64> {
    match value {
        AttributeValue::UnitRef(offset) => {
            offset.to_debug_info_offset(&unit.header).map(|offset| offset.0 as u64)
        }
        AttributeValue::DebugInfoRef(offset) => Some(offset.0 as u64),
        _ => None,
    }
}

/// Whether a flag is set.
fn has(entry: &Entry<'_, '_>, name: gimli::DwAt) -> Result<bool, Error> {
    let value = entry.attr_value(name).map_err(malformed)?;
    Ok(match value {
        Some(AttributeValue::Flag(set)) => set,
        Some(value) => value.udata_value().is_some_and(|value| value != 0),
        None => false,
    })
}

fn sort_into(signature: &mut Signature, parameters: Vec<Parameter>) {
    for parameter in parameters {
        let variable = parameter.variable;
        if parameter.is_result {
            // Up to Go 1.26 a result may have several entries.
            let again = variable.name != "_"
                && signature.results.iter().any(|known| known.name == variable.name);
            if !again {
                signature.results.push(variable);
            }
        } else if variable.name == DICTIONARY {
            signature.dictionary = Some(signature.params.len());
        } else {
            signature.params.push(variable);
        }
    }
}
