//! How the fields of a struct lie in memory, and what lies between them.

use crate::types::{Kind, TypeId, TypeInfo};
use crate::{Error, TypeSource};
use std::sync::Arc;

/// Bytes that the processor loads at once (all x86-64 processors).
const CACHE_LINE: u64 = 64;

/// A type and its fields.
#[derive(Clone, Debug)]
pub struct TypeLayout {
    /// The type.
    pub info: Arc<TypeInfo>,
    /// Its fields by offset; empty for what is no struct.
    pub fields: Vec<LaidOutField>,
    /// Bytes of it that belong to no field, by offset; the padding at its end too.
    pub holes: Vec<Hole>,
}

/// A field with its type.
#[derive(Clone, Debug)]
pub struct LaidOutField {
    /// Name; the type's for an embedded one.
    pub name: Arc<str>,
    /// Place in the struct, bytes.
    pub offset: u64,
    /// Whether it is embedded.
    pub embedded: bool,
    /// Its type.
    pub info: Arc<TypeInfo>,
    /// Bytes before it that belong to no field.
    pub hole_before: u64,
}

/// Bytes that belong to no field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// Place in the struct, bytes.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

impl TypeLayout {
    /// Reads a type and the types of its fields.
    pub fn read(types: TypeSource<'_>, id: TypeId) -> Result<Self, Error> {
        let info = types.type_info(id)?;
        let mut layout = Self { info: Arc::clone(&info), fields: Vec::new(), holes: Vec::new() };
        let Kind::Struct { fields } = &info.kind else { return Ok(layout) };
        let mut end = 0u64;
        for field in fields {
            let of_field = types.type_info(field.ty)?;
            let hole_before = layout.fill(end, field.offset);
            end = end.max(field.offset.saturating_add(of_field.size));
            layout.fields.push(LaidOutField {
                name: Arc::clone(&field.name),
                offset: field.offset,
                embedded: field.embedded,
                info: of_field,
                hole_before,
            });
        }
        layout.fill(end, info.size);
        Ok(layout)
    }

    /// Notes the hole between two offsets, and its size.
    fn fill(&mut self, end: u64, next: u64) -> u64 {
        let size = next.saturating_sub(end);
        if size > 0 {
            self.holes.push(Hole { offset: end, size });
        }
        size
    }

    /// Cache lines of 64 bytes that a value takes which starts at one.
    pub fn cache_lines(&self) -> u64 {
        self.info.size.div_ceil(CACHE_LINE)
    }
}
