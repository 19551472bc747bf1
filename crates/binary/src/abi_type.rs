//! From a type to what the calling convention sees of it.

use crate::Error;
use crate::abi::{AbiType, Shape};
use crate::types::{Kind, TypeId, TypeInfo};
use std::sync::Arc;

/// Parts of one value; more than this many bytes never fit into registers.
const MAX_PARTS: usize = 4096;
const MAX_REGISTER_BYTES: u64 = 256;

/// How deep structs and arrays are nested by value.
const MAX_DEPTH: usize = 48;

/// Looks up a type that is nested so deep in the value.
type Look<'a> = &'a dyn Fn(TypeId, usize) -> Result<Arc<TypeInfo>, Error>;

/// The type of that id, with its parts looked up by `info`.
pub(crate) fn abi_type(id: TypeId, info: Look<'_>) -> Result<AbiType, Error> {
    part(id, 0, &mut { MAX_PARTS }, info)
}

fn part(id: TypeId, depth: usize, left: &mut usize, info: Look<'_>) -> Result<AbiType, Error> {
    *left = left
        .checked_sub(1)
        .filter(|_| depth <= MAX_DEPTH)
        .ok_or_else(|| Error::corrupt("types", "a value with too many parts"))?;
    let ty = info(id, depth)?;
    let mut inner = |id| part(id, depth + 1, left, info);
    let shape = match &ty.kind {
        _ if ty.size > MAX_REGISTER_BYTES => bytes(ty.size),
        Kind::Float => Shape::Float,
        Kind::Complex => Shape::Complex,
        Kind::String | Kind::Interface { .. } => Shape::TwoWords,
        Kind::Slice { .. } => Shape::ThreeWords,
        Kind::Array { len: 0, .. } => bytes(0),
        Kind::Array { elem, len } => Shape::Array { element: Box::new(inner(*elem)?), len: *len },
        Kind::Struct { fields } => {
            let fields = fields.iter().map(|field| Ok((field.offset, inner(field.ty)?)));
            Shape::Struct(fields.collect::<Result<_, Error>>()?)
        }
        Kind::Other => bytes(ty.size),
        _ => Shape::Int,
    };
    Ok(AbiType { size: ty.size, align: ty.align, shape })
}

/// A type that never goes into registers.
fn bytes(len: u64) -> Shape {
    Shape::Array { element: Box::new(AbiType::int(1)), len }
}
