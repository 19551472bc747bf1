//! From entries of `.debug_info` to [`TypeInfo`].

use super::sections::Slice;
use super::signature::reference;
use super::unit::Unit;
use super::{DebugInfo, lock, malformed};
use crate::Error;
use crate::abi::AbiType;
use crate::abi_type::abi_type;
use crate::types::{Field, Kind, TypeId, TypeInfo};
use gimli::{AttributeValue, DebuggingInformationEntry, UnitOffset, constants};
use std::sync::Arc;

/// Attributes of `cmd/internal/dwarf/dwarf.go`.
const DW_AT_GO_KIND: gimli::DwAt = gimli::DwAt(0x2900);
const DW_AT_GO_KEY: gimli::DwAt = gimli::DwAt(0x2901);
const DW_AT_GO_ELEM: gimli::DwAt = gimli::DwAt(0x2902);
const DW_AT_GO_EMBEDDED_FIELD: gimli::DwAt = gimli::DwAt(0x2903);
const DW_AT_GO_DICT_INDEX: gimli::DwAt = gimli::DwAt(0x2906);

/// Typedefs followed; Go needs two or three.
const MAX_CHAIN: usize = 16;

/// How deep structs and arrays are nested by value.
const MAX_DEPTH: usize = 48;

/// Fields of one struct.
const MAX_FIELDS: usize = 1 << 16;

/// Types kept; then the cache is emptied.
const MAX_CACHED: usize = 1 << 16;

type Entry<'a, 'u> = DebuggingInformationEntry<'u, 'u, Slice<'a>>;

impl DebugInfo {
    /// Resolves a type. Fails on entries that contradict themselves or nest too deep.
    pub fn type_info(&self, id: TypeId) -> Result<Arc<TypeInfo>, Error> {
        let dwarf = self.dwarf(false)?;
        self.type_at_depth(&dwarf, id, 0)
    }

    fn type_at_depth(
        &self,
        dwarf: &gimli::Dwarf<Slice<'_>>,
        id: TypeId,
        depth: usize,
    ) -> Result<Arc<TypeInfo>, Error> {
        if let Some(known) = lock(&self.types).get(&id) {
            return Ok(Arc::clone(known));
        }
        if depth > MAX_DEPTH {
            return Err(Error::corrupt("debug info", "types nest too deep"));
        }
        let info = Arc::new(Resolver { debug: self, dwarf, depth }.resolve(id)?);
        let mut cache = lock(&self.types);
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        cache.insert(id, Arc::clone(&info));
        Ok(info)
    }

    /// Which word of a generic's dictionary leads to the descriptor of the type that stands for this one
    /// in a call; `None` for types that hang on no type parameter.
    pub fn dictionary_index(&self, id: TypeId) -> Result<Option<u64>, Error> {
        let dwarf = self.dwarf(false)?;
        let unit = self.unit_of_offset(&dwarf, id.0)?;
        let entry = unit.entry(unit_offset(&unit, id)?).map_err(malformed)?;
        unsigned(&entry, DW_AT_GO_DICT_INDEX)
    }

    /// A type as the calling convention sees it.
    pub fn abi_type(&self, id: TypeId) -> Result<AbiType, Error> {
        let dwarf = self.dwarf(false)?;
        abi_type(id, &|id, depth| self.type_at_depth(&dwarf, id, depth))
    }
}

struct Resolver<'a, 'd> {
    debug: &'d DebugInfo,
    dwarf: &'d gimli::Dwarf<Slice<'a>>,
    depth: usize,
}

impl<'a> Resolver<'a, '_> {
    /// Follows typedefs to what a type is made of. The outermost name counts, but not
    /// the `.paramN` of generic functions.
    fn resolve(&self, id: TypeId) -> Result<TypeInfo, Error> {
        let mut name: Option<Arc<str>> = None;
        let mut at = id;
        for _ in 0..MAX_CHAIN {
            let unit = self.debug.unit_of_offset(self.dwarf, at.0)?;
            let offset = unit_offset(&unit, at)?;
            let entry = unit.entry(offset).map_err(malformed)?;
            if name.is_none() {
                name = self.name(&unit, &entry)?.filter(|name| !name.starts_with(".param"));
            }
            match self.kind(&unit, offset, &entry)? {
                Resolved::Kind { size, align, kind } => {
                    let name = name.unwrap_or_else(|| "?".into());
                    return Ok(TypeInfo { id, name, size, align: align.max(1), kind });
                }
                Resolved::Alias(next) => at = next,
            }
        }
        Err(Error::corrupt("debug info", "a typedef that does not end"))
    }

    fn kind(
        &self,
        unit: &Unit<'a>,
        offset: UnitOffset,
        entry: &Entry<'a, '_>,
    ) -> Result<Resolved, Error> {
        let go_kind = unsigned(entry, DW_AT_GO_KIND)?.unwrap_or(0);
        let size = unsigned(entry, constants::DW_AT_byte_size)?.unwrap_or(0);
        let target = self.reference(unit, entry, constants::DW_AT_type)?;
        let word = |kind| Resolved::Kind { size: 8, align: 8, kind };
        Ok(match (go_kind & 31, entry.tag()) {
            (18, _) => word(Kind::Chan),
            (19, _) | (_, constants::DW_TAG_subroutine_type) => word(Kind::Func),
            (21, _) => word(self.map(unit, entry, target)?),
            (20, _) => self.interface(target)?,
            (23, constants::DW_TAG_structure_type) => {
                let elem = self.reference(unit, entry, DW_AT_GO_ELEM)?;
                let elem = elem.ok_or_else(|| missing("a slice's element type"))?;
                Resolved::Kind { size, align: 8, kind: Kind::Slice { elem } }
            }
            (24, constants::DW_TAG_structure_type) => {
                Resolved::Kind { size, align: 8, kind: Kind::String }
            }
            (_, constants::DW_TAG_pointer_type) if target.is_none() && go_kind != 22 => {
                word(Kind::UnsafePointer)
            }
            (_, constants::DW_TAG_pointer_type) => word(Kind::Pointer { elem: target }),
            (_, constants::DW_TAG_base_type) => base(entry, size)?,
            (_, constants::DW_TAG_enumeration_type) => {
                Resolved::Kind { size, align: size, kind: Kind::Int { signed: false } }
            }
            (_, constants::DW_TAG_structure_type) => self.structure(unit, offset, size)?,
            (_, constants::DW_TAG_array_type) => self.array(unit, offset, target)?,
            (
                _,
                constants::DW_TAG_typedef
                | constants::DW_TAG_const_type
                | constants::DW_TAG_volatile_type
                | constants::DW_TAG_restrict_type,
            ) if target.is_some() => Resolved::Alias(target.unwrap_or(TypeId(0))),
            _ => Resolved::Kind { size, align: 8, kind: Kind::Other },
        })
    }

    /// An interface is a typedef of `runtime.iface` or, without methods, `runtime.eface`;
    /// a named one is a typedef of that typedef.
    fn interface(&self, target: Option<TypeId>) -> Result<Resolved, Error> {
        let target = target.ok_or_else(|| missing("an interface's words"))?;
        let unit = self.debug.unit_of_offset(self.dwarf, target.0)?;
        let entry = unit.entry(unit_offset(&unit, target)?).map_err(malformed)?;
        let name = self.name(&unit, &entry)?;
        let empty = name.as_deref() == Some("runtime.eface");
        Ok(Resolved::Kind { size: 16, align: 8, kind: Kind::Interface { empty } })
    }

    /// Key and element are stated by the unnamed map type; a named one is a typedef of it.
    fn map(
        &self,
        unit: &Unit<'a>,
        entry: &Entry<'a, '_>,
        target: Option<TypeId>,
    ) -> Result<Kind, Error> {
        let key = self.reference(unit, entry, DW_AT_GO_KEY)?;
        let elem = self.reference(unit, entry, DW_AT_GO_ELEM)?;
        if key.is_some() || elem.is_some() {
            return Ok(Kind::Map { key, elem });
        }
        let mut next = target;
        for _ in 0..MAX_CHAIN {
            let Some(at) = next else { break };
            let unit = self.debug.unit_of_offset(self.dwarf, at.0)?;
            let entry = unit.entry(unit_offset(&unit, at)?).map_err(malformed)?;
            let key = self.reference(&unit, &entry, DW_AT_GO_KEY)?;
            let elem = self.reference(&unit, &entry, DW_AT_GO_ELEM)?;
            if key.is_some() || elem.is_some() {
                return Ok(Kind::Map { key, elem });
            }
            next = self.reference(&unit, &entry, constants::DW_AT_type)?;
        }
        Ok(Kind::Map { key: None, elem: None })
    }

    fn structure(&self, unit: &Unit<'a>, offset: UnitOffset, size: u64) -> Result<Resolved, Error> {
        let mut fields = Vec::new();
        let mut align = 1;
        let mut tree = unit.entries_tree(Some(offset)).map_err(malformed)?;
        let root = tree.root().map_err(malformed)?;
        let mut children = root.children();
        while let Some(child) = children.next().map_err(malformed)? {
            let entry = child.entry();
            if entry.tag() != constants::DW_TAG_member {
                continue;
            }
            if fields.len() >= MAX_FIELDS {
                return Err(Error::corrupt("debug info", "a struct with too many fields"));
            }
            let ty = self.reference(unit, entry, constants::DW_AT_type)?;
            let ty = ty.ok_or_else(|| missing("a field's type"))?;
            let info = self.debug.type_at_depth(self.dwarf, ty, self.depth + 1)?;
            align = align.max(info.align);
            fields.push(Field {
                name: self.name(unit, entry)?.unwrap_or_else(|| "".into()),
                offset: unsigned(entry, constants::DW_AT_data_member_location)?.unwrap_or(0),
                ty,
                embedded: flag(entry, DW_AT_GO_EMBEDDED_FIELD)?,
            });
        }
        Ok(Resolved::Kind { size, align, kind: Kind::Struct { fields } })
    }

    fn array(
        &self,
        unit: &Unit<'a>,
        offset: UnitOffset,
        elem: Option<TypeId>,
    ) -> Result<Resolved, Error> {
        let elem = elem.ok_or_else(|| missing("an array's element type"))?;
        let mut len = 0;
        let mut tree = unit.entries_tree(Some(offset)).map_err(malformed)?;
        let root = tree.root().map_err(malformed)?;
        let stated = unsigned(root.entry(), constants::DW_AT_byte_size)?;
        let mut children = root.children();
        if let Some(child) = children.next().map_err(malformed)? {
            let count = unsigned(child.entry(), constants::DW_AT_count)?;
            let last = unsigned(child.entry(), constants::DW_AT_upper_bound)?;
            len = count.or(last.and_then(|last| last.checked_add(1))).unwrap_or(0);
        }
        let info = self.debug.type_at_depth(self.dwarf, elem, self.depth + 1)?;
        let size = stated.unwrap_or(info.size.saturating_mul(len));
        Ok(Resolved::Kind { size, align: info.align, kind: Kind::Array { elem, len } })
    }

    fn name(&self, unit: &Unit<'a>, entry: &Entry<'a, '_>) -> Result<Option<Arc<str>>, Error> {
        let Some(value) = entry.attr_value(constants::DW_AT_name).map_err(malformed)? else {
            return Ok(None);
        };
        let text = self.dwarf.attr_string(unit, value).map_err(malformed)?;
        Ok(Some(text.to_string_lossy().into()))
    }

    fn reference(
        &self,
        unit: &Unit<'a>,
        entry: &Entry<'a, '_>,
        name: gimli::DwAt,
    ) -> Result<Option<TypeId>, Error> {
        let value = entry.attr_value(name).map_err(malformed)?;
        Ok(value.and_then(|value| reference(unit, &value)).map(TypeId))
    }
}

/// One step of a resolution.
enum Resolved {
    Kind { size: u64, align: u64, kind: Kind },
    Alias(TypeId),
}

fn base(entry: &Entry<'_, '_>, size: u64) -> Result<Resolved, Error> {
    let encoding = entry.attr_value(constants::DW_AT_encoding).map_err(malformed)?;
    let Some(AttributeValue::Encoding(encoding)) = encoding else {
        return Ok(Resolved::Kind { size, align: 1, kind: Kind::Other });
    };
    let kind = match encoding {
        constants::DW_ATE_boolean => Kind::Bool,
        constants::DW_ATE_float => Kind::Float,
        constants::DW_ATE_complex_float => Kind::Complex,
        constants::DW_ATE_signed | constants::DW_ATE_signed_char => Kind::Int { signed: true },
        _ => Kind::Int { signed: false },
    };
    let align = if kind == Kind::Complex { size / 2 } else { size };
    Ok(Resolved::Kind { size, align, kind })
}

fn unit_offset(unit: &Unit<'_>, id: TypeId) -> Result<UnitOffset, Error> {
    let start = unit.header.offset().as_debug_info_offset().map_or(0, |offset| offset.0);
    usize::try_from(id.0)
        .ok()
        .and_then(|offset| offset.checked_sub(start))
        .map(UnitOffset)
        .ok_or_else(|| Error::corrupt("debug info", "a type outside its unit"))
}

fn unsigned(entry: &Entry<'_, '_>, name: gimli::DwAt) -> Result<Option<u64>, Error> {
    let value = entry.attr_value(name).map_err(malformed)?;
    Ok(value.and_then(|value| value.udata_value()))
}

fn flag(entry: &Entry<'_, '_>, name: gimli::DwAt) -> Result<bool, Error> {
    let value = entry.attr_value(name).map_err(malformed)?;
    Ok(match value {
        Some(AttributeValue::Flag(set)) => set,
        Some(value) => value.udata_value().is_some_and(|value| value != 0),
        None => false,
    })
}

fn missing(what: &str) -> Error {
    Error::corrupt("debug info", format!("{what} is missing"))
}
