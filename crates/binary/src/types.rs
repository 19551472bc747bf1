//! Go types, as debug info describes them.

use std::sync::Arc;

/// A type's identity in one [`crate::DebugInfo`]: the offset of its entry in `.debug_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(pub u64);

/// What is known about a type. A named type has its name and its underlying type's kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeInfo {
    /// Identity of the resolved type.
    pub id: TypeId,
    /// Name with the package path in full (`net/http.Request`, `[]uint8`).
    pub name: Arc<str>,
    /// Bytes.
    pub size: u64,
    /// Alignment in bytes, at least 1. Debug info does not state it: it is computed.
    pub align: u64,
    /// What it is made of.
    pub kind: Kind,
}

/// The underlying type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `bool`.
    Bool,
    /// An integer.
    Int {
        /// Whether it is two's complement.
        signed: bool,
    },
    /// `float32` or `float64`.
    Float,
    /// `complex64` or `complex128`.
    Complex,
    /// `string`: data, length.
    String,
    /// A slice: data, length, capacity.
    Slice {
        /// Type of an element.
        elem: TypeId,
    },
    /// An array.
    Array {
        /// Type of an element.
        elem: TypeId,
        /// Number of elements.
        len: u64,
    },
    /// A struct.
    Struct {
        /// In order of their offsets.
        fields: Vec<Field>,
    },
    /// A pointer.
    Pointer {
        /// What it points to; `None` for C's `void *`.
        elem: Option<TypeId>,
    },
    /// An interface: type or itab, data.
    Interface {
        /// Whether it has no methods, so that the first word is a type and not an itab.
        empty: bool,
    },
    /// A map: a pointer.
    Map {
        /// Type of a key, where it is stated.
        key: Option<TypeId>,
        /// Type of an element, where it is stated.
        elem: Option<TypeId>,
    },
    /// A channel: a pointer.
    Chan,
    /// A func value: a pointer to the closure.
    Func,
    /// `unsafe.Pointer`.
    UnsafePointer,
    /// A C type without a Go counterpart.
    Other,
}

/// A field of a struct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name; `_` for a blank one, the type's for an embedded one.
    pub name: Arc<str>,
    /// Place in the struct, bytes.
    pub offset: u64,
    /// Its type.
    pub ty: TypeId,
    /// Whether it is embedded.
    pub embedded: bool,
}
