//! What an interface holds, by its dynamic type.

use crate::value_text::push_string;
use probe::shape::Shape;
use probe::value::{Content, Object, Value, decode_object};
use std::borrow::Cow;
use timeline::Symbolizer;

/// `reflect.Kind` numbers (internal/abi/type.go).
mod kind {
    pub const ARRAY: u8 = 17;
    pub const CHAN: u8 = 18;
    pub const FUNC: u8 = 19;
    pub const MAP: u8 = 21;
    pub const POINTER: u8 = 22;
    pub const STRING: u8 = 24;
    pub const STRUCT: u8 = 25;
    pub const UNSAFE_POINTER: u8 = 26;
}

/// An interface's dynamic type and value.
pub(crate) struct Dynamic<'a> {
    /// As `%T` prints it, or its address.
    pub type_name: String,
    /// The value; of a pointer type what it leads to.
    pub value: Cow<'a, Value>,
}

impl<'a> Dynamic<'a> {
    pub(crate) fn of(
        pid: u32,
        type_word: u64,
        object: &'a Object,
        symbols: &dyn Symbolizer,
    ) -> Self {
        let known = symbols.type_name(pid, type_word);
        let kind = known.as_ref().map_or(0, |(_, kind)| *kind);
        let value = match &object.content {
            Content::Value(value) => Cow::Borrowed(value),
            Content::Raw { bytes, size } => Cow::Owned(match of_kind(kind, bytes) {
                Some(value) => value,
                None => match symbols.held_shape(pid, type_word) {
                    Some(shape) => match decode_object(&shape, bytes) {
                        // What was read is what the pointer that is held leads to.
                        nil if kind == kind::POINTER && nil.is_nil() => Value::Behind(nil.into()),
                        value => value,
                    },
                    None if *size == 0 => Value::Struct { members: Vec::new(), omitted: 0 },
                    None => Value::Pointer(object.data),
                },
            }),
        };
        let value = match kind {
            kind::CHAN | kind::UNSAFE_POINTER => Cow::Owned(Value::Pointer(object.data)),
            // The data word is the value, one pointer with something around it, and that is nil.
            kind::STRUCT if *value == Value::Pointer(0) => {
                Cow::Owned(Value::Struct { members: Vec::new(), omitted: 1 })
            }
            kind::ARRAY if *value == Value::Pointer(0) => {
                Cow::Owned(Value::List { items: Vec::new(), len: 1, cap: None })
            }
            _ => value,
        };
        let type_name = known.map_or_else(|| format!("type 0x{type_word:x}"), |(name, _)| name);
        Self { type_name, value }
    }

    /// What its `Error` method says, where that is known to be made of its fields: bytes and how
    /// many there are.
    pub(crate) fn message(&self, pid: u32, symbols: &dyn Symbolizer) -> Option<Message> {
        let Value::Struct { members, .. } = &*self.value else { return None };
        let member = |index: usize| members.get(index).map(|(_, value)| value);
        match self.type_name.as_str() {
            // errors/errors.go, fmt/errors.go: the message is the first field.
            "*errors.errorString" | "*fmt.wrapError" | "*fmt.wrapErrors" | "*fmt.fmtError" => {
                Message::of(member(0)?)
            }
            // io/fs/fs.go: Op, Path, Err.
            "*fs.PathError" => {
                let mut message = Message::of(member(0)?)?;
                message.push(b" ");
                message.append(Message::of(member(1)?)?);
                message.push(b": ");
                message.append(nested_message(member(2)?, pid, symbols)?);
                Some(message)
            }
            // errors/join.go: all of them, a line each.
            "*errors.joinError" => {
                let Value::List { items, len, .. } = member(0)? else { return None };
                if items.len() as u64 != *len {
                    return None;
                }
                let mut joined: Option<Message> = None;
                for item in items {
                    let next = nested_message(item, pid, symbols)?;
                    match &mut joined {
                        None => joined = Some(next),
                        Some(message) => {
                            message.push(b"\n");
                            message.append(next);
                        }
                    }
                }
                joined
            }
            _ => None,
        }
    }
}

/// The message of an error inside another one.
fn nested_message(value: &Value, pid: u32, symbols: &dyn Symbolizer) -> Option<Message> {
    match value {
        Value::Holding { type_word, object } => {
            Dynamic::of(pid, *type_word, object, symbols).message(pid, symbols)
        }
        _ => None,
    }
}

/// A message, perhaps only the beginning of it.
pub(crate) struct Message {
    pub bytes: Vec<u8>,
    pub len: u64,
}

impl Message {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String { bytes, len } => Some(Self { bytes: bytes.clone(), len: *len }),
            _ => None,
        }
    }

    fn is_whole(&self) -> bool {
        self.len == self.bytes.len() as u64
    }

    fn push(&mut self, text: &[u8]) {
        if self.is_whole() {
            self.bytes.extend_from_slice(text);
        }
        self.len = self.len.saturating_add(text.len() as u64);
    }

    fn append(&mut self, other: Self) {
        if self.is_whole() {
            self.bytes.extend_from_slice(&other.bytes);
        }
        self.len = self.len.saturating_add(other.len);
    }

    /// Quoted, with how much is missing.
    pub(crate) fn push_to(&self, out: &mut String) {
        push_string(out, &self.bytes, self.len);
    }
}

/// A value of a kind that needs no further description.
fn of_kind(kind: u8, bytes: &[u8]) -> Option<Value> {
    let size = match kind {
        3 | 8 => 1,
        4 | 9 => 2,
        5 | 10 | 13 => 4,
        _ => 8,
    };
    let shape = match kind {
        1 => Shape::Bool,
        2..=6 => Shape::Int { size },
        7..=12 => Shape::Uint { size },
        13 | 14 => Shape::Float { size },
        15 => Shape::Complex { size: 8 },
        16 => Shape::Complex { size: 16 },
        // What the data word leads to begins with the address of the code.
        kind::FUNC => {
            let word = bytes.first_chunk().map(|word| u64::from_le_bytes(*word));
            return word.map(Value::Func);
        }
        // ... and with the number of entries.
        kind::MAP => {
            let len = bytes.first_chunk().map(|word| u64::from_le_bytes(*word))?;
            return Some(Value::Map { len, entries: Vec::new() });
        }
        kind::STRING => Shape::String,
        _ => return None,
    };
    Some(decode_object(&shape, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Knows the kinds of two types.
    struct Kinds;

    impl Symbolizer for Kinds {
        fn location(&self, _: u32, _: u64) -> Option<timeline::Location> {
            None
        }

        fn image_location(&self, _: u64) -> Option<timeline::Location> {
            None
        }

        fn type_name(&self, _: u32, address: u64) -> Option<(String, u8)> {
            Some(("main.T".to_owned(), u8::try_from(address).ok()?))
        }
    }

    #[test]
    fn a_nil_pointer_inside_a_direct_value_is_no_nil_value() {
        let nil = Object::address(0);
        let value = |kind: u8| Dynamic::of(1, kind.into(), &nil, &Kinds).value.into_owned();
        assert_eq!(value(kind::STRUCT), Value::Struct { members: Vec::new(), omitted: 1 });
        assert_eq!(value(kind::ARRAY), Value::List { items: Vec::new(), len: 1, cap: None });
        assert_eq!(value(22), Value::Pointer(0));
    }
}
