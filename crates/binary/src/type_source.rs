//! The types of one program, wherever they are described.

use crate::abi::AbiType;
use crate::abi_type::abi_type;
use crate::types::{TypeId, TypeInfo};
use crate::{DebugInfo, Error, Executable};
use address::Svma;
use std::sync::Arc;

/// Types by debug information, and by the descriptors that the runtime itself has: those of a
/// stripped executable are the same, as far as the program needs them when it runs.
#[derive(Clone, Copy, Debug)]
pub struct TypeSource<'a> {
    executable: &'a Executable,
    debug: Option<&'a DebugInfo>,
}

impl<'a> TypeSource<'a> {
    /// The types of `executable`, by `debug` where that is given.
    pub fn new(executable: &'a Executable, debug: Option<&'a DebugInfo>) -> Self {
        Self { executable, debug }
    }

    /// The debug information, where there is some.
    pub fn debug(&self) -> Option<&'a DebugInfo> {
        self.debug
    }

    pub(crate) fn executable(&self) -> &'a Executable {
        self.executable
    }

    /// What the types are called that there are: "debug information" or "type descriptors".
    pub fn described_by(&self) -> &'static str {
        if self.debug.is_some() { "debug information" } else { "type descriptors" }
    }

    /// Resolves a type. Fails for a damaged one.
    pub fn type_info(&self, id: TypeId) -> Result<Arc<TypeInfo>, Error> {
        match (id.descriptor(), self.debug) {
            _ if id.is_made() => self
                .executable
                .made_types()
                .get(id)
                .ok_or_else(|| Error::Missing("a type that was put together".into())),
            (Some(descriptor), _) => {
                self.executable.runtime_type_info(descriptor).ok_or_else(|| {
                    Error::corrupt("type data", format!("no type at 0x{:x}", descriptor.0))
                })
            }
            (None, Some(debug)) => debug.type_info(id),
            (None, None) => Err(Error::Missing("debug info".into())),
        }
    }

    /// The type of that exact name (`net/http.Request`, `[]uint8`, `*main.T`).
    pub fn find_type(&self, name: &str) -> Result<Option<TypeId>, Error> {
        let described = match self.debug {
            Some(debug) => debug.find_type(name)?,
            None => None,
        };
        Ok(described.or_else(|| self.executable.runtime_type_named(name)))
    }

    /// All types by name with their ids; a name may come more than once.
    pub fn type_names(&self) -> Result<Vec<(String, TypeId)>, Error> {
        if let Some(debug) = self.debug {
            return debug.type_names();
        }
        let names = self.executable.runtime_type_names().iter();
        let each = names.flat_map(|(name, all)| {
            all.iter().map(|at| (name.clone(), TypeId::of_descriptor(*at)))
        });
        Ok(each.collect())
    }

    /// A type as the calling convention sees it.
    pub fn abi_type(&self, id: TypeId) -> Result<AbiType, Error> {
        match (id.descriptor(), self.debug) {
            (None, Some(debug)) if !id.is_made() => debug.abi_type(id),
            _ => abi_type(id, &|id, _| self.type_info(id)),
        }
    }

    /// Where in the image the type's descriptor lies, if it has one.
    pub fn descriptor(&self, id: TypeId) -> Result<Option<Svma>, Error> {
        if let Some(descriptor) = id.descriptor() {
            return Ok(Some(descriptor));
        }
        let stated = match self.debug {
            Some(debug) if !id.is_made() => debug.type_descriptor(id)?,
            _ => None,
        };
        Ok(stated.and_then(|stated| self.executable.descriptor_at(stated)))
    }
}
