//! Values: what a fetch program's fields mean, and the decoded form.

mod held;
mod nested;
mod written;

pub use held::{Content, Object, decode_object};
pub use nested::{Nested, Own};

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::Arc;
use wire::{Field, FieldStatus, Fields};

/// How the fields of one value are read. Each kind consumes a fixed number of fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueKind {
    /// 1 field.
    Bool,
    /// 1 field of `size` bytes, two's complement.
    Int {
        /// Bytes: 1, 2, 4 or 8.
        size: u8,
    },
    /// 1 field of `size` bytes.
    Uint {
        /// Bytes: 1, 2, 4 or 8.
        size: u8,
    },
    /// 1 field of `size` bytes, IEEE 754.
    Float {
        /// Bytes: 4 or 8.
        size: u8,
    },
    /// 2 fields of half of `size` bytes: real and imaginary part, IEEE 754.
    Complex {
        /// Bytes: 8 or 16.
        size: u8,
    },
    /// 1 field: the bytes, `original` = the length.
    String,
    /// 1 field: fixed-size text of a go-ftrace rule (`cN`), shown up to its first NUL and
    /// at most N/8 bytes, N being that of the spec's `type_name`.
    Text,
    /// 1 field: the address.
    Pointer,
    /// 3 fields: data address, len, cap.
    Slice,
    /// 2 fields: type word (of an iface: the itab's type, nil-checked), data word.
    Interface,
    /// 1 field more than the value inside: a word that says, before those of the value, whether
    /// there is one.
    Checked {
        /// What it has to be.
        check: Check,
        /// The value's own kind.
        value: Box<ValueKind>,
    },
    /// Its own bytes as one field or more, then fields for what they lead to, as many as these
    /// say.
    Nested(Box<Nested>),
    /// 0 fields: cannot be captured, with the reason.
    Unavailable(String),
}

/// What the first word of a [`ValueKind::Checked`] has to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// A length beyond this index: else there is no such element.
    Index(u64),
    /// The hash of this type's descriptor: else an interface holds another type.
    Type {
        /// `abi.Type.Hash`.
        hash: u32,
        /// Name of the type, as the person wrote it.
        name: String,
    },
    /// An address; the length of a nil map or channel is 0.
    LengthAt,
}

impl Check {
    /// The value, or what there is instead of it.
    fn apply(&self, word: u64, value: Value) -> Value {
        match self {
            Self::Index(index) if word as i64 <= *index as i64 => {
                Value::Unavailable(format!("index {index} of {word} elements").into())
            }
            Self::Type { hash, name } if word as u32 != *hash => {
                Value::Unavailable(format!("holds no {name}").into())
            }
            Self::LengthAt if word == 0 => Value::Int(0),
            _ => value,
        }
    }
}

impl ValueKind {
    /// The kind without checks around it.
    pub fn checked(&self) -> &Self {
        let mut kind = self;
        while let Self::Checked { value, .. } = kind {
            kind = value;
        }
        kind
    }

    /// Payload fields this kind always consumes.
    pub fn fields(&self) -> usize {
        match self {
            Self::Unavailable(_) => 0,
            Self::Checked { value, .. } => 1 + value.fields(),
            Self::Nested(nested) => nested.own_fields(),
            Self::Slice => 3,
            Self::Interface | Self::Complex { .. } => 2,
            _ => 1,
        }
    }
}

/// One argument or result in a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueSpec {
    /// Name as in the source (`~r0` for an unnamed result), or the rule's name.
    pub name: Arc<str>,
    /// Go type as DWARF spells it, or the rule's type.
    pub type_name: Arc<str>,
    /// How its fields are read.
    pub kind: ValueKind,
}

/// A decoded value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating-point number.
    Float(f64),
    /// A `float32` inside another value.
    Float32(f32),
    /// A complex number: real and imaginary part.
    Complex(f64, f64),
    /// A `complex64` inside another value.
    Complex64(f32, f32),
    /// A `time.Duration` inside another value: nanoseconds.
    Duration(i64),
    /// Bytes of a string; `len` is the length in the target.
    String {
        /// What was captured.
        bytes: Vec<u8>,
        /// Length in the target; larger than `bytes.len()` when cut.
        len: u64,
    },
    /// An address; 0 is nil.
    Pointer(u64),
    /// A slice header.
    Slice {
        /// Address of the first element; 0 is nil.
        data: u64,
        /// Length in elements.
        len: i64,
        /// Capacity in elements.
        cap: i64,
    },
    /// Elements of a slice or array.
    List {
        /// The first ones.
        items: Vec<Value>,
        /// How many there are.
        len: u64,
        /// Capacity of a slice.
        cap: Option<i64>,
    },
    /// Bytes of a byte slice.
    Bytes {
        /// What was captured.
        bytes: Vec<u8>,
        /// Length in the target; larger than `bytes.len()` when cut.
        len: u64,
    },
    /// A struct.
    Struct {
        /// Names and values.
        members: Vec<(Arc<str>, Value)>,
        /// Members that are not among them.
        omitted: u16,
    },
    /// What a pointer leads to.
    Behind(Box<Value>),
    /// A map that is not nil.
    Map {
        /// How many entries it has.
        len: u64,
        /// Some of them.
        entries: Vec<(Value, Value)>,
    },
    /// A channel that is not nil.
    Chan {
        /// Elements waiting in it.
        len: u64,
        /// Elements that may wait in it.
        cap: u64,
        /// Whether it is closed.
        closed: bool,
    },
    /// A func that is not nil: the address of its code (avma).
    Func(u64),
    /// A func whose captured variables are known.
    Closure {
        /// Address of its code (avma).
        code: u64,
        /// Names and values.
        captured: Vec<(Arc<str>, Value)>,
    },
    /// What is written otherwise than by its parts: a time, a network address, a URL.
    Written(String),
    /// A number larger than 64 bits, in decimal.
    Decimal(String),
    /// One of a type's named constants.
    Constant {
        /// Its name.
        name: Arc<str>,
        /// Its value.
        value: i64,
    },
    /// A nil interface.
    NilInterface,
    /// An interface and what it holds.
    Holding {
        /// Address of the dynamic type's descriptor (avma).
        type_word: u64,
        /// What it holds.
        object: Box<Object>,
    },
    /// A non-nil interface.
    Interface {
        /// Address of the dynamic type's descriptor (avma).
        type_word: u64,
        /// The data word: the value itself for direct interfaces, else its address.
        data: u64,
    },
    /// Not captured, with the reason.
    Unavailable(Cow<'static, str>),
}

impl Value {
    /// Whether it is nil, or a pointer that leads to nil.
    pub fn is_nil(&self) -> bool {
        match self {
            Self::Pointer(0) | Self::NilInterface => true,
            Self::Behind(value) => value.is_nil(),
            _ => false,
        }
    }

    /// Calls `each` for this value and all within it.
    pub fn visit(&self, each: &mut dyn FnMut(&Self)) {
        each(self);
        match self {
            Self::List { items, .. } => items.iter().for_each(|item| item.visit(each)),
            Self::Struct { members, .. } | Self::Closure { captured: members, .. } => {
                members.iter().for_each(|(_, value)| value.visit(each));
            }
            Self::Behind(value) => value.visit(each),
            Self::Map { entries, .. } => entries.iter().for_each(|(key, value)| {
                key.visit(each);
                value.visit(each);
            }),
            Self::Holding { object, .. } => {
                if let Content::Value(value) = &object.content {
                    value.visit(each);
                }
            }
            _ => {}
        }
    }

    /// Bytes that it occupies, about.
    pub fn memory(&self) -> usize {
        let mut sum = 0;
        self.visit(&mut |value| {
            sum += size_of::<Self>()
                + match value {
                    Self::String { bytes, .. } | Self::Bytes { bytes, .. } => bytes.len(),
                    Self::Unavailable(Cow::Owned(text))
                    | Self::Written(text)
                    | Self::Decimal(text) => text.len(),
                    Self::Struct { members, .. } | Self::Closure { captured: members, .. } => {
                        members.len() * size_of::<Arc<str>>()
                    }
                    Self::Holding { object, .. } => {
                        let raw = match &object.content {
                            Content::Raw { bytes, .. } => bytes.len(),
                            Content::Value(_) => 0,
                        };
                        size_of::<Object>() + raw
                    }
                    _ => 0,
                };
        });
        sum
    }
}

/// Why a field has no data, as the person reads it.
fn failure(status: FieldStatus) -> Value {
    Value::Unavailable(
        match status {
            FieldStatus::Fault => "memory not readable",
            FieldStatus::Nil => "nil pointer on the way",
            FieldStatus::NoRoom => "record full",
            FieldStatus::NoRegister => "float register, which uprobes do not see",
            FieldStatus::Unread => "memory is not read in this function by trampolines",
            FieldStatus::Ok => "malformed record",
        }
        .into(),
    )
}

fn sign_extend(word: u64, size: u8) -> i64 {
    let unused = 64 - 8 * u32::from(size.clamp(1, 8));
    ((word << unused) as i64) >> unused
}

/// A float of 4 or 8 bytes from its bits.
fn float(bits: u64, size: u8) -> f64 {
    match size {
        4 => f64::from(f32::from_bits(bits as u32)),
        _ => f64::from_bits(bits),
    }
}

/// Decodes the values of `specs` from the fields of `fields`, in order.
///
/// Always gives one value per spec: what is missing or malformed is
/// [`Value::Unavailable`].
pub fn decode(specs: &[ValueSpec], fields: &mut Fields<'_>) -> Vec<Value> {
    specs.iter().map(|spec| decode_one(&spec.kind, &spec.type_name, fields)).collect()
}

/// Bytes of a rule's text type `cN`.
fn text_bytes(type_name: &str) -> Option<usize> {
    type_name.strip_prefix('c')?.parse().ok().map(|bits: usize| bits / 8)
}

/// Fields of what is neither nested nor checked, at the most: those of a slice.
const MAX_FIELDS: usize = 3;

fn decode_one(kind: &ValueKind, type_name: &str, fields: &mut Fields<'_>) -> Value {
    match kind {
        ValueKind::Unavailable(reason) => return Value::Unavailable(reason.clone().into()),
        ValueKind::Nested(nested) => return nested.decode(fields),
        _ => {}
    }
    if let ValueKind::Checked { check, value } = kind {
        let word = fields.next();
        // Whatever the word is, the value's fields come next.
        let value = decode_one(value, type_name, fields);
        return match word {
            None => failure(FieldStatus::NoRoom),
            Some(field) if field.status != FieldStatus::Ok => failure(field.status),
            Some(field) => match field.as_u64() {
                Some(word) => check.apply(word, value),
                None => failure(FieldStatus::Ok),
            },
        };
    }
    let mut room = [Field { status: FieldStatus::Ok, original: 0, data: &[] }; MAX_FIELDS];
    let count = kind.fields().min(MAX_FIELDS);
    for place in &mut room[..count] {
        let Some(field) = fields.next() else { return failure(FieldStatus::NoRoom) };
        *place = field;
    }
    let taken = &room[..count];
    let Some(first) = taken.first() else { return failure(FieldStatus::NoRoom) };
    if *kind == ValueKind::Interface && first.status == FieldStatus::Nil {
        return Value::NilInterface;
    }
    if let Some(bad) = taken.iter().find(|field| field.status != FieldStatus::Ok) {
        return failure(bad.status);
    }
    let word = |i: usize| taken[i].as_u64();
    let decoded = match kind {
        ValueKind::Bool => word(0).map(|w| Value::Bool(w & 0xff != 0)),
        ValueKind::Int { size } => word(0).map(|w| Value::Int(sign_extend(w, *size))),
        ValueKind::Uint { .. } => word(0).map(Value::Uint),
        ValueKind::Float { size } => word(0).map(|w| Value::Float(float(w, *size))),
        ValueKind::Complex { size } => word(0)
            .zip(word(1))
            .map(|(re, im)| Value::Complex(float(re, size / 2), float(im, size / 2))),
        ValueKind::String => {
            Some(Value::String { bytes: first.data.to_vec(), len: u64::from(first.original) })
        }
        ValueKind::Text => {
            let most = text_bytes(type_name).unwrap_or(usize::MAX);
            let bytes: Vec<u8> =
                first.data.iter().copied().take(most).take_while(|byte| *byte != 0).collect();
            Some(Value::String { len: bytes.len() as u64, bytes })
        }
        ValueKind::Pointer => word(0).map(Value::Pointer),
        ValueKind::Slice => match (word(0), word(1), word(2)) {
            (Some(data), Some(len), Some(cap)) => {
                Some(Value::Slice { data, len: len as i64, cap: cap as i64 })
            }
            _ => None,
        },
        ValueKind::Interface => match (word(0), word(1)) {
            (Some(0), Some(_)) => Some(Value::NilInterface),
            (Some(type_word), Some(data)) => Some(Value::Interface { type_word, data }),
            _ => None,
        },
        ValueKind::Checked { .. } | ValueKind::Nested(_) | ValueKind::Unavailable(_) => None,
    };
    decoded.unwrap_or_else(|| failure(FieldStatus::Ok))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(kind: ValueKind) -> ValueSpec {
        ValueSpec { name: "v".into(), type_name: "T".into(), kind }
    }

    fn field(status: u8, data: &[u8]) -> Vec<u8> {
        let len = data.len() as u8;
        let mut bytes = vec![status, 0, len, 0, len, 0, 0, 0];
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    fn unavailable(reason: &str) -> Value {
        Value::Unavailable(reason.to_owned().into())
    }

    #[test]
    fn a_check_decides_whether_there_is_a_value() {
        let checked = |check: Check, kind: ValueKind| {
            spec(ValueKind::Checked { check, value: Box::new(kind) })
        };
        let ty = |hash| Check::Type { hash, name: "*main.T".to_owned() };
        let specs = [
            checked(Check::Index(1), ValueKind::Int { size: 8 }),
            checked(Check::Index(2), ValueKind::Int { size: 8 }),
            checked(ty(7), ValueKind::Bool),
            checked(ty(8), ValueKind::Bool),
            checked(Check::LengthAt, ValueKind::Int { size: 8 }),
            checked(Check::LengthAt, ValueKind::Int { size: 8 }),
            checked(Check::Index(0), ValueKind::Bool),
        ];
        let word = |word: u64| field(0, &word.to_le_bytes());
        let payload = [
            word(2),
            word(5),
            word(2),
            field(1, &[]),
            field(0, &7u32.to_le_bytes()),
            field(0, &[1]),
            field(0, &7u32.to_le_bytes()),
            field(0, &[1]),
            word(0),
            field(2, &[]),
            word(0xc000),
            word(3),
            field(2, &[]),
            field(0, &[1]),
        ]
        .concat();
        let expected = [
            Value::Int(5),
            unavailable("index 2 of 2 elements"),
            Value::Bool(true),
            unavailable("holds no *main.T"),
            Value::Int(0),
            Value::Int(3),
            unavailable("nil pointer on the way"),
        ];
        assert_eq!(decode(&specs, &mut Fields::new(&payload)), expected);
    }

    #[test]
    fn every_spec_gets_a_value_whatever_the_payload_holds() {
        let specs = [
            spec(ValueKind::Bool),
            spec(ValueKind::Unavailable("optimized out".to_owned())),
            spec(ValueKind::Slice),
            spec(ValueKind::Int { size: 2 }),
            spec(ValueKind::Pointer),
            spec(ValueKind::Interface),
            spec(ValueKind::Uint { size: 8 }),
        ];
        let word = field(0, &7u64.to_le_bytes());
        let payload = [
            field(0, &[1]),
            word.clone(),
            field(1, &[]),
            word.clone(),
            field(0, &0xfffe_u16.to_le_bytes()),
            field(0, &[0; 9]),
            field(2, &[]),
            word,
            field(3, &[]),
        ]
        .concat();
        let expected = [
            Value::Bool(true),
            unavailable("optimized out"),
            unavailable("memory not readable"),
            Value::Int(-2),
            unavailable("malformed record"),
            Value::NilInterface,
            unavailable("record full"),
        ];
        assert_eq!(decode(&specs, &mut Fields::new(&payload)), expected);
        for len in 0..payload.len() {
            let decoded = decode(&specs, &mut Fields::new(&payload[..len]));
            assert_eq!(decoded.len(), specs.len(), "payload cut to {len} bytes");
        }
    }
}
