//! Types from their descriptors: what debug information says, for the types that the
//! program itself needs at run time, and without debug information.

use super::{KIND, KIND_MASK, SIZE, TFLAG, name, type_name};
use crate::bytes::u64_at;
use crate::executable::Executable;
use crate::types::{Field, Kind, TypeId, TypeInfo};
use address::Svma;
use std::sync::Arc;

/// Offsets in `internal/abi.Type`, Go 1.19 to 1.27.
const HASH: usize = 16;
const ALIGN: usize = 21;
/// ... and of what follows it, by kind.
pub(super) const ELEM: u64 = 48;
pub(super) const ARRAY_LEN: u64 = 64;
pub(super) const METHODS: u64 = 56;
pub(super) const METHODS_LEN: u64 = 64;
pub(super) const MAP_ELEM: u64 = 56;
const FIELDS: u64 = 56;
const FIELDS_LEN: u64 = 64;
/// `abi.StructField`: name, type, offset.
const FIELD_SIZE: u64 = 24;

/// The data word of an interface is the value: a bit of the kind up to Go 1.25, of the flags
/// since then, where it meant nothing before.
const DIRECT: u8 = 0x20;
/// Bit of a name's flags: an embedded field (`abi.Name.IsEmbedded`).
const EMBEDDED: u8 = 8;

/// Fields of one struct at the most.
const MAX_FIELDS: u64 = 1 << 12;
/// Itabs at the most; a bound on hostile input.
const MAX_ITABS: u64 = 1 << 18;

/// A type that has a descriptor.
#[derive(Clone, Debug)]
pub struct RuntimeType {
    /// As debug information has it. Its ids, and those of its parts, are those of [`TypeId::of_descriptor`].
    pub info: TypeInfo,
    /// The word of the descriptor that has hash, flags, alignments and kind.
    pub word: u64,
    /// Whether an interface's data word is the value itself and not its address.
    pub is_direct: bool,
}

/// An itab of the file: some type as some interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Itab {
    /// Descriptor of the interface.
    pub interface: Svma,
    /// Descriptor of the type.
    pub dynamic: Svma,
}

impl Executable {
    /// The type whose descriptor is at an address of the file's type data; `None` when there is no
    /// such descriptor, or a damaged one.
    pub fn runtime_type(&self, descriptor: Svma) -> Option<RuntimeType> {
        let module = self.module().ok()?;
        let (short, kind) = type_name(self.image(), module, descriptor)?;
        let raw = self.image().read_vec(descriptor, SIZE).ok()?;
        let flags = *raw.get(TFLAG)?;
        let size = u64_at(&raw, 0)?;
        let kind_byte = *raw.get(KIND)?;
        let info = TypeInfo {
            id: TypeId::of_descriptor(descriptor),
            name: self.full_type_name(descriptor).unwrap_or(short).into(),
            size,
            align: u64::from(*raw.get(ALIGN)?).max(1),
            kind: self.runtime_kind(descriptor, kind, size)?,
        };
        let is_direct = (kind_byte | flags) & DIRECT != 0;
        Some(RuntimeType { info, word: u64_at(&raw, HASH)?, is_direct })
    }

    fn runtime_kind(&self, descriptor: Svma, kind: u8, size: u64) -> Option<Kind> {
        let word = |offset: u64| self.read_word(descriptor.add(offset)).ok();
        let part = |offset: u64| word(offset).map(|word| TypeId::of_descriptor(Svma(word)));
        debug_assert_eq!(kind & KIND_MASK, kind, "a kind without flags");
        Some(match kind {
            1 => Kind::Bool,
            2..=6 => Kind::Int { signed: true },
            7..=12 => Kind::Int { signed: false },
            13 | 14 => Kind::Float,
            15 | 16 => Kind::Complex,
            17 => Kind::Array { elem: part(ELEM)?, len: word(ARRAY_LEN)? },
            18 => Kind::Chan,
            19 => Kind::Func,
            20 => Kind::Interface { empty: word(METHODS_LEN)? == 0 },
            21 => Kind::Map { key: part(ELEM), elem: part(MAP_ELEM) },
            22 => Kind::Pointer { elem: part(ELEM) },
            23 => Kind::Slice { elem: part(ELEM)? },
            24 => Kind::String,
            25 => Kind::Struct { fields: self.runtime_fields(descriptor, size)? },
            26 => Kind::UnsafePointer,
            _ => return None,
        })
    }

    fn runtime_fields(&self, descriptor: Svma, size: u64) -> Option<Vec<Field>> {
        let start = Svma(self.read_word(descriptor.add(FIELDS)).ok()?);
        let count = self.read_word(descriptor.add(FIELDS_LEN)).ok()?;
        if count > MAX_FIELDS {
            return None;
        }
        let mut fields = Vec::new();
        for index in 0..count {
            let at = start.add(index * FIELD_SIZE);
            let name_at = Svma(self.read_word(at).ok()?);
            let flags = *self.image().read_vec(name_at, 1).ok()?.first()?;
            let offset = self.read_word(at.add(16)).ok()?;
            if offset > size {
                return None;
            }
            fields.push(Field {
                name: name::at(self.image(), self.module().ok()?, name_at)?.into(),
                offset,
                ty: TypeId::of_descriptor(Svma(self.read_word(at.add(8)).ok()?)),
                embedded: flags & EMBEDDED != 0,
            });
        }
        Some(fields)
    }

    /// Where a descriptor lies that debug information places there: by its address, or (seen from
    /// Go 1.26 on) by its distance from the start of the type data.
    pub fn descriptor_at(&self, stated: Svma) -> Option<Svma> {
        let module = self.module().ok()?;
        let within = module.types.add(stated.0);
        [stated, within].into_iter().find(|address| module.has_type(*address))
    }

    /// All itabs that the linker made, unsorted.
    pub fn itabs(&self) -> Vec<Itab> {
        let Ok(module) = self.module() else { return Vec::new() };
        let read = |at: Svma| {
            let interface = Svma(self.read_word(at).ok()?);
            let dynamic = Svma(self.read_word(at.add(8)).ok()?);
            let is_known = module.has_type(interface) && module.has_type(dynamic);
            is_known.then_some(Itab { interface, dynamic })
        };
        if let Some((start, count)) = module.itablinks {
            let links = (0..count.min(MAX_ITABS)).map(|index| start.add(8 * index));
            return links.filter_map(|link| read(Svma(self.read_word(link).ok()?))).collect();
        }
        let Some((start, bytes)) = module.itabs else { return Vec::new() };
        let mut found = Vec::new();
        let mut offset = 0;
        while offset < bytes && (found.len() as u64) < MAX_ITABS {
            let Some(itab) = read(start.add(offset)) else { break };
            let methods = self.read_word(itab.interface.add(METHODS_LEN)).unwrap_or(0);
            found.push(itab);
            let Some(size) = methods.max(1).checked_mul(8) else { break };
            offset = offset.saturating_add(24).saturating_add(size);
        }
        found
    }
}

/// Set in the ids of types that come from descriptors; no file is so large.
const OF_DESCRIPTOR: u64 = 1 << 63;

impl TypeId {
    /// The id of the type whose descriptor lies at an address.
    pub fn of_descriptor(descriptor: Svma) -> Self {
        Self(descriptor.0 | OF_DESCRIPTOR)
    }

    /// Where the descriptor lies, of a type that comes from one.
    pub fn descriptor(self) -> Option<Svma> {
        (self.0 & OF_DESCRIPTOR != 0).then_some(Svma(self.0 & !OF_DESCRIPTOR))
    }
}

/// A type from its descriptor, shared.
impl From<RuntimeType> for Arc<TypeInfo> {
    fn from(ty: RuntimeType) -> Self {
        Self::new(ty.info)
    }
}
