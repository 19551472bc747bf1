//! What interfaces hold: of a type that the plan knows a value, else bytes whose meaning the dynamic type tells, which
//! whoever writes them out looks up.

use super::Value;
use super::nested::without_fields;
use crate::shape::Shape;

/// What an interface holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// The data word: the address of the value, or a value of one word.
    pub data: u64,
    /// What is there.
    pub content: Content,
}

/// What was captured.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// A value; of a pointer type what it leads to, nil as a pointer of 0.
    Value(Value),
    /// The first bytes of the value; of a pointer type of what it leads to.
    Raw {
        /// The bytes.
        bytes: Vec<u8>,
        /// How many the value has.
        size: u32,
    },
}

impl Object {
    /// Of which only the data word is known.
    pub fn address(data: u64) -> Self {
        Self { data, content: Content::Value(Value::Pointer(data)) }
    }

    pub(super) fn of(value: Value) -> Self {
        Self { data: 0, content: Content::Value(value) }
    }

    pub(super) fn raw(bytes: Vec<u8>, size: u32) -> Self {
        Self { data: 0, content: Content::Raw { bytes, size } }
    }

    pub(super) fn at(self, data: u64) -> Self {
        Self { data, ..self }
    }
}

/// The value that begins with `bytes`. Of what it leads to only the address is known: what was not
/// captured at the hit is not read later.
pub fn decode_object(shape: &Shape, bytes: &[u8]) -> Value {
    without_fields(shape, bytes)
}
