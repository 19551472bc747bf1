//! Values behind pointers: fetch programs as code.
//!
//! What the program needs beside RAX and RDX is spilled into the record, behind the room for
//! its payload: nobody looks there before the record is committed, nor afterwards.
//! ```text
//! R12 = payload - 32       RDI = next field    RAX = acc    RDX = aux
//! RCX, RSI = at hand       R13, R14, R15, X15 as in the recorder
//! ```
//! A read that faults lands in the code that emits the field as a fault: the signal handler
//! sets RIP, and every register still is what it was before the read.

use super::program::{Emit, Field};
use super::recorder::{GENERAL, Recorder, VECTOR};
use crate::layout::UNIT;
use iced_x86::IcedError;
use iced_x86::code_asm::registers::*;
use iced_x86::code_asm::{AsmMemoryOperand, word_ptr};
use iced_x86::code_asm::{AsmRegister64, CodeLabel, byte_ptr, dword_ptr, ptr, qword_ptr};
use wire::{FieldStatus, Op, OpCode};

/// RCX, RSI, RDI and the address of the record.
pub(super) const SPILL_SIZE: usize = 32;
/// No address below this can be read (`vm.mmap_min_addr`, and what Go takes for nil):
/// cheaper than a fault.
const LOWEST: i32 = 4096;
/// So many bytes are copied without a loop.
const MAX_UNROLLED: u16 = 64;

/// The code for a field that was not emitted as it should.
#[derive(Clone, Copy)]
pub(super) struct Failed {
    status: FieldStatus,
    /// Knows its place once it is set, which is at the end.
    pub(super) label: CodeLabel,
    next: CodeLabel,
}

/// Where a field goes when it fails.
#[derive(Clone, Copy)]
struct Exits {
    fault: CodeLabel,
    nil: CodeLabel,
    /// Index of `fault` in [`Recorder::failed`].
    index: usize,
}

impl Recorder<'_> {
    /// Runs a program. On arrival R12 lies 32 bytes before the payload and RAX is the record;
    /// afterwards R12 is the record and all registers are back.
    pub(super) fn read(&mut self, fields: &[Field]) -> Result<(), IcedError> {
        self.asm.mov(self.spill(3), rax)?;
        for (index, register) in [rcx, rsi, rdi].into_iter().enumerate() {
            self.asm.mov(self.spill(index), register)?;
        }
        self.asm.lea(rdi, ptr(r12 + UNIT as i32))?;
        for field in fields {
            self.field_of(field)?;
        }
        for (index, register) in [rcx, rsi, rdi].into_iter().enumerate() {
            self.asm.mov(register, self.spill(index))?;
        }
        self.asm.mov(r12, self.spill(3))
    }

    /// Fields of a record on a system stack, none of which could be read.
    pub(super) fn blind(&mut self, fields: usize) -> Result<(), IcedError> {
        for index in 0..fields {
            let at = (2 * UNIT + 8 * index) as i32;
            self.asm.mov(qword_ptr(r12 + at), FieldStatus::Fault as i32)?;
        }
        Ok(())
    }

    /// What is to come behind everything else.
    pub(super) fn failures(&mut self) -> Result<(), IcedError> {
        for failed in &mut self.failed {
            self.asm.set_label(&mut failed.label)?;
            self.asm.mov(qword_ptr(rdi), failed.status as i32)?;
            self.asm.add(rdi, 8)?;
            self.asm.jmp(failed.next)?;
        }
        Ok(())
    }

    fn spill(&self, index: usize) -> AsmMemoryOperand {
        qword_ptr(r12 + (UNIT + self.key.values.payload().size() + 8 * index) as i32)
    }

    fn field_of(&mut self, field: &Field) -> Result<(), IcedError> {
        let mut next = self.asm.create_label();
        let (fault, nil) = (self.asm.create_label(), self.asm.create_label());
        let exits = Exits { fault, nil, index: self.failed.len() };
        self.failed.push(Failed { status: FieldStatus::Fault, label: fault, next });
        self.failed.push(Failed { status: FieldStatus::Nil, label: nil, next });
        // A field starts from 0 and 0, which most programs overwrite.
        if !matches!(
            field.steps.first().map(|op| op.code),
            Some(OpCode::Reg | OpCode::StackSlot | OpCode::CurrentG)
        ) {
            self.asm.xor(eax, eax)?;
        }
        let sets_aux = field.steps.iter().position(|op| op.code == OpCode::SetAux);
        let gets_aux = field.steps.iter().position(|op| op.code == OpCode::GetAux);
        let reads_aux = matches!(field.emit, Emit::Text(_)) || gets_aux.is_some();
        if reads_aux && (sets_aux.is_none() || gets_aux < sets_aux) {
            self.asm.xor(edx, edx)?;
        }
        for op in &field.steps {
            self.step(*op, exits)?;
        }
        match field.emit {
            Emit::Acc(width) => self.emit_acc(width)?,
            Emit::Bytes(len) => self.emit_bytes(len, exits)?,
            Emit::Text(max) => self.emit_text(max, exits)?,
        }
        self.asm.set_label(&mut next)?;
        // The next field's first label may be here too.
        self.asm.zero_bytes()
    }

    fn step(&mut self, op: Op, exits: Exits) -> Result<(), IcedError> {
        match op.code {
            OpCode::Reg => self.register(op.a & 15),
            OpCode::StackSlot => {
                self.asm.movzx(eax, word_ptr(r13 - 6))?;
                self.asm.add(rax, rsp)?;
                self.add(op.imm, rcx)
            }
            OpCode::CurrentG => self.asm.mov(rax, r14),
            OpCode::Add => self.add(op.imm, rcx),
            OpCode::Deref => {
                self.check_low(exits)?;
                self.load(exits, |recorder| recorder.asm.mov(rax, qword_ptr(rax)))
            }
            OpCode::SetAux => self.asm.mov(rdx, rax),
            OpCode::GetAux => self.asm.mov(rax, rdx),
            OpCode::NilCheck => {
                self.asm.test(rax, rax)?;
                self.asm.je(exits.nil)
            }
            OpCode::FloatReg => self.asm.movq(rax, VECTOR[usize::from(op.a & 15)]),
            OpCode::Reset | OpCode::EmitAcc | OpCode::EmitBytes | OpCode::EmitString => Ok(()),
        }
    }

    /// RAX = a register as it was at the site.
    fn register(&mut self, number: u8) -> Result<(), IcedError> {
        match number {
            0 => self.asm.movq(rax, xmm15),
            1 => self.asm.mov(rax, self.spill(0)),
            2 => self.asm.mov(rax, r15),
            6 => self.asm.mov(rax, self.spill(1)),
            7 => self.asm.mov(rax, self.spill(2)),
            _ => {
                let register: AsmRegister64 = GENERAL[usize::from(number & 15)];
                self.asm.mov(rax, register)
            }
        }
    }

    /// Adds to RAX; `free` may be used.
    pub(super) fn add(&mut self, imm: i64, free: AsmRegister64) -> Result<(), IcedError> {
        match i32::try_from(imm) {
            Ok(0) => Ok(()),
            Ok(imm) => self.asm.add(rax, imm),
            Err(_) => {
                self.asm.mov(free, imm)?;
                self.asm.add(rax, free)
            }
        }
    }

    fn check_low(&mut self, exits: Exits) -> Result<(), IcedError> {
        self.asm.cmp(rax, LOWEST)?;
        self.asm.jb(exits.fault)
    }

    /// An instruction that reads the target's memory.
    fn load(
        &mut self,
        exits: Exits,
        write: impl FnOnce(&mut Self) -> Result<(), IcedError>,
    ) -> Result<(), IcedError> {
        let mut label = self.asm.create_label();
        // The place may have a label of its own.
        self.asm.zero_bytes()?;
        self.asm.set_label(&mut label)?;
        self.loads.push((label, exits.index));
        write(self)
    }

    fn emit_acc(&mut self, width: u8) -> Result<(), IcedError> {
        self.header(u16::from(width))?;
        self.narrow(width)?;
        self.asm.mov(qword_ptr(rdi + 8), rax)?;
        self.asm.add(rdi, 16)
    }

    /// Header of a field that is there.
    fn header(&mut self, len: u16) -> Result<(), IcedError> {
        self.asm.mov(dword_ptr(rdi), i32::from(len) << 16)?;
        self.asm.mov(dword_ptr(rdi + 4), i32::from(len))
    }

    fn emit_bytes(&mut self, len: u16, exits: Exits) -> Result<(), IcedError> {
        self.header(len)?;
        if len == 0 {
            return self.asm.add(rdi, 8);
        }
        self.check_low(exits)?;
        self.asm.mov(rsi, rax)?;
        if len > MAX_UNROLLED {
            self.asm.mov(ecx, u32::from(len))?;
            return self.copy(exits);
        }
        let padded = i32::from(len.next_multiple_of(8));
        if !len.is_multiple_of(8) {
            self.asm.mov(qword_ptr(rdi + padded), 0)?;
        }
        let mut at = 0;
        while at < i32::from(len) {
            let left = i32::from(len) - at;
            at += match left {
                8.. => self.move_piece(exits, at, 8)?,
                4.. => self.move_piece(exits, at, 4)?,
                2.. => self.move_piece(exits, at, 2)?,
                _ => self.move_piece(exits, at, 1)?,
            };
        }
        self.asm.add(rdi, 8 + padded)
    }

    /// Moves `size` bytes at offset `at` of the data; gives `size`.
    fn move_piece(&mut self, exits: Exits, at: i32, size: i32) -> Result<i32, IcedError> {
        self.load(exits, |recorder| match size {
            8 => recorder.asm.mov(rax, qword_ptr(rsi + at)),
            4 => recorder.asm.mov(eax, dword_ptr(rsi + at)),
            2 => recorder.asm.movzx(eax, word_ptr(rsi + at)),
            _ => recorder.asm.movzx(eax, byte_ptr(rsi + at)),
        })?;
        match size {
            8 => self.asm.mov(qword_ptr(rdi + 8 + at), rax)?,
            4 => self.asm.mov(dword_ptr(rdi + 8 + at), eax)?,
            2 => self.asm.mov(word_ptr(rdi + 8 + at), ax)?,
            _ => self.asm.mov(byte_ptr(rdi + 8 + at), al)?,
        }
        Ok(size)
    }

    fn emit_text(&mut self, max: u16, exits: Exits) -> Result<(), IcedError> {
        let (mut fits, mut some) = (self.asm.create_label(), self.asm.create_label());
        let mut done = self.asm.create_label();
        self.asm.test(rdx, rdx)?;
        self.asm.js(exits.fault)?;
        self.asm.mov(rsi, rax)?;
        self.asm.mov(ecx, u32::from(max))?;
        self.asm.cmp(rdx, rcx)?;
        self.asm.cmovb(ecx, edx)?;
        self.asm.mov(rax, rdx)?;
        self.asm.shr(rax, 32)?;
        self.asm.je(fits)?;
        self.asm.mov(edx, u32::MAX)?;
        self.asm.set_label(&mut fits)?;
        self.asm.mov(dword_ptr(rdi + 4), edx)?;
        self.asm.mov(eax, ecx)?;
        self.asm.shl(eax, 16)?;
        self.asm.mov(dword_ptr(rdi), eax)?;
        self.asm.test(ecx, ecx)?;
        self.asm.jne(some)?;
        self.asm.add(rdi, 8)?;
        self.asm.jmp(done)?;
        self.asm.set_label(&mut some)?;
        self.asm.cmp(rsi, LOWEST)?;
        self.asm.jb(exits.fault)?;
        self.copy(exits)?;
        self.asm.set_label(&mut done)?;
        self.asm.zero_bytes()
    }

    /// Copies ECX (not 0) bytes from RSI behind the header at RDI, exactly, pads with 0 and
    /// moves RDI on. RAX and RDX are used.
    fn copy(&mut self, exits: Exits) -> Result<(), IcedError> {
        let (mut small, mut tiny) = (self.asm.create_label(), self.asm.create_label());
        let (mut words, mut done) = (self.asm.create_label(), self.asm.create_label());
        self.padded_length()?;
        self.asm.mov(qword_ptr(rdi + rdx), 0)?;
        self.asm.cmp(ecx, 8)?;
        self.asm.jb(small)?;
        // The last 8 bytes, then all whole words from the first on.
        self.load(exits, |recorder| recorder.asm.mov(rax, qword_ptr(rsi + rcx - 8)))?;
        self.asm.mov(qword_ptr(rdi + rcx), rax)?;
        self.asm.xor(edx, edx)?;
        self.asm.set_label(&mut words)?;
        self.load(exits, |recorder| recorder.asm.mov(rax, qword_ptr(rsi + rdx)))?;
        self.asm.mov(qword_ptr(rdi + rdx + 8), rax)?;
        self.asm.add(edx, 8)?;
        self.asm.lea(eax, ptr(rdx + 8))?;
        self.asm.cmp(eax, ecx)?;
        self.asm.jbe(words)?;
        self.asm.jmp(done)?;

        self.asm.set_label(&mut small)?;
        self.asm.cmp(ecx, 4)?;
        self.asm.jb(tiny)?;
        self.load(exits, |recorder| recorder.asm.mov(eax, dword_ptr(rsi)))?;
        self.load(exits, |recorder| recorder.asm.mov(edx, dword_ptr(rsi + rcx - 4)))?;
        self.asm.mov(dword_ptr(rdi + 8), eax)?;
        self.asm.mov(dword_ptr(rdi + rcx + 4), edx)?;
        self.asm.jmp(done)?;

        // First, middle and last of 1 to 3 bytes.
        self.asm.set_label(&mut tiny)?;
        self.load(exits, |recorder| recorder.asm.movzx(eax, byte_ptr(rsi)))?;
        self.asm.mov(byte_ptr(rdi + 8), al)?;
        self.load(exits, |recorder| recorder.asm.movzx(eax, byte_ptr(rsi + rcx - 1)))?;
        self.asm.mov(byte_ptr(rdi + rcx + 7), al)?;
        self.asm.mov(edx, ecx)?;
        self.asm.shr(edx, 1)?;
        self.load(exits, |recorder| recorder.asm.movzx(eax, byte_ptr(rsi + rdx)))?;
        self.asm.mov(byte_ptr(rdi + rdx + 8), al)?;

        self.asm.set_label(&mut done)?;
        self.padded_length()?;
        self.asm.lea(rdi, ptr(rdi + rdx + 8))
    }

    /// EDX = ECX rounded up to a multiple of 8.
    fn padded_length(&mut self) -> Result<(), IcedError> {
        self.asm.lea(edx, ptr(rcx + 7))?;
        self.asm.and(edx, -8)
    }
}
