//! From the places and types of a function's variables to their fetch programs.

use crate::Limits;
use crate::compile::{
    AutoPlace, AutoShape, Builder, Held, Later, VECTOR, ValuePlace, compile_nested, compile_typed,
    compile_value, lost_value,
};
use crate::shape::{Extent, MapForm, Shape, ShapeBuilder, Types};
use crate::value::{ValueKind, ValueSpec};
use binary::code::{Kept, Lost};
use binary::{GoVersion, Kind, Piece, Place, PlacedVariable, Reg, TypeInfo};
use std::cell::Cell;
use wire::Op;

/// Which maps a version of Go makes: Swiss ones from 1.24 on (`internal/runtime/maps`).
pub fn map_form(version: &GoVersion) -> MapForm {
    match (version.major, version.minor) {
        (1, ..=23) => MapForm::Buckets,
        _ => MapForm::Swiss,
    }
}

/// What values are made with.
#[derive(Clone, Copy)]
pub struct Values<'a> {
    /// Where types are looked up.
    pub types: Option<&'a dyn Types>,
    /// Which maps the executable has.
    pub map_form: MapForm,
    /// How much is captured.
    pub limits: Limits,
    /// Types that an interface of the value itself is looked into for.
    pub known: u8,
}

/// Types that interfaces are looked into for in any case, as far as there are so many.
pub(super) const FEW_KNOWN: u8 = 8;

/// Types that they are looked into for at the most, where nothing else is shown in less depth for it.
pub(crate) const MOST_KNOWN: u8 = 24;

/// What is tried one after the other.
const MORE_KNOWN: [u8; 3] = [MOST_KNOWN, 16, 12];

/// Levels and elements that are tried, as long as a value does not fit: first fewer elements
/// inside others, then less depth, then the value alone.
const LESS: [(u8, u16, u16); 10] = [
    (u8::MAX, u16::MAX, u16::MAX),
    (u8::MAX, u16::MAX, 8),
    (u8::MAX, u16::MAX, 4),
    (u8::MAX, u16::MAX, 2),
    (u8::MAX, u16::MAX, 1),
    (2, 8, 4),
    (2, 8, 2),
    (1, 8, 2),
    (1, 4, 1),
    (0, 1, 1),
];

impl Values<'_> {
    /// The same with the least of each value.
    pub fn least(&self) -> Self {
        Self { limits: Limits { depth: 0, elements: 1, ..self.limits }, ..*self }
    }

    /// Adds the fetch programs of variables, `kept` being what there is of them at the site.
    pub fn compile(
        &self,
        variables: &[PlacedVariable],
        kept: &Kept,
        builder: &mut Builder,
    ) -> Vec<ValueSpec> {
        self.compile_typed(variables, &[], kept, builder)
    }

    /// The same; for some of the variables, in their order, there are ops that leave the descriptor
    /// of their type.
    pub fn compile_typed(
        &self,
        variables: &[PlacedVariable],
        types: &[Option<Vec<Op>>],
        kept: &Kept,
        builder: &mut Builder,
    ) -> Vec<ValueSpec> {
        self.with_more_known(builder, |values, builder| {
            values.compile_all(variables, types, kept, builder)
        })
    }

    /// Adds what `compile` adds, with as many types looked into as there is room for beside all else: the levels
    /// that it tells stay as they are.
    fn with_more_known(
        &self,
        builder: &mut Builder,
        compile: impl Fn(&Self, &mut Builder) -> Vec<(ValueSpec, usize)>,
    ) -> Vec<ValueSpec> {
        let before = builder.clone();
        let levels = |all: &[(ValueSpec, usize)]| -> Vec<usize> {
            all.iter().map(|(_, level)| *level).collect()
        };
        let mut all = compile(self, builder);
        if all.iter().any(|(spec, _)| may_know_more(spec, self.known)) {
            for known in MORE_KNOWN {
                let mut trial = before.clone();
                let more = compile(&Self { known, ..*self }, &mut trial);
                if levels(&more) == levels(&all) {
                    (all, *builder) = (more, trial);
                    break;
                }
            }
        }
        all.into_iter().map(|(spec, _)| spec).collect()
    }

    /// Values, each with the number of the level that it has room for.
    fn compile_all(
        &self,
        variables: &[PlacedVariable],
        types: &[Option<Vec<Op>>],
        kept: &Kept,
        builder: &mut Builder,
    ) -> Vec<(ValueSpec, usize)> {
        // Each value by itself comes before what the first ones lead to.
        let mut later: Vec<Later> = vec![Later::default()];
        for variable in variables.iter().rev() {
            let mut alone = Builder::new(builder.string_bytes());
            self.one(variable, kept, &mut alone, &LESS[LESS.len() - 1..]);
            later.push(later.last().copied().unwrap_or_default().and(alone.needs()));
        }
        let mut later = later.into_iter().rev().skip(1);
        let types = types.iter().map(Option::as_deref).chain(std::iter::repeat(None));
        let each = variables.iter().zip(types).map(|(variable, type_word)| {
            builder.leave(later.next().unwrap_or_default());
            let typed = type_word.and_then(|ops| self.typed(variable, ops, kept, builder));
            typed.unwrap_or_else(|| self.one(variable, kept, builder, &LESS))
        });
        each.collect()
    }

    /// A pointer in a register whose type a descriptor tells, which `type_word` leaves.
    fn typed(
        &self,
        variable: &PlacedVariable,
        type_word: &[Op],
        kept: &Kept,
        builder: &mut Builder,
    ) -> Option<(ValueSpec, usize)> {
        let (PlacedVariable { name, ty, .. }, types) = (variable, self.types?);
        let Ok(Place::Registers(pieces)) = &variable.place else { return None };
        let [Piece { reg: reg @ Reg::Int(number), .. }] = pieces[..] else { return None };
        let is_pointer = matches!(ty.kind, Kind::Pointer { .. });
        if !is_pointer || !is_any_pointer(&ty.name) || kept.behind_register(reg).is_err() {
            return None;
        }
        let kind = Kind::Interface { empty: true };
        let any = TypeInfo { name: "interface {}".into(), size: 16, kind, ..(**ty).clone() };
        LESS.iter().enumerate().find_map(|(level, less)| {
            let extent = self.extent(less);
            let known = ShapeBuilder::new(types, self.map_form, extent).in_any(&any);
            let spec = compile_typed(name, &ty.name, (type_word, number), known, builder)?;
            Some((spec, level))
        })
    }

    fn extent(&self, (depth, elements, inner): &(u8, u16, u16)) -> Extent {
        Extent {
            depth: self.limits.depth.min(*depth),
            elements: self.limits.elements.min(*elements),
            inner: self.limits.elements.min(*inner),
            known: self.known,
        }
    }

    /// Adds the fetch program of one variable.
    pub fn variable(
        &self,
        variable: &PlacedVariable,
        kept: &Kept,
        builder: &mut Builder,
    ) -> ValueSpec {
        let one =
            |values: &Self, builder: &mut Builder| vec![values.one(variable, kept, builder, &LESS)];
        self.with_more_known(builder, one).remove(0)
    }

    fn one(
        &self,
        variable: &PlacedVariable,
        kept: &Kept,
        builder: &mut Builder,
        extents: &[(u8, u16, u16)],
    ) -> (ValueSpec, usize) {
        let PlacedVariable { name, ty, .. } = variable;
        if let Err(lost) = lost_value(variable, kept) {
            let place = ValuePlace::Missing(lost.to_string());
            return (compile_nested(name, &ty.name, ty.size, [], &place, builder), 0);
        }
        let kept_behind = |offset| kept_behind(variable, kept, offset);
        self.read(name, ty, place(variable), &kept_behind, builder, extents)
    }

    /// Adds the fetch program of a value at the address that `address` leaves.
    pub fn at(
        &self,
        name: &str,
        ty: &TypeInfo,
        address: &[Op],
        builder: &mut Builder,
    ) -> ValueSpec {
        let at = |values: &Self, builder: &mut Builder| {
            let place = ValuePlace::At(address.to_vec());
            vec![values.read(name, ty, place, &|_| Ok(()), builder, &LESS)]
        };
        self.with_more_known(builder, at).remove(0)
    }

    fn read(
        &self,
        name: &str,
        ty: &TypeInfo,
        place: ValuePlace,
        kept_behind: &dyn Fn(u32) -> Result<(), Lost>,
        builder: &mut Builder,
        extents: &[(u8, u16, u16)],
    ) -> (ValueSpec, usize) {
        let is_enum = matches!(ty.kind, Kind::Int { .. })
            && self.types.is_some_and(|types| !types.constants(ty).is_empty());
        let simple = simple_shape(ty).filter(|_| !is_enum);
        let Some(types) = self.types.filter(|_| simple.is_none()) else {
            let shape = simple.unwrap_or(AutoShape::Pointer);
            return (compile_value(name, &ty.name, &shape, &simple_place(place), builder), 0);
        };
        let level = Cell::new(0);
        let shapes = extents.iter().enumerate().map(|(tried, less)| {
            level.set(tried);
            let extent = self.extent(less);
            let shape = ShapeBuilder::new(types, self.map_form, extent).shape(ty);
            followed(shape, 0, kept_behind)
        });
        let spec = compile_nested(name, &ty.name, ty.size, shapes, &place, builder);
        (plain_pointer(spec), level.get())
    }
}

/// Whether an interface or func of the value itself is looked into for so many types, and perhaps not for all there are.
fn may_know_more(spec: &ValueSpec, known: u8) -> bool {
    fn is_full(shape: &Shape, count: usize) -> bool {
        match shape {
            Shape::Interface { known, .. } | Shape::Closure { known } => known.len() == count,
            Shape::Array { elem, .. } => is_full(elem, count),
            Shape::Struct { members, .. } => {
                members.iter().any(|member| is_full(&member.shape, count))
            }
            Shape::Only(member) => is_full(&member.shape, count),
            _ => false,
        }
    }
    match &spec.kind {
        ValueKind::Nested(nested) => is_full(&nested.shape, known.into()),
        _ => false,
    }
}

/// Whether a type is what the compiler makes of all pointers (`shapify`,
/// cmd/compile/internal/noder/reader.go; in Go 1.19 its name ends with the number of the type parameter).
fn is_any_pointer(name: &str) -> bool {
    let name = name.trim_start_matches("go.shape.");
    name == "*uint8" || name.starts_with("*uint8_")
}

/// A pointer that is not followed is what it always was.
fn plain_pointer(mut spec: ValueSpec) -> ValueSpec {
    if let ValueKind::Nested(nested) = &spec.kind
        && nested.shape == Shape::Pointer
    {
        spec.kind = ValueKind::Pointer;
    }
    spec
}

/// The shape of a type that is one or two words and leads to nothing but text.
fn simple_shape(ty: &TypeInfo) -> Option<AutoShape> {
    Some(match &ty.kind {
        Kind::Bool => AutoShape::Bool,
        Kind::Int { signed } => AutoShape::Int { size: ty.size as u8, signed: *signed },
        Kind::Float => AutoShape::Float { size: ty.size as u8 },
        Kind::String => AutoShape::String,
        Kind::UnsafePointer | Kind::Pointer { elem: None } => AutoShape::Pointer,
        Kind::Complex => AutoShape::Complex { size: ty.size as u8 },
        Kind::Other => AutoShape::Unsupported("C types are not captured yet".to_owned()),
        _ => return None,
    })
}

fn simple_place(place: ValuePlace) -> AutoPlace {
    match place {
        ValuePlace::Missing(reason) => AutoPlace::Missing(reason),
        ValuePlace::Stack { offset } => AutoPlace::Stack { offset },
        ValuePlace::Registers(held) => {
            AutoPlace::Registers(held.iter().map(|held| held.register).collect())
        }
        ValuePlace::At(address) => AutoPlace::Memory(address),
    }
}

fn place(variable: &PlacedVariable) -> ValuePlace {
    match &variable.place {
        Err(reason) => ValuePlace::Missing(reason.clone()),
        Ok(Place::Empty) if variable.ty.size == 0 => ValuePlace::Registers(Vec::new()),
        Ok(Place::Empty) => ValuePlace::Missing("has no bytes".to_owned()),
        // SP at the first instruction points to the return address, 8 bytes below the CFA.
        Ok(Place::Stack { offset }) => ValuePlace::Stack { offset: i64::from(*offset) + 8 },
        Ok(Place::Registers(pieces)) => {
            let held = |piece: &Piece| Held {
                register: match piece.reg {
                    Reg::Int(number) => number,
                    Reg::Float(number) => number.saturating_add(VECTOR),
                },
                offset: piece.offset,
                size: piece.size,
            };
            ValuePlace::Registers(pieces.iter().map(held).collect())
        }
    }
}

/// Whether what the pointer at `offset` of a variable leads to is what the caller passed.
fn kept_behind(variable: &PlacedVariable, kept: &Kept, offset: u32) -> Result<(), Lost> {
    match &variable.place {
        Ok(Place::Registers(pieces)) => match pieces.iter().find(|piece| piece.offset == offset) {
            Some(piece) => kept.behind_register(piece.reg),
            None => Ok(()),
        },
        Ok(Place::Stack { offset: start }) => {
            kept.behind_stack(i64::from(*start) + 8 + i64::from(offset))
        }
        Ok(Place::Empty) | Err(_) => Ok(()),
    }
}

/// A shape in which no pointer of the value itself is followed that does not lead where it did.
fn followed(shape: Shape, at: u32, kept: &dyn Fn(u32) -> Result<(), Lost>) -> Shape {
    match shape {
        Shape::Struct { mut members, omitted } => {
            for member in &mut members {
                let inner = std::mem::replace(&mut member.shape, Shape::Pointer);
                member.shape = followed(inner, at.saturating_add(member.offset), kept);
            }
            Shape::Struct { members, omitted }
        }
        Shape::Only(mut member) => {
            let inner = std::mem::replace(&mut member.shape, Shape::Pointer);
            member.shape = followed(inner, at.saturating_add(member.offset), kept);
            Shape::Only(member)
        }
        Shape::Written(writing, shape) => {
            Shape::Written(writing, Box::new(followed(*shape, at, kept)))
        }
        // All elements have one shape: the first that is lost decides.
        Shape::Array { len, shown, stride, elem } => {
            let of = |index: u32| {
                let at = at.saturating_add(index.saturating_mul(stride));
                followed((*elem).clone(), at, kept)
            };
            let changed = (0..u32::from(shown)).map(of).find(|shape| *shape != *elem);
            Shape::Array { len, shown, stride, elem: changed.map_or(elem, Box::new) }
        }
        // The first word of an interface leads to what never goes away, and is no pointer to the runtime.
        other => match kept(at.saturating_add(if is_interface(&other) { 8 } else { 0 })) {
            Err(lost) if other.has_fields() => unfollowed(other, &lost),
            _ => other,
        },
    }
}

fn is_interface(shape: &Shape) -> bool {
    matches!(shape, Shape::Interface { .. })
}

fn unfollowed(shape: Shape, lost: &Lost) -> Shape {
    match shape {
        Shape::Slice { .. } => Shape::Slice { stride: 0, most: 0, elem: Box::new(Shape::Pointer) },
        // Types never go away.
        Shape::Interface { has_methods, .. } => {
            Shape::Interface { has_methods, copy: 0, known: Vec::new() }
        }
        Shape::To { .. } | Shape::Map(_) | Shape::Chan | Shape::Func | Shape::Closure { .. } => {
            Shape::Pointer
        }
        _ => Shape::Unavailable(lost.to_string().into()),
    }
}
