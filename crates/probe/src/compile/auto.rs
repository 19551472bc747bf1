//! Values read by what the binary says of them: their shape, and where they are.

use super::{Builder, Compiled, op, push_add};
use crate::value::{ValueKind, ValueSpec};
use wire::{Op, OpCode};

/// What a Go value is made of, as far as it is captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AutoShape {
    /// One byte.
    Bool,
    /// Integers, `uintptr`, and named types of them.
    Int {
        /// Bytes: 1, 2, 4 or 8.
        size: u8,
        /// Two's complement.
        signed: bool,
    },
    /// Floating-point numbers of 4 or 8 bytes.
    Float {
        /// Bytes: 4 or 8.
        size: u8,
    },
    /// Complex numbers of 8 or 16 bytes.
    Complex {
        /// Bytes: 8 or 16.
        size: u8,
    },
    /// Data pointer, length.
    String,
    /// One word: pointer, map, chan, func, `unsafe.Pointer`.
    Pointer,
    /// Data pointer, length, capacity.
    Slice,
    /// Two words.
    Interface {
        /// The first word is an itab (iface), else the dynamic type itself (eface).
        has_methods: bool,
    },
    /// Not captured, with the reason a person reads.
    Unsupported(String),
}

/// Where a value is at the site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AutoPlace {
    /// In registers, one part of the value each, in order: general ones by their hardware
    /// numbers, vector registers by [`VECTOR`] more than theirs.
    Registers(Vec<u8>),
    /// In memory, whole, from SP at the function's first instruction + `offset` bytes on.
    Stack {
        /// Bytes; 8 is the first byte above the return address.
        offset: i64,
    },
    /// In memory, whole, at the address that these ops leave in acc. They start as a field does
    /// and may fail it: behind a nil pointer there is no value.
    Memory(Vec<Op>),
    /// Not there, with the reason a person reads.
    Missing(String),
}

/// Where the numbers of vector registers begin in [`AutoPlace::Registers`].
pub const VECTOR: u8 = 16;

/// acc = a register, numbered as in [`AutoPlace::Registers`].
pub(crate) fn register_op(number: u8) -> Op {
    match number.checked_sub(VECTOR) {
        Some(vector) => op(OpCode::FloatReg, vector, 0),
        None => op(OpCode::Reg, number, 0),
    }
}

/// Byte of `abi.ITab` (1.19: `runtime.itab`) that holds the dynamic type; the word before
/// it is the interface's type. Go 1.19 to 1.27: src/internal/abi/iface.go, src/runtime/runtime2.go.
const ITAB_TYPE: i64 = 8;

/// Adds the ops that fetch one value and tells how to read its fields.
///
/// What cannot be fetched is [`ValueKind::Unavailable`] and costs nothing.
pub fn compile_value(
    name: &str,
    type_name: &str,
    shape: &AutoShape,
    place: &AutoPlace,
    builder: &mut Builder,
) -> ValueSpec {
    let compiled = compile(shape, place, builder.string_bytes());
    builder.value(name, type_name, compiled)
}

pub(crate) fn compile(
    shape: &AutoShape,
    place: &AutoPlace,
    string_bytes: u16,
) -> Result<Compiled, String> {
    let kind = kind_of(shape)?;
    let words = Words::new(place, shape, &kind)?;
    let mut ops = Vec::new();
    match &kind {
        ValueKind::String => {
            words.load(&mut ops, 1);
            ops.push(op(OpCode::SetAux, 0, 0));
            words.load(&mut ops, 0);
            ops.push(op(OpCode::EmitString, 0, i64::from(string_bytes)));
        }
        ValueKind::Interface if matches!(shape, AutoShape::Interface { has_methods: true }) => {
            words.load(&mut ops, 0);
            ops.push(op(OpCode::NilCheck, 0, 0));
            push_add(&mut ops, ITAB_TYPE);
            ops.extend([op(OpCode::Deref, 0, 0), op(OpCode::EmitAcc, 8, 0)]);
            words.emit(&mut ops, 1, 8);
        }
        ValueKind::Bool => words.emit(&mut ops, 0, 1),
        ValueKind::Int { size } | ValueKind::Uint { size } | ValueKind::Float { size } => {
            words.emit(&mut ops, 0, *size);
        }
        ValueKind::Complex { size } => {
            let half = size / 2;
            words.emit_at(&mut ops, 0, 0, half);
            words.emit_at(&mut ops, 1, half.into(), half);
        }
        whole_words => {
            for word in 0..whole_words.fields() {
                words.emit(&mut ops, word, 8);
            }
        }
    }
    Ok(Compiled { kind, ops })
}

fn kind_of(shape: &AutoShape) -> Result<ValueKind, String> {
    Ok(match *shape {
        AutoShape::Bool => ValueKind::Bool,
        AutoShape::Int { size: size @ (1 | 2 | 4 | 8), signed: true } => ValueKind::Int { size },
        AutoShape::Int { size: size @ (1 | 2 | 4 | 8), signed: false } => ValueKind::Uint { size },
        AutoShape::Float { size: size @ (4 | 8) } => ValueKind::Float { size },
        AutoShape::Complex { size: size @ (8 | 16) } => ValueKind::Complex { size },
        AutoShape::Int { size, .. } | AutoShape::Float { size } | AutoShape::Complex { size } => {
            return Err(format!("number of {size} bytes"));
        }
        AutoShape::String => ValueKind::String,
        AutoShape::Pointer => ValueKind::Pointer,
        AutoShape::Slice => ValueKind::Slice,
        AutoShape::Interface { .. } => ValueKind::Interface,
        AutoShape::Unsupported(ref reason) => return Err(reason.clone()),
    })
}

/// Access to a value's words, wherever they are.
enum Words<'a> {
    Registers(&'a [u8]),
    Stack(i64),
    Memory(&'a [Op]),
}

impl<'a> Words<'a> {
    fn new(place: &'a AutoPlace, shape: &AutoShape, kind: &ValueKind) -> Result<Self, String> {
        let registers = match place {
            AutoPlace::Missing(reason) => return Err(reason.clone()),
            AutoPlace::Stack { offset } => return Ok(Self::Stack(*offset)),
            AutoPlace::Memory(address) => return Ok(Self::Memory(address)),
            AutoPlace::Registers(registers) => registers,
        };
        let words = if *kind == ValueKind::String { 2 } else { kind.fields() };
        let is_float = matches!(shape, AutoShape::Float { .. } | AutoShape::Complex { .. });
        let range = if is_float { VECTOR..VECTOR + 15 } else { 0..VECTOR };
        if registers.len() != words || !registers.iter().all(|number| range.contains(number)) {
            return Err(format!("{} registers for a value of {words} words", registers.len()));
        }
        Ok(Self::Registers(registers))
    }

    /// acc = word `index`.
    fn load(&self, ops: &mut Vec<Op>, index: usize) {
        match self {
            Self::Registers(registers) => ops.push(register_op(registers[index])),
            Self::Stack(_) | Self::Memory(_) => {
                self.point_at(ops, 8 * index as i64);
                ops.push(op(OpCode::Deref, 0, 0));
            }
        }
    }

    /// Emits the low `size` bytes of word `index` as a field.
    fn emit(&self, ops: &mut Vec<Op>, index: usize, size: u8) {
        self.emit_at(ops, index, 8 * index as i64, size);
    }

    /// Emits `size` bytes: the low ones of register `index`, or those `within` bytes from the
    /// value's first one.
    fn emit_at(&self, ops: &mut Vec<Op>, index: usize, within: i64, size: u8) {
        match self {
            Self::Registers(registers) => {
                ops.extend([register_op(registers[index]), op(OpCode::EmitAcc, size, 0)]);
            }
            Self::Stack(_) | Self::Memory(_) => {
                self.point_at(ops, within);
                ops.push(op(OpCode::EmitBytes, 0, i64::from(size)));
            }
        }
    }

    /// acc = the address `within` bytes from the value's first one, which is in memory.
    fn point_at(&self, ops: &mut Vec<Op>, within: i64) {
        match self {
            Self::Registers(_) => {}
            Self::Stack(offset) => {
                ops.push(op(OpCode::StackSlot, 0, offset.wrapping_add(within)));
            }
            Self::Memory(address) => {
                ops.extend_from_slice(address);
                push_add(ops, within);
            }
        }
    }
}
