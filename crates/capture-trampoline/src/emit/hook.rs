//! The hook at the beginning of `runtime.sigtrampgo`: faults of our reads and of moved
//! instructions, before the Go runtime sees them.
//!
//! `sigtrampgo(sig uint32, info *siginfo, ctx unsafe.Pointer)`, Go 1.19 to 1.27: AX, BX, CX; g in
//! R14, X15 zero; it may be on the signal stack, so nothing here touches the stack. A read
//! of a recorder goes on at its landing, and the handler returns at once. A moved
//! instruction gets its original PC, and the handler goes on: what the program sees is a
//! fault where it would have been without us.
//!
//! The tables are pairs of 4-byte offsets from the code area's start, sorted: where a fault is,
//! and where it belongs.

use super::body::{Body, can_fault};
use super::region::{Chooser, Region};
use super::stub::{Call, Stubs};
use super::{CodeSource, EmitError, EmitOptions, FunctionCode, Refused, TrampolinePc};
use address::{Avma, Svma};
use iced_x86::code_asm::registers::*;
use iced_x86::code_asm::{CodeAssembler, CodeLabel, dword_ptr, ptr, qword_ptr};
use iced_x86::{Code, IcedError, Instruction, InstructionInfoFactory, MemoryOperand, Register};

/// Offset of RIP in a `ucontext_t`: `uc_mcontext.gregs[REG_RIP]`, kernel ABI of x86-64.
const CONTEXT_RIP: i32 = 40 + 16 * 8;
/// SIGBUS, SIGFPE, SIGSEGV: what an instruction of a program or a read of ours can raise.
const FAULTS: [i32; 3] = [7, 8, 11];
/// Tag of the hook's call, which is no record.
const NO_TAG: u32 = u32::MAX;

/// The function that is hooked.
pub(super) struct Hooked {
    entry: Svma,
    code: FunctionCode,
    region: Region,
}

impl Hooked {
    /// Finds room for the hook before `sigtrampgo` moves SP.
    pub(super) fn find(source: &dyn CodeSource, entry: Svma) -> Result<Self, Refused> {
        let code = source.function(entry)?;
        let body = Body::of(&code, entry);
        let mut chooser = Chooser::new(&body, false);
        chooser.add_hook()?;
        let region = chooser.regions.pop().ok_or(Refused::NoSuchSite(entry))?;
        Ok(Self { entry, code, region })
    }

    /// Where it begins.
    pub(super) fn entry(&self) -> Svma {
        self.entry
    }

    /// Adds the stub, whose length does not hang on where the hook lies.
    pub(super) fn stub(&self, stubs: &mut Stubs<'_>, hook: Avma) -> Result<(), Refused> {
        let body = Body::of(&self.code, self.entry);
        let call = Call { recorder: hook, tag: NO_TAG, delta: None };
        stubs.add(u32::MAX, &body, &self.region, &[call])
    }
}

/// Faults and where they belong.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) loads: Vec<(Avma, Avma)>,
    pub(super) moved: Vec<(Avma, Avma)>,
}

impl Tables {
    /// The moved instructions among `pieces` that can fault; `code` begins at the code base.
    pub(super) fn add_moved(
        &mut self,
        options: &EmitOptions,
        code: &[u8],
        pieces: &[TrampolinePc],
    ) {
        let mut info = InstructionInfoFactory::new();
        for piece in pieces.iter().filter(|piece| piece.is_moved) {
            let at = piece.start.since(options.code_base).unwrap_or(u64::MAX) as usize;
            let bytes = code.get(at..).unwrap_or_default();
            let mut decoder = iced_x86::Decoder::with_ip(64, bytes, piece.start.0, 0);
            if can_fault(&decoder.decode(), &mut info) {
                self.moved.push((piece.start, options.bias.to_avma(piece.original)));
            }
        }
    }

    /// The tables' bytes: loads, then moved instructions.
    pub(super) fn bytes(&self, base: Avma) -> Vec<u8> {
        let pairs = self.loads.iter().chain(&self.moved);
        let offset = |address: Avma| (address.0.wrapping_sub(base.0) as u32).to_le_bytes();
        pairs.flat_map(|pair| [offset(pair.0), offset(pair.1)]).flatten().collect()
    }
}

struct Hook<'a> {
    asm: CodeAssembler,
    options: &'a EmitOptions,
}

/// The hook's code, to lie at `at`, for tables at `tables`.
pub(super) fn assemble(
    options: &EmitOptions,
    lengths: (usize, usize),
    tables: Avma,
    at: Avma,
) -> Result<Vec<u8>, EmitError> {
    let build = || {
        let mut hook = Hook { asm: CodeAssembler::new(64)?, options };
        hook.all(lengths, tables)?;
        hook.asm.assemble(at.0)
    };
    build().map_err(|error: IcedError| EmitError::Assemble(error.to_string()))
}

impl Hook<'_> {
    fn all(&mut self, lengths: (usize, usize), tables: Avma) -> Result<(), IcedError> {
        let (mut fault, mut out) = (self.asm.create_label(), self.asm.create_label());
        for signal in FAULTS {
            self.asm.cmp(eax, signal)?;
            self.asm.je(fault)?;
        }
        self.asm.set_label(&mut out)?;
        self.asm.jmp(r13)?;

        self.asm.set_label(&mut fault)?;
        self.lea(Register::R15, self.options.code_base)?;
        self.asm.mov(r12, qword_ptr(rcx + CONTEXT_RIP))?;
        self.asm.sub(r12, r15)?;
        // Everything that can fault lies before the tables.
        let len = tables.since(self.options.code_base).unwrap_or(0);
        self.asm.cmp(r12, i32::try_from(len).unwrap_or(i32::MAX))?;
        self.asm.jae(out)?;
        let mut not_load = self.asm.create_label();
        self.search(tables, lengths.0, not_load)?;
        self.asm.ret()?;
        self.asm.set_label(&mut not_load)?;
        self.search(tables.add(8 * lengths.0 as u64), lengths.1, out)?;
        self.asm.jmp(out)
    }

    fn lea(&mut self, register: Register, to: Avma) -> Result<(), IcedError> {
        let memory = MemoryOperand::with_base_displ(Register::RIP, to.0 as i64);
        self.asm.add_instruction(Instruction::with2(Code::Lea_r64_m, register, memory)?)
    }

    /// Looks for R12 in a table and sets the context's RIP to what belongs to it.
    fn search(&mut self, table: Avma, len: usize, missing: CodeLabel) -> Result<(), IcedError> {
        let (mut again, mut above) = (self.asm.create_label(), self.asm.create_label());
        let mut found = self.asm.create_label();
        self.lea(Register::RDI, table)?;
        self.asm.xor(r8d, r8d)?;
        self.asm.mov(r9d, u32::try_from(len).unwrap_or(0))?;
        self.asm.set_label(&mut again)?;
        self.asm.cmp(r8d, r9d)?;
        self.asm.jae(missing)?;
        self.asm.lea(r10d, ptr(r8 + r9))?;
        self.asm.shr(r10d, 1)?;
        self.asm.cmp(r12d, dword_ptr(rdi + r10 * 8))?;
        self.asm.je(found)?;
        self.asm.ja(above)?;
        self.asm.mov(r9d, r10d)?;
        self.asm.jmp(again)?;
        self.asm.set_label(&mut above)?;
        self.asm.lea(r8d, ptr(r10 + 1))?;
        self.asm.jmp(again)?;
        self.asm.set_label(&mut found)?;
        self.asm.movsxd(r11, dword_ptr(rdi + r10 * 8 + 4))?;
        self.asm.add(r11, r15)?;
        self.asm.mov(qword_ptr(rcx + CONTEXT_RIP), r11)
    }
}
