//! Values made of others: their own bytes as fields, then what these lead to, in the order of
//! the shape.

use super::auto::register_op;
use super::{Builder, Compiled, op, push_add};
use crate::shape::{
    CHAN_BYTES, HASH, HMAP_BUCKETS, KnownType, MAP_BYTES, MAX_OBJECT, MapForm, MapShape,
    SWISS_DIRECTORY, SWISS_DIRECTORY_LEN, SWISS_TABLE_GROUPS, Shape,
};
use crate::value::{Nested, Own, ValueKind, ValueSpec};
use wire::{Body, Elements, IMAGE_PLACE, Op, OpCode};

/// A part of a value in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The register, numbered as in [`super::AutoPlace::Registers`].
    pub register: u8,
    /// Place in the value, bytes.
    pub offset: u32,
    /// Bytes: 1, 2, 4 or 8.
    pub size: u8,
}

/// Where a value is at the site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValuePlace {
    /// In registers, in the order of its parts.
    Registers(Vec<Held>),
    /// In memory, whole, from SP at the function's first instruction + `offset` bytes on.
    Stack {
        /// Bytes; 8 is the first byte above the return address.
        offset: i64,
    },
    /// In memory, at the address that these ops leave in the accumulator. They start from nothing
    /// and emit no field.
    At(Vec<Op>),
    /// Not there, with the reason a person reads.
    Missing(String),
}

/// Adds the ops that fetch one value of `size` bytes and what it leads to, or as much of it as
/// there is room for: `shapes` are tried one after the other, the first that fits is taken.
pub fn compile_nested(
    name: &str,
    type_name: &str,
    size: u64,
    shapes: impl IntoIterator<Item = Shape>,
    place: &ValuePlace,
    builder: &mut Builder,
) -> ValueSpec {
    let spec = |kind| ValueSpec { name: name.into(), type_name: type_name.into(), kind };
    if let ValuePlace::Missing(reason) = place {
        return spec(ValueKind::Unavailable(reason.clone()));
    }
    for shape in shapes {
        if let Shape::Unavailable(reason) = &shape {
            return spec(ValueKind::Unavailable(reason.as_ref().to_owned()));
        }
        let Compiled { kind, ops } = compile(size, shape, place, builder.string_bytes());
        if builder.append(&ops) {
            return spec(kind);
        }
    }
    spec(ValueKind::Unavailable("too many values".to_owned()))
}

/// Adds the ops that fetch a pointer whose type only the word knows that `type_word` leaves, as an
/// interface of that type.
pub fn compile_typed(
    name: &str,
    type_name: &str,
    (type_word, register): (&[Op], u8),
    known: Vec<KnownType>,
    builder: &mut Builder,
) -> Option<ValueSpec> {
    const COPIED: u16 = 64;
    let mut writer = Writer { ops: Vec::new(), string_bytes: builder.string_bytes() };
    let data = register_op(register);
    writer.ops.extend([data, op(OpCode::EmitAcc, 8, 0)]);
    writer.ops.extend_from_slice(type_word);
    writer.ops.extend([op(OpCode::NilCheck, 0, 0), op(OpCode::EmitAcc, 8, 0)]);
    writer.held(data, Source::Block { open: 1 }, (COPIED, &known));
    let own = Own::Pieces(vec![(8, 8)]);
    let shape = Shape::Interface { has_methods: false, copy: COPIED, known };
    let kind = ValueKind::Nested(Box::new(Nested { own, size: 16, shape }));
    let spec = ValueSpec { name: name.into(), type_name: type_name.into(), kind };
    builder.append(&writer.ops).then_some(spec)
}

fn compile(size: u64, shape: Shape, place: &ValuePlace, string_bytes: u16) -> Compiled {
    let mut writer = Writer { ops: Vec::new(), string_bytes };
    let captured = match place {
        ValuePlace::Registers(_) => size.min(MAX_OBJECT.into()) as u32,
        _ => shape.captured(size),
    };
    let own = match place {
        ValuePlace::Registers(pieces) => {
            for piece in pieces {
                writer
                    .ops
                    .extend([register_op(piece.register), op(OpCode::EmitAcc, piece.size, 0)]);
            }
            writer.children(&shape, Source::Registers(pieces), 0);
            Own::Pieces(pieces.iter().map(|piece| (piece.offset, piece.size)).collect())
        }
        ValuePlace::Stack { offset } => {
            writer.whole(&[op(OpCode::StackSlot, 0, *offset)], captured, &shape);
            Own::Block
        }
        ValuePlace::At(address) => {
            writer.whole(address, captured, &shape);
            Own::Block
        }
        ValuePlace::Missing(_) => Own::Block,
    };
    let nested = Nested { own, size: captured, shape };
    Compiled { kind: ValueKind::Nested(Box::new(nested)), ops: writer.ops }
}

/// Where a value's own bytes are.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// In registers.
    Registers(&'a [Held]),
    /// In the innermost block, of so many open ones.
    Block {
        /// Blocks open.
        open: u8,
    },
}

impl Source<'_> {
    /// acc = the word at `offset`.
    fn word(self, offset: u32) -> Op {
        match self {
            Self::Registers(pieces) => match pieces.iter().find(|piece| piece.offset == offset) {
                Some(piece) => register_op(piece.register),
                // There is no block: a fault.
                None => op(OpCode::BlockWord, u8::MAX, 0),
            },
            Self::Block { open } => op(OpCode::BlockWord, open.wrapping_sub(1), offset.into()),
        }
    }

    fn open(self) -> u8 {
        match self {
            Self::Registers(_) => 0,
            Self::Block { open } => open,
        }
    }

    /// The block of the field that is emitted next.
    fn inside(self) -> Self {
        Self::Block { open: self.open().saturating_add(1) }
    }
}

struct Writer {
    ops: Vec<Op>,
    string_bytes: u16,
}

impl Writer {
    /// A value that is in memory whole.
    fn whole(&mut self, address: &[Op], size: u32, shape: &Shape) {
        self.ops.extend_from_slice(address);
        self.ops.push(op(OpCode::EmitBytes, 0, size.into()));
        self.body(0, shape.has_fields(), |this| {
            this.children(shape, Source::Block { open: 1 }, 0);
        });
    }

    /// A body for the field just emitted, if there is something in it.
    fn body(&mut self, stride: u32, is_wanted: bool, write: impl FnOnce(&mut Self)) {
        if !is_wanted {
            return;
        }
        let at = self.ops.len();
        self.ops.push(op(OpCode::Each, 0, 0));
        write(self);
        let ops = u16::try_from(self.ops.len() - at - 1).unwrap_or(u16::MAX);
        self.ops[at].imm = Body { ops, stride: stride as u16 }.to_imm();
    }

    /// Skips what is written, by `code` behind `condition`.
    fn unless(&mut self, condition: &[Op], code: OpCode, write: impl FnOnce(&mut Self)) {
        self.ops.extend_from_slice(condition);
        let at = self.ops.len();
        self.ops.push(op(code, 0, 0));
        write(self);
        self.ops[at].imm = (self.ops.len() - at - 1) as i64;
    }

    /// The fields of what a value at `offset` of `source` leads to.
    fn children(&mut self, shape: &Shape, source: Source<'_>, offset: u32) {
        match shape {
            Shape::String | Shape::Bytes | Shape::Ip => {
                self.counted(source, offset);
                self.ops.push(op(OpCode::EmitString, 0, self.string_bytes.into()));
            }
            Shape::To { size, elem } => {
                self.behind(source, offset, *size);
                self.body(0, elem.has_fields(), |this| this.children(elem, source.inside(), 0));
            }
            Shape::Slice { stride, most, elem } if *most > 0 => {
                self.counted(source, offset);
                let elements = Elements { stride: *stride as u16, most: *most };
                self.ops.push(op(OpCode::EmitElements, 0, elements.to_imm()));
                self.body(*stride, elem.has_fields(), |this| {
                    this.children(elem, source.inside(), 0);
                });
            }
            Shape::Array { shown, stride, elem, .. } if elem.has_fields() => {
                for index in 0..u32::from(*shown) {
                    let at = offset.saturating_add(index.saturating_mul(*stride));
                    self.children(elem, source, at);
                }
            }
            Shape::Struct { members, .. } => {
                for member in members {
                    self.children(&member.shape, source, offset.saturating_add(member.offset));
                }
            }
            Shape::Only(member) => {
                self.children(&member.shape, source, offset.saturating_add(member.offset));
            }
            Shape::Written(_, shape) => self.children(shape, source, offset),
            Shape::Interface { has_methods, copy, known } => {
                self.interface(source, offset, *has_methods, (*copy, known));
            }
            Shape::Map(map) => {
                self.behind(source, offset, MAP_BYTES);
                self.body(0, map.group > 0, |this| this.map(map, source.inside()));
            }
            Shape::Chan => self.behind(source, offset, CHAN_BYTES),
            Shape::Func => self.ops.extend([
                source.word(offset),
                op(OpCode::NilCheck, 0, 0),
                op(OpCode::Deref, 0, 0),
                op(OpCode::EmitAcc, 8, 0),
            ]),
            Shape::Closure { known } => {
                let pointer = source.word(offset);
                self.ops.extend([
                    pointer,
                    op(OpCode::NilCheck, 0, 0),
                    op(OpCode::Deref, 0, 0),
                    op(OpCode::EmitAcc, 8, 0),
                ]);
                self.body(0, true, |this| {
                    this.ops.extend([
                        source.inside().word(0),
                        op(OpCode::Image, IMAGE_PLACE, 0),
                        op(OpCode::EmitAcc, 8, 0),
                    ]);
                    this.body(0, true, |this| {
                        this.closure(pointer, source.inside().inside(), known);
                    });
                });
            }
            _ => {}
        }
    }

    /// The object of a closure, by the place of its code that is the innermost block; nothing of one
    /// that is not known.
    fn closure(&mut self, pointer: Op, place: Source<'_>, known: &[KnownType]) {
        let [first, rest @ ..] = known else { return };
        let condition = [place.word(0), op(OpCode::Add, 0, (first.word as i64).wrapping_neg())];
        self.unless(&condition, OpCode::SkipNonZero, |this| {
            this.ops.extend([pointer, op(OpCode::EmitBytes, 0, first.size.into())]);
            this.body(0, first.shape.has_fields(), |this| {
                this.children(&first.shape, place.inside(), 0);
            });
        });
        if !rest.is_empty() {
            self.unless(&condition, OpCode::SkipZero, |this| this.closure(pointer, place, rest));
        }
    }

    /// What a pointer leads to.
    fn behind(&mut self, source: Source<'_>, offset: u32, size: u32) {
        self.ops.extend([
            source.word(offset),
            op(OpCode::NilCheck, 0, 0),
            op(OpCode::EmitBytes, 0, size.into()),
        ]);
    }

    /// acc and aux of a string or slice.
    fn counted(&mut self, source: Source<'_>, offset: u32) {
        self.ops.extend([
            source.word(offset.saturating_add(8)),
            op(OpCode::SetAux, 0, 0),
            source.word(offset),
        ]);
    }

    fn interface(
        &mut self,
        source: Source<'_>,
        offset: u32,
        has_methods: bool,
        (copy, known): (u16, &[KnownType]),
    ) {
        // abi.ITab, Go 1.19 to 1.27: the type is its second word.
        self.ops.extend([source.word(offset), op(OpCode::NilCheck, 0, 0)]);
        if has_methods {
            self.ops.extend([op(OpCode::Add, 0, 8), op(OpCode::Deref, 0, 0)]);
        }
        self.ops.push(op(OpCode::EmitAcc, 8, 0));
        self.held(source.word(offset.saturating_add(8)), source.inside(), (copy, known));
    }

    /// What an interface holds, whose type is the field just emitted.
    fn held(&mut self, data: Op, the_type: Source<'_>, (copy, known): (u16, &[KnownType])) {
        self.body(0, copy > 0, |this| {
            if known.is_empty() {
                return this.dynamic(data, the_type, copy);
            }
            this.ops.push(the_type.word(0));
            push_add(&mut this.ops, HASH);
            this.ops.extend([op(OpCode::Deref, 0, 0), op(OpCode::EmitAcc, 8, 0)]);
            this.body(0, true, |this| this.known(data, the_type, copy, known));
        });
    }

    /// What an interface holds, by the word of its type's descriptor that is the innermost block:
    /// one after the other of the types that are known, else a piece of it.
    fn known(&mut self, data: Op, the_type: Source<'_>, copy: u16, known: &[KnownType]) {
        let [first, rest @ ..] = known else { return self.dynamic(data, the_type, copy) };
        let inside = the_type.inside();
        let condition = [inside.word(0), op(OpCode::Add, 0, (first.word as i64).wrapping_neg())];
        self.unless(&condition, OpCode::SkipNonZero, |this| {
            this.ops.extend([
                data,
                op(OpCode::NilCheck, 0, 0),
                op(OpCode::EmitBytes, 0, first.size.into()),
            ]);
            this.body(0, first.shape.has_fields(), |this| {
                this.children(&first.shape, inside.inside(), 0);
            });
        });
        self.unless(&condition, OpCode::SkipZero, |this| this.known(data, the_type, copy, rest));
    }

    /// A piece of what an interface holds, `the_type` being the block of its type.
    fn dynamic(&mut self, data: Op, the_type: Source<'_>, copy: u16) {
        self.ops.extend([
            the_type.word(0),
            op(OpCode::SetAux, 0, 0),
            data,
            op(OpCode::NilCheck, 0, 0),
            op(OpCode::EmitDynamic, 0, copy.into()),
        ]);
    }

    /// The entries of one group: of a small map it is the only one.
    fn map(&mut self, map: &MapShape, header: Source<'_>) {
        let pointer = |place| [header.word(place), op(OpCode::NilCheck, 0, 0)];
        if map.form == MapForm::Buckets {
            self.ops.extend(pointer(HMAP_BUCKETS));
            return self.group(map, header);
        }
        let length = header.word(SWISS_DIRECTORY_LEN);
        self.unless(&[length], OpCode::SkipNonZero, |this| {
            this.ops.extend(pointer(SWISS_DIRECTORY));
            this.group(map, header);
        });
        // A directory of tables: the first group of the first one.
        self.unless(&[length], OpCode::SkipZero, |this| {
            this.ops.extend(pointer(SWISS_DIRECTORY));
            this.ops.extend([
                op(OpCode::Deref, 0, 0),
                op(OpCode::Add, 0, SWISS_TABLE_GROUPS),
                op(OpCode::Deref, 0, 0),
            ]);
            this.group(map, header);
        });
    }

    fn group(&mut self, map: &MapShape, header: Source<'_>) {
        self.ops.push(op(OpCode::EmitBytes, 0, map.group.into()));
        let is_wanted = map.key.has_fields() || map.elem.has_fields();
        self.body(0, is_wanted, |this| {
            let inside = header.inside();
            for index in 0..8 {
                this.children(&map.key, inside, map.keys.0 + index * map.keys.1);
                this.children(&map.elem, inside, map.elems.0 + index * map.elems.1);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpret::{Registers, interpret};
    use crate::shape::Member;
    use crate::test_image::Image;
    use crate::value::{Value, decode};
    use wire::Fields;

    const BASE: u64 = 0xc000_0000_0000;
    /// Where the image lies in the process.
    const BIAS: u64 = 0x5555_0000_0000;

    /// Two closures: the first holds 7 and, behind a pointer, 9; the other one is not known.
    fn memory() -> Image {
        let words = [BIAS + 0x4010, 7, BASE + 32, BIAS + 0x4020, 9];
        // The last word is that at BASE + 32.
        let bytes = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        Image { base: BASE, bytes }
    }

    fn closures() -> Shape {
        let int = || Shape::Int { size: 8 };
        let member = |name: &str, offset, shape| Member { name: name.into(), offset, shape };
        let members = vec![
            member("by", 8, int()),
            member("seen", 16, Shape::To { size: 8, elem: Box::new(int()) }),
        ];
        let known = |word, shape| KnownType { word, size: 24, shape };
        Shape::Closure {
            known: vec![
                known(0x4000, Shape::of_members(Vec::new())),
                known(0x4010, Shape::of_members(members)),
            ],
        }
    }

    #[test]
    fn closures_are_told_apart_by_the_place_of_their_code() {
        let mut builder = Builder::default();
        let specs = [0, 3, 6, 7].map(|register| {
            let place = ValuePlace::Registers(vec![Held { register, offset: 0, size: 8 }]);
            compile_nested("f", "func()", 8, [closures()], &place, &mut builder)
        });
        let mut registers = Registers { bias: BIAS, ..Registers::default() };
        registers.gpr[0] = BASE;
        registers.gpr[3] = BASE + 24;
        registers.gpr[7] = 8;
        let payload = interpret(&builder.finish(), &registers, 0, &memory());
        let captured = vec![
            ("by".into(), Value::Int(7)),
            ("seen".into(), Value::Behind(Box::new(Value::Int(9)))),
        ];
        let expected = [
            Value::Closure { code: BIAS + 0x4010, captured },
            Value::Func(BIAS + 0x4020),
            Value::Pointer(0),
            Value::Unavailable("memory not readable".into()),
        ];
        assert_eq!(decode(&specs, &mut Fields::new(&payload)), expected);
    }

    #[test]
    fn a_pointer_of_a_type_that_a_word_tells_is_read_as_an_interface() {
        let mut builder = Builder::default();
        let shape = Shape::of_members(vec![Member {
            name: "n".into(),
            offset: 0,
            shape: Shape::Int { size: 8 },
        }]);
        // The word at 16 of the "descriptor" at BASE is that of the known type.
        let known = vec![KnownType { word: BASE + 32, size: 8, shape }];
        let word = [op(OpCode::Reg, 0, 0)];
        let specs = [1, 2].map(|register| {
            compile_typed("v", "*T", (&word, register), known.clone(), &mut builder).unwrap()
        });
        let mut registers = Registers::default();
        registers.gpr[0] = BASE;
        registers.gpr[1] = BASE + 32;
        let payload = interpret(&builder.finish(), &registers, 0, &memory());
        let values = decode(&specs, &mut Fields::new(&payload));
        let held = |value: &Value| match value {
            Value::Holding { type_word: BASE, object } => format!("{:?}", object.content),
            other => format!("{other:?}"),
        };
        assert_eq!(
            values.iter().map(held).collect::<Vec<_>>(),
            [r#"Value(Struct { members: [("n", Int(9))], omitted: 0 })"#, "Value(Pointer(0))",]
        );
    }
}
