//! From `net/http.Request.URL->Host` to a type and the fields on the way.

use super::DebugInfo;
use crate::Error;
use crate::types::{Field, Kind, TypeId};

/// Parts of a path; a bound on the walk.
const MAX_PARTS: usize = 64;

/// How deep embedded structs are searched for a promoted field.
const MAX_EMBEDDED: usize = 8;

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypePath {
    /// The type the path starts with.
    pub root: TypeId,
    /// The fields on the way; embedded structs that promote one are among them.
    pub steps: Vec<PathStep>,
}

impl TypePath {
    /// The type at the end.
    pub fn ty(&self) -> TypeId {
        self.steps.last().map_or(self.root, |step| step.field.ty)
    }
}

/// One field of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathStep {
    /// Whether the struct is behind a pointer, which has to be followed.
    pub through_pointer: bool,
    /// The field, with its offset in the struct it belongs to.
    pub field: Field,
}

impl DebugInfo {
    /// Resolves a type name with fields behind it. `->` equals `.`; pointers are followed
    /// and fields of embedded structs found as in Go. [`Error::Missing`] says which part
    /// there is not.
    pub fn type_path(&self, path: &str) -> Result<TypePath, Error> {
        let path = path.replace("->", ".");
        if let Some(root) = self.find_type(&path)? {
            return Ok(TypePath { root, steps: Vec::new() });
        }
        // Type names have dots of their own: the longest prefix that is one counts.
        let dots = path.char_indices().rev().filter(|(_, c)| *c == '.').take(MAX_PARTS);
        for (dot, _) in dots {
            let (name, fields) = path.split_at(dot);
            if let Some(root) = self.find_type(name)? {
                return self.walk_fields(root, fields.get(1..).unwrap_or_default());
            }
        }
        Err(Error::Missing(format!("type {path}")))
    }

    fn walk_fields(&self, root: TypeId, fields: &str) -> Result<TypePath, Error> {
        let mut path = TypePath { root, steps: Vec::new() };
        for name in fields.split('.') {
            let steps = self.find_field(path.ty(), name, MAX_EMBEDDED)?;
            let Some(steps) = steps else {
                let ty = self.type_info(path.ty())?;
                return Err(Error::Missing(format!("field {name} in type {}", ty.name)));
            };
            path.steps.extend(steps);
        }
        Ok(path)
    }

    /// The way to a field of a struct or of what a pointer points to.
    fn find_field(
        &self,
        ty: TypeId,
        name: &str,
        embedded: usize,
    ) -> Result<Option<Vec<PathStep>>, Error> {
        let mut info = self.type_info(ty)?;
        let mut through_pointer = false;
        if let Kind::Pointer { elem: Some(elem) } = info.kind {
            through_pointer = true;
            info = self.type_info(elem)?;
        }
        let Kind::Struct { fields } = &info.kind else { return Ok(None) };
        let step = |field: &Field| PathStep { through_pointer, field: field.clone() };
        if let Some(field) = fields.iter().find(|field| &*field.name == name) {
            return Ok(Some(vec![step(field)]));
        }
        let Some(embedded) = embedded.checked_sub(1) else { return Ok(None) };
        for field in fields.iter().filter(|field| field.embedded) {
            if let Some(rest) = self.find_field(field.ty, name, embedded)? {
                return Ok(Some(std::iter::once(step(field)).chain(rest).collect()));
            }
        }
        Ok(None)
    }
}
