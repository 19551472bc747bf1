//! Shapes of types, as deep and as wide as they may be.

use super::types::{CapturedVariable, MapForm, Types};
use super::well_known::{self, Known};
use super::{KnownType, MapShape, Member, Shape, Writing};
use binary::{Field, Kind, TypeId, TypeInfo};
use std::sync::Arc;
use wire::MAX_FIELD_DATA;

/// Bytes of one object that are captured at the most: those of a field.
pub const MAX_OBJECT: u32 = MAX_FIELD_DATA as u32;

/// Members of one struct at the most.
const MAX_MEMBERS: usize = 48;

/// Structs and arrays in one another.
const MAX_NESTED: u8 = 12;

/// Bytes captured of what an interface of an unknown type holds.
const COPIED: u16 = 64;

/// Keys and elements larger than this are not in a map's groups but behind pointers
/// (`internal/abi/map_swiss.go`, `runtime/map.go`).
const MAX_IN_MAP: u64 = 128;

/// How far shapes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Pointers, slices, interfaces and maps followed one behind the other.
    pub depth: u8,
    /// Elements of a slice, an array or a map that is part of the value itself.
    pub elements: u16,
    /// The same behind a pointer or in another one's element.
    pub inner: u16,
    /// Types that an interface, or closures that a func, of the value itself is looked into for.
    pub known: u8,
}

/// Makes shapes.
pub struct ShapeBuilder<'a> {
    types: &'a dyn Types,
    map_form: MapForm,
    extent: Extent,
}

/// Where in a value the builder is.
#[derive(Clone, Copy)]
struct At {
    /// Levels left.
    left: u8,
    /// Structs and arrays around.
    nested: u8,
    /// Elements to show.
    elements: u16,
}

impl<'a> ShapeBuilder<'a> {
    /// Shapes of types of `types`.
    pub fn new(types: &'a dyn Types, map_form: MapForm, extent: Extent) -> Self {
        Self { types, map_form, extent }
    }

    /// The shape of a type.
    pub fn shape(&self, ty: &TypeInfo) -> Shape {
        let Extent { depth, elements, .. } = self.extent;
        self.of(ty, At { left: depth, nested: 0, elements })
    }

    /// What an interface without methods is looked into for.
    pub fn in_any(&self, any: &TypeInfo) -> Vec<KnownType> {
        let Extent { depth, elements, .. } = self.extent;
        match self.interface(any, false, At { left: depth, nested: 0, elements }) {
            Shape::Interface { known, .. } => known,
            _ => Vec::new(),
        }
    }

    fn of(&self, ty: &TypeInfo, at: At) -> Shape {
        if let Some(known) = well_known::find(&ty.name, &ty.kind) {
            return self.known(ty, known, at);
        }
        let size = u8::try_from(ty.size).unwrap_or(0);
        match &ty.kind {
            Kind::Bool => Shape::Bool,
            Kind::Int { signed } => self.int(ty, size, *signed),
            Kind::Float => number(matches!(size, 4 | 8), size, Shape::Float { size }),
            Kind::Complex => number(matches!(size, 8 | 16), size, Shape::Complex { size }),
            Kind::String => Shape::String,
            Kind::Slice { elem } => self.slice(*elem, at),
            Kind::Array { elem, len } => self.array(*elem, *len, at),
            Kind::Struct { fields } => self.members(fields, at, &|_| true),
            Kind::Pointer { elem: Some(elem) } => self.pointer(*elem, at),
            Kind::Pointer { elem: None } | Kind::UnsafePointer => Shape::Pointer,
            Kind::Interface { empty } => self.interface(ty, !empty, at),
            Kind::Map { key, elem } => self.map(*key, *elem, at),
            Kind::Chan => Shape::Chan,
            Kind::Func => self.func(ty, at),
            Kind::Other => unavailable("C types are not captured"),
        }
    }

    fn int(&self, ty: &TypeInfo, size: u8, signed: bool) -> Shape {
        if !matches!(size, 1 | 2 | 4 | 8) {
            return number(false, size, Shape::Pointer);
        }
        let names = self.types.constants(ty);
        match (names.is_empty(), signed) {
            (false, _) => Shape::Enum { size, signed, names },
            (true, true) => Shape::Int { size },
            (true, false) => Shape::Uint { size },
        }
    }

    /// A level further on.
    fn behind(&self, id: TypeId, at: At) -> Option<(Arc<TypeInfo>, At)> {
        let left = at.left.checked_sub(1)?;
        Some((self.types.info(id)?, At { left, nested: 0, elements: self.extent.inner }))
    }

    fn pointer(&self, elem: TypeId, at: At) -> Shape {
        match self.behind(elem, at) {
            Some((ty, at)) => {
                let elem = Box::new(self.of(&ty, at));
                Shape::To { size: elem.captured(ty.size), elem }
            }
            None => Shape::Pointer,
        }
    }

    fn slice(&self, elem: TypeId, at: At) -> Shape {
        let header = |elem| Shape::Slice { stride: 0, most: 0, elem: Box::new(elem) };
        let Some(ty) = self.types.info(elem) else { return header(Shape::Pointer) };
        if matches!(ty.kind, Kind::Int { signed: false }) && ty.size == 1 {
            return Shape::Bytes;
        }
        let room = u64::from(MAX_OBJECT).checked_div(ty.size).unwrap_or(0);
        let most = room.min(at.elements.into()) as u16;
        let Some((_, inside)) = self.behind(elem, at).filter(|_| most > 0) else {
            return header(Shape::Pointer);
        };
        Shape::Slice { stride: ty.size as u32, most, elem: Box::new(self.of(&ty, inside)) }
    }

    fn array(&self, elem: TypeId, len: u64, at: At) -> Shape {
        let ty = self.types.info(elem).filter(|_| at.nested < MAX_NESTED);
        let Some(ty) = ty else { return unavailable("nested too deep") };
        let room = u64::from(MAX_OBJECT).checked_div(ty.size).unwrap_or(len);
        let shown = len.min(room).min(at.elements.into()) as u16;
        let elem = Box::new(self.of(&ty, At { nested: at.nested + 1, ..at }));
        Shape::Array { len, shown, stride: ty.size as u32, elem }
    }

    /// The struct's members of which `counts` holds; blank ones never count.
    fn members(&self, fields: &[Field], at: At, counts: &dyn Fn(&str) -> bool) -> Shape {
        if at.nested >= MAX_NESTED {
            return unavailable("nested too deep");
        }
        let named = || fields.iter().filter(|field| &*field.name != "_");
        let members: Vec<Member> = named()
            .filter(|field| counts(&field.name) && field.offset < MAX_OBJECT.into())
            .take(MAX_MEMBERS)
            .map(|field| self.member(field, at))
            .collect();
        let omitted = named().count().saturating_sub(members.len());
        Shape::Struct { members, omitted: u16::try_from(omitted).unwrap_or(u16::MAX) }
    }

    fn member(&self, field: &Field, at: At) -> Member {
        let at = At { nested: at.nested + 1, ..at };
        let shape = match self.types.info(field.ty) {
            Some(ty) => self.of(&ty, at),
            None => unavailable("type not known"),
        };
        Member { name: Arc::clone(&field.name), offset: field.offset as u32, shape }
    }

    fn known(&self, ty: &TypeInfo, known: Known, at: At) -> Shape {
        let fields = match &ty.kind {
            Kind::Struct { fields } => &fields[..],
            _ => &[],
        };
        match known {
            Known::Time => Shape::Time,
            Known::Duration => Shape::Duration,
            Known::Ip => Shape::Ip,
            Known::Only(name) => match fields.iter().find(|field| &*field.name == name) {
                Some(field) => Shape::Only(Box::new(self.member(field, at))),
                None => self.members(fields, at, &|_| true),
            },
            Known::Short(names) => self.members(fields, at, &|name| names.contains(&name)),
            Known::Joined => {
                let at = At { left: at.left.saturating_add(1), ..at };
                self.members(fields, at, &|_| true)
            }
            Known::Written(writing, names) => {
                // What it is written from counts as the value itself.
                let left = at.left.max(1);
                let elements = if writing == Writing::BigInt { 16 } else { at.elements };
                let at = At { left, elements, ..at };
                let shape = self.members(fields, at, &|name| names.contains(&name));
                Shape::Written(writing, Box::new(shape))
            }
        }
    }

    fn interface(&self, ty: &TypeInfo, has_methods: bool, at: At) -> Shape {
        if at.left == 0 {
            return Shape::Interface { has_methods, copy: 0, known: Vec::new() };
        }
        let inside = At { left: at.left - 1, nested: 0, elements: self.extent.inner };
        let most = self.most_known(at);
        let known = self.types.implementations(ty).into_iter().take(most).map(|implementation| {
            let behind = &implementation.behind;
            let shape = self.of(behind, inside);
            KnownType { word: implementation.word, size: shape.captured(behind.size), shape }
        });
        Shape::Interface { has_methods, copy: COPIED, known: known.collect() }
    }

    /// How many types or closures one may be looked into for: inside one another they multiply.
    fn most_known(&self, at: At) -> usize {
        match self.extent.depth.saturating_sub(at.left) {
            0 => self.extent.known.into(),
            1 => 3,
            _ => 1,
        }
    }

    fn func(&self, ty: &TypeInfo, at: At) -> Shape {
        if at.left == 0 {
            return Shape::Func;
        }
        let inside = At { left: at.left - 1, nested: 1, elements: self.extent.inner };
        let member = |variable: CapturedVariable| {
            // The variable itself lies behind the pointer.
            let left = if variable.by_reference { at.left } else { inside.left };
            let shape = self.of(&variable.ty, At { left, ..inside });
            Member { name: variable.name, offset: variable.offset, shape }
        };
        let closures = self.types.closures(ty).into_iter();
        let known: Vec<KnownType> = closures
            .filter(|closure| closure.size <= MAX_OBJECT)
            .take(self.most_known(at))
            .map(|closure| KnownType {
                word: closure.code,
                size: closure.size,
                shape: Shape::of_members(closure.captured.into_iter().map(member).collect()),
            })
            .collect();
        if known.is_empty() { Shape::Func } else { Shape::Closure { known } }
    }

    fn map(&self, key: Option<TypeId>, elem: Option<TypeId>, at: At) -> Shape {
        let mut map = MapShape {
            form: self.map_form,
            group: 0,
            keys: (0, 0),
            elems: (0, 0),
            key: Shape::Pointer,
            elem: Shape::Pointer,
        };
        let parts =
            key.and_then(|key| self.behind(key, at)).zip(elem.and_then(|e| self.behind(e, at)));
        if let Some(((key, inside), (elem, _))) = parts
            && key.size <= MAX_IN_MAP
            && elem.size <= MAX_IN_MAP
            && self.extent.elements >= 8
        {
            self.group(&mut map, &key, &elem);
            if map.group > 0 {
                map.key = self.of(&key, inside);
                map.elem = self.of(&elem, inside);
            }
        }
        Shape::Map(Box::new(map))
    }

    /// Where the 8 entries of a group or bucket lie, behind 8 bytes of control.
    fn group(&self, map: &mut MapShape, key: &TypeInfo, elem: &TypeInfo) {
        let (key_size, elem_size) = (key.size as u32, elem.size as u32);
        match self.map_form {
            MapForm::Swiss => {
                let align = key.align.max(elem.align).max(1) as u32;
                let start = 8u32.next_multiple_of(align);
                let elem_at = key_size.next_multiple_of(elem.align.max(1) as u32);
                // A struct that ends with an empty field has a byte more, lest its address
                // be that of the next object.
                let end = elem_at + elem_size.max(u32::from(elem_size == 0 && key_size > 0));
                let slot = end.next_multiple_of(align);
                map.keys = (start, slot);
                map.elems = (start + elem_at, slot);
                map.group = start + 8 * slot;
            }
            MapForm::Buckets => {
                map.keys = (8, key_size);
                map.elems = (8 + 8 * key_size, elem_size);
                map.group = 8 + 8 * (key_size + elem_size);
            }
        }
        if map.group > MAX_OBJECT {
            map.group = 0;
        }
    }
}

fn unavailable(reason: &str) -> Shape {
    Shape::Unavailable(reason.into())
}

fn number(is_good: bool, size: u8, shape: Shape) -> Shape {
    if is_good { shape } else { unavailable(&format!("number of {size} bytes")) }
}
