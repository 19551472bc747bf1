//! What the emitted code looks like, as text.

mod common;

use address::{Avma, Bias};
use capture_trampoline::emit::{EmitOptions, Emitted, emit};
use capture_trampoline::layout::Rings;
use common::hand::{Hand, TEXT};
use iced_x86::{Decoder, DecoderOptions};
use std::fmt::Write as _;
use wire::{DEREF_MAPPED, Op, OpCode};

const OPTIONS: EmitOptions = EmitOptions {
    code_base: Avma(0x1000_0000),
    bias: Bias(0x10_0000),
    control: Avma(0x0fff_f000),
    rings: Rings { base: Avma(0x1100_0000), count: 4, bytes: 1 << 19 },
    has_rdpid: true,
    m_procid: Some(72),
    m_gsignal: Some(80),
    sigtrampgo: None,
    recovers_loads: true,
    translates_faults: false,
};

/// One instruction a line; behind a jump to a recorder stands a tag.
fn disassemble(emitted: &Emitted, from: usize, to: usize, text: &mut String) {
    let mut at = from;
    while at < to {
        let ip = OPTIONS.code_base.0 + at as u64;
        let mut decoder = Decoder::with_ip(64, &emitted.code[at..to], ip, DecoderOptions::NONE);
        let instruction = decoder.decode();
        let start = OPTIONS.code_base.0..OPTIONS.code_base.0 + emitted.recorders.end as u64;
        let _ = writeln!(text, "  {ip:x}  {instruction}");
        at += instruction.len();
        if start.contains(&instruction.near_branch_target()) && !start.contains(&ip) {
            let back = emitted.pc_map.pieces().iter().find(|piece| piece.start.0 > ip);
            let end = back.map_or(to, |back| (back.start.0 - OPTIONS.code_base.0) as usize);
            // Another call or an instruction follows.
            let data = &emitted.code[at..end.min(at + 6)];
            let (delta, tag) = data.split_at(data.len() - 4);
            let tag = u32::from_le_bytes(tag.try_into().expect("4 bytes"));
            let _ = writeln!(
                text,
                "  {:x}  delta {delta:?} site {} units {}",
                ip + 5,
                tag & 0x7f_ffff,
                tag >> 23
            );
            at += data.len();
        }
    }
}

fn render(emitted: &Emitted, plan: &probe::Plan) -> String {
    let mut text = String::from("recorders\n");
    disassemble(emitted, 0, emitted.recorders.end, &mut text);
    let text = &mut text;
    // Between recorders lies padding.
    *text =
        text.lines().filter(|line| !line.ends_with("int3")).fold(String::new(), |mut all, line| {
            let _ = writeln!(all, "{line}");
            all
        });
    for (index, patch) in emitted.patches.iter().enumerate() {
        let stub = |patch: &capture_trampoline::emit::Patch| {
            let from = OPTIONS.bias.to_avma(patch.address).0;
            let jump =
                Decoder::with_ip(64, &patch.replacement, from, DecoderOptions::NONE).decode();
            (jump.near_branch_target() - OPTIONS.code_base.0) as usize
        };
        let from = stub(patch);
        let to = emitted.patches.get(index + 1).map_or(emitted.code.len(), stub);
        let function = &plan.functions[patch.function as usize].name;
        let offset = patch.address.0 - TEXT.0;
        let _ = writeln!(
            text,
            "\n{function}: patch at text+{offset:x}, moved {} bytes",
            patch.end.0 - patch.address.0
        );
        disassemble(emitted, from, to, text);
    }
    for (index, refused) in &emitted.refused {
        let name = &plan.functions[*index as usize].name;
        let _ = writeln!(text, "\n{name}: {refused}");
    }
    std::mem::take(text)
}

fn golden(name: &str) -> String {
    format!("{}/tests/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn stubs_without_values() {
    let hand = Hand::new();
    let plan = hand.plan(&[], &[]);
    let emitted = emit(&plan, &hand, &OPTIONS).expect("emits");
    testkit::assert_golden(golden("plain"), &render(&emitted, &plan));
}

#[test]
fn recorders_with_values_without_rdpid_and_thread() {
    let args = [
        Op::new(OpCode::Reg, 0, 0),
        Op::new(OpCode::EmitAcc, 8, 0),
        Op::new(OpCode::Reg, 2, 0),
        Op::new(OpCode::Add, 0, -5),
        Op::new(OpCode::EmitAcc, 1, 0),
        Op::new(OpCode::StackSlot, 0, 16),
        Op::new(OpCode::EmitAcc, 4, 0),
    ];
    let results = [Op::new(OpCode::Reg, 3, 0), Op::new(OpCode::EmitAcc, 2, 0)];
    let hand = Hand::new();
    let mut plan = hand.plan(&args, &results);
    plan.sites.retain(|site| site.function == 0);
    let options = EmitOptions { has_rdpid: false, m_procid: None, ..OPTIONS };
    let emitted = emit(&plan, &hand, &options).expect("emits");
    testkit::assert_golden(golden("values"), &render(&emitted, &plan));
}

#[test]
fn swaps_and_their_recorders() {
    let values = [
        Op::new(OpCode::Reg, 7, 0),
        Op::new(OpCode::Add, 0, 152),
        Op::new(OpCode::Deref, DEREF_MAPPED, 0),
        Op::new(OpCode::EmitAcc, 8, 0),
        Op::new(OpCode::Reg, 0, 0),
        Op::new(OpCode::EmitAcc, 4, 0),
    ];
    let hand = Hand::new();
    let mut plan = hand.swap_plan(&values);
    plan.sites.truncate(2);
    let emitted = emit(&plan, &hand, &OPTIONS).expect("emits");
    testkit::assert_golden(golden("swaps"), &render(&emitted, &plan));
}
