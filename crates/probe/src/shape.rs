//! What of a type is captured: a tree of kinds with their places, cut where a plan cuts it.
//!
//! One shape serves three times: [`crate::compile`] turns it into a fetch program,
//! [`crate::value`] reads that program's fields by it, and it is in the plan, so that a recorded
//! file can be read without the executable. Compiling and reading walk the tree in the same order.

mod build;
mod closures;
mod needed;
mod program;
mod runtime;
mod text;
mod types;
mod well_known;

pub use build::{Extent, MAX_OBJECT, ShapeBuilder};
pub use program::ProgramTypes;
pub use runtime::*;
pub use types::{CapturedVariable, Closure, Implementation, MapForm, Types};

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a value is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// One byte.
    Bool,
    /// Two's complement.
    Int {
        /// Bytes: 1, 2, 4 or 8.
        size: u8,
    },
    /// Without a sign.
    Uint {
        /// Bytes: 1, 2, 4 or 8.
        size: u8,
    },
    /// IEEE 754.
    Float {
        /// Bytes: 4 or 8.
        size: u8,
    },
    /// Real and imaginary part.
    Complex {
        /// Bytes: 8 or 16.
        size: u8,
    },
    /// Nanoseconds.
    Duration,
    /// `time.Time`.
    Time,
    /// Data, length; the text is a field of its own.
    String,
    /// A slice of bytes; they are a field of their own.
    Bytes,
    /// A `net.IP`, as [`Shape::Bytes`].
    Ip,
    /// An address that is not followed.
    Pointer,
    /// A pointer; what it leads to is a field of its own.
    To {
        /// Bytes captured.
        size: u32,
        /// What they are.
        elem: Box<Shape>,
    },
    /// A slice; the first elements are a field of their own.
    Slice {
        /// Bytes from one element to the next.
        stride: u32,
        /// Elements captured at the most; with 0 there is no field.
        most: u16,
        /// What they are.
        elem: Box<Shape>,
    },
    /// Elements in place.
    Array {
        /// How many there are.
        len: u64,
        /// How many are shown.
        shown: u16,
        /// Bytes from one to the next.
        stride: u32,
        /// What they are.
        elem: Box<Shape>,
    },
    /// Members in place.
    Struct {
        /// In the order of the type.
        members: Vec<Member>,
        /// Members that are left out.
        omitted: u16,
    },
    /// A struct of which one member is all that counts.
    Only(Box<Member>),
    /// Two words; the dynamic type is a field of its own.
    Interface {
        /// The first word is an itab, else the type itself.
        has_methods: bool,
        /// Bytes captured of what a value of an unknown type holds; with 0 only the type is.
        copy: u16,
        /// Types that are looked into.
        known: Vec<KnownType>,
    },
    /// A pointer to the runtime's header, which is a field of its own.
    Map(Box<MapShape>),
    /// A pointer to the runtime's `hchan`, the beginning of which is a field of its own.
    Chan,
    /// A pointer to a closure; the address of its code is a field of its own.
    Func,
    /// The same, and behind it a field with the place of the code in the image: of some closures what they
    /// captured is a field too.
    Closure {
        /// By the place of their code; what their objects hold.
        known: Vec<KnownType>,
    },
    /// `big.Int`, `url.URL`: what it is made of, and how that is written.
    Written(Writing, Box<Shape>),
    /// An integer of a type with named constants.
    Enum {
        /// Bytes: 1, 2, 4 or 8.
        size: u8,
        /// Whether it is two's complement.
        signed: bool,
        /// Values and names, sorted.
        names: Arc<[(i64, Arc<str>)]>,
    },
    /// Not captured, with the reason a person reads.
    Unavailable(Arc<str>),
}

/// A part of a struct.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name.
    pub name: Arc<str>,
    /// Place in the struct, bytes.
    pub offset: u32,
    /// What it is.
    pub shape: Shape,
}

/// A type that an interface may hold, or a closure that a func may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownType {
    /// What its descriptor has at [`HASH`]: hash, flags, alignments and kind. Of a closure the place of its
    /// code in the image.
    pub word: u64,
    /// Bytes captured at the data word: of a pointer type what it leads to.
    pub size: u32,
    /// What they are.
    pub shape: Shape,
}

/// How a map lies in memory, and which of it is captured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapShape {
    /// Which of the runtime's maps.
    pub form: MapForm,
    /// Bytes of a group or bucket of 8 entries, 0 when no entries are captured.
    pub group: u32,
    /// Place of the first key in a group, bytes from one key to the next.
    pub keys: (u32, u32),
    /// Place of the first element in a group, bytes from one to the next.
    pub elems: (u32, u32),
    /// What a key is.
    pub key: Shape,
    /// What an element is.
    pub elem: Shape,
}

/// A text for a struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Writing {
    /// `math/big.Int`: decimal.
    BigInt,
    /// `net/url.URL`.
    Url,
}

impl Shape {
    /// A struct with all its members.
    pub fn of_members(members: Vec<Member>) -> Self {
        Self::Struct { members, omitted: 0 }
    }

    /// Whether fields beside the value's own bytes belong to it.
    pub fn has_fields(&self) -> bool {
        match self {
            Self::String | Self::Bytes | Self::Ip | Self::To { .. } | Self::Interface { .. } => {
                true
            }
            Self::Map(_) | Self::Chan | Self::Func | Self::Closure { .. } => true,
            Self::Slice { most, .. } => *most > 0,
            Self::Array { shown, elem, .. } => *shown > 0 && elem.has_fields(),
            Self::Struct { members, .. } => members.iter().any(|member| member.shape.has_fields()),
            Self::Only(member) => member.shape.has_fields(),
            Self::Written(_, shape) => shape.has_fields(),
            _ => false,
        }
    }
}
