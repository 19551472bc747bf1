//! Paths into types as people write them: `net/http.Request.URL.Path`.
//!
//! Type names hold dots and slashes themselves, so the longest one that the executable has is
//! taken first; what is left are fields. Pointers are followed, and fields of embedded
//! structs found as Go promotes them. `->` is the same as `.`.

use crate::nearest::nearest;
use crate::package::unescape;
use binary::{Field, Kind, TypeId, TypeInfo, TypeSource};
use std::collections::HashSet;
use std::sync::Arc;
use thiserror::Error;

/// Fields named in one path.
const MAX_STEPS: usize = 64;

/// Structs looked through for one promoted field.
const MAX_EMBEDDED: usize = 4096;

/// Near names in a message.
const SHOWN: usize = 5;

/// Names of fields in a message.
const FIELDS_SHOWN: usize = 40;

/// Where a path leads.
#[derive(Clone, Debug)]
pub struct TypePath {
    /// The type it starts from.
    pub start: TypeId,
    /// The fields on the way, embedded ones that were left out included.
    pub steps: Vec<PathStep>,
    /// The type it ends at.
    pub end: TypeId,
}

/// One field on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathStep {
    /// Name of the struct that holds it.
    pub of: Arc<str>,
    /// Name of the field.
    pub field: Arc<str>,
    /// Its place in that struct, bytes.
    pub offset: u64,
    /// Its type.
    pub ty: TypeId,
    /// Whether a pointer to the struct is loaded first.
    pub through_pointer: bool,
}

/// Why a path leads nowhere.
#[derive(Debug, Error)]
pub enum TypePathError {
    /// No type has that name.
    #[error("no type {name} in the {by}; {}", near_names(.nearest))]
    NoType {
        /// The path as written.
        name: String,
        /// Where types are looked for.
        by: &'static str,
        /// Types with names like it.
        nearest: Vec<String>,
    },
    /// The struct has no such field, embedded ones included.
    #[error("{of} has no field {field}; it has {}", field_names(.fields))]
    NoField {
        /// Name of the struct.
        of: String,
        /// The field asked for.
        field: String,
        /// What it has.
        fields: Vec<String>,
    },
    /// Two embedded structs at the same depth have the field: Go refuses it too.
    #[error("{field} of {of} is ambiguous: it is in {first} and in {second}")]
    Ambiguous {
        /// Name of the struct.
        of: String,
        /// The field asked for.
        field: String,
        /// A struct that has it.
        first: String,
        /// Another one.
        second: String,
    },
    /// Only structs have fields.
    #[error("{of} is no struct and has no field {field}")]
    NoStruct {
        /// Name of the type.
        of: String,
        /// The field asked for.
        field: String,
    },
    /// The debug information could not be read.
    #[error(transparent)]
    Binary(#[from] binary::Error),
}

fn near_names(nearest: &[String]) -> String {
    if nearest.is_empty() {
        "nothing is called like it".to_owned()
    } else {
        format!("nearest: {}", nearest.join(", "))
    }
}

fn field_names(fields: &[String]) -> String {
    let more = fields.len().saturating_sub(FIELDS_SHOWN);
    let shown = fields.iter().take(FIELDS_SHOWN).map(String::as_str).collect::<Vec<_>>();
    match (shown.len(), more) {
        (0, _) => "none".to_owned(),
        (_, 0) => shown.join(", "),
        _ => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Resolves a path. The first call reads all types.
pub fn resolve(debug: TypeSource<'_>, path: &str) -> Result<TypePath, TypePathError> {
    let path = path.trim().replace("->", ".");
    let Some((start, rest)) = longest_type(debug, &path)? else {
        let (by, nearest) = (debug.described_by(), near(debug, &path)?);
        return Err(TypePathError::NoType { nearest, by, name: path });
    };
    let mut steps = Vec::new();
    let mut end = start;
    for field in rest.split('.').filter(|field| !field.is_empty()).take(MAX_STEPS) {
        steps.extend(find_field(debug, end, field)?);
        end = steps.last().map_or(end, |step: &PathStep| step.ty);
    }
    Ok(TypePath { start, steps, end })
}

/// The longest beginning of `path` that ends before a dot and names a type, and what follows.
fn longest_type<'p>(
    debug: TypeSource<'_>,
    path: &'p str,
) -> Result<Option<(TypeId, &'p str)>, TypePathError> {
    let ends = || {
        let dots = path.rmatch_indices('.').map(|(at, _)| at);
        std::iter::once(path.len()).chain(dots)
    };
    for end in ends() {
        let (name, rest) = path.split_at(end);
        if let Some(id) = debug.find_type(name)? {
            return Ok(Some((id, rest)));
        }
    }
    // Symbol names write the dots of a path's last element as %2e.
    let escaped: Vec<(String, TypeId)> =
        debug.type_names()?.into_iter().filter(|(name, _)| name.contains('%')).collect();
    Ok(ends().find_map(|end| {
        let (name, rest) = path.split_at(end);
        let found = escaped.iter().find(|(known, _)| unescape(known) == name)?;
        Some((found.1, rest))
    }))
}

/// Named types with names like the one that `path` seems to begin with.
pub(crate) fn near(debug: TypeSource<'_>, path: &str) -> Result<Vec<String>, TypePathError> {
    let names = debug.type_names()?;
    let mut named: Vec<&str> =
        names.iter().map(|(name, _)| name.as_str()).filter(|name| is_named_type(name)).collect();
    named.sort_unstable();
    named.dedup();
    // `pkg.Type` of `path/pkg.Type.Field`.
    let slash = path.rfind('/').map_or(0, |at| at + 1);
    let mut dots = path.match_indices('.').map(|(at, _)| at).filter(|at| *at >= slash);
    let type_end = dots.nth(1).unwrap_or(path.len());
    let mut found: Vec<&str> = Vec::new();
    for wanted in [path.get(..type_end).unwrap_or(path), path] {
        for name in nearest(wanted, named.iter().copied(), SHOWN) {
            if !found.contains(&name) {
                found.push(name);
            }
        }
    }
    found.truncate(SHOWN);
    Ok(found.into_iter().map(str::to_owned).collect())
}

/// Whether a type's name is one that a declaration gave it, not `[]T`, `map[K]V` or the like.
pub fn is_named_type(name: &str) -> bool {
    const MADE: [&str; 7] =
        ["func(", "struct {", "interface {", "map[", "chan ", "noalg.", "go.shape."];
    name.starts_with(|c: char| c.is_alphanumeric() || c == '_')
        && !MADE.iter().any(|prefix| name.starts_with(prefix))
}

/// The way from a type to one of its fields: more than one step when it is promoted.
pub(crate) fn find_field(
    debug: TypeSource<'_>,
    start: TypeId,
    wanted: &str,
) -> Result<Vec<PathStep>, TypePathError> {
    let (info, _) = pointee(debug, start)?;
    let Kind::Struct { fields } = &info.kind else {
        let of = info.name.to_string();
        return Err(TypePathError::NoStruct { of, field: wanted.to_owned() });
    };
    let mut level: Vec<(Vec<PathStep>, TypeId)> = vec![(Vec::new(), start)];
    let mut seen = HashSet::new();
    // Breadth first: the shallowest field of that name is the one that Go means.
    while !level.is_empty() && seen.len() < MAX_EMBEDDED {
        let mut found: Vec<Vec<PathStep>> = Vec::new();
        let mut next = Vec::new();
        for (steps, id) in level {
            let (holder, through_pointer) = pointee(debug, id)?;
            let Kind::Struct { fields } = &holder.kind else { continue };
            if !seen.insert(holder.id) {
                continue;
            }
            for field in fields {
                let matches = &*field.name == wanted || is_short_name(field, wanted);
                if !matches && !field.embedded {
                    continue;
                }
                let mut way = steps.clone();
                way.push(step(&holder, field, through_pointer));
                if matches { found.push(way) } else { next.push((way, field.ty)) }
            }
        }
        match &found[..] {
            [] => level = next,
            [way] => return Ok(way.clone()),
            [first, second, ..] => {
                let holder = |way: &[PathStep]| {
                    way.last().map_or_else(String::new, |step| step.of.to_string())
                };
                return Err(TypePathError::Ambiguous {
                    of: info.name.to_string(),
                    field: wanted.to_owned(),
                    first: holder(first),
                    second: holder(second),
                });
            }
        }
    }
    Err(TypePathError::NoField {
        of: info.name.to_string(),
        field: wanted.to_owned(),
        fields: fields.iter().map(|field| field.name.to_string()).collect(),
    })
}

/// An embedded field is named by its type without the package, as in the source. Debug
/// information of old versions has the package too.
fn is_short_name(field: &Field, wanted: &str) -> bool {
    field.embedded && field.name.rsplit(['/', '.']).next().is_some_and(|short| short == wanted)
}

fn step(holder: &TypeInfo, field: &Field, through_pointer: bool) -> PathStep {
    PathStep {
        of: Arc::clone(&holder.name),
        field: Arc::clone(&field.name),
        offset: field.offset,
        ty: field.ty,
        through_pointer,
    }
}

/// The type, or what it points to; and whether it is a pointer.
fn pointee(debug: TypeSource<'_>, id: TypeId) -> Result<(Arc<TypeInfo>, bool), binary::Error> {
    let info = debug.type_info(id)?;
    match info.kind {
        Kind::Pointer { elem: Some(elem) } => Ok((debug.type_info(elem)?, true)),
        _ => Ok((info, false)),
    }
}
