//! Values behind pointers: fetch programs as code.
//!
//! What the program needs beside RAX and RDX is spilled into the record, before
//! its payload: nobody looks there before the record is committed, nor afterwards. The record is as
//! long as it can become at the worst; what is left over goes back to the ring, if no other
//! record has been reserved meanwhile.
//! ```text
//! R12 = spilled - 32       RDI = next field    RAX = acc    RDX = aux
//! RCX, RSI = at hand       R13, R14, R15, X15 as in the recorder
//! ```
//! A read that faults lands in the code that emits the field as a fault: the signal handler
//! sets RIP, and every register still is what it was before the read.

use super::program::{Emit, Field, Inner, Node, When, count_blind, varies};
use super::recorder::{GENERAL, Recorder, VECTOR};
use crate::layout::{HEAD, TAG_UNITS_SHIFT, UNIT, record};
use crate::payload::END;
use iced_x86::IcedError;
use iced_x86::code_asm::registers::*;
use iced_x86::code_asm::{AsmMemoryOperand, word_ptr};
use iced_x86::code_asm::{AsmRegister64, CodeLabel, byte_ptr, dword_ptr, ptr, qword_ptr};
use wire::{FieldStatus, IMAGE_PLACE, KIND_POINTER, Op, OpCode, TYPE_ELEM, TYPE_KIND};

/// RCX, RSI, RDI, the address of the record, the ring, and the ring's head behind the record.
pub(super) const SPILL_SIZE: usize = 48;
/// Numbers of the last ones.
const SPILL_RECORD: usize = 3;
pub(super) const SPILL_RING: usize = 4;
pub(super) const SPILL_HEAD: usize = 5;
/// Behind these, for each open block: 8 bytes before its element (for the first one that is the
/// field's header), and the bytes of the field from the element on.
pub(super) const BLOCK_SPILL: usize = 16;
/// No address below this can be read (`vm.mmap_min_addr`, and what Go takes for nil):
/// cheaper than a fault.
pub(super) const LOWEST: i32 = 4096;
/// No field is longer than the words at such offsets.
const MAX_OFFSET: i32 = wire::MAX_FIELD_DATA as i32;
/// So many bytes are copied without a loop.
const MAX_UNROLLED: u16 = 64;

/// The code for a field that was not emitted as it should.
#[derive(Clone, Copy)]
pub(super) struct Failed {
    /// What the field is emitted as; `None` when it was only to decide about others.
    status: Option<FieldStatus>,
    /// Knows its place once it is set, which is at the end.
    pub(super) label: CodeLabel,
    next: CodeLabel,
}

/// Where a field goes when it fails.
#[derive(Clone, Copy)]
pub(super) struct Exits {
    pub(super) fault: CodeLabel,
    pub(super) nil: CodeLabel,
    /// Index of `fault` in [`Recorder::failed`].
    index: usize,
}

impl Recorder<'_> {
    /// Runs a program. On arrival R12 lies 32 bytes before what is spilled and RAX is the record;
    /// afterwards R12 is the record and all registers are back.
    pub(super) fn read(&mut self, nodes: &[Node]) -> Result<(), IcedError> {
        self.asm.mov(self.spill(SPILL_RECORD), rax)?;
        for (index, register) in [rcx, rsi, rdi].into_iter().enumerate() {
            self.asm.mov(self.spill(index), register)?;
        }
        self.asm.lea(rdi, ptr(r12 + self.key.values.payload().offset(false) as i32))?;
        self.nodes(nodes)?;
        if varies(nodes) {
            self.asm.mov(qword_ptr(rdi), END as i32)?;
            self.asm.add(rdi, 8)?;
        }
        self.give_back()?;
        for (index, register) in [rcx, rsi, rdi].into_iter().enumerate() {
            self.asm.mov(register, self.spill(index))?;
        }
        self.asm.mov(r12, self.spill(SPILL_RECORD))
    }

    /// Gives units back that the record has behind RDI. All but R12 may be used. The first words of
    /// these units are 0: nothing has been written there, or [`Recorder::failures`] saw to it.
    fn give_back(&mut self) -> Result<(), IcedError> {
        let mut done = self.asm.create_label();
        self.asm.mov(rsi, self.spill(SPILL_RECORD))?;
        self.asm.sub(rdi, rsi)?;
        self.asm.add(rdi, UNIT as i32 - 1)?;
        self.asm.shr(rdi, UNIT.trailing_zeros() as i32)?;
        self.asm.mov(ecx, dword_ptr(rsi + record::TAG))?;
        self.asm.shr(ecx, TAG_UNITS_SHIFT as i32)?;
        self.asm.movzx(ecx, cl)?;
        self.asm.sub(ecx, edi)?;
        self.asm.jbe(done)?;
        self.asm.mov(rdi, self.spill(SPILL_RING))?;
        self.asm.mov(rax, self.spill(SPILL_HEAD))?;
        self.asm.mov(edx, ecx)?;
        self.asm.shl(edx, UNIT.trailing_zeros() as i32)?;
        self.asm.neg(rdx)?;
        self.asm.add(rdx, rax)?;
        self.asm.lock().cmpxchg(qword_ptr(rdi + HEAD), rdx)?;
        self.asm.jne(done)?;
        self.asm.shl(ecx, TAG_UNITS_SHIFT as i32)?;
        self.asm.sub(dword_ptr(rsi + record::TAG), ecx)?;
        self.asm.set_label(&mut done)?;
        self.asm.zero_bytes()
    }

    /// Fields of a record on a system stack, none of which could be read.
    pub(super) fn blind(&mut self, nodes: &[Node]) -> Result<(), IcedError> {
        let fields = count_blind(nodes);
        let start = self.key.values.payload().offset(true);
        let at = |index: usize| (start + 8 * index) as i32;
        for index in 0..fields {
            self.asm.mov(qword_ptr(r12 + at(index)), FieldStatus::Fault as i32)?;
        }
        if varies(nodes) {
            self.asm.mov(qword_ptr(r12 + at(fields)), END as i32)?;
        }
        Ok(())
    }

    fn nodes(&mut self, nodes: &[Node]) -> Result<(), IcedError> {
        nodes.iter().try_for_each(|node| match node {
            Node::Field(field) => self.field_of(field),
            Node::When(when) => self.when(when),
        })
    }

    /// What is to come behind everything else.
    pub(super) fn failures(&mut self) -> Result<(), IcedError> {
        if self.failed.is_empty() {
            return Ok(());
        }
        let mut clear = self.asm.create_label();
        for failed in &mut self.failed {
            self.asm.set_label(&mut failed.label)?;
            let Some(status) = failed.status else {
                self.asm.jmp(failed.next)?;
                continue;
            };
            self.asm.mov(qword_ptr(rdi), status as i32)?;
            self.asm.add(rdi, 8)?;
            if status == FieldStatus::Fault {
                self.asm.lea(rsi, ptr(failed.next))?;
                self.asm.jmp(clear)?;
            } else {
                self.asm.jmp(failed.next)?;
            }
        }
        if self.failed.iter().all(|failed| failed.status.is_none()) {
            return Ok(());
        }
        // A part of the field may have been copied: no unit that it touched begins with it.
        let payload = self.key.values.payload();
        let end = (payload.offset(false) + payload.size()) as i32;
        let (mut again, mut done) = (self.asm.create_label(), self.asm.create_label());
        self.asm.set_label(&mut clear)?;
        self.asm.lea(rcx, ptr(rdi + UNIT as i32 - 1))?;
        self.asm.and(rcx, -(UNIT as i32))?;
        self.asm.lea(rax, ptr(r12 + end))?;
        self.asm.set_label(&mut again)?;
        self.asm.cmp(rcx, rax)?;
        self.asm.jae(done)?;
        self.asm.mov(qword_ptr(rcx), 0)?;
        self.asm.add(rcx, UNIT as i32)?;
        self.asm.jmp(again)?;
        self.asm.set_label(&mut done)?;
        self.asm.jmp(rsi)
    }

    fn spill(&self, index: usize) -> AsmMemoryOperand {
        qword_ptr(r12 + (UNIT + 8 * index) as i32)
    }

    /// Where a block's element is, and what is left of its field.
    fn block(&self, level: usize) -> [AsmMemoryOperand; 2] {
        let index = (SPILL_SIZE + level * BLOCK_SPILL) / 8;
        [self.spill(index), self.spill(index + 1)]
    }

    /// Landing pads for a field that fails.
    pub(super) fn exits(&mut self, reports: bool, next: CodeLabel) -> Exits {
        let (fault, nil) = (self.asm.create_label(), self.asm.create_label());
        let exits = Exits { fault, nil, index: self.failed.len() };
        for (label, status) in [(fault, FieldStatus::Fault), (nil, FieldStatus::Nil)] {
            self.failed.push(Failed { status: reports.then_some(status), label, next });
        }
        exits
    }

    fn steps(&mut self, steps: &[Op], reads_aux: bool, exits: Exits) -> Result<(), IcedError> {
        // A field starts from 0 and 0, which most programs overwrite.
        if !matches!(
            steps.first().map(|op| op.code),
            Some(OpCode::Reg | OpCode::StackSlot | OpCode::CurrentG | OpCode::BlockWord)
        ) {
            self.asm.xor(eax, eax)?;
        }
        let sets_aux = steps.iter().position(|op| op.code == OpCode::SetAux);
        let gets_aux =
            steps.iter().position(|op| matches!(op.code, OpCode::GetAux | OpCode::MapElem));
        let reads_aux = reads_aux || gets_aux.is_some();
        if reads_aux && (sets_aux.is_none() || gets_aux < sets_aux) {
            self.asm.xor(edx, edx)?;
        }
        steps.iter().try_for_each(|op| self.step(*op, exits))
    }

    fn field_of(&mut self, field: &Field) -> Result<(), IcedError> {
        let mut end = self.asm.create_label();
        let exits = self.exits(true, end);
        if field.body.is_some() {
            let [element, _] = self.block(self.blocks.len());
            self.asm.mov(element, rdi)?;
        }
        let reads_aux = matches!(field.emit, Emit::Counted { .. } | Emit::Dynamic(_));
        self.steps(&field.steps, reads_aux, exits)?;
        match field.emit {
            Emit::Acc(width) => self.emit_acc(width)?,
            Emit::Bytes(len) => self.emit_bytes(len, exits)?,
            Emit::Counted { stride, most } => self.emit_counted(stride, most, exits)?,
            Emit::Dynamic(most) => self.emit_dynamic(most, exits)?,
        }
        if let Some(body) = &field.body {
            self.body(body, field.emit, end)?;
        }
        self.asm.set_label(&mut end)?;
        // The next field's first label may be here too.
        self.asm.zero_bytes()
    }

    /// What is done with the elements of the field just emitted.
    fn body(&mut self, body: &Inner, emit: Emit, end: CodeLabel) -> Result<(), IcedError> {
        let [element, left] = self.block(self.blocks.len());
        if body.stride == 0 {
            self.blocks.push(emit.fixed_len());
            self.nodes(&body.nodes)?;
            self.blocks.pop();
            return Ok(());
        }
        let stride = i32::from(body.stride);
        let mut pass = self.asm.create_label();
        self.asm.mov(rcx, element)?;
        self.asm.movzx(ecx, word_ptr(rcx + 2))?;
        self.asm.mov(left, rcx)?;
        self.asm.set_label(&mut pass)?;
        self.asm.cmp(left, stride)?;
        self.asm.jb(end)?;
        self.blocks.push(Some(body.stride));
        self.nodes(&body.nodes)?;
        self.blocks.pop();
        self.asm.add(element, stride)?;
        self.asm.sub(left, stride)?;
        self.asm.jmp(pass)
    }

    fn when(&mut self, when: &When) -> Result<(), IcedError> {
        let mut end = self.asm.create_label();
        let exits = self.exits(false, end);
        self.steps(&when.steps, false, exits)?;
        self.asm.test(rax, rax)?;
        match when.zero {
            true => self.asm.jne(end)?,
            false => self.asm.je(end)?,
        }
        self.nodes(&when.nodes)?;
        self.asm.set_label(&mut end)?;
        self.asm.zero_bytes()
    }

    /// RAX = a word of an open block, which lies in the record.
    fn block_word(&mut self, level: u8, offset: i64, exits: Exits) -> Result<(), IcedError> {
        let place = i32::try_from(offset).ok().filter(|at| (0..=MAX_OFFSET).contains(at));
        let (Some(offset), Some(len)) = (place, self.blocks.get(usize::from(level)).copied())
        else {
            return self.asm.jmp(exits.fault);
        };
        let [element, _] = self.block(level.into());
        self.asm.mov(rax, element)?;
        match len {
            Some(len) if offset + 8 > i32::from(len) => return self.asm.jmp(exits.fault),
            Some(_) => {}
            None => {
                self.asm.cmp(word_ptr(rax + 2), offset + 8)?;
                self.asm.jb(exits.fault)?;
            }
        }
        self.asm.mov(rax, qword_ptr(rax + 8 + offset))
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
            OpCode::BlockWord => self.block_word(op.a, op.imm, exits),
            OpCode::Image => self.image(op),
            OpCode::MapElem => self.map_elem(op, exits),
            // No steps: what they do has become nodes, or they are refused.
            OpCode::Load
            | OpCode::Narrow
            | OpCode::Compare
            | OpCode::Touch
            | OpCode::AddAux
            | OpCode::Match
            | OpCode::Reject
            | OpCode::Reset
            | OpCode::EmitAcc
            | OpCode::EmitBytes
            | OpCode::EmitString
            | OpCode::EmitElements
            | OpCode::EmitDynamic
            | OpCode::Each
            | OpCode::SkipZero
            | OpCode::SkipNonZero => Ok(()),
        }
    }

    /// RAX = an address in the process, or of such a one that in the image.
    fn image(&mut self, op: Op) -> Result<(), IcedError> {
        match op.a {
            IMAGE_PLACE => self.stated(op.imm, rcx),
            _ => self.place(rax, op.imm),
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

    pub(super) fn check_low(&mut self, exits: Exits) -> Result<(), IcedError> {
        self.asm.cmp(rax, LOWEST)?;
        self.asm.jb(exits.fault)
    }

    /// An instruction that reads the target's memory.
    pub(super) fn load(
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

    fn emit_counted(&mut self, stride: u16, most: u16, exits: Exits) -> Result<(), IcedError> {
        self.asm.test(rdx, rdx)?;
        self.asm.js(exits.fault)?;
        self.asm.mov(rsi, rax)?;
        self.at_most(most)?;
        if stride != 1 {
            self.asm.imul_3(ecx, ecx, i32::from(stride))?;
        }
        self.emit_counted_bytes(exits)
    }

    /// ECX = RDX, and not more than `most`.
    fn at_most(&mut self, most: u16) -> Result<(), IcedError> {
        self.asm.mov(ecx, u32::from(most))?;
        self.asm.cmp(rdx, rcx)?;
        self.asm.cmovb(ecx, edx)
    }

    /// Of what the data word in RAX leads to, as much as the type at RDX has.
    fn emit_dynamic(&mut self, most: u16, exits: Exits) -> Result<(), IcedError> {
        let mut plain = self.asm.create_label();
        self.asm.mov(rsi, rax)?;
        self.asm.cmp(rdx, LOWEST)?;
        self.asm.jb(exits.fault)?;
        self.load(exits, |this| this.asm.movzx(ecx, byte_ptr(rdx + TYPE_KIND)))?;
        self.asm.and(ecx, 31)?;
        self.asm.cmp(ecx, i32::from(KIND_POINTER))?;
        self.asm.jne(plain)?;
        self.load(exits, |this| this.asm.mov(rdx, qword_ptr(rdx + TYPE_ELEM)))?;
        self.asm.cmp(rdx, LOWEST)?;
        self.asm.jb(exits.fault)?;
        self.asm.set_label(&mut plain)?;
        self.load(exits, |this| this.asm.mov(rdx, qword_ptr(rdx)))?;
        self.at_most(most)?;
        self.emit_counted_bytes(exits)
    }

    /// Emits ECX bytes at RSI as a field whose original length is RDX.
    fn emit_counted_bytes(&mut self, exits: Exits) -> Result<(), IcedError> {
        let (mut fits, mut some) = (self.asm.create_label(), self.asm.create_label());
        let mut done = self.asm.create_label();
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
