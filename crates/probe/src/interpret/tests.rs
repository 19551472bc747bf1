use super::*;
use crate::test_image;
use proptest::prelude::*;
use wire::Fields;

const BASE: u64 = 0xc000_0000_0000;

/// Words BASE+0x40, 5, 0, -1, and from 0x20 text; 0x60 bytes in all.
fn image() -> test_image::Image {
    let mut bytes = Vec::new();
    for word in [BASE + 0x40, 5, 0, u64::MAX] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(b"the quick brown fox jumped over hello, world; and then some mor.");
    test_image::Image { base: BASE, bytes }
}

fn registers() -> Registers {
    let mut gpr = [0; 16];
    for (number, register) in gpr.iter_mut().enumerate() {
        *register = 0x1122_3344_5566_7700 + number as u64;
    }
    gpr[1] = BASE;
    Registers { gpr, sp_first: BASE + 0x18, ..Registers::default() }
}

fn op(code: OpCode, a: u8, imm: i64) -> Op {
    Op::new(code, a, imm)
}

/// Fields as text: `ok original hex`, or the status.
fn run(ops: &[Op]) -> Vec<String> {
    let payload = interpret(ops, &registers(), 0x6000, &image());
    assert_eq!(payload.len() % 8, 0);
    Fields::new(&payload)
        .map(|field| match field.status {
            FieldStatus::Ok => {
                let hex: String = field.data.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("ok {} {hex}", field.original)
            }
            other => format!("{other:?}"),
        })
        .collect()
}

use OpCode::{
    Add, AddAux, Compare, CurrentG, Deref, EmitAcc, EmitBytes, EmitString, GetAux, Image, Load,
    Match, Narrow, NilCheck, Reg, Reject, Reset, SetAux, StackSlot, Touch,
};

#[test]
fn registers_emit_their_low_bytes() {
    let ops = [
        op(Reg, 15, 0),
        op(EmitAcc, 8, 0),
        op(Reg, 15, 0),
        op(EmitAcc, 4, 0),
        op(Reg, 15, 0),
        op(EmitAcc, 2, 0),
        op(Reg, 15, 0),
        op(EmitAcc, 1, 0),
        op(Reg, 0x1f, 0),
        op(EmitAcc, 3, 0),
    ];
    assert_eq!(
        run(&ops),
        ["ok 8 0f77665544332211", "ok 4 0f776655", "ok 2 0f77", "ok 1 0f", "ok 8 0f77665544332211"]
    );
}

#[test]
fn stack_slots_and_g_are_addresses() {
    let ops = [
        op(StackSlot, 0, -0x10),
        op(Deref, 0, 0),
        op(EmitAcc, 1, 0),
        op(CurrentG, 0, 0),
        op(EmitAcc, 2, 0),
    ];
    assert_eq!(run(&ops), ["ok 1 05", "ok 2 0060"]);
}

#[test]
fn add_wraps_in_both_directions() {
    let ops = [
        op(Add, 0, -1),
        op(EmitAcc, 8, 0),
        op(Add, 0, i64::MIN),
        op(Add, 0, i64::MIN),
        op(EmitAcc, 1, 0),
    ];
    assert_eq!(run(&ops), ["ok 8 ffffffffffffffff", "ok 1 00"]);
}

#[test]
fn a_field_starts_with_zeros() {
    let ops = [
        op(Reg, 3, 0),
        op(SetAux, 0, 0),
        op(Reset, 0, 0),
        op(EmitAcc, 1, 0),
        op(Reg, 3, 0),
        op(SetAux, 0, 0),
        op(EmitAcc, 1, 0),
        op(GetAux, 0, 0),
        op(EmitAcc, 1, 0),
        op(Reg, 3, 0),
        op(SetAux, 0, 0),
        op(Add, 0, 9),
        op(GetAux, 0, 0),
        op(EmitAcc, 1, 0),
    ];
    assert_eq!(run(&ops), ["ok 1 00", "ok 1 03", "ok 1 00", "ok 1 03"]);
}

#[test]
fn bytes_are_read_whole_or_fault() {
    let ops = |imm| [op(Reg, 1, 0), op(Add, 0, 0x20), op(EmitBytes, 0, imm)];
    assert_eq!(run(&ops(3)), ["ok 3 746865"]);
    assert_eq!(run(&ops(0)), ["ok 0 "]);
    assert_eq!(run(&ops(-1)), ["ok 0 "]);
    assert_eq!(run(&ops(0x40))[0].len(), "ok 64 ".len() + 0x80);
    assert_eq!(run(&ops(0x41)), ["Fault"]);
    assert_eq!(run(&ops(i64::MAX)), ["Fault"]);
}

#[test]
fn the_padding_is_zero() {
    let ops = [op(Reg, 1, 0), op(Add, 0, 0x20), op(EmitBytes, 0, 3)];
    let payload = interpret(&ops, &registers(), 0, &image());
    assert_eq!(payload, b"\x00\x00\x03\x00\x03\x00\x00\x00the\0\0\0\0\0");
}

/// A string whose header is two words at `BASE + at` and `BASE + len_at`.
fn string(at: i64, len_at: i64, max: i64) -> Vec<Op> {
    let load = |at| [op(Reg, 1, 0), op(Add, 0, at), op(Deref, 0, 0)];
    let mut ops = load(len_at).to_vec();
    ops.push(op(SetAux, 0, 0));
    ops.extend(load(at));
    ops.push(op(EmitString, 0, max));
    ops
}

#[test]
fn strings_are_cut_and_say_how_long_they_are() {
    assert_eq!(run(&string(0, 8, 64)), ["ok 5 68656c6c6f"]);
    assert_eq!(run(&string(0, 8, 2)), ["ok 5 6865"]);
    assert_eq!(run(&string(0, 8, -1)), ["ok 5 "]);
    assert_eq!(run(&string(0, 16, 64)), ["ok 0 "], "length 0");
    assert_eq!(run(&string(16, 16, 64)), ["ok 0 "], "length 0 and a nil pointer read nothing");
    assert_eq!(run(&string(16, 8, 64)), ["Fault"], "nil pointer");
    assert_eq!(run(&string(0, 24, 64)), ["Fault"], "negative length");
    let huge = [op(Reg, 3, 0), op(SetAux, 0, 0), op(Reg, 1, 0), op(EmitString, 0, 4)];
    assert_eq!(run(&huge), ["ok 4294967295 40000000"]);
}

#[test]
fn the_first_failure_decides_and_the_next_field_is_clean() {
    let ops = [
        op(Deref, 0, 0),
        op(NilCheck, 0, 0),
        op(EmitAcc, 8, 0),
        op(NilCheck, 0, 0),
        op(Deref, 0, 0),
        op(EmitString, 0, 8),
        op(NilCheck, 0, 0),
        op(EmitBytes, 0, 8),
        op(Reg, 1, 0),
        op(NilCheck, 0, 0),
        op(Add, 0, 8),
        op(Deref, 0, 0),
        op(EmitAcc, 1, 0),
        op(Deref, 0, 0),
        op(Reset, 0, 0),
        op(EmitAcc, 1, 0),
    ];
    assert_eq!(run(&ops), ["Fault", "Nil", "Nil", "ok 1 05", "ok 1 00"]);
}

#[test]
fn a_full_payload_ends_the_program() {
    let zeros = test_image::Image { base: 0, bytes: vec![0; 4096] };
    let fields = |ops: &[Op]| -> Vec<(FieldStatus, usize)> {
        let payload = interpret(ops, &Registers::default(), 0, &zeros);
        Fields::new(&payload).map(|field| (field.status, field.data.len())).collect()
    };
    let ok = FieldStatus::Ok;
    // 3 * (8 + 1024) + 8 + 976 = 4080: 16 bytes are left.
    let mut ops = vec![op(EmitBytes, 0, 1024); 3];
    ops.push(op(EmitBytes, 0, 976));
    let most = [(ok, 1024), (ok, 1024), (ok, 1024), (ok, 976)];
    let with = |last: &[(FieldStatus, usize)]| [&most[..], last].concat();
    let run = |last: &[Op]| fields(&[&ops[..], last].concat());
    assert_eq!(run(&[op(EmitBytes, 0, 9), op(EmitAcc, 1, 0)]), with(&[(FieldStatus::NoRoom, 0)]));
    assert_eq!(run(&[op(EmitAcc, 1, 0), op(EmitAcc, 1, 0)]), with(&[(ok, 1)]));
    let failed = [op(NilCheck, 0, 0), op(EmitBytes, 0, 1024), op(EmitAcc, 1, 0)];
    assert_eq!(run(&failed), with(&[(FieldStatus::Nil, 0), (FieldStatus::NoRoom, 0)]));
}

#[test]
fn only_so_many_ops_run() {
    let ops = [op(NilCheck, 0, 0), op(EmitAcc, 8, 0)].repeat(MAX_PROGRAM_OPS);
    let payload = interpret(&ops, &Registers::default(), 0, &image());
    assert_eq!(Fields::new(&payload).count(), MAX_PROGRAM_OPS / 2);
}

use OpCode::{BlockWord, Each, EmitDynamic, EmitElements, SkipNonZero, SkipZero};

fn each(ops: u16, stride: u16) -> Op {
    op(Each, 0, Body { ops, stride }.to_imm())
}

fn elements(stride: u16, most: u16) -> Op {
    op(EmitElements, 0, Elements { stride, most }.to_imm())
}

#[test]
fn elements_are_as_many_as_there_are_and_as_may_be() {
    let of = |len, last: Op| {
        run(&[
            op(Reg, 1, 0),
            op(Add, 0, len),
            op(Deref, 0, 0),
            op(SetAux, 0, 0),
            op(Reg, 1, 0),
            op(Add, 0, 0x20),
            last,
        ])
    };
    assert_eq!(of(8, elements(2, 3)), ["ok 5 746865207175"]);
    assert_eq!(of(8, elements(1, 9)), ["ok 5 7468652071"]);
    assert_eq!(of(16, elements(8, 9)), ["ok 0 "], "none");
    assert_eq!(of(8, elements(0, 9)), ["ok 5 "], "of no bytes");
    assert_eq!(of(24, elements(8, 9)), ["Fault"], "less than none");
    assert_eq!(Elements::of_imm(elements(100, 50).imm), Elements { stride: 100, most: 10 });
}

#[test]
fn a_body_runs_for_each_element() {
    let ops = [
        op(Reg, 1, 0),
        op(EmitBytes, 0, 24),
        each(3, 8),
        op(BlockWord, 0, 0),
        op(NilCheck, 0, 0),
        op(EmitAcc, 1, 0),
        op(Reg, 15, 0),
        op(EmitAcc, 1, 0),
    ];
    assert_eq!(run(&ops)[1..], ["ok 1 40", "ok 1 05", "Nil", "ok 1 0f"]);
    // The whole field as one block, and blocks in it.
    let ops = [
        op(Reg, 1, 0),
        op(EmitBytes, 0, 16),
        each(7, 0),
        op(BlockWord, 0, 0),
        op(EmitBytes, 0, 3),
        each(4, 1),
        op(BlockWord, 0, 8),
        op(EmitAcc, 1, 0),
        op(BlockWord, 1, 0),
        op(EmitAcc, 1, 0),
    ];
    let inside = ["ok 1 05", "Fault"];
    let expected = [["ok 3 68656c"].as_slice(), &inside, &inside, &inside].concat();
    assert_eq!(run(&ops)[1..], expected);
}

#[test]
fn a_body_is_skipped_for_what_is_not_there() {
    let rest = [op(Reg, 15, 0), op(EmitAcc, 1, 0)];
    let with = |field: &[Op], stride| {
        run(&[field, &[each(2, stride), op(Reg, 15, 0), op(EmitAcc, 8, 0)], &rest].concat())
    };
    assert_eq!(with(&[op(NilCheck, 0, 0), op(EmitAcc, 8, 0)], 0), ["Nil", "ok 1 0f"]);
    assert_eq!(with(&[op(EmitBytes, 0, 8)], 0), ["Fault", "ok 1 0f"]);
    assert_eq!(with(&[op(EmitBytes, 0, 0)], 8), ["ok 0 ", "ok 1 0f"]);
    assert_eq!(with(&[], 0), ["ok 1 0f"], "no field before");
    let deep = [op(EmitAcc, 8, 0)].into_iter().chain((0..9).map(|_| each(100, 0)));
    let deep: Vec<Op> = deep.chain(rest).collect();
    assert_eq!(run(&deep).len(), 1, "what is in too many bodies is in none");
}

#[test]
fn skips_hang_on_the_accumulator() {
    let with = |acc: u8, skip| {
        run(&[
            op(EmitAcc, acc, 0),
            op(Reg, acc, 0),
            op(skip, 0, 1),
            op(EmitAcc, 8, 0),
            op(EmitAcc, 2, 0),
        ])
        .len()
    };
    assert_eq!((with(1, SkipZero), with(1, SkipNonZero)), (3, 2));
    let zero = |skip| run(&[op(skip, 0, 1), op(EmitAcc, 8, 0), op(EmitAcc, 2, 0)]).len();
    assert_eq!((zero(SkipZero), zero(SkipNonZero)), (1, 2));
    let failed =
        |skip| run(&[op(Deref, 0, 0), op(skip, 0, 1), op(EmitAcc, 8, 0), op(EmitAcc, 2, 0)]);
    assert_eq!(failed(SkipZero), ["ok 2 0000"]);
    assert_eq!(failed(SkipNonZero), failed(SkipZero));
    assert_eq!(run(&[op(SkipZero, 0, i64::MAX), op(EmitAcc, 8, 0)]), [""; 0]);
}

#[test]
fn what_an_interface_holds_is_as_long_as_its_type_says() {
    // Two descriptors: of a type of 5 bytes, and of a pointer to it.
    let mut bytes = vec![0; 0x100];
    bytes[0] = 5;
    bytes[23] = 24 | 0x20;
    bytes[0x40] = 8;
    bytes[0x40 + 23] = KIND_POINTER;
    bytes[0x40 + 48..0x40 + 56].copy_from_slice(&BASE.to_le_bytes());
    bytes[0x80..0x88].copy_from_slice(b"content!");
    let memory = test_image::Image { base: BASE, bytes };
    let held = |the_type: u64, data: u64, most: i64| {
        let mut gpr = [0; 16];
        (gpr[0], gpr[3]) = (the_type, data);
        let ops = [
            op(Reg, 0, 0),
            op(SetAux, 0, 0),
            op(Reg, 3, 0),
            op(NilCheck, 0, 0),
            op(EmitDynamic, 0, most),
        ];
        let registers = Registers { gpr, ..Registers::default() };
        let payload = interpret(&ops, &registers, 0, &memory);
        let field = Fields::new(&payload).next().unwrap();
        (field.status, field.original, field.data.to_vec())
    };
    let ok = FieldStatus::Ok;
    assert_eq!(held(BASE, BASE + 0x80, 64), (ok, 5, b"conte".to_vec()));
    assert_eq!(held(BASE + 0x40, BASE + 0x80, 64), (ok, 5, b"conte".to_vec()));
    assert_eq!(held(BASE, BASE + 0x80, 2), (ok, 5, b"co".to_vec()));
    assert_eq!(held(BASE, 0, 2).0, FieldStatus::Nil);
    assert_eq!(held(BASE - 1, BASE + 0x80, 2).0, FieldStatus::Fault);
    assert_eq!(held(BASE, BASE + 0xff, 64).0, FieldStatus::Fault);
}

#[test]
fn addresses_go_from_the_image_to_the_process_and_back() {
    let ops = [
        op(Reg, 3, 0),
        op(Image, 0, 0x40),
        op(EmitAcc, 8, 0),
        op(Reg, 0, 0),
        op(Image, IMAGE_PLACE, -0x40),
        op(EmitAcc, 8, 0),
        op(Image, 0, -0x1000),
        op(EmitBytes, 0, 3),
    ];
    let bytes = b"abc".to_vec();
    let mut registers = Registers { bias: 0x5000, ..Registers::default() };
    registers.gpr[0] = 0x5055;
    let payload = interpret(&ops, &registers, 0, &test_image::Image { base: 0x4000, bytes });
    let fields: Vec<Vec<u8>> = Fields::new(&payload).map(|field| field.data.to_vec()).collect();
    let word = |n: u64| n.to_le_bytes().to_vec();
    assert_eq!(fields, [word(0x5040), word(0x15), b"abc".to_vec()]);
}

#[test]
fn only_so_many_steps_are_made() {
    let zeros = test_image::Image { base: 0, bytes: vec![0; 4096] };
    let ops = [op(EmitBytes, 0, 1024), each(2, 1), op(Reg, 0, 0), each(0, 0)];
    let ops: Vec<Op> = ops.into_iter().chain([op(EmitAcc, 8, 0)]).collect();
    // 1024 passes of 2 ops and 2 ends each are too many.
    let payload = interpret(&ops, &Registers::default(), 0, &zeros);
    assert_eq!(Fields::new(&payload).count(), 1);
    assert!(crate::compile::worst(&ops).steps > MAX_STEPS);
}

#[test]
fn numbers_are_loaded_and_narrowed_as_their_type_says() {
    let load = |a, at| [op(Reg, 1, 0), op(Add, 0, at), op(Load, a, 0), op(EmitAcc, 8, 0)];
    assert_eq!(run(&load(2, 0x18)), ["ok 8 ffff000000000000"]);
    assert_eq!(run(&load(0x12, 0x18)), ["ok 8 ffffffffffffffff"]);
    // The last byte is there, the word is not.
    assert_eq!(run(&load(1, 0x5f)), ["ok 8 2e00000000000000"]);
    assert_eq!(run(&load(3, 0x5f)), ["Fault"]);
    let narrow = |a| [op(Add, 0, -128), op(Narrow, a, 0), op(EmitAcc, 8, 0)];
    assert_eq!(run(&narrow(1)), ["ok 8 8000000000000000"]);
    assert_eq!(run(&narrow(0x11)), ["ok 8 80ffffffffffffff"]);
}

#[test]
fn comparisons_are_of_acc_with_a_constant_or_with_aux() {
    let compared = |a, imm| {
        let ops = [op(Add, 0, 5), op(SetAux, 0, 0), op(Add, 0, -6), op(Compare, a, imm)];
        run(&[&ops[..], &[op(EmitAcc, 1, 0)]].concat())
    };
    // -1 against 3; 5 against -1.
    let expected = [
        (0x00, 0),
        (0x01, 1),
        (0x02, 0),
        (0x04, 1),
        (0x05, 0),
        (0x06, 1),
        (0x09, 0),
        (0x0a, 1),
        (0x11, 0),
        (0x12, 1),
        (0x19, 1),
        (0x1a, 0),
        (0x14, 1),
        (0x03, 0),
    ];
    for (a, holds) in expected {
        assert_eq!(compared(a, 3), [format!("ok 1 0{holds}")], "{a:#x}");
    }
    assert_eq!(compared(0, -1), ["ok 1 01"]);
}

#[test]
fn text_is_matched_piece_by_piece() {
    let matched = |len, pieces: &[(u8, i64)]| {
        let mut ops = vec![op(Add, 0, len), op(SetAux, 0, 0), op(Reg, 1, 0), op(Add, 0, 0x20)];
        ops.extend([op(Touch, 0, 1024), op(AddAux, 0, -7)]);
        ops.extend(pieces.iter().map(|(size, word)| op(Match, *size, *word)));
        ops.extend([op(GetAux, 0, 0), op(EmitAcc, 8, 0)]);
        run(&ops)
    };
    let the_qui = [(4, 0x2065_6874), (2, 0x7571), (1, 0x69)];
    assert_eq!(matched(7, &the_qui), ["ok 8 0000000000000000"]);
    assert_eq!(matched(8, &the_qui), ["ok 8 0100000000000000"]);
    assert_eq!(matched(7, &[(4, 0x2065_6874), (2, 0x7572), (1, 0x69)]), ["ok 8 0300000000000000"]);
    // Longer than the memory, and of a length that none has.
    assert_eq!(matched(0x41, &the_qui), ["Fault"]);
    assert_eq!(matched(-1, &the_qui), ["Fault"]);
}

#[test]
fn a_rejected_hit_has_no_payload() {
    let program = [op(Reg, 3, 0), op(EmitAcc, 1, 0)];
    let hit = |word| {
        let condition = [op(Add, 0, word), op(SkipZero, 0, 1), op(Reject, 0, 0)];
        interpret_hit(&condition, &program, &registers(), 0, &image())
    };
    assert_eq!(hit(1), None);
    assert_eq!(hit(0), Some(interpret(&program, &registers(), 0, &image())));
    let program = [&program[..], &[op(Reject, 0, 0)]].concat();
    assert!(interpret(&program, &registers(), 0, &image()).is_empty());
}

fn any_op() -> impl Strategy<Value = Op> {
    let code = prop::sample::select(vec![
        Reg, StackSlot, CurrentG, Add, Deref, SetAux, GetAux, Reset, EmitAcc, EmitBytes,
        EmitString, NilCheck, Image, Load, Narrow, Compare, Touch, AddAux, Match,
    ]);
    let imm = prop_oneof![4 => -64i64..64, 2 => 0i64..1100, 1 => any::<i64>()];
    (code, any::<u8>(), imm).prop_map(|(code, a, imm)| op(code, a, imm))
}

fn is_emit(op: &&Op) -> bool {
    matches!(op.code, EmitAcc | EmitBytes | EmitString)
}

proptest! {
    /// Whatever the program and the memory: the payload parses to its last byte, with one
    /// field an emit op, or fewer only because the payload is full.
    #[test]
    fn the_payload_always_parses(
        ops in prop::collection::vec(any_op(), 0..200),
        bytes in prop::collection::vec(any::<u8>(), 0..4096),
        gpr in prop::array::uniform16(prop_oneof![0u64..5000, any::<u64>()]),
        sp_first in 0u64..5000,
        g in any::<u64>(),
    ) {
        let memory = test_image::Image { base: 64, bytes };
        let payload = interpret(&ops, &Registers { gpr, sp_first, ..Registers::default() }, g, &memory);
        prop_assert!(payload.len() <= MAX_PAYLOAD);
        let fields: Vec<_> = Fields::new(&payload).collect();
        let parsed: usize =
            fields.iter().map(|field| FIELD_HEADER + field.data.len().next_multiple_of(8)).sum();
        prop_assert_eq!(parsed, payload.len());
        let emits = ops.iter().take(MAX_PROGRAM_OPS).filter(is_emit).count();
        let ended = fields.last().is_some_and(|field| field.status == FieldStatus::NoRoom)
            || payload.len() + FIELD_HEADER > MAX_PAYLOAD;
        prop_assert!(fields.len() == emits || (ended && fields.len() < emits));
        for field in &fields {
            prop_assert!(field.status == FieldStatus::Ok || field.data.is_empty());
            prop_assert!(field.original as usize >= field.data.len());
        }
    }
}
