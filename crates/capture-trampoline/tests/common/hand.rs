//! Small functions as the Go compiler writes them, one for each shape that matters.

use super::RUNTIME;
use address::Svma;
use binary::code::{CodeFacts, ExitKind, analyze, swaps};
use capture_trampoline::emit::{CodeSource, FunctionCode, Refused};
use iced_x86::code_asm::registers::*;
use iced_x86::code_asm::{CodeAssembler, dword_ptr, ptr, qword_ptr};
use iced_x86::{Code, IcedError, Instruction, MemoryOperand, Register};
use probe::{Guard, Plan, PlannedFunction, Program, Site};
use std::collections::HashMap;
use wire::{GSource, Op, SiteKind};

/// Where the text begins.
pub const TEXT: Svma = Svma(0x40_1000);
/// Bytes between functions.
pub const SLOT: u64 = 0x200;
/// Bytes of the text: the functions, `morestack` and a page of data.
pub const TEXT_LEN: u64 = 0x4000;
/// A word that functions read.
pub const DATA: Svma = Svma(TEXT.0 + 0x2000);
/// Stands in for `runtime.morestack`: lowers the guard and returns.
pub const MORESTACK: Svma = Svma(TEXT.0 + 0x1f00);

type Write = fn(&mut CodeAssembler, u64) -> Result<(), IcedError>;

/// Name, whether it checks the stack, and code.
pub const FUNCTIONS: &[(&str, bool, Write)] = &[
    ("frame", true, frame),
    ("far_check", true, far_check),
    ("leaf", false, leaf),
    ("empty", false, |asm, _| asm.ret()),
    ("two_exits", true, two_exits),
    ("tail", true, tail),
    ("reads_data", false, reads_data),
    ("short_leaf", false, short_leaf),
    ("frame_1_19", true, frame_1_19),
    ("jump_only", false, |asm, base| asm.jmp(base + 2 * SLOT)),
    ("nosplit_frame", false, nosplit_frame),
    ("call_first", true, call_first),
    ("moved_read", false, moved_read),
    ("shared_exit", true, shared_exit),
];

/// Compare-and-swaps of the word at RDI + [`SWAPPED`], from EBX to another value.
pub const SWAPS: &[(&str, Write)] = &[
    ("casgstatus", swap),
    ("coroswitch_m", swap_in_use),
    ("exitsyscall", swap_operand),
    ("execute", swap_at_page_end),
];

/// Where the swapped word lies in a g.
pub const SWAPPED: i32 = 0x90;

/// Number of the function of a swap: their slots lie behind the data.
pub const fn swap_index(index: usize) -> usize {
    if index == 3 { PAGE_END } else { 17 + index }
}

/// Number of the last function before a page ends.
const PAGE_END: usize = 23;

fn swap(asm: &mut CodeAssembler, _: u64) -> Result<(), IcedError> {
    asm.mov(eax, ebx)?;
    asm.lock().cmpxchg(dword_ptr(rdi + SWAPPED), ecx)?;
    asm.sete(r8b)?;
    asm.pushfq()?;
    asm.pop(rsi)?;
    asm.ret()
}

/// R12 and R13 hold something over the swap.
fn swap_in_use(asm: &mut CodeAssembler, _: u64) -> Result<(), IcedError> {
    asm.mov(r12, rdx)?;
    asm.lea(r13, ptr(rsi + 5))?;
    asm.mov(eax, ebx)?;
    asm.lock().cmpxchg(dword_ptr(rdi + SWAPPED), ecx)?;
    asm.pushfq()?;
    asm.pop(rsi)?;
    asm.lea(r8, ptr(r12 + r13))?;
    asm.ret()
}

/// Behind a branch that leads to it, and with R12 for the new value.
fn swap_operand(asm: &mut CodeAssembler, _: u64) -> Result<(), IcedError> {
    let mut here = asm.create_label();
    asm.mov(r12d, ecx)?;
    asm.mov(eax, ebx)?;
    asm.test(dl, 1)?;
    asm.jne(here)?;
    asm.xor(r9d, r9d)?;
    asm.set_label(&mut here)?;
    asm.lock().cmpxchg(dword_ptr(rdi + SWAPPED), r12d)?;
    asm.pushfq()?;
    asm.pop(rsi)?;
    asm.ret()
}

/// A jump over the swap itself would cross a page.
fn swap_at_page_end(asm: &mut CodeAssembler, base: u64) -> Result<(), IcedError> {
    asm.mov(r13, rsi)?;
    for _ in base + 3..TEXT.0 + 0x3000 - 7 {
        asm.nop()?;
    }
    asm.lea(r12, ptr(rdx + 1))?;
    asm.mov(eax, ebx)?;
    asm.lock().cmpxchg(dword_ptr(rdi + SWAPPED), ecx)?;
    asm.pushfq()?;
    asm.pop(rsi)?;
    asm.lea(r8, ptr(r12 + r13))?;
    asm.ret()
}

/// The stack check; the caller sets the label behind its body and calls [`slow`].
fn check(asm: &mut CodeAssembler, slow: iced_x86::code_asm::CodeLabel) -> Result<(), IcedError> {
    asm.cmp(rsp, qword_ptr(r14 + 0x10))?;
    asm.jbe(slow)
}

fn slow(
    asm: &mut CodeAssembler,
    mut label: iced_x86::code_asm::CodeLabel,
    entry: u64,
) -> Result<(), IcedError> {
    asm.set_label(&mut label)?;
    asm.mov(qword_ptr(rsp + 8), rax)?;
    asm.call(MORESTACK.0)?;
    asm.mov(rax, qword_ptr(rsp + 8))?;
    asm.jmp(entry)
}

fn push_frame(asm: &mut CodeAssembler, size: i32) -> Result<(), IcedError> {
    asm.push(rbp)?;
    asm.mov(rbp, rsp)?;
    asm.sub(rsp, size)
}

fn pop_frame(asm: &mut CodeAssembler, size: i32) -> Result<(), IcedError> {
    asm.add(rsp, size)?;
    asm.pop(rbp)?;
    asm.ret()
}

fn frame(asm: &mut CodeAssembler, base: u64) -> Result<(), IcedError> {
    let label = asm.create_label();
    check(asm, label)?;
    push_frame(asm, 0x18)?;
    asm.mov(qword_ptr(rsp + 8), rdx)?;
    asm.lea(rax, ptr(rax + rbx))?;
    asm.add(rax, qword_ptr(rsp + 8))?;
    pop_frame(asm, 0x18)?;
    slow(asm, label, base)
}

fn far_check(asm: &mut CodeAssembler, base: u64) -> Result<(), IcedError> {
    let label = asm.create_label();
    check(asm, label)?;
    push_frame(asm, 0x180)?;
    for _ in 0..24 {
        asm.lea(rcx, ptr(rcx + rdx * 2 + 0x1234))?;
    }
    pop_frame(asm, 0x180)?;
    slow(asm, label, base)
}

fn leaf(asm: &mut CodeAssembler, _: u64) -> Result<(), IcedError> {
    asm.lea(rax, ptr(rax + rbx * 2))?;
    asm.add(rax, rdx)?;
    asm.xor(rcx, rdi)?;
    asm.ret()
}

fn two_exits(asm: &mut CodeAssembler, base: u64) -> Result<(), IcedError> {
    let (label, mut other) = (asm.create_label(), asm.create_label());
    check(asm, label)?;
    push_frame(asm, 0x20)?;
    asm.test(bl, 1)?;
    asm.jne(other)?;
    asm.mov(rax, 0x1122_3344_5566_7788u64)?;
    pop_frame(asm, 0x20)?;
    asm.set_label(&mut other)?;
    asm.addsd(xmm0, xmm1)?;
    asm.xor(eax, eax)?;
    pop_frame(asm, 0x20)?;
    slow(asm, label, base)
}

/// Ends in a jump to `leaf`.
fn tail(asm: &mut CodeAssembler, base: u64) -> Result<(), IcedError> {
    let label = asm.create_label();
    check(asm, label)?;
    push_frame(asm, 0x10)?;
    asm.mov(rcx, rdx)?;
    asm.add(rsp, 0x10)?;
    asm.pop(rbp)?;
    asm.jmp(base - 3 * SLOT)?;
    slow(asm, label, base)
}

fn reads_data(asm: &mut CodeAssembler, _: u64) -> Result<(), IcedError> {
    let data = MemoryOperand::with_base_displ(Register::RIP, DATA.0 as i64);
    asm.add_instruction(Instruction::with2(Code::Add_r64_rm64, Register::RAX, data)?)?;
    asm.inc(rbx)?;
    asm.ret()
}

/// A last block of two bytes that is jumped to, twice, and fallen into.
fn shared_exit(asm: &mut CodeAssembler, base: u64) -> Result<(), IcedError> {
    let label = asm.create_label();
    let mut exit = asm.create_label();
    check(asm, label)?;
    asm.push(rbp)?;
    asm.mov(rbp, rsp)?;
    asm.test(bl, 1)?;
    asm.je(exit)?;
    asm.add(rax, rdi)?;
    asm.test(bl, 2)?;
    asm.jne(exit)?;
    asm.mov(ecx, 7)?;
    asm.test(bl, 4)?;
    asm.jne(exit)?;
    asm.inc(rsi)?;
    asm.set_label(&mut exit)?;
    asm.pop(rbp)?;
    asm.ret()?;
    slow(asm, label, base)
}

/// The read in front of the RET must move, and it may fault as far as anyone can tell.
fn moved_read(asm: &mut CodeAssembler, _: u64) -> Result<(), IcedError> {
    let data = MemoryOperand::with_base_displ(Register::RIP, DATA.0 as i64);
    asm.add_instruction(Instruction::with2(Code::Lea_r64_m, Register::RDX, data)?)?;
    asm.mov(rax, qword_ptr(rdx))?;
    asm.ret()?;
    // No padding to run into.
    asm.ud2()
}

fn short_leaf(asm: &mut CodeAssembler, _: u64) -> Result<(), IcedError> {
    asm.xor(eax, eax)?;
    asm.ret()
}

/// Go 1.19 saves the frame pointer below SP's old place.
fn frame_1_19(asm: &mut CodeAssembler, base: u64) -> Result<(), IcedError> {
    let label = asm.create_label();
    check(asm, label)?;
    asm.sub(rsp, 0x20)?;
    asm.mov(qword_ptr(rsp + 0x18), rbp)?;
    asm.lea(rbp, ptr(rsp + 0x18))?;
    asm.mov(dword_ptr(rsp + 8), ecx)?;
    asm.add(ecx, dword_ptr(rsp + 8))?;
    asm.mov(rbp, qword_ptr(rsp + 0x18))?;
    asm.add(rsp, 0x20)?;
    asm.ret()?;
    slow(asm, label, base)
}

fn nosplit_frame(asm: &mut CodeAssembler, _: u64) -> Result<(), IcedError> {
    push_frame(asm, 0x10)?;
    asm.sub(rsi, rdx)?;
    pop_frame(asm, 0x10)
}

/// Without locals: the call follows the frame pointer.
fn call_first(asm: &mut CodeAssembler, base: u64) -> Result<(), IcedError> {
    let label = asm.create_label();
    check(asm, label)?;
    asm.push(rbp)?;
    asm.mov(rbp, rsp)?;
    asm.call(base - 9 * SLOT)?;
    asm.pop(rbp)?;
    asm.ret()?;
    slow(asm, label, base)
}

/// The functions, as a source of code and as bytes.
pub struct Hand {
    /// The whole text.
    pub text: Vec<u8>,
    functions: HashMap<Svma, FunctionCode>,
}

impl CodeSource for Hand {
    fn function(&self, entry: Svma) -> Result<FunctionCode, Refused> {
        self.functions.get(&entry).cloned().ok_or(Refused::NoSuchSite(entry))
    }

    fn is_ordinary(&self, _: Svma) -> bool {
        true
    }
}

impl Hand {
    pub fn new() -> Self {
        let mut text = vec![0xcc; TEXT_LEN as usize];
        let mut functions = HashMap::new();
        let plain = FUNCTIONS.iter().enumerate();
        let plain = plain.map(|(index, &(name, _, write))| (index, format!("main.{name}"), write));
        let swaps = SWAPS.iter().enumerate();
        let swaps =
            swaps.map(|(i, &(name, write))| (swap_index(i), format!("runtime.{name}"), write));
        for (index, full_name, write) in plain.chain(swaps) {
            let entry = entry(index);
            let mut asm = CodeAssembler::new(64).expect("64 bits");
            write(&mut asm, entry.0).expect("assembles");
            let code = asm.assemble(entry.0).expect("encodes");
            let at = (entry.0 - TEXT.0) as usize;
            text[at..at + code.len()].copy_from_slice(&code);
            let len = if index == PAGE_END { 2 * SLOT } else { SLOT };
            let bytes = text[at..at + len as usize].to_vec();
            let facts = CodeFacts {
                entry,
                name: &full_name,
                is_assembly: false,
                sp_write: false,
                is_top_frame: false,
                deferreturn: None,
                fips: None,
                sp_delta: &|_| Some(0),
            };
            let analysis = analyze(&bytes, &facts);
            let code =
                FunctionCode { bytes, analysis, is_assembly: false, table_targets: Vec::new() };
            functions.insert(entry, code);
        }
        // mov qword ptr [r14+10h], 0; ret
        let at = (MORESTACK.0 - TEXT.0) as usize;
        text[at..at + 9].copy_from_slice(&[0x49, 0xc7, 0x46, 0x10, 0, 0, 0, 0, 0xc3]);
        let at = (DATA.0 - TEXT.0) as usize;
        text[at..at + 8].copy_from_slice(&0x0102_0304_0506_0708u64.to_le_bytes());
        Self { text, functions }
    }

    /// All functions, with the same values at every entry and every return.
    pub fn plan(&self, args: &[Op], results: &[Op]) -> Plan {
        let mut ops = args.to_vec();
        ops.extend_from_slice(results);
        let at_entry = Program { start: 0, len: args.len() as u16 };
        let at_return = Program { start: args.len() as u32, len: results.len() as u16 };
        let mut plan = Plan { runtime: RUNTIME, ops, ..Plan::default() };
        for (index, (name, ..)) in FUNCTIONS.iter().enumerate() {
            let code = &self.functions[&entry(index)];
            let mut add = |kind, address, program| {
                plan.sites.push(Site {
                    function: index as u32,
                    kind,
                    address,
                    file_offset: Default::default(),
                    sp_delta: 0,
                    g_source: GSource::R14,
                    program,
                    guard: None,
                    condition: 0,
                });
            };
            add(SiteKind::Entry, code.analysis.entry.expect(name).address, at_entry);
            for exit in &code.analysis.exits {
                let kind = match exit.kind {
                    ExitKind::Return => SiteKind::Return,
                    ExitKind::Tail(_) => SiteKind::TailJump,
                };
                let program = if kind == SiteKind::Return { at_return } else { Program::default() };
                add(kind, exit.site.address, program);
            }
            plan.functions.push(PlannedFunction {
                name: format!("main.{name}"),
                file: String::new(),
                line: 0,
                entry: entry(index),
                size: SLOT,
                traced: true,
                witness: None,
                args: Vec::new(),
                results: Vec::new(),
            });
        }
        plan
    }
}

impl Hand {
    /// The swaps, with the same values at each.
    pub fn swap_plan(&self, ops: &[Op]) -> Plan {
        let program = Program { start: 0, len: ops.len() as u16 };
        let mut plan = Plan { runtime: RUNTIME, ops: ops.to_vec(), ..Plan::default() };
        for (index, (name, _)) in SWAPS.iter().enumerate() {
            let entry = entry(swap_index(index));
            let found = swaps(&self.functions[&entry].bytes, entry, SWAPPED as u32, &[]);
            let [swap] = found[..] else { panic!("{name}: {found:?}") };
            let after = swap.after;
            plan.sites.push(Site {
                function: index as u32,
                kind: SiteKind::At,
                address: swap.address,
                file_offset: Default::default(),
                sp_delta: 0,
                g_source: GSource::R14,
                program,
                guard: Some(Guard { after, after_offset: Default::default(), zero: true }),
                condition: 0,
            });
            plan.functions.push(PlannedFunction {
                name: format!("runtime.{name}"),
                file: String::new(),
                line: 0,
                entry,
                size: SLOT,
                traced: false,
                witness: None,
                args: Vec::new(),
                results: Vec::new(),
            });
        }
        plan
    }
}

/// Where a function begins.
pub fn entry(index: usize) -> Svma {
    TEXT.add(index as u64 * SLOT)
}
