//! Values made of others, read from a record by their shape. The walk is that of
//! [`crate::compile`]: whatever the fields hold, both take as many.

use super::held::Object;
use super::written::{ip_text, time_text, written};
use super::{Value, failure, float, sign_extend};
use crate::shape::{
    BUCKET_FULL, CHAN_CAP, CHAN_CLOSED, KnownType, MapForm, MapShape, SWISS_EMPTY, Shape,
};
use serde::{Deserialize, Serialize};
use wire::{Field, FieldStatus, Fields};

/// How a value that is made of others lies in a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nested {
    /// Its own bytes.
    pub own: Own,
    /// How many of them are captured.
    pub size: u32,
    /// What they are.
    pub shape: Shape,
}

/// The fields of a value's own bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Own {
    /// One for each part: its place in the value and its bytes.
    Pieces(Vec<(u32, u8)>),
    /// One with all of them; what they lead to follows only if it is there.
    Block,
}

impl Nested {
    /// Fields of the value's own bytes.
    pub(super) fn own_fields(&self) -> usize {
        match &self.own {
            Own::Pieces(pieces) => pieces.len(),
            Own::Block => 1,
        }
    }

    pub(super) fn decode(&self, fields: &mut Fields<'_>) -> Value {
        let mut bytes = Vec::new();
        let mut missing = Vec::new();
        match &self.own {
            Own::Block => match fields.next() {
                Some(field) if field.status == FieldStatus::Ok => {
                    bytes.extend_from_slice(field.data);
                }
                other => return failure(other.map_or(FieldStatus::NoRoom, |field| field.status)),
            },
            Own::Pieces(pieces) => {
                bytes.resize(self.size as usize, 0);
                for &(offset, size) in pieces {
                    let start = offset as usize;
                    let end = start + usize::from(size);
                    let field = fields.next();
                    match (field, bytes.get_mut(start..end)) {
                        (Some(Field { status: FieldStatus::Ok, data, .. }), Some(place))
                            if data.len() == place.len() =>
                        {
                            place.copy_from_slice(data);
                        }
                        (field, _) => {
                            let status = field.map_or(FieldStatus::NoRoom, |field| field.status);
                            missing.push((start, end, status));
                        }
                    }
                }
            }
        }
        let own = Bytes { bytes: &bytes, missing: &missing };
        Reader { fields, has_fields: true }.value(&self.shape, own, 0)
    }
}

/// Bytes of an object, and which of them are not there.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) missing: &'a [(usize, usize, FieldStatus)],
}

impl<'a> Bytes<'a> {
    fn get(self, offset: u32, len: usize) -> Result<&'a [u8], Value> {
        let start = offset as usize;
        let end = start.saturating_add(len);
        if let Some((_, _, status)) = self.missing.iter().find(|m| m.0 < end && start < m.1) {
            return Err(failure(*status));
        }
        self.bytes.get(start..end).ok_or_else(|| {
            Value::Unavailable("behind the bytes that are captured of an object".into())
        })
    }

    /// The number of `size` bytes at `offset`.
    pub(super) fn number(self, offset: u32, size: u8) -> Result<u64, Value> {
        let mut word = [0; 8];
        let data = self.get(offset, usize::from(size.min(8)))?;
        word[..data.len()].copy_from_slice(data);
        Ok(u64::from_le_bytes(word))
    }
}

/// Why a value's own bytes do not tell; its fields are taken all the same.
type Told<T> = Result<T, Value>;

struct Reader<'f, 'r> {
    fields: &'f mut Fields<'r>,
    /// Whether there are fields at all.
    has_fields: bool,
}

impl<'r> Reader<'_, 'r> {
    fn value(&mut self, shape: &Shape, own: Bytes<'_>, offset: u32) -> Value {
        match self.read(shape, own, offset) {
            Ok(value) | Err(value) => value,
        }
    }

    /// The next field, or why it is not there.
    fn field(&mut self) -> Told<Field<'r>> {
        match self.fields.next() {
            Some(field) if field.status == FieldStatus::Ok => Ok(field),
            other => Err(self.failure(other)),
        }
    }

    fn failure(&self, field: Option<Field<'_>>) -> Value {
        match field {
            Some(field) => failure(field.status),
            None if self.has_fields => failure(FieldStatus::NoRoom),
            None => Value::Unavailable("behind an interface whose type is not looked into".into()),
        }
    }

    fn read(&mut self, shape: &Shape, own: Bytes<'_>, at: u32) -> Told<Value> {
        if !self.has_fields
            && let Some(value) = without_anything_behind(shape, own, at)
        {
            return Ok(value);
        }
        let number = |size| own.number(at, size);
        Ok(match shape {
            Shape::Bool => Value::Bool(number(1)? != 0),
            Shape::Int { size } => Value::Int(sign_extend(number(*size)?, *size)),
            Shape::Uint { size } => Value::Uint(number(*size)?),
            Shape::Float { size: 4 } => Value::Float32(f32::from_bits(number(4)? as u32)),
            Shape::Float { .. } => Value::Float(f64::from_bits(number(8)?)),
            Shape::Complex { size } => complex(own, at, *size)?,
            Shape::Duration => Value::Duration(number(8)? as i64),
            Shape::Time => time_text(number(8)?, own.number(at.saturating_add(8), 8)? as i64),
            Shape::Enum { size, signed, names } => {
                let bits = number(*size)?;
                let value = if *signed { sign_extend(bits, *size) } else { bits as i64 };
                match names.binary_search_by_key(&value, |(value, _)| *value) {
                    Ok(found) => Value::Constant { name: names[found].1.clone(), value },
                    Err(_) if *signed => Value::Int(value),
                    Err(_) => Value::Uint(bits),
                }
            }
            Shape::Pointer => Value::Pointer(number(8)?),
            Shape::Unavailable(reason) => Value::Unavailable(reason.as_ref().to_owned().into()),
            Shape::String => {
                let field = self.field()?;
                Value::String { bytes: field.data.to_vec(), len: field.original.into() }
            }
            Shape::Bytes => self.bytes()?,
            Shape::Ip => match self.bytes()? {
                Value::Bytes { bytes, len } => ip_text(bytes, len),
                other => other,
            },
            Shape::To { elem, .. } => self.behind(elem, own, at)?,
            Shape::Slice { stride, most, elem } => self.slice(*stride, *most, elem, own, at)?,
            Shape::Array { len, shown, stride, elem } => {
                let place = |index: u32| at.saturating_add(index.saturating_mul(*stride));
                let items = (0..u32::from(*shown)).map(|index| self.value(elem, own, place(index)));
                Value::List { items: items.collect(), len: *len, cap: None }
            }
            Shape::Struct { members, omitted } => {
                let place = |offset| at.saturating_add(offset);
                let members = members
                    .iter()
                    .map(|m| (m.name.clone(), self.value(&m.shape, own, place(m.offset))));
                Value::Struct { members: members.collect(), omitted: *omitted }
            }
            Shape::Only(member) => self.value(&member.shape, own, at.saturating_add(member.offset)),
            Shape::Written(writing, shape) => written(*writing, self.value(shape, own, at)),
            Shape::Interface { copy, known, .. } => self.interface(*copy, known, own, at)?,
            Shape::Map(map) => self.map(map)?,
            Shape::Chan => match self.pointed_to()? {
                None => Value::Pointer(0),
                Some(header) => Value::Chan {
                    len: header.number(0, 8)?,
                    cap: header.number(CHAN_CAP, 8)?,
                    closed: header.number(CHAN_CLOSED, 4)? != 0,
                },
            },
            Shape::Func => match self.pointed_to()? {
                None => Value::Pointer(0),
                Some(code) => Value::Func(code.number(0, 8)?),
            },
            Shape::Closure { known } => self.closure(known)?,
        })
    }

    /// What lies behind a pointer; `None` when that is nil.
    fn pointed_to(&mut self) -> Told<Option<Bytes<'r>>> {
        match self.fields.next() {
            Some(field) if field.status == FieldStatus::Ok => {
                Ok(Some(Bytes { bytes: field.data, missing: &[] }))
            }
            Some(field) if field.status == FieldStatus::Nil => Ok(None),
            other => Err(self.failure(other)),
        }
    }

    fn behind(&mut self, elem: &Shape, own: Bytes<'_>, at: u32) -> Told<Value> {
        Ok(match self.pointed_to() {
            Ok(None) => Value::Pointer(0),
            Ok(Some(object)) => Value::Behind(Box::new(self.value(elem, object, 0))),
            // Where it points to is known all the same.
            Err(Value::Unavailable(reason)) => match own.number(at, 8) {
                Ok(address) => Value::Unavailable(format!("{reason} at 0x{address:x}").into()),
                Err(value) => value,
            },
            Err(value) => value,
        })
    }

    fn bytes(&mut self) -> Told<Value> {
        let field = self.field()?;
        Ok(Value::Bytes { bytes: field.data.to_vec(), len: field.original.into() })
    }

    fn slice(
        &mut self,
        stride: u32,
        most: u16,
        elem: &Shape,
        own: Bytes<'_>,
        at: u32,
    ) -> Told<Value> {
        let mut items = Vec::new();
        if most > 0 {
            let field = self.field()?;
            for element in field.data.chunks_exact(stride.max(1) as usize) {
                items.push(self.value(elem, Bytes { bytes: element, missing: &[] }, 0));
            }
        }
        let len = own.number(at.saturating_add(8), 8)?;
        let cap = own.number(at.saturating_add(16), 8)? as i64;
        if len as i64 <= -1 {
            return Err(failure(FieldStatus::Fault));
        }
        Ok(Value::List { items, len, cap: Some(cap) })
    }

    fn interface(
        &mut self,
        copy: u16,
        known: &[KnownType],
        own: Bytes<'_>,
        at: u32,
    ) -> Told<Value> {
        let Some(the_type) = self.pointed_to()? else { return Ok(Value::NilInterface) };
        let type_word = the_type.number(0, 8)?;
        let held = if copy == 0 { None } else { Some(self.held(known)) };
        let data = own.number(at.saturating_add(8), 8);
        if type_word == 0 {
            return Ok(Value::NilInterface);
        }
        let data = data?;
        let object = match held {
            None => return Ok(Value::Interface { type_word, data }),
            Some(object) => object.at(data),
        };
        Ok(Value::Holding { type_word, object: Box::new(object) })
    }

    /// What an interface holds, whose type is not nil.
    fn held(&mut self, known: &[KnownType]) -> Object {
        let mut which = None;
        if !known.is_empty() {
            let word = match self.pointed_to() {
                Ok(Some(word)) => word.number(0, 8),
                Ok(None) => Err(failure(FieldStatus::Ok)),
                Err(value) => Err(value),
            };
            match word {
                Ok(word) => which = known.iter().find(|known| known.word == word),
                Err(value) => return Object::of(value),
            }
        }
        let data = match self.fields.next() {
            Some(field) if field.status == FieldStatus::Ok => field,
            Some(field) if field.status == FieldStatus::Nil => {
                return Object::of(Value::Pointer(0));
            }
            other => return Object::of(self.failure(other)),
        };
        match which {
            None => Object::raw(data.data.to_vec(), data.original),
            Some(known) => {
                let own = Bytes { bytes: data.data, missing: &[] };
                Object::of(match self.value(&known.shape, own, 0) {
                    // Types of which a pointer is all are held as such: this is one to a nil one.
                    nil if nil.is_nil() => Value::Behind(Box::new(nil)),
                    value => value,
                })
            }
        }
    }

    fn closure(&mut self, known: &[KnownType]) -> Told<Value> {
        let Some(code) = self.pointed_to()? else { return Ok(Value::Pointer(0)) };
        let code = code.number(0, 8)?;
        let Some(place) = self.pointed_to()? else { return Ok(Value::Func(code)) };
        let place = place.number(0, 8)?;
        let Some(known) = known.iter().find(|known| known.word == place) else {
            return Ok(Value::Func(code));
        };
        let Some(object) = self.pointed_to()? else { return Ok(Value::Func(code)) };
        Ok(match self.value(&known.shape, object, 0) {
            Value::Struct { members: captured, .. } => Value::Closure { code, captured },
            _ => Value::Func(code),
        })
    }

    fn map(&mut self, map: &MapShape) -> Told<Value> {
        let Some(header) = self.pointed_to()? else { return Ok(Value::Pointer(0)) };
        let len = header.number(0, 8)?;
        let mut entries = Vec::new();
        if map.group > 0 {
            // Each of the two ways through a Swiss map has one field.
            match self.pointed_to() {
                Ok(Some(group)) => entries = self.entries(map, group),
                // None where they are is not none for want of room.
                Err(why) if len > 0 && why == failure(FieldStatus::Fault) => return Err(why),
                Ok(None) | Err(_) => {}
            }
        }
        entries.truncate(usize::try_from(len).unwrap_or(usize::MAX));
        Ok(Value::Map { len, entries })
    }

    fn entries(&mut self, map: &MapShape, group: Bytes<'r>) -> Vec<(Value, Value)> {
        let mut entries = Vec::new();
        for index in 0..8u32 {
            let place = |(first, stride): (u32, u32)| first.saturating_add(index * stride);
            let key = self.value(&map.key, group, place(map.keys));
            let elem = self.value(&map.elem, group, place(map.elems));
            let control = group.number(index, 1).unwrap_or(0) as u8;
            let is_full = match map.form {
                MapForm::Swiss => control < SWISS_EMPTY,
                MapForm::Buckets => control >= BUCKET_FULL,
            };
            if is_full {
                entries.push((key, elem));
            }
        }
        entries
    }
}

fn complex(own: Bytes<'_>, at: u32, size: u8) -> Told<Value> {
    let half = size / 2;
    let part = |at| own.number(at, half);
    let (re, im) = (part(at)?, part(at.saturating_add(half.into()))?);
    Ok(match half {
        4 => Value::Complex64(f32::from_bits(re as u32), f32::from_bits(im as u32)),
        _ => Value::Complex(float(re, 8), float(im, 8)),
    })
}

/// What is nil or empty: its own bytes tell.
fn without_anything_behind(shape: &Shape, own: Bytes<'_>, at: u32) -> Option<Value> {
    let is_zero = |offset: u32| own.number(at.saturating_add(offset), 8).is_ok_and(|it| it == 0);
    match shape {
        Shape::To { .. } | Shape::Map(_) | Shape::Chan | Shape::Func | Shape::Closure { .. } => {
            is_zero(0).then_some(Value::Pointer(0))
        }
        Shape::Interface { .. } => is_zero(0).then_some(Value::NilInterface),
        Shape::String => is_zero(8).then(|| Value::String { bytes: Vec::new(), len: 0 }),
        Shape::Bytes => is_zero(8).then(|| Value::Bytes { bytes: Vec::new(), len: 0 }),
        _ => None,
    }
}

/// The value at the beginning of an object of which only its own bytes are known.
pub(super) fn without_fields(shape: &Shape, bytes: &[u8]) -> Value {
    let mut none = Fields::new(&[]);
    Reader { fields: &mut none, has_fields: false }.value(shape, Bytes { bytes, missing: &[] }, 0)
}
