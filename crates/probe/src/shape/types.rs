//! Where shapes come from.

use binary::{DebugInfo, TypeId, TypeInfo};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A source of types: debug information, or the descriptors that the runtime itself has.
pub trait Types {
    /// What is known of a type.
    fn info(&self, id: TypeId) -> Option<Arc<TypeInfo>>;

    /// Named constants of an integer type by their values, sorted.
    fn constants(&self, _ty: &TypeInfo) -> Arc<[(i64, Arc<str>)]> {
        Arc::default()
    }

    /// Types that a value of an interface type may have and that are looked into, best first: what
    /// their descriptors have at [`super::HASH`], whether the value is a pointer to what the
    /// type is, and the type.
    fn implementations(&self, _interface: &TypeInfo) -> Vec<Implementation> {
        Vec::new()
    }

    /// Closures that a value of a func type may be and that are looked into, best first.
    fn closures(&self, _func: &TypeInfo) -> Vec<Closure> {
        Vec::new()
    }
}

/// A closure that captured variables.
#[derive(Clone, Debug)]
pub struct Closure {
    /// Where its code is in the image.
    pub code: u64,
    /// Bytes of its object.
    pub size: u32,
    /// What it captured.
    pub captured: Vec<CapturedVariable>,
}

/// A variable in a closure's object.
#[derive(Clone, Debug)]
pub struct CapturedVariable {
    /// Name in the source.
    pub name: Arc<str>,
    /// Place in the object, bytes.
    pub offset: u32,
    /// Its type; captured by reference, a pointer to it.
    pub ty: Arc<TypeInfo>,
    /// Whether it is captured by reference.
    pub by_reference: bool,
}

/// A type that an interface may hold.
#[derive(Clone, Debug)]
pub struct Implementation {
    /// What its descriptor has at [`super::HASH`].
    pub word: u64,
    /// The type, or of a pointer type what it points to.
    pub behind: Arc<TypeInfo>,
}

impl Types for DebugInfo {
    fn info(&self, id: TypeId) -> Option<Arc<TypeInfo>> {
        self.type_info(id).ok()
    }
}

/// The runtime's two kinds of maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MapForm {
    /// `runtime.hmap` with buckets of 8: up to Go 1.23.
    Buckets,
    /// `internal/runtime/maps.Map` with groups of 8: from Go 1.24.
    Swiss,
}
