//! Units: where each lies and which addresses it covers.

use super::sections::Slice;
use super::{DebugInfo, Subprograms, lock, malformed};
use crate::Error;
use gimli::{AttributeValue, DebugInfoOffset, constants};
use std::sync::Arc;

/// A parsed unit header with the bases that its attributes refer to.
pub(super) type Unit<'a> = gimli::Unit<Slice<'a>>;

/// More units than any program has; a bound on hostile input.
const MAX_UNITS: usize = 1 << 20;

/// One unit.
#[derive(Debug)]
pub(super) struct UnitEntry {
    /// Where its header starts in `.debug_info`.
    pub(super) start: usize,
    /// Whether the Go compiler or assembler made it (else C, by cgo).
    pub(super) is_go: bool,
    /// Whether it is package runtime's, which also holds the program's types.
    pub(super) is_runtime: bool,
    /// Path of its package, empty unless it is Go's.
    pub(super) name: Box<str>,
}

/// All units, in file order.
#[derive(Debug, Default)]
pub(super) struct UnitTable {
    pub(super) entries: Vec<UnitEntry>,
    /// Start, end, index in `entries`; sorted by start.
    ranges: Vec<(u64, u64, usize)>,
}

impl UnitTable {
    /// Reads all unit headers and root entries.
    pub(super) fn build(debug: &DebugInfo) -> Result<Self, Error> {
        let dwarf = debug.dwarf(false)?;
        let mut table = Self::default();
        let mut headers = dwarf.units();
        while let Some(header) = headers.next().map_err(malformed)? {
            let Some(start) = header.offset().as_debug_info_offset() else { continue };
            if table.entries.len() >= MAX_UNITS {
                return Err(Error::corrupt("debug info", "too many units"));
            }
            // A unit that cannot be read takes only its own functions with it.
            let read = debug.load_unit(&dwarf, start.0).ok();
            let root = read.as_ref().and_then(|unit| Root::read(&dwarf, unit).ok());
            let root = root.unwrap_or_default();
            let index = table.entries.len();
            table.ranges.extend(root.ranges.iter().map(|&(from, to)| (from, to, index)));
            table.entries.push(UnitEntry {
                start: start.0,
                is_go: root.is_go,
                is_runtime: root.is_runtime,
                name: root.name,
            });
        }
        table.ranges.sort_unstable();
        Ok(table)
    }

    /// The unit whose code holds an address.
    pub(super) fn of_address(&self, address: u64) -> Option<usize> {
        let after = self.ranges.partition_point(|range| range.0 <= address);
        let (_, end, index) = *self.ranges.get(after.checked_sub(1)?)?;
        (address < end).then_some(index)
    }

    /// The unit that holds an offset of `.debug_info`.
    pub(super) fn of_offset(&self, offset: usize) -> Option<usize> {
        self.entries.partition_point(|entry| entry.start <= offset).checked_sub(1)
    }
}

/// What a unit's root entry says.
#[derive(Default)]
struct Root {
    is_go: bool,
    is_runtime: bool,
    name: Box<str>,
    ranges: Vec<(u64, u64)>,
}

impl Root {
    fn read<'a>(dwarf: &gimli::Dwarf<Slice<'a>>, unit: &Unit<'a>) -> Result<Self, gimli::Error> {
        let mut cursor = unit.entries();
        cursor.next_dfs()?;
        let Some(entry) = cursor.current() else { return Ok(Self::default()) };
        let language = entry.attr_value(constants::DW_AT_language)?;
        let is_go = language == Some(AttributeValue::Language(constants::DW_LANG_Go));
        let name = unit.name.filter(|_| is_go).map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default().into_boxed_str();
        let is_runtime = &*name == "runtime";
        let mut ranges = Vec::new();
        let mut iter = dwarf.die_ranges(unit, entry)?;
        while let Some(range) = iter.next()? {
            if range.begin < range.end && ranges.len() < MAX_UNITS {
                ranges.push((range.begin, range.end));
            }
        }
        Ok(Self { is_go, is_runtime, name, ranges })
    }
}

impl DebugInfo {
    /// Parses a unit's header and root entry. Like [`gimli::Unit::new`], but leaves the
    /// line table alone and shares abbreviations: Go has one table for all its units.
    pub(super) fn load_unit<'a>(
        &self,
        dwarf: &gimli::Dwarf<Slice<'a>>,
        start: usize,
    ) -> Result<Unit<'a>, Error> {
        let header =
            dwarf.debug_info.header_from_offset(DebugInfoOffset(start)).map_err(malformed)?;
        let table = header.debug_abbrev_offset().0;
        let known = lock(&self.abbreviations).get(&table).cloned();
        let abbreviations = match known {
            Some(abbreviations) => abbreviations,
            None => {
                let parsed = dwarf.abbreviations(&header).map_err(malformed)?;
                lock(&self.abbreviations).insert(table, Arc::clone(&parsed));
                parsed
            }
        };
        let mut unit = gimli::Unit {
            abbreviations,
            name: None,
            comp_dir: None,
            low_pc: 0,
            str_offsets_base: gimli::DebugStrOffsetsBase::default_for_encoding_and_file(
                header.encoding(),
                gimli::DwarfFileType::Main,
            ),
            addr_base: gimli::DebugAddrBase(0),
            loclists_base: gimli::DebugLocListsBase::default_for_encoding_and_file(
                header.encoding(),
                gimli::DwarfFileType::Main,
            ),
            rnglists_base: gimli::DebugRngListsBase::default_for_encoding_and_file(
                header.encoding(),
                gimli::DwarfFileType::Main,
            ),
            line_program: None,
            dwo_id: None,
            header,
        };
        read_bases(dwarf, &mut unit).map_err(malformed)?;
        Ok(unit)
    }

    /// The functions of a unit by first instruction, found once and kept.
    pub(super) fn subprograms(
        &self,
        index: usize,
        unit: &Unit<'_>,
        dwarf: &gimli::Dwarf<Slice<'_>>,
    ) -> Result<Subprograms, Error> {
        if let Some(known) = lock(&self.subprograms).get(&index) {
            return Ok(Arc::clone(known));
        }
        let found: Subprograms = list_subprograms(unit, dwarf).map_err(malformed)?.into();
        lock(&self.subprograms).insert(index, Arc::clone(&found));
        Ok(found)
    }
}

/// Name, lowest address and bases, from the root entry.
fn read_bases<'a>(
    dwarf: &gimli::Dwarf<Slice<'a>>,
    unit: &mut Unit<'a>,
) -> Result<(), gimli::Error> {
    let mut name = None;
    let mut low_pc = None;
    {
        let header = unit.header;
        let abbreviations = Arc::clone(&unit.abbreviations);
        let mut cursor = header.entries(&abbreviations);
        cursor.next_dfs()?;
        let root = cursor.current().ok_or(gimli::Error::MissingUnitDie)?;
        let mut attributes = root.attrs();
        while let Some(attribute) = attributes.next()? {
            match (attribute.name(), attribute.value()) {
                (constants::DW_AT_name, value) => name = Some(value),
                (constants::DW_AT_low_pc, value) => low_pc = Some(value),
                (_, AttributeValue::DebugStrOffsetsBase(base)) => unit.str_offsets_base = base,
                (_, AttributeValue::DebugAddrBase(base)) => unit.addr_base = base,
                (_, AttributeValue::DebugLocListsBase(base)) => unit.loclists_base = base,
                (_, AttributeValue::DebugRngListsBase(base)) => unit.rnglists_base = base,
                _ => {}
            }
        }
    }
    unit.name = name.and_then(|value| dwarf.attr_string(unit, value).ok());
    if let Some(value) = low_pc {
        unit.low_pc = dwarf.attr_address(unit, value)?.unwrap_or(0);
    }
    Ok(())
}

/// One pass over a unit; of entries that are no function the attributes are skipped.
fn list_subprograms(
    unit: &Unit<'_>,
    dwarf: &gimli::Dwarf<Slice<'_>>,
) -> Result<Vec<(u64, u64)>, gimli::Error> {
    let base = unit.header.offset().as_debug_info_offset().map_or(0, |offset| offset.0);
    let mut found = Vec::new();
    let mut entries = unit.entries_raw(None)?;
    while !entries.is_empty() {
        let offset = entries.next_offset();
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        if abbreviation.tag() != constants::DW_TAG_subprogram {
            entries.skip_attributes(abbreviation.attributes())?;
            continue;
        }
        for spec in abbreviation.attributes() {
            let attribute = entries.read_attribute(*spec)?;
            if attribute.name() == constants::DW_AT_low_pc
                && let Some(low_pc) = dwarf.attr_address(unit, attribute.value())?
            {
                found.push((low_pc, (base + offset.0) as u64));
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}
