//! A layout in the words of the output.

use binary::{Error, Kind, TypeId, TypeInfo, TypeLayout, TypeSource};
use output::{ListedField, ListedHole, ListedStep, ListedType};
use probe::type_path::TypePath;

/// What is shown of a type and the way to it.
pub fn listed(
    types: TypeSource<'_>,
    layout: &TypeLayout,
    path: &TypePath,
) -> Result<ListedType, Error> {
    let name_of = |id: TypeId| types.type_info(id).map(|info| info.name.to_string());
    let (elem, len) = match &layout.info.kind {
        Kind::Array { elem, len } => (Some(*elem), Some(*len)),
        Kind::Slice { elem } => (Some(*elem), None),
        Kind::Pointer { elem } => (*elem, None),
        _ => (None, None),
    };
    let fields = layout.fields.iter().map(|field| ListedField {
        name: field.name.to_string(),
        offset: field.offset,
        size: field.info.size,
        ty: field.info.name.to_string(),
        embedded: field.embedded,
        hole_before: field.hole_before,
    });
    let holes = layout.holes.iter().map(|hole| ListedHole { offset: hole.offset, size: hole.size });
    let steps = path.steps.iter().map(|step| {
        Ok(ListedStep {
            of: step.of.to_string(),
            field: step.field.to_string(),
            offset: step.offset,
            ty: name_of(step.ty)?,
            through_pointer: step.through_pointer,
        })
    });
    Ok(ListedType {
        name: layout.info.name.to_string(),
        kind: kind_name(&layout.info),
        size: layout.info.size,
        align: layout.info.align,
        elem: elem.map(name_of).transpose()?,
        len,
        fields: fields.collect(),
        holes: holes.collect(),
        cache_lines: layout.cache_lines(),
        path: steps.collect::<Result<_, Error>>()?,
    })
}

/// The kind in a word, `reflect.Kind`'s where there is one.
pub fn kind_name(info: &TypeInfo) -> String {
    let bits = info.size.saturating_mul(8);
    match &info.kind {
        Kind::Bool => "bool".to_owned(),
        Kind::Int { signed: true } => format!("int{bits}"),
        Kind::Int { signed: false } => format!("uint{bits}"),
        Kind::Float => format!("float{bits}"),
        Kind::Complex => format!("complex{bits}"),
        Kind::String => "string".to_owned(),
        Kind::Slice { .. } => "slice".to_owned(),
        Kind::Array { .. } => "array".to_owned(),
        Kind::Struct { .. } => "struct".to_owned(),
        Kind::Pointer { .. } => "pointer".to_owned(),
        Kind::Interface { .. } => "interface".to_owned(),
        Kind::Map { .. } => "map".to_owned(),
        Kind::Chan => "chan".to_owned(),
        Kind::Func => "func".to_owned(),
        Kind::UnsafePointer => "unsafe pointer".to_owned(),
        Kind::Other => "other".to_owned(),
    }
}
