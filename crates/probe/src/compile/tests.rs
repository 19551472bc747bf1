use super::*;
use crate::interpret::{Registers, interpret};
use crate::plan::Witness;
use crate::rule::{Rule, Step};
use crate::test_image::Image;
use crate::value::{Value, decode};
use address::{Avma, ReadMemory};
use binary::code::Kept;
use proptest::prelude::*;
use wire::{FieldStatus, Fields};

const BASE: u64 = 0xc000_0000_0000;
const SIZE: usize = 512;

fn rule_params(list: &str) -> Vec<crate::rule::RuleParam> {
    Rule::parse(&format!("main.f({list})")).unwrap().params.unwrap()
}

fn show(ops: &[Op]) -> String {
    let lines: Vec<String> =
        ops.iter().map(|op| format!("{:?} {} {}", op.code, op.a, op.imm)).collect();
    lines.join("; ")
}

fn compiled(shape: AutoShape, place: AutoPlace) -> String {
    let mut builder = Builder::default();
    let spec = compile_value("v", "T", &shape, &place, &mut builder);
    format!("{:?}: {}", spec.kind, show(&builder.finish()))
}

#[test]
fn values_in_registers() {
    let at = |registers: &[u8]| AutoPlace::Registers(registers.to_vec());
    for (shape, place, expected) in [
        (AutoShape::Bool, at(&[0]), "Bool: Reg 0 0; EmitAcc 1 0"),
        (
            AutoShape::Int { size: 4, signed: true },
            at(&[3]),
            "Int { size: 4 }: Reg 3 0; EmitAcc 4 0",
        ),
        (AutoShape::String, at(&[0, 3]), "String: Reg 3 0; SetAux 0 0; Reg 0 0; EmitString 0 64"),
        (
            AutoShape::Slice,
            at(&[0, 3, 1]),
            "Slice: Reg 0 0; EmitAcc 8 0; Reg 3 0; EmitAcc 8 0; Reg 1 0; EmitAcc 8 0",
        ),
        (
            AutoShape::Interface { has_methods: true },
            at(&[0, 3]),
            "Interface: Reg 0 0; NilCheck 0 0; Add 0 8; Deref 0 0; EmitAcc 8 0; Reg 3 0; EmitAcc 8 0",
        ),
        (
            AutoShape::Interface { has_methods: false },
            at(&[0, 3]),
            "Interface: Reg 0 0; EmitAcc 8 0; Reg 3 0; EmitAcc 8 0",
        ),
    ] {
        assert_eq!(compiled(shape, place), expected);
    }
}

#[test]
fn values_in_vector_registers() {
    let place = || AutoPlace::Registers(vec![VECTOR + 2, VECTOR + 14]);
    let expected = "Complex { size: 16 }: FloatReg 2 0; EmitAcc 8 0; FloatReg 14 0; EmitAcc 8 0";
    assert_eq!(compiled(AutoShape::Complex { size: 16 }, place()), expected);
    let expected = "Float { size: 4 }: FloatReg 0 0; EmitAcc 4 0";
    let one = AutoPlace::Registers(vec![VECTOR]);
    assert_eq!(compiled(AutoShape::Float { size: 4 }, one), expected);
    assert_eq!(
        compiled(AutoShape::String, place()),
        "Unavailable(\"2 registers for a value of 2 words\"): "
    );
}

#[test]
fn values_on_the_stack() {
    let at = |offset| AutoPlace::Stack { offset };
    for (shape, expected) in [
        (
            AutoShape::Complex { size: 8 },
            "Complex { size: 8 }: StackSlot 0 16; EmitBytes 0 4; StackSlot 0 20; EmitBytes 0 4",
        ),
        (AutoShape::Float { size: 4 }, "Float { size: 4 }: StackSlot 0 16; EmitBytes 0 4"),
        (
            AutoShape::String,
            "String: StackSlot 0 24; Deref 0 0; SetAux 0 0; StackSlot 0 16; Deref 0 0; EmitString 0 64",
        ),
        (
            AutoShape::Interface { has_methods: true },
            "Interface: StackSlot 0 16; Deref 0 0; NilCheck 0 0; Add 0 8; Deref 0 0; EmitAcc 8 0; \
             StackSlot 0 24; EmitBytes 0 8",
        ),
    ] {
        assert_eq!(compiled(shape, at(16)), expected);
    }
}

#[test]
fn what_cannot_be_fetched_says_why_and_costs_nothing() {
    let registers = || AutoPlace::Registers(vec![0]);
    for (shape, place, reason) in [
        (AutoShape::Float { size: 8 }, registers(), "1 registers for a value of 1 words"),
        (AutoShape::Complex { size: 12 }, registers(), "number of 12 bytes"),
        (AutoShape::String, registers(), "1 registers for a value of 2 words"),
        (AutoShape::Bool, AutoPlace::Registers(vec![16]), "1 registers for a value of 1 words"),
        (AutoShape::Int { size: 3, signed: true }, registers(), "number of 3 bytes"),
        (AutoShape::Unsupported("struct".into()), registers(), "struct"),
        (AutoShape::Bool, AutoPlace::Missing("optimized out".into()), "optimized out"),
    ] {
        assert_eq!(compiled(shape, place), format!("Unavailable({reason:?}): "));
    }
}

#[test]
fn what_does_not_fit_is_left_out_and_smaller_values_go_on() {
    let mut builder = Builder::new(u16::MAX);
    assert_eq!(builder.string_bytes(), 1024);
    let place = AutoPlace::Registers(vec![0, 3]);
    let mut kinds = Vec::new();
    for shape in vec![AutoShape::String; 4] {
        kinds.push(compile_value("s", "string", &shape, &place, &mut builder).kind);
    }
    let one = AutoPlace::Registers(vec![0]);
    kinds.push(compile_value("b", "bool", &AutoShape::Bool, &one, &mut builder).kind);
    let full = ValueKind::Unavailable("too many values".into());
    let text = ValueKind::String;
    assert_eq!(kinds, [text.clone(), text.clone(), text, full.clone(), ValueKind::Bool]);
    // 984 bytes are left.
    let mut last = ValueKind::Bool;
    let mut fitted = 0;
    while last != full {
        last = compile_value("b", "bool", &AutoShape::Bool, &one, &mut builder).kind;
        fitted += usize::from(last == ValueKind::Bool);
    }
    assert_eq!(fitted, 61);
    assert_eq!(builder.finish().len(), 14 + 2 * 61);
}

#[test]
fn equal_programs_are_stored_once() {
    let (one, two) = ([op(OpCode::EmitAcc, 1, 0)], [op(OpCode::EmitAcc, 2, 0)]);
    let mut table = OpTable::default();
    let programs = [table.intern(&one), table.intern(&two), table.intern(&one), table.intern(&[])];
    let at = |start, len| Program { start, len };
    assert_eq!(programs, [at(0, 1), at(1, 1), at(0, 1), at(0, 0)]);
    assert_eq!(programs.map(|program| table.get(program)), [&one[..], &two, &one, &[]]);
    assert_eq!(table.get(at(1, 2)), &[]);
    assert_eq!(table.finish(), [one, two].concat());
}

/// An image whose words at `BASE + offset` are given; the rest is text.
fn image(words: &[(u64, u64)]) -> Image {
    let mut bytes: Vec<u8> = (0..SIZE).map(|i| b'a' + (i % 26) as u8).collect();
    for (offset, word) in words {
        bytes[*offset as usize..][..8].copy_from_slice(&word.to_le_bytes());
    }
    Image { base: BASE, bytes }
}

#[test]
fn the_documented_rule_reads_a_student() {
    // { name string; age int } at BASE, the name's bytes at BASE + 104.
    let memory = image(&[(0, BASE + 104), (8, 6), (16, 21), (112, 0)]);
    let mut builder = Builder::default();
    let list = "s.name=(*+0(%ax)):c128, s.name.len=(+8(%ax)):s64, s.age=(+16(%ax)):s64, p=%ax:u64, \
                c=%cx:c24, f=(+8(%sp)):f64";
    let specs: Vec<ValueSpec> = rule_params(list)
        .iter()
        .map(|param| compile_rule_param(param, &Kept::all(), &mut builder))
        .collect();
    let mut registers = Registers { sp_first: BASE + 192, ..Registers::default() };
    registers.gpr[0] = BASE;
    registers.gpr[1] = u64::from_le_bytes(*b"goodbye!");
    registers.gpr[4] = 1;
    let memory = Image { bytes: [&memory.bytes[..200], &1.5f64.to_le_bytes()].concat(), ..memory };
    let payload = interpret(&builder.finish(), &registers, 0, &memory);
    let text = |text: &str| Value::String { bytes: text.into(), len: text.len() as u64 };
    assert_eq!(
        decode(&specs, &mut Fields::new(&payload)),
        [
            text("abcdefgh"),
            Value::Int(6),
            Value::Int(21),
            Value::Uint(BASE),
            text("goo"),
            Value::Float(1.5)
        ]
    );
    let types: Vec<&str> = specs.iter().map(|spec| &*spec.type_name).collect();
    assert_eq!(types, ["c128", "s64", "s64", "u64", "c24", "f64"]);
}

fn witness_fields(witness: Witness, recovery: RecoverySp, registers: &Registers) -> Vec<String> {
    let memory =
        image(&[(0, BASE + 96), (8, 5), (40, BASE + 80), (48, 77), (56, 0x5000), (80, 0x4ff0)]);
    let offsets = WitnessOffsets { g_goid: 48, g_stack_hi: 56, recovery };
    let payload = interpret(&witness_ops(witness, &offsets), registers, 0, &memory);
    Fields::new(&payload)
        .map(|field| match (field.status, field.as_u64()) {
            (FieldStatus::Ok, Some(word)) if field.data.len() == 8 => format!("{word:#x}"),
            (FieldStatus::Ok, _) => format!("{} bytes of {}", field.data.len(), field.original),
            (failed, _) => format!("{failed:?}"),
        })
        .collect()
}

#[test]
fn witnesses_fetch_what_the_plan_says() {
    let via_g = RecoverySp::ViaG { sigcode0: 40 };
    let via_panic = RecoverySp::ViaPanic { g_panic: 40, panic_sp: 0 };
    let mut registers = Registers::default();
    registers.gpr[0] = BASE;
    registers.gpr[3] = BASE;
    let fields = |witness, recovery| witness_fields(witness, recovery, &registers);
    assert_eq!(fields(Witness::Recovery, via_g), ["0x4d", "0x5000", "0xc00000000050"]);
    assert_eq!(fields(Witness::Recovery, via_panic), ["0x4d", "0x5000", "0x4ff0"]);
    assert_eq!(fields(Witness::GoroutineDeath, via_g), ["0x4d"]);
    assert_eq!(fields(Witness::Goexit, via_g), [""; 0]);
    assert_eq!(fields(Witness::FatalPanic, via_g), [""; 0]);
    let base = format!("{BASE:#x}");
    assert_eq!(
        fields(Witness::Panic, via_g),
        [&base, &base, "16 bytes of 16", "5 bytes of 5"].map(str::to_owned)
    );
    let nil = Registers::default();
    assert_eq!(witness_fields(Witness::Panic, via_g, &nil), ["0x0", "0x0", "Nil", "Nil"]);
    let mut small = Registers::default();
    small.gpr[3] = 42;
    assert_eq!(witness_fields(Witness::Panic, via_g, &small), ["0x0", "0x2a", "Fault", "Fault"]);
}

/// What a value is, straight from registers and memory.
struct Model<'a> {
    registers: &'a Registers,
    memory: &'a Image,
}

fn unreadable() -> Value {
    Value::Unavailable("memory not readable".into())
}

impl Model<'_> {
    fn read(&self, address: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.memory.read_memory(Avma(address), &mut bytes).ok().map(|()| bytes)
    }

    fn bits(&self, address: u64, len: usize) -> Option<u64> {
        let mut bytes = self.read(address, len)?;
        bytes.resize(8, 0);
        Some(u64::from_le_bytes(bytes.try_into().unwrap()))
    }

    /// The low `size` bytes of a word of the value.
    fn part(&self, place: &AutoPlace, index: usize, size: usize) -> Option<u64> {
        match place {
            AutoPlace::Registers(numbers) => {
                let number = usize::from(numbers[index]);
                let word = match number.checked_sub(usize::from(VECTOR)) {
                    Some(vector) => self.registers.xmm?[vector],
                    None => self.registers.gpr[number],
                };
                Some(if size == 8 { word } else { word % (1 << (8 * size)) })
            }
            AutoPlace::Stack { offset } => {
                let start = self.registers.sp_first.wrapping_add_signed(*offset);
                self.bits(start.wrapping_add(8 * index as u64), size)
            }
            AutoPlace::Memory(_) | AutoPlace::Missing(_) => None,
        }
    }

    fn value(&self, shape: &AutoShape, place: &AutoPlace, string_bytes: u64) -> Value {
        self.readable(shape, place, string_bytes).unwrap_or_else(unreadable)
    }

    fn readable(&self, shape: &AutoShape, place: &AutoPlace, string_bytes: u64) -> Option<Value> {
        let word = |index| self.part(place, index, 8);
        Some(match *shape {
            AutoShape::Bool => Value::Bool(self.part(place, 0, 1)? != 0),
            AutoShape::Int { size, signed } => {
                let bits = self.part(place, 0, usize::from(size))?;
                match (size, signed) {
                    (_, false) => Value::Uint(bits),
                    (1, true) => Value::Int(i64::from(bits as i8)),
                    (2, true) => Value::Int(i64::from(bits as i16)),
                    (4, true) => Value::Int(i64::from(bits as i32)),
                    (_, true) => Value::Int(bits as i64),
                }
            }
            AutoShape::Float { size: 4 } => {
                Value::Float(f64::from(f32::from_bits(self.part(place, 0, 4)? as u32)))
            }
            AutoShape::Float { .. } => Value::Float(f64::from_bits(word(0)?)),
            AutoShape::Complex { size } => {
                let half = usize::from(size / 2);
                let imaginary = match place {
                    AutoPlace::Stack { offset } => {
                        self.part(&AutoPlace::Stack { offset: offset + half as i64 }, 0, half)
                    }
                    _ => self.part(place, 1, half),
                };
                let [re, im] = [self.part(place, 0, half)?, imaginary?].map(|bits| match half {
                    4 => f64::from(f32::from_bits(bits as u32)),
                    _ => f64::from_bits(bits),
                });
                Value::Complex(re, im)
            }
            AutoShape::String => {
                let (data, len) = (word(0)?, word(1)?);
                if len > i64::MAX as u64 {
                    return None;
                }
                let captured = len.min(string_bytes) as usize;
                let bytes = if captured == 0 { Vec::new() } else { self.read(data, captured)? };
                Value::String { bytes, len: len.min(u64::from(u32::MAX)) }
            }
            AutoShape::Pointer => Value::Pointer(word(0)?),
            AutoShape::Slice => {
                Value::Slice { data: word(0)?, len: word(1)? as i64, cap: word(2)? as i64 }
            }
            AutoShape::Interface { has_methods } => {
                let first = word(0)?;
                if first == 0 {
                    // The second word of a nil interface does not matter, if it is there.
                    return if has_methods || word(1).is_some() {
                        Some(Value::NilInterface)
                    } else {
                        None
                    };
                }
                let itab_type = || self.bits(first.wrapping_add(8), 8);
                let type_word = if has_methods { itab_type()? } else { first };
                let data = word(1)?;
                if type_word == 0 {
                    return Some(Value::NilInterface);
                }
                Value::Interface { type_word, data }
            }
            AutoShape::Unsupported(_) => return None,
        })
    }
}

fn any_shape() -> impl Strategy<Value = AutoShape> {
    let size = prop::sample::select(vec![1u8, 2, 4, 8]);
    prop_oneof![
        Just(AutoShape::Bool),
        (size, any::<bool>()).prop_map(|(size, signed)| AutoShape::Int { size, signed }),
        prop::sample::select(vec![4u8, 8]).prop_map(|size| AutoShape::Float { size }),
        prop::sample::select(vec![8u8, 16]).prop_map(|size| AutoShape::Complex { size }),
        Just(AutoShape::String),
        Just(AutoShape::Pointer),
        Just(AutoShape::Slice),
        any::<bool>().prop_map(|has_methods| AutoShape::Interface { has_methods }),
    ]
}

/// A shape and where it is: on the stack, or floats in vector registers and the rest in others.
fn any_value() -> impl Strategy<Value = (AutoShape, AutoPlace)> {
    (any_shape(), prop::array::uniform3(0u8..16), any::<bool>(), -64i64..SIZE as i64).prop_map(
        |(shape, numbers, on_stack, offset)| {
            let words = match shape {
                AutoShape::String | AutoShape::Interface { .. } | AutoShape::Complex { .. } => 2,
                AutoShape::Slice => 3,
                _ => 1,
            };
            let is_float = matches!(shape, AutoShape::Float { .. } | AutoShape::Complex { .. });
            let place = if on_stack {
                AutoPlace::Stack { offset }
            } else if is_float {
                let vectors = numbers.iter().map(|number| VECTOR + number % 15);
                AutoPlace::Registers(vectors.take(words).collect())
            } else {
                AutoPlace::Registers(numbers[..words].to_vec())
            };
            (shape, place)
        },
    )
}

/// Zero, a pointer into (or just beside) the image, a small number, anything.
fn any_word() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => Just(0u64),
        4 => (0..SIZE as u64 + 16).prop_map(|offset| BASE + offset),
        2 => 0u64..100,
        1 => any::<u64>(),
    ]
}

fn any_image() -> impl Strategy<Value = Image> {
    prop::collection::vec(any_word(), SIZE / 8).prop_map(|words| Image {
        base: BASE,
        bytes: words.iter().flat_map(|word| word.to_le_bytes()).collect(),
    })
}

fn any_registers() -> impl Strategy<Value = Registers> {
    let words = || prop::array::uniform16(any_word());
    (words(), words(), 0..SIZE as u64).prop_map(|(gpr, xmm, offset)| Registers {
        gpr,
        sp_first: BASE + offset,
        xmm: Some(xmm),
        ..Registers::default()
    })
}

/// Comparable although NaN differs from itself.
fn text_of(values: &[Value]) -> String {
    format!("{values:?}")
}

proptest! {
    #[test]
    fn automatic_values_decode_to_what_the_memory_holds(
        values in prop::collection::vec(any_value(), 1..12),
        memory in any_image(),
        registers in any_registers(),
        string_bytes in 0u16..80,
    ) {
        let mut builder = Builder::new(string_bytes);
        let specs: Vec<ValueSpec> = values
            .iter()
            .map(|(shape, place)| compile_value("v", "T", shape, place, &mut builder))
            .collect();
        let payload = interpret(&builder.finish(), &registers, 0, &memory);
        let decoded = decode(&specs, &mut Fields::new(&payload));
        let model = Model { registers: &registers, memory: &memory };
        let expected: Vec<Value> = values
            .iter()
            .map(|(shape, place)| model.value(shape, place, u64::from(string_bytes)))
            .collect();
        prop_assert_eq!(text_of(&decoded), text_of(&expected));
    }

    #[test]
    fn rule_values_decode_to_what_the_memory_holds(
        register in 0u8..16,
        steps in prop::collection::vec(
            prop_oneof![
                (-16i64..64).prop_map(Step::Offset),
                (-2i64..8).prop_map(|words| Step::Load(8 * words)),
            ],
            0..4,
        ),
        ty in prop::sample::select(vec!["s8", "s32", "s64", "u16", "u64", "c8", "c24", "c200"]),
        memory in any_image(),
        registers in any_registers(),
    ) {
        let mut param = rule_params(&format!("v=%ax:{ty}")).remove(0);
        param.expr.register.0 = register;
        param.expr.steps.clone_from(&steps);
        let mut builder = Builder::default();
        let spec = compile_rule_param(&param, &Kept::all(), &mut builder);
        let payload = interpret(&builder.finish(), &registers, 0, &memory);
        let decoded = decode(&[spec], &mut Fields::new(&payload)).remove(0);

        let model = Model { registers: &registers, memory: &memory };
        let start = if register == 4 { registers.sp_first } else {
            registers.gpr[usize::from(register)]
        };
        let address = steps.iter().try_fold(start, |address, step| match *step {
            Step::Offset(n) => Some(address.wrapping_add(n as u64)),
            Step::Load(n) => model.bits(address.wrapping_add(n as u64), 8),
        });
        let bits: usize = ty[1..].parse().unwrap();
        let bytes = address.and_then(|address| {
            if steps.is_empty() {
                Some(address.to_le_bytes()[..(bits / 8).min(8)].to_vec())
            } else {
                model.read(address, bits / 8)
            }
        });
        let expected = bytes.map_or_else(unreadable, |bytes| {
            let mut word = [if ty.starts_with('s') && bytes.last().unwrap() >> 7 == 1 { 0xff } else { 0 }; 8];
            match &ty[..1] {
                "c" => {
                    let text: Vec<u8> = bytes.split(|byte| *byte == 0).next().unwrap().to_vec();
                    Value::String { len: text.len() as u64, bytes: text }
                }
                kind => {
                    word[..bytes.len()].copy_from_slice(&bytes);
                    let word = u64::from_le_bytes(word);
                    if kind == "s" { Value::Int(word as i64) } else { Value::Uint(word) }
                }
            }
        });
        prop_assert_eq!(decoded, expected);
    }
}
