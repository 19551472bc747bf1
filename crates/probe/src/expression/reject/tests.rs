use super::*;
use crate::compile::{AutoPlace, AutoShape, Builder, compile};
use crate::expression::{Facts, Verdict};
use crate::golden::OpText;
use crate::interpret::{Registers, interpret, interpret_hit};
use crate::test_image::Image;
use crate::value::decode;
use proptest::prelude::*;
use wire::Fields;

const BASE: u64 = 0xc000_0000_0000;
const GOID: u64 = 7;
/// Offset of `g.goid` in these tests; g lies at [`BASE`].
const G_GOID: u32 = 8;

/// Small numbers, texts that are alike, pointers to such, and others.
fn image() -> Image {
    let words = [0, GOID, BASE + 0x28, 2, 5, u64::from_le_bytes(*b"abcdefgh"), 0x6a69, BASE + 8];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
    bytes.extend_from_slice(b"abcdefghijabcdefgxabab\0\xff\x01\x80");
    Image { base: BASE, bytes }
}

type Specs = Vec<(ValueSpec, Vec<Op>)>;

fn spec(kind: ValueKind) -> ValueSpec {
    ValueSpec { name: "v".into(), type_name: "T".into(), kind }
}

/// A value that a condition may name, behind a check or not.
fn any_spec() -> impl Strategy<Value = (ValueSpec, Vec<Op>)> {
    let size = prop::sample::select(vec![1u8, 2, 4, 8]);
    let shape = prop_oneof![
        2 => Just(AutoShape::Bool),
        4 => (size, any::<bool>()).prop_map(|(size, signed)| AutoShape::Int { size, signed }),
        1 => Just(AutoShape::Float { size: 8 }),
        4 => Just(AutoShape::String),
        3 => Just(AutoShape::Pointer),
    ];
    let place = prop_oneof![
        (0u8..8, 0u8..8).prop_map(|(one, two)| AutoPlace::Registers(vec![one, two])),
        (0i64..88).prop_map(|offset| AutoPlace::Stack { offset }),
        (0u8..8, 0i64..80).prop_map(|(register, offset)| {
            AutoPlace::Memory(vec![
                op(OpCode::Reg, register, 0),
                op(OpCode::NilCheck, 0, 0),
                op(OpCode::Add, 0, offset),
            ])
        }),
    ];
    let check = prop_oneof![
        4 => Just(None),
        1 => (0u64..4).prop_map(|index| Some((Check::Index(index), OpCode::EmitAcc, 8))),
        1 => (0u32..8).prop_map(|hash| {
            let check = Check::Type { hash, name: "T".to_owned() };
            Some((check, OpCode::EmitBytes, 4))
        }),
        1 => Just(Some((Check::LengthAt, OpCode::EmitAcc, 8))),
    ];
    (shape, place, check, 0u8..8).prop_map(|(shape, mut place, check, register)| {
        if let AutoPlace::Registers(registers) = &mut place {
            let words = if shape == AutoShape::String { 2 } else { 1 };
            registers.truncate(words);
            if let AutoShape::Float { .. } = shape {
                registers[0] += crate::compile::VECTOR;
            }
        }
        let compiled = compile(&shape, &place, 24).unwrap();
        let Some((check, emit, size)) = check else { return (spec(compiled.kind), compiled.ops) };
        let mut ops = vec![op(OpCode::Reg, register, 0), op(emit, 8, size)];
        ops.extend(compiled.ops);
        (spec(ValueKind::Checked { check, value: Box::new(compiled.kind) }), ops)
    })
}

fn any_constant() -> impl Strategy<Value = Term> {
    prop_oneof![
        4 => prop::sample::select(vec![0i64, 1, 2, 5, 7, -1, -128, 255, i64::MIN, i64::MAX])
            .prop_map(Term::Int),
        1 => Just(Term::Uint(u64::MAX)),
        1 => Just(Term::Float(5.0)),
        4 => prop::sample::select(vec!["", "ab", "abcdefgh", "abcdefghij", "abcdefgx", "a"])
            .prop_map(|text| Term::Text(text.into())),
        2 => any::<bool>().prop_map(Term::Bool),
        2 => Just(Term::Nil),
    ]
}

fn any_predicate() -> impl Strategy<Value = Predicate> {
    let term = || {
        prop_oneof![
            8 => (0u16..6).prop_map(Term::Arg),
            1 => Just(Term::Goid),
            1 => Just(Term::Result(0)),
            6 => any_constant(),
        ]
    };
    let comparison = prop::sample::select(vec![
        Comparison::Equal,
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
    ]);
    let leaf = prop_oneof![
        1 => term().prop_map(Predicate::Is),
        6 => (comparison, term(), term())
            .prop_map(|(comparison, left, right)| Predicate::Compare(comparison, left, right)),
    ];
    leaf.prop_recursive(4, 12, 4, |inner| {
        let parts = || prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            inner.clone().prop_map(|part| Predicate::Not(Box::new(part))),
            parts().prop_map(Predicate::All),
            parts().prop_map(Predicate::Any),
        ]
    })
}

fn any_registers() -> impl Strategy<Value = Registers> {
    let word = prop_oneof![
        3 => prop::sample::select(vec![0u64, 1, 2, 5, 7, 8, 10, u64::MAX, 1 << 63, 255, 0xff80]),
        4 => (0u64..100).prop_map(|offset| BASE + offset),
        3 => prop::sample::select(vec![0x40u64, 0x4a, 0x52, 0x54]).prop_map(|offset| BASE + offset),
        1 => any::<u64>(),
    ];
    prop::array::uniform16(word).prop_map(|gpr| Registers {
        gpr,
        sp_first: BASE,
        ..Registers::default()
    })
}

/// Whether the ops decide all that the predicate asks of these values.
fn is_decided_at_hits(predicate: &Predicate, values: &HitForms<'_>) -> bool {
    match predicate {
        Predicate::Not(inner) => is_decided_at_hits(inner, values),
        Predicate::All(parts) | Predicate::Any(parts) => {
            parts.iter().all(|part| is_decided_at_hits(part, values))
        }
        Predicate::Is(term) => matches!(values.form(term), Some(Form::Bool)),
        Predicate::Compare(comparison, left, right) => match (values.form(left), right) {
            (Some(Form::Bool), Term::Bool(_)) => !comparison.is_of_order(),
            (Some(Form::Signed), Term::Int(_)) | (Some(Form::Address), Term::Nil) => true,
            (Some(Form::Unsigned), Term::Int(n)) => *n >= 0,
            (Some(Form::Text(_)), Term::Text(_)) => !comparison.is_of_order(),
            _ => false,
        },
    }
}

struct HitForms<'a>(&'a Specs);

impl HitForms<'_> {
    fn form(&self, term: &Term) -> Option<Form> {
        let values = Values { specs: self.0, at_return: false, g_goid: G_GOID };
        values.operand(term).map(|operand| operand.form)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// A hit is rejected only if the condition does not hold by what would have been captured, and
    /// where all of it can be asked at the hit, then always.
    #[test]
    fn what_is_rejected_would_have_been_hidden(
        specs in prop::collection::vec(any_spec(), 6),
        predicate in any_predicate(),
        registers in any_registers(),
    ) {
        let memory = image();
        let values = Values { specs: &specs, at_return: false, g_goid: G_GOID };
        let condition = rejection(&predicate, &values);
        prop_assert!(condition.len() <= MAX_CONDITION_OPS);
        let program: Vec<Op> = specs.iter().flat_map(|(_, ops)| ops.clone()).collect();
        let payload = interpret(&program, &registers, BASE, &memory);
        let kinds: Vec<ValueSpec> = specs.iter().map(|(spec, _)| spec.clone()).collect();
        let args = decode(&kinds, &mut Fields::new(&payload));
        let facts = Facts { args: &args, goid: GOID, ..Facts::default() };
        let verdict = predicate.verdict(&facts);
        let outcome = interpret_hit(&condition, &program, &registers, BASE, &memory);
        let is_small = condition.len() < MAX_CONDITION_OPS / 2;
        match outcome {
            None => prop_assert_eq!(verdict, Verdict::False, "{:?}", args),
            Some(kept) => {
                prop_assert_eq!(kept, payload);
                if is_small && is_decided_at_hits(&predicate, &HitForms(&specs)) {
                    prop_assert_ne!(verdict, Verdict::False, "{:?} {:?}", args, condition);
                }
            }
        }
    }
}

fn text_of(predicate: &Predicate, specs: &Specs) -> String {
    let values = Values { specs, at_return: false, g_goid: G_GOID };
    let ops = rejection(predicate, &values);
    ops.iter().map(|op| OpText(*op).to_string()).collect::<Vec<_>>().join(", ")
}

#[test]
fn a_condition_becomes_ways_to_its_rejection() {
    let mut builder = Builder::new(24);
    let mut value = |shape, registers: &[u8]| {
        let place = AutoPlace::Registers(registers.to_vec());
        let compiled = compile(&shape, &place, 24).unwrap();
        let ops = compiled.ops.clone();
        (builder.value("v", "T", Ok(compiled)), ops)
    };
    let int = AutoShape::Int { size: 8, signed: true };
    let specs = vec![
        value(int, &[0]),
        value(AutoShape::String, &[3, 1]),
        value(AutoShape::Bool, &[6]),
        value(AutoShape::Pointer, &[7]),
    ];
    let more = || Predicate::Compare(Comparison::Greater, Term::Arg(0), Term::Int(100));
    let is_ok = || Predicate::Is(Term::Arg(2));
    let text =
        |text: &str| Predicate::Compare(Comparison::Equal, Term::Arg(1), Term::Text(text.into()));
    let some = || Predicate::Compare(Comparison::NotEqual, Term::Arg(3), Term::Nil);
    let float = || Predicate::Compare(Comparison::Less, Term::Arg(0), Term::Float(0.5));
    for (predicate, expected) in [
        (
            Predicate::All(vec![more(), is_ok()]),
            "rax, <= 100, skip 1 if 0, reject, rsi, as u1, skip 1 if not 0, reject",
        ),
        (
            Predicate::Any(vec![some(), is_ok()]),
            "rdi, skip 4 if not 0, rsi, as u1, skip 1 if not 0, reject",
        ),
        (
            text("GET /"),
            "rcx, set aux, rbx, touch 24, add aux -5, match u4 0x20544547, match u1 0x2f, get aux, \
             skip 1 if 0, reject",
        ),
        (
            Predicate::Not(Box::new(text(""))),
            "rcx, set aux, rbx, touch 24, get aux, skip 1 if not 0, reject",
        ),
        // What can not be asked at the hit leaves the rest to decide.
        (Predicate::All(vec![float(), some()]), "rdi, skip 1 if not 0, reject"),
        (Predicate::Any(vec![float(), some()]), ""),
    ] {
        assert_eq!(text_of(&predicate, &specs), expected, "{predicate:?}");
    }
}

#[test]
fn a_condition_lies_right_before_its_program() {
    let mut table = crate::compile::OpTable::default();
    let condition = [op(OpCode::Reg, 0, 0), op(OpCode::SkipZero, 0, 1), op(OpCode::Reject, 0, 0)];
    let program = [op(OpCode::Reg, 3, 0), op(OpCode::EmitAcc, 8, 0)];
    let alone = table.intern(&program);
    let behind = table.intern_behind(&condition, &program);
    assert_eq!((alone.start, behind.start, behind.len), (0, 5, 2));
    assert_eq!(table.intern_behind(&condition, &program), behind);
    assert_eq!(table.intern_behind(&condition[..2], &program).start, 9);
    assert_eq!(table.intern_behind(&condition, &[]).len, 0);
    assert_eq!(table.get(behind), program);
    assert_eq!(table.finish()[2..5], condition);
}
