//! Where a value is, and the steps to its parts.

use super::resolve::Failure;
use super::{ExpressionError, StepKind};
use crate::compile::{AutoPlace, AutoShape, Builder, VECTOR, op, push_add, register_op};
use crate::planner::Values;
use crate::shape::MapForm;
use crate::type_path::{PathStep, TypePathError, find_field};
use crate::value::{Check, ValueSpec};
use address::Svma;
use binary::code::Kept;
use binary::{Executable, Kind, Piece, Place, PlacedVariable, Reg, TypeId, TypeInfo, TypeSource};
use std::sync::Arc;
use wire::{MapKey, Op, OpCode};

/// `abi.ITab.Type`, `abi.Type.Hash`: bytes, Go 1.19 to 1.27 (src/internal/abi/iface.go, type.go; 1.19:
/// src/runtime/runtime2.go, type.go).
const ITAB_TYPE: i64 = 8;
const TYPE_HASH: i64 = 16;

/// `hchan.qcount` and `hchan.dataqsiz`, bytes, Go 1.19 to 1.27 (src/runtime/chan.go). A map's count is
/// its first word (`hmap.count`, src/runtime/map.go; from 1.24 `Map.used`, src/internal/runtime/maps/map.go).
const CHAN_CAP: i64 = 8;

/// Where a value is.
#[derive(Clone, Debug)]
pub(super) enum Location {
    /// In registers, one part each.
    Registers(Vec<Piece>),
    /// On the stack, so many bytes from SP at the function's first instruction on.
    Stack(i64),
    /// At the address that these ops leave.
    Memory(Vec<Op>),
    /// These ops leave the value itself, one word.
    Word(Vec<Op>),
}

/// A value that can be read.
#[derive(Clone, Debug)]
pub(super) struct Access<'a> {
    pub(super) executable: &'a Executable,
    pub(super) ty: Arc<TypeInfo>,
    pub(super) place: Location,
    /// What has to be for the value to be there, each with the ops that emit the word it is about.
    pub(super) checks: Vec<(Check, Vec<Op>)>,
    /// What of that which was passed the site still has.
    pub(super) kept: Kept,
}

/// A type of one word that no declaration has.
pub(super) fn word_type(name: &str, kind: Kind) -> Arc<TypeInfo> {
    Arc::new(TypeInfo { id: TypeId(u64::MAX), name: name.into(), size: 8, align: 8, kind })
}

fn unavailable(reason: impl ToString) -> Failure {
    Failure::Unavailable(reason.to_string())
}

impl<'a> Access<'a> {
    /// Takes one step.
    pub(super) fn step(
        self,
        debug: TypeSource<'_>,
        kind: &StepKind,
        package: &str,
        map_form: MapForm,
        column: usize,
    ) -> Result<Self, Failure> {
        match kind {
            StepKind::Field(name) => self.field(debug, name, column),
            StepKind::Assert(name) => self.assert(debug, name, package, column),
            StepKind::Index(index) => self.index(debug, *index, column),
            StepKind::Key(key) => self.key(debug, key, map_form, column),
            StepKind::Len => self.length(debug, "len", column),
            StepKind::Cap => self.length(debug, "cap", column),
            StepKind::Address => self.address(column),
            StepKind::Deref => match self.ty.kind {
                Kind::Pointer { .. } => self.pointee(debug, column),
                _ => Err(self.mistake(column, "is no pointer")),
            },
        }
    }

    fn mistake(&self, column: usize, what: &str) -> Failure {
        ExpressionError::meaning(column, format!("{} {what}", self.ty.name)).into()
    }

    /// Ops that leave word `index` of the value.
    pub(super) fn word(&self, index: usize) -> Result<Vec<Op>, Failure> {
        let offset = 8 * index as i64;
        Ok(match &self.place {
            Location::Registers(pieces) => {
                let piece = pieces.iter().find(|piece| i64::from(piece.offset) == offset);
                let piece = piece.ok_or_else(|| unavailable("not in the registers"))?;
                self.kept.register(piece.reg, piece.size).map_err(unavailable)?;
                vec![register_op(number(piece.reg))]
            }
            Location::Stack(slot) => {
                vec![op(OpCode::StackSlot, 0, slot.wrapping_add(offset)), op(OpCode::Deref, 0, 0)]
            }
            Location::Memory(address) => {
                let mut ops = address.clone();
                push_add(&mut ops, offset);
                ops.push(op(OpCode::Deref, 0, 0));
                ops
            }
            Location::Word(ops) if index == 0 => ops.clone(),
            Location::Word(_) => return Err(unavailable("has one word")),
        })
    }

    /// Ops that leave word `index`, which is a pointer that is followed: never nil.
    fn pointer(&self, index: usize) -> Result<Vec<Op>, Failure> {
        let offset = 8 * index as i64;
        match &self.place {
            Location::Registers(pieces) => {
                let piece = pieces.iter().find(|piece| i64::from(piece.offset) == offset);
                if let Some(piece) = piece {
                    self.kept.behind_register(piece.reg).map_err(unavailable)?;
                }
            }
            Location::Stack(slot) => {
                self.kept.behind_stack(slot.wrapping_add(offset)).map_err(unavailable)?;
            }
            Location::Memory(_) | Location::Word(_) => {}
        }
        let mut ops = self.word(index)?;
        ops.push(op(OpCode::NilCheck, 0, 0));
        Ok(ops)
    }

    /// What a pointer points to.
    pub(super) fn pointee(mut self, debug: TypeSource<'_>, column: usize) -> Result<Self, Failure> {
        let Kind::Pointer { elem: Some(elem) } = self.ty.kind else {
            return Err(self.mistake(column, "leads to no type"));
        };
        self.place = Location::Memory(self.pointer(0)?);
        self.ty = debug.type_info(elem)?;
        Ok(self)
    }

    /// The part of `ty` that begins `offset` bytes from the value's first one.
    fn part(mut self, offset: u64, ty: Arc<TypeInfo>) -> Result<Self, Failure> {
        self.place = match self.place {
            Location::Registers(pieces) => {
                let end = offset.saturating_add(ty.size);
                let inside = |piece: &Piece| (offset..end).contains(&u64::from(piece.offset));
                let rebased =
                    |piece: Piece| Piece { offset: piece.offset - offset as u32, ..piece };
                let parts: Vec<Piece> = pieces.into_iter().filter(inside).map(rebased).collect();
                if parts.is_empty() {
                    return Err(unavailable("has no bytes"));
                }
                Location::Registers(parts)
            }
            Location::Stack(slot) => Location::Stack(slot.wrapping_add(offset as i64)),
            Location::Memory(mut ops) => {
                push_add(&mut ops, offset as i64);
                Location::Memory(ops)
            }
            Location::Word(ops) => Location::Word(ops),
        };
        self.ty = ty;
        Ok(self)
    }

    fn field(mut self, debug: TypeSource<'_>, name: &str, column: usize) -> Result<Self, Failure> {
        if let Kind::Interface { .. } = self.ty.kind {
            let message = format!("is an interface: assert its type, as in x.(*T).{name}");
            return Err(self.mistake(column, &message));
        }
        if self.ty.id == TypeId(u64::MAX) {
            return Err(self.mistake(column, "has no fields"));
        }
        let way = find_field(debug, self.ty.id, name).map_err(|error| match error {
            TypePathError::Binary(error) => Failure::from(error),
            error => ExpressionError::meaning(column, error.to_string()).into(),
        })?;
        for PathStep { offset, ty, through_pointer, .. } in way {
            if through_pointer {
                self = self.pointee(debug, column)?;
            }
            self = self.part(offset, debug.type_info(ty)?)?;
        }
        Ok(self)
    }

    fn index(mut self, debug: TypeSource<'_>, index: u64, column: usize) -> Result<Self, Failure> {
        if let Some(array) = self.pointed_array(debug)? {
            self = array;
        }
        let elem = match self.ty.kind {
            Kind::Array { len, .. } if index >= len => {
                return Err(self.mistake(column, &format!("has no element {index}")));
            }
            Kind::Array { elem, .. } => {
                let ty = debug.type_info(elem)?;
                return self.part(index.saturating_mul(ty.size), ty);
            }
            Kind::Slice { elem } => debug.type_info(elem)?,
            Kind::String => {
                let name: Arc<str> = "uint8".into();
                let kind = Kind::Int { signed: false };
                Arc::new(TypeInfo { id: TypeId(u64::MAX), name, size: 1, align: 1, kind })
            }
            Kind::Map { .. } => {
                return Err(self.mistake(column, "is a map: write a key in quotes"));
            }
            _ => return Err(self.mistake(column, "has no elements")),
        };
        let mut len = self.word(1)?;
        len.push(op(OpCode::EmitAcc, 8, 0));
        self.checks.push((Check::Index(index), len));
        let mut ops = self.pointer(0)?;
        push_add(&mut ops, index.saturating_mul(elem.size).min(i64::MAX as u64) as i64);
        self.place = Location::Memory(ops);
        self.ty = elem;
        Ok(self)
    }

    /// What a map has for a string; the pointer to it is nil where it has nothing.
    fn key(
        mut self,
        debug: TypeSource<'_>,
        text: &str,
        map_form: MapForm,
        column: usize,
    ) -> Result<Self, Failure> {
        let Kind::Map { key: Some(key), elem: Some(elem) } = self.ty.kind else {
            return Err(self.mistake(column, "is no map whose types are known"));
        };
        if debug.type_info(key)?.kind != Kind::String {
            return Err(self.mistake(column, "has other keys than strings"));
        }
        let elem = debug.type_info(elem)?;
        let bytes = text.as_bytes();
        let len = u8::try_from(bytes.len()).ok().filter(|len| (8..=15).contains(len));
        let words = Some(elem.size / 8).filter(|words| *words < 8 && elem.size % 8 == 0);
        let (Some(len), Some(words), Some(first), Some(last)) =
            (len, words, bytes.first_chunk(), bytes.last_chunk())
        else {
            let message = "is looked into for keys of 8 to 15 bytes and elements of whole words";
            return Err(self.mistake(column, message));
        };
        let mut ops = Vec::new();
        push_add(&mut ops, i64::from_le_bytes(*last));
        ops.push(op(OpCode::SetAux, 0, 0));
        let map = self.pointer(0)?;
        if map.iter().any(|op| op.code == OpCode::SetAux) {
            return Err(self.mistake(column, "is in another map: one is looked into"));
        }
        ops.extend(map);
        let is_swiss = map_form == MapForm::Swiss;
        let operand = MapKey { len, elem_words: words as u8, is_swiss }.to_operand();
        ops.push(op(OpCode::MapElem, operand, i64::from_le_bytes(*first)));
        ops.push(op(OpCode::NilCheck, 0, 0));
        self.place = Location::Memory(ops);
        self.ty = elem;
        Ok(self)
    }

    /// What it points to, if that is an array: Go indexes and measures such pointers.
    fn pointed_array(&self, debug: TypeSource<'_>) -> Result<Option<Self>, Failure> {
        let Kind::Pointer { elem: Some(elem) } = self.ty.kind else { return Ok(None) };
        match debug.type_info(elem)?.kind {
            Kind::Array { .. } => self.clone().pointee(debug, 0).map(Some),
            _ => Ok(None),
        }
    }

    fn length(mut self, debug: TypeSource<'_>, of: &str, column: usize) -> Result<Self, Failure> {
        let array = match self.ty.kind {
            Kind::Pointer { elem: Some(elem) } => Some(debug.type_info(elem)?),
            _ => None,
        };
        let ty = array.as_ref().unwrap_or(&self.ty);
        let ops = match (&ty.kind, of) {
            (Kind::Array { len, .. }, _) => {
                let mut ops = Vec::new();
                push_add(&mut ops, i64::try_from(*len).unwrap_or(i64::MAX));
                ops
            }
            _ if array.is_some() => return Err(self.mistake(column, &format!("has no {of}"))),
            (Kind::String | Kind::Slice { .. }, "len") => self.word(1)?,
            (Kind::Slice { .. }, _) => self.word(2)?,
            (Kind::Map { .. }, "len") => self.counted(0)?,
            (Kind::Chan, "len") => self.counted(0)?,
            (Kind::Chan, _) => self.counted(CHAN_CAP)?,
            _ => return Err(self.mistake(column, &format!("has no {of}"))),
        };
        self.place = Location::Word(ops);
        self.ty = word_type("int", Kind::Int { signed: true });
        Ok(self)
    }

    /// The word `offset` bytes behind what a map or channel is; 0 of a nil one.
    fn counted(&mut self, offset: i64) -> Result<Vec<Op>, Failure> {
        let mut is_nil = self.word(0)?;
        is_nil.push(op(OpCode::EmitAcc, 8, 0));
        self.checks.push((Check::LengthAt, is_nil));
        let mut ops = self.pointer(0)?;
        push_add(&mut ops, offset);
        ops.push(op(OpCode::Deref, 0, 0));
        Ok(ops)
    }

    fn address(mut self, column: usize) -> Result<Self, Failure> {
        let ops = match self.place {
            Location::Stack(slot) => vec![op(OpCode::StackSlot, 0, slot)],
            Location::Memory(ops) => ops,
            Location::Registers(_) => return Err(unavailable("in registers: it has no address")),
            Location::Word(_) => return Err(self.mistake(column, "here has no address")),
        };
        self.place = Location::Word(ops);
        self.ty = word_type(&format!("*{}", self.ty.name), Kind::Pointer { elem: None });
        Ok(self)
    }

    fn assert(
        mut self,
        debug: TypeSource<'_>,
        name: &str,
        package: &str,
        column: usize,
    ) -> Result<Self, Failure> {
        let Kind::Interface { empty } = self.ty.kind else {
            return Err(self.mistake(column, "is no interface: nothing is asserted of it"));
        };
        let ty = asserted(debug, name, package, column)?;
        if let Kind::Interface { .. } = ty.kind {
            let message = format!("{name} is an interface: assert a type that it may hold");
            return Err(ExpressionError::meaning(column, message).into());
        }
        let descriptor = debug.descriptor(ty.id)?;
        let hash = descriptor
            .and_then(|descriptor| hash_of(self.executable, descriptor))
            .ok_or_else(|| {
                let message = format!("no interface of this program holds a {name}");
                Failure::from(ExpressionError::meaning(column, message))
            })?;
        let mut ops = self.word(0)?;
        ops.push(op(OpCode::NilCheck, 0, 0));
        if !empty {
            push_add(&mut ops, ITAB_TYPE);
            ops.push(op(OpCode::Deref, 0, 0));
        }
        push_add(&mut ops, TYPE_HASH);
        ops.push(op(OpCode::EmitBytes, 0, 4));
        self.checks.push((Check::Type { hash, name: name.to_owned() }, ops));
        if is_direct(debug, &ty)? {
            return self.part(8, ty);
        }
        self.place = Location::Memory(self.pointer(1)?);
        self.ty = ty;
        Ok(self)
    }

    /// Adds what fetches all of the value, with what it leads to; not for [`Location::Word`].
    pub(super) fn whole(
        &self,
        name: &str,
        values: &Values<'_>,
        builder: &mut Builder,
    ) -> ValueSpec {
        let place = match &self.place {
            Location::Memory(ops) => return values.at(name, &self.ty, ops, builder),
            Location::Registers(pieces) => Ok(Place::Registers(pieces.clone())),
            // The CFA is 8 bytes above SP at the first instruction.
            Location::Stack(slot) => u32::try_from(slot.saturating_sub(8))
                .map(|offset| Place::Stack { offset })
                .map_err(|_| "too far up the stack".to_owned()),
            Location::Word(_) => Err("has no address".to_owned()),
        };
        let variable = PlacedVariable { name: name.to_owned(), ty: Arc::clone(&self.ty), place };
        values.variable(&variable, &self.kept, builder)
    }

    /// Shape and place as the compiler of values takes them. A value that the site need not have any more
    /// is unavailable.
    pub(super) fn shape_and_place(&self) -> Result<(AutoShape, AutoPlace), Failure> {
        let shape = shape_of(&self.ty);
        let place = match &self.place {
            Location::Registers(pieces) => {
                for piece in pieces {
                    self.kept.register(piece.reg, piece.size).map_err(unavailable)?;
                }
                AutoPlace::Registers(pieces.iter().map(|piece| number(piece.reg)).collect())
            }
            Location::Stack(offset) => AutoPlace::Stack { offset: *offset },
            Location::Memory(ops) => AutoPlace::Memory(ops.clone()),
            Location::Word(_) => AutoPlace::Missing("has no address".to_owned()),
        };
        // Of all shapes that are captured only strings are read behind a pointer.
        if shape == AutoShape::String {
            self.pointer(0)?;
        }
        Ok((shape, place))
    }
}

/// A register as fetch programs number it.
fn number(reg: Reg) -> u8 {
    match reg {
        Reg::Int(number) => number,
        Reg::Float(number) => number.saturating_add(VECTOR),
    }
}

/// The type that an assertion names: in full, or one of the function's package.
fn asserted(
    debug: TypeSource<'_>,
    name: &str,
    package: &str,
    column: usize,
) -> Result<Arc<TypeInfo>, Failure> {
    if let Some(id) = debug.find_type(name)? {
        return Ok(debug.type_info(id)?);
    }
    let stars = name.len() - name.trim_start_matches('*').len();
    let (stars, bare) = name.split_at(stars);
    if let Some(id) = debug.find_type(&format!("{stars}{package}.{bare}"))? {
        return Ok(debug.type_info(id)?);
    }
    let near = crate::type_path::near(debug, bare).map_err(|error| match error {
        TypePathError::Binary(error) => Failure::from(error),
        error => ExpressionError::meaning(column, error.to_string()).into(),
    })?;
    let by = debug.described_by();
    let message = match near.is_empty() {
        true => format!("no type {name} in the {by}"),
        false => format!("no type {name} in the {by}; nearest: {}", near.join(", ")),
    };
    Err(ExpressionError::meaning(column, message).into())
}

/// The hash in a descriptor.
fn hash_of(executable: &Executable, descriptor: Svma) -> Option<u32> {
    let bytes = executable.image().read_vec(descriptor.add(TYPE_HASH as u64), 4).ok()?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// Whether an interface's data word is the value itself (`IsDirectIface`,
/// src/cmd/compile/internal/types/type.go, Go 1.19 to 1.27).
fn is_direct(debug: TypeSource<'_>, ty: &TypeInfo) -> Result<bool, Failure> {
    let mut ty = ty.clone();
    // As many levels as types nest that debug information describes.
    for _ in 0..64 {
        let inner = match &ty.kind {
            Kind::Pointer { .. }
            | Kind::Map { .. }
            | Kind::Chan
            | Kind::Func
            | Kind::UnsafePointer => {
                return Ok(true);
            }
            Kind::Struct { fields } if fields.len() == 1 => fields[0].ty,
            Kind::Array { elem, len: 1 } => *elem,
            _ => return Ok(false),
        };
        ty = (*debug.type_info(inner)?).clone();
    }
    Ok(false)
}

/// What is captured of a type. Of the nested ones the header is, or nothing.
pub(super) fn shape_of(ty: &TypeInfo) -> AutoShape {
    let unsupported = |what: &str| AutoShape::Unsupported(format!("{what}: name a part of it"));
    match &ty.kind {
        Kind::Bool => AutoShape::Bool,
        Kind::Int { signed } => AutoShape::Int { size: ty.size as u8, signed: *signed },
        Kind::Float => AutoShape::Float { size: ty.size as u8 },
        Kind::Complex => AutoShape::Complex { size: ty.size as u8 },
        Kind::String => AutoShape::String,
        Kind::Slice { .. } => AutoShape::Slice,
        Kind::Pointer { .. } | Kind::Map { .. } | Kind::Chan | Kind::Func | Kind::UnsafePointer => {
            AutoShape::Pointer
        }
        Kind::Interface { empty } => AutoShape::Interface { has_methods: !empty },
        Kind::Array { .. } => unsupported("an array"),
        Kind::Struct { .. } => unsupported("a struct"),
        Kind::Other => unsupported("a C type"),
    }
}
