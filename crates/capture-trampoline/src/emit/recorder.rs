//! The code that stubs share: reserve, fill, take the time, commit.
//!
//! On arrival R13 leads back to the stub; the 4 bytes before that are the record's tag, and the
//! 2 before those how far SP has moved in the function, where that is asked for.
//! R12, R15, RAX and RDX are used, RAX and RDX restored:
//! ```text
//! X15 = RAX   R15 = RDX   R12 = ring, then record   RAX, RDX = whatever is at hand
//! ```

use super::condition::Part;
use super::fetch::{Failed, SPILL_HEAD, SPILL_RING};
use super::program::{Base, FixedField, Sum, Values};
use super::swap::InUse;
use super::{EmitError, EmitOptions};
use crate::layout::{
    self, DATA, DROPS, HEAD, LIMIT, REJECTED, TAG_SYSTEM_STACK, TAG_UNITS_SHIFT, UNIT, record,
};
use address::Avma;
use iced_x86::code_asm::{AsmRegister64, CodeAssembler, CodeLabel, registers::*};
use iced_x86::code_asm::{byte_ptr, dword_ptr, ptr, qword_ptr, word_ptr};
use iced_x86::{BlockEncoderOptions, Code, IcedError, Instruction, MemoryOperand, Register};
use probe::RuntimeLayout;

/// What tells one recorder from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Whether the return address is recorded: at entries.
    pub(super) has_caller: bool,
    /// Whether RDX must survive.
    pub(super) saves_rdx: bool,
    /// Whether the stub says, in 2 bytes before the tag, how far SP at the function's first
    /// instruction lies above SP.
    pub(super) has_delta: bool,
    /// What decides whether there is a record at all.
    pub(super) condition: Vec<Part>,
    /// What to add to the header.
    pub(super) values: Values,
    /// Set for a compare-and-swap in the middle of a function.
    pub(super) swap: Option<InUse>,
}

impl Key {
    /// Units of a record on a goroutine's own stack, at the most.
    pub(super) fn units(&self) -> usize {
        self.units_on(false)
    }

    /// Units of a record on a system stack, at the most.
    pub(super) fn system_units(&self) -> usize {
        self.units_on(true)
    }

    fn units_on(&self, system_stack: bool) -> usize {
        let payload = self.values.payload();
        (payload.offset(system_stack) + payload.size()).div_ceil(UNIT)
    }
}

/// The two shapes of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stack {
    Own,
    System,
}

pub(super) struct Recorder<'a> {
    pub(super) asm: CodeAssembler,
    pub(super) key: &'a Key,
    pub(super) options: &'a EmitOptions,
    pub(super) runtime: &'a RuntimeLayout,
    pub(super) full: CodeLabel,
    pub(super) commit: CodeLabel,
    /// Code for fields that failed, to be put behind the rest.
    pub(super) failed: Vec<Failed>,
    /// Bytes of an element of each open block, where that is always the same.
    pub(super) blocks: Vec<Option<u16>>,
    /// Reads that may fault, and the index of the failure they lead to.
    pub(super) loads: Vec<(CodeLabel, usize)>,
}

/// A recorder's code.
pub(super) struct Assembled {
    pub(super) code: Vec<u8>,
    /// Addresses of reads that may fault, and where to go on then.
    pub(super) loads: Vec<(Avma, Avma)>,
}

/// Assembles a recorder that lies at `at`.
pub(super) fn assemble(
    key: &Key,
    options: &EmitOptions,
    runtime: &RuntimeLayout,
    at: Avma,
) -> Result<Assembled, EmitError> {
    build(key, options, runtime, at).map_err(|error| EmitError::Assemble(error.to_string()))
}

fn build(
    key: &Key,
    options: &EmitOptions,
    runtime: &RuntimeLayout,
    at: Avma,
) -> Result<Assembled, IcedError> {
    let mut asm = CodeAssembler::new(64)?;
    let (full, commit) = (asm.create_label(), asm.create_label());
    let mut recorder = Recorder {
        asm,
        key,
        options,
        runtime,
        full,
        commit,
        failed: Vec::new(),
        blocks: Vec::new(),
        loads: Vec::new(),
    };
    match key.swap {
        Some(in_use) => recorder.all_of_swap(in_use)?,
        None => recorder.all()?,
    }
    let Recorder { mut asm, loads, failed, .. } = recorder;
    let result = asm.assemble_options(at.0, BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS)?;
    let mut places = Vec::new();
    for (load, index) in &loads {
        if let Some(failed) = failed.get(*index) {
            places.push((Avma(result.label_ip(load)?), Avma(result.label_ip(&failed.label)?)));
        }
    }
    Ok(Assembled { code: result.inner.code_buffer, loads: places })
}

impl Recorder<'_> {
    fn all(&mut self) -> Result<(), IcedError> {
        let (mut restore, mut skip) = (self.asm.create_label(), self.asm.create_label());
        let mut system = self.asm.create_label();
        self.check(skip)?;
        self.asm.movq(xmm15, rax)?;
        if self.key.saves_rdx {
            self.asm.mov(r15, rdx)?;
        }
        let mut rejected = self.asm.create_label();
        if !self.key.condition.is_empty() {
            let mut wanted = self.asm.create_label();
            self.asm.cmp(qword_ptr(r14 + self.runtime.g_goid), 0)?;
            self.asm.je(wanted)?;
            self.condition(&self.key.condition, rejected)?;
            self.asm.set_label(&mut wanted)?;
            self.asm.zero_bytes()?;
        }
        self.find_ring()?;
        self.asm.cmp(qword_ptr(r14 + self.runtime.g_goid), 0)?;
        self.asm.je(system)?;
        self.record(Stack::Own)?;
        let mut read = self.asm.create_label();
        if let Values::Reading(nodes) = &self.key.values {
            // Where the payload would begin after one unit.
            self.asm.mov(rax, r12)?;
            self.asm.set_label(&mut read)?;
            self.read(nodes)?;
        }

        self.asm.set_label(&mut self.commit)?;
        self.time()?;
        self.asm.mov(qword_ptr(r12 + record::TSC), rax)?;
        self.asm.set_label(&mut restore)?;
        self.asm.movq(rax, xmm15)?;
        if self.key.saves_rdx {
            self.asm.mov(rdx, r15)?;
        }
        self.asm.xorps(xmm15, xmm15)?;
        self.asm.set_label(&mut skip)?;
        self.asm.jmp(r13)?;

        self.asm.set_label(&mut self.full)?;
        self.asm.lock().inc(qword_ptr(r12 + DROPS))?;
        self.asm.jmp(restore)?;

        if !self.key.condition.is_empty() {
            self.asm.set_label(&mut rejected)?;
            self.find_ring()?;
            self.asm.lock().inc(qword_ptr(r12 + REJECTED))?;
            self.asm.jmp(restore)?;
        }

        self.asm.set_label(&mut system)?;
        self.record(Stack::System)?;
        if let Values::Reading(nodes) = &self.key.values {
            let mut blind = self.asm.create_label();
            self.jump_if_signal_stack(blind)?;
            self.asm.mov(rax, r12)?;
            self.asm.add(r12, UNIT as i32)?;
            self.asm.jmp(read)?;
            self.asm.set_label(&mut blind)?;
            self.blind(nodes)?;
        }
        self.asm.jmp(self.commit)?;
        self.failures()
    }

    /// Whether there is anything to record. Nothing has been changed yet but flags.
    pub(super) fn check(&mut self, skip: CodeLabel) -> Result<(), IcedError> {
        // C threads may have no g.
        self.asm.test(r14, r14)?;
        self.asm.je(skip)?;
        let enabled = self.options.control.add(u64::from(layout::ENABLED));
        self.add_rip(Code::Cmp_rm32_imm8, Register::None, enabled)?;
        self.asm.je(skip)
    }

    /// RAX = the time; RDX is used.
    pub(super) fn time(&mut self) -> Result<(), IcedError> {
        self.asm.rdtsc()?;
        self.asm.shl(rdx, 32)?;
        self.asm.or(rax, rdx)
    }

    /// A fault on the signal stack could not be handled: SIGSEGV is blocked there.
    fn jump_if_signal_stack(&mut self, to: CodeLabel) -> Result<(), IcedError> {
        let Some(gsignal) = self.options.m_gsignal else { return self.asm.jmp(to) };
        self.asm.mov(rax, qword_ptr(r14 + self.runtime.g_m))?;
        self.asm.cmp(r14, qword_ptr(rax + gsignal))?;
        self.asm.je(to)
    }

    /// An instruction with an operand at a fixed address; the assembler's own pointers would
    /// be absolute.
    fn add_rip(&mut self, code: Code, register: Register, to: Avma) -> Result<(), IcedError> {
        let memory = MemoryOperand::with_base_displ(Register::RIP, to.0 as i64);
        let instruction = match register {
            Register::None => Instruction::with2(code, memory, 0)?,
            _ => Instruction::with2(code, register, memory)?,
        };
        self.asm.add_instruction(instruction)
    }

    /// A register = where a stated address of the image lies in the process. Told by its distance
    /// from here, so that the code is right for every process that has both equally far apart;
    /// by its number when it is too far for that (see [`super::Emitted::is_movable`]).
    pub(super) fn place(&mut self, register: AsmRegister64, stated: i64) -> Result<(), IcedError> {
        let at = self.options.bias.0.wrapping_add_signed(stated);
        match self.options.is_near(at) {
            true => self.add_rip(Code::Lea_r64_m, register.into(), Avma(at)),
            false => self.asm.mov(register, at),
        }
    }

    /// RAX = the stated address of what lies in the process at RAX, and `add`; `free` may be used.
    pub(super) fn stated(&mut self, add: i64, free: AsmRegister64) -> Result<(), IcedError> {
        self.place(free, add.wrapping_neg())?;
        self.asm.sub(rax, free)
    }

    /// R12 = the ring of this CPU; RAX is used.
    pub(super) fn find_ring(&mut self) -> Result<(), IcedError> {
        let rings = self.options.rings;
        if self.options.has_rdpid {
            // node << 12 | cpu.
            self.asm.rdpid(r12)?;
        } else {
            // An m occupies at least 1 KB.
            self.asm.mov(r12, qword_ptr(r14 + self.runtime.g_m))?;
            self.asm.shr(r12, 10)?;
        }
        self.asm.and(r12d, rings.count as i32 - 1)?;
        self.asm.imul_3(r12, r12, rings.stride() as i32)?;
        self.add_rip(Code::Lea_r64_m, Register::RAX, rings.base)?;
        self.asm.add(r12, rax)
    }

    pub(super) fn record(&mut self, stack: Stack) -> Result<(), IcedError> {
        let is_system = stack == Stack::System;
        let units = if is_system { self.key.system_units() } else { self.key.units() };
        self.reserve(units * UNIT, stack)?;
        self.goroutine(stack)?;
        if self.key.has_caller {
            self.asm.movzx(eax, word_ptr(r13 - 6))?;
            self.asm.mov(rax, qword_ptr(rsp + rax))?;
            self.asm.mov(qword_ptr(r12 + record::CALLER), rax)?;
            self.asm.mov(byte_ptr(r12 + record::DROPS), dl)?;
        } else {
            self.asm.mov(dword_ptr(r12 + record::WIDE_DROPS), edx)?;
        }
        self.thread()?;
        self.asm.mov(eax, dword_ptr(r13 - 4))?;
        if is_system {
            let more = (units - self.key.units()) as u32;
            self.asm.add(eax, (TAG_SYSTEM_STACK | more << TAG_UNITS_SHIFT) as i32)?;
        }
        self.asm.mov(dword_ptr(r12 + record::TAG), eax)?;
        self.asm.mov(rax, qword_ptr(r14 + self.runtime.g_stack_hi))?;
        self.asm.sub(rax, rsp)?;
        self.asm.mov(dword_ptr(r12 + record::DEPTH), eax)?;
        if let Values::Fixed(fields) = &self.key.values {
            let mut at = self.key.values.payload().offset(is_system);
            for field in fields.iter().filter(|field| field.is_read()) {
                self.field(field, at as u32)?;
                at += usize::from(field.width);
            }
        }
        Ok(())
    }

    /// R12 = the record, EDX = drops. Exact: `head` never passes `limit`, however many threads
    /// try at once; a failed exchange means that another record has been reserved.
    fn reserve(&mut self, bytes: usize, stack: Stack) -> Result<(), IcedError> {
        let mut retry = self.asm.create_label();
        // An instruction carries one label, and the caller may have set one here.
        self.asm.zero_bytes()?;
        self.asm.set_label(&mut retry)?;
        self.asm.mov(rax, qword_ptr(r12 + HEAD))?;
        self.asm.lea(rdx, ptr(rax + bytes as i32))?;
        self.asm.cmp(rdx, qword_ptr(r12 + LIMIT))?;
        self.asm.ja(self.full)?;
        self.asm.lock().cmpxchg(qword_ptr(r12 + HEAD), rdx)?;
        self.asm.jne(retry)?;
        self.asm.and(eax, self.options.rings.bytes as i32 - 1)?;
        if matches!(self.key.values, Values::Reading(_)) {
            // What is not needed of the record is given back.
            let kept = if stack == Stack::System { 2 * UNIT } else { UNIT };
            let kept = |index: usize| (kept + 8 * index) as i32;
            self.asm.lea(rax, ptr(r12 + rax + DATA))?;
            self.asm.mov(qword_ptr(rax + kept(SPILL_RING)), r12)?;
            self.asm.mov(qword_ptr(rax + kept(SPILL_HEAD)), rdx)?;
            self.asm.mov(edx, dword_ptr(r12 + DROPS))?;
            return self.asm.mov(r12, rax);
        }
        self.asm.mov(edx, dword_ptr(r12 + DROPS))?;
        self.asm.lea(r12, ptr(r12 + rax + DATA))
    }

    fn goroutine(&mut self, stack: Stack) -> Result<(), IcedError> {
        let goid = self.runtime.g_goid;
        if stack == Stack::Own {
            self.asm.mov(rax, qword_ptr(r14 + goid))?;
            return self.asm.mov(qword_ptr(r12 + record::GOID), rax);
        }
        let mut none = self.asm.create_label();
        self.asm.mov(qword_ptr(r12 + UNIT as i32), r14)?;
        self.asm.mov(rax, qword_ptr(r14 + self.runtime.g_m))?;
        self.asm.test(rax, rax)?;
        self.asm.je(none)?;
        self.asm.mov(rax, qword_ptr(rax + self.runtime.m_curg))?;
        self.asm.test(rax, rax)?;
        self.asm.je(none)?;
        self.asm.mov(rax, qword_ptr(rax + goid))?;
        self.asm.set_label(&mut none)?;
        self.asm.mov(qword_ptr(r12 + record::GOID), rax)
    }

    /// Over the upper bits of goid and caller, which are 0.
    fn thread(&mut self) -> Result<(), IcedError> {
        let Some(procid) = self.options.m_procid else {
            return self.asm.mov(byte_ptr(r12 + record::TID_HIGH), 0);
        };
        self.asm.mov(rax, qword_ptr(r14 + self.runtime.g_m))?;
        self.asm.mov(eax, dword_ptr(rax + procid))?;
        self.asm.mov(word_ptr(r12 + record::TID_LOW), ax)?;
        self.asm.shr(eax, 16)?;
        self.asm.mov(byte_ptr(r12 + record::TID_HIGH), al)
    }

    /// Data of one field.
    fn field(&mut self, field: &FixedField, at: u32) -> Result<(), IcedError> {
        self.sum(field.value)?;
        match field.width {
            1 => self.asm.mov(byte_ptr(r12 + at), al),
            2 => self.asm.mov(word_ptr(r12 + at), ax),
            4 => self.asm.mov(dword_ptr(r12 + at), eax),
            _ => self.asm.mov(qword_ptr(r12 + at), rax),
        }
    }

    /// Clears what is above so many bytes of RAX.
    pub(super) fn narrow(&mut self, width: u8) -> Result<(), IcedError> {
        match width {
            1 => self.asm.movzx(eax, al),
            2 => self.asm.movzx(eax, ax),
            4 => self.asm.mov(eax, eax),
            _ => Ok(()),
        }
    }

    /// RAX = the sum; RDX may be used.
    fn sum(&mut self, sum: Sum) -> Result<(), IcedError> {
        match sum.base {
            Base::Zero => self.asm.xor(eax, eax)?,
            Base::Register(0) if self.key.swap.is_some() => self.asm.movq(rax, xmm14)?,
            Base::Register(2) if self.key.swap.is_some() => self.asm.movq(rax, xmm13)?,
            Base::Register(12) if self.key.swap.is_some() => self.asm.movq(rax, xmm12)?,
            Base::Register(13) if self.key.swap.is_some() => self.asm.movq(rax, xmm11)?,
            Base::Register(0) => self.asm.movq(rax, xmm15)?,
            Base::Register(2) => self.asm.mov(rax, r15)?,
            Base::Vector(number) => self.asm.movq(rax, VECTOR[usize::from(number & 15)])?,
            Base::Register(number) => self.asm.mov(rax, GENERAL[usize::from(number & 15)])?,
            Base::FirstSp => {
                self.asm.movzx(eax, word_ptr(r13 - 6))?;
                self.asm.add(rax, rsp)?;
            }
            Base::G => self.asm.mov(rax, r14)?,
        }
        for add in sum.loads.into_iter().flatten() {
            match i32::try_from(add) {
                Ok(add) => self.asm.mov(rax, qword_ptr(rax + add))?,
                Err(_) => {
                    self.add(add, rdx)?;
                    self.asm.mov(rax, qword_ptr(rax))?;
                }
            }
        }
        self.add(sum.add, rdx)
    }
}

/// In hardware order.
pub(super) const GENERAL: [iced_x86::code_asm::AsmRegister64; 16] =
    [rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15];

/// The vector registers.
pub(super) const VECTOR: [iced_x86::code_asm::AsmRegisterXmm; 16] = [
    xmm0, xmm1, xmm2, xmm3, xmm4, xmm5, xmm6, xmm7, xmm8, xmm9, xmm10, xmm11, xmm12, xmm13, xmm14,
    xmm15,
];
