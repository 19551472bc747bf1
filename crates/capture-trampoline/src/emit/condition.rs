//! Conditions as code: what decides, before anything is reserved, whether a hit is wanted.
//!
//! ```text
//! R13, R14, R15, X15 as in the recorder    RAX = acc    RDX = aux    R12 = at hand
//! ```
//! All other registers are the program's. On system stacks nothing is decided, nor is it where a
//! value would have to be read and must not be: such hits are recorded, and decided outside.

use super::fetch::{Exits, LOWEST};
use super::recorder::{GENERAL, Recorder};
use iced_x86::IcedError;
use iced_x86::code_asm::registers::*;
use iced_x86::code_asm::{CodeLabel, byte_ptr, dword_ptr, qword_ptr, word_ptr};
use wire::{DEREF_MAPPED, IMAGE_PLACE, MAX_FIELD_DATA, Op, OpCode, Order, Relation, Word};

/// A part of a condition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// What comes inside holds for hits of which this is known.
    When { steps: Vec<Op>, zero: bool, inside: Vec<Part> },
    /// The hit is not wanted.
    Reject,
}

/// The parts of a condition that code can be made for; the others would only have rejected more.
pub(super) fn parts(ops: &[Op], may_read: bool, taken: &[u8]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut steps = Vec::new();
    let mut at = 0;
    while let Some(&op) = ops.get(at) {
        at += 1;
        match op.code {
            OpCode::Reject => parts.push(Part::Reject),
            OpCode::SkipZero | OpCode::SkipNonZero => {
                let count = usize::try_from(op.imm).unwrap_or(0);
                let end = at.saturating_add(count).min(ops.len());
                let inside = self::parts(&ops[at..end], may_read, taken);
                let steps = std::mem::take(&mut steps);
                if !inside.is_empty() && steps.iter().all(|op| is_possible(op, may_read, taken)) {
                    let zero = op.code == OpCode::SkipNonZero;
                    parts.push(Part::When { steps, zero, inside });
                }
                at = end;
            }
            _ => steps.push(op),
        }
    }
    parts
}

fn is_possible(op: &Op, may_read: bool, taken: &[u8]) -> bool {
    match op.code {
        OpCode::Reg => !taken.contains(&(op.a & 15)),
        OpCode::Deref => may_read || op.a == DEREF_MAPPED,
        OpCode::Load | OpCode::Touch | OpCode::Match => may_read,
        OpCode::StackSlot
        | OpCode::CurrentG
        | OpCode::Add
        | OpCode::SetAux
        | OpCode::GetAux
        | OpCode::NilCheck
        | OpCode::Image
        | OpCode::Narrow
        | OpCode::Compare
        | OpCode::AddAux => true,
        _ => false,
    }
}

impl Recorder<'_> {
    /// Jumps to `rejected` when the hit is not wanted. RAX and RDX have been saved.
    pub(super) fn condition(
        &mut self,
        parts: &[Part],
        rejected: CodeLabel,
    ) -> Result<(), IcedError> {
        for part in parts {
            let Part::When { steps, zero, inside } = part else {
                return self.asm.jmp(rejected);
            };
            let mut end = self.asm.create_label();
            let exits = self.exits(false, end);
            self.ask(steps, exits)?;
            self.asm.test(rax, rax)?;
            match zero {
                true => self.asm.jne(end)?,
                false => self.asm.je(end)?,
            }
            self.condition(inside, rejected)?;
            self.asm.set_label(&mut end)?;
            self.asm.zero_bytes()?;
        }
        Ok(())
    }

    fn ask(&mut self, steps: &[Op], exits: Exits) -> Result<(), IcedError> {
        let sets_acc = [OpCode::Reg, OpCode::StackSlot, OpCode::CurrentG];
        if !steps.first().is_some_and(|op| sets_acc.contains(&op.code)) {
            self.asm.xor(eax, eax)?;
        }
        let uses_aux = |op: &&Op| match op.code {
            OpCode::Compare => Relation::of_operand(op.a).with_aux,
            OpCode::SetAux | OpCode::GetAux | OpCode::Touch => true,
            OpCode::AddAux | OpCode::Match => true,
            _ => false,
        };
        if steps.iter().find(uses_aux).is_some_and(|op| op.code != OpCode::SetAux) {
            self.asm.xor(edx, edx)?;
        }
        steps.iter().try_for_each(|op| self.ask_one(*op, exits))
    }

    fn ask_one(&mut self, op: Op, exits: Exits) -> Result<(), IcedError> {
        let whole = Word { size: 8, signed: false };
        match op.code {
            OpCode::Reg => match op.a & 15 {
                0 => self.asm.movq(rax, xmm15),
                2 => self.asm.mov(rax, r15),
                number => self.asm.mov(rax, GENERAL[usize::from(number)]),
            },
            OpCode::StackSlot => {
                self.asm.movzx(eax, word_ptr(r13 - 6))?;
                self.asm.add(rax, rsp)?;
                self.add(op.imm, r12)
            }
            OpCode::CurrentG => self.asm.mov(rax, r14),
            OpCode::Add => self.add(op.imm, r12),
            OpCode::Deref => self.load_word(whole, exits),
            OpCode::Load => self.load_word(Word::of_operand(op.a), exits),
            OpCode::Narrow => self.narrow_word(Word::of_operand(op.a)),
            OpCode::SetAux => self.asm.mov(rdx, rax),
            OpCode::GetAux => self.asm.mov(rax, rdx),
            OpCode::NilCheck => {
                self.asm.test(rax, rax)?;
                self.asm.je(exits.nil)
            }
            OpCode::Image if op.a == IMAGE_PLACE => self.stated(op.imm, r12),
            OpCode::Image => self.place(rax, op.imm),
            OpCode::Compare => self.compare(Relation::of_operand(op.a), op.imm),
            OpCode::Touch => self.touch(op.imm, exits),
            OpCode::AddAux => match i32::try_from(op.imm) {
                Ok(imm) => self.asm.add(rdx, imm),
                Err(_) => {
                    self.asm.mov(r12, op.imm)?;
                    self.asm.add(rdx, r12)
                }
            },
            OpCode::Match => self.matches(Word::of_operand(op.a).size, op.imm, exits),
            // No such ops are possible.
            _ => self.asm.jmp(exits.fault),
        }
    }

    /// RAX = the integer at RAX.
    fn load_word(&mut self, word: Word, exits: Exits) -> Result<(), IcedError> {
        self.asm.cmp(rax, LOWEST)?;
        self.asm.jb(exits.fault)?;
        self.load(exits, |this| match (word.size, word.signed) {
            (1, false) => this.asm.movzx(eax, byte_ptr(rax)),
            (1, true) => this.asm.movsx(rax, byte_ptr(rax)),
            (2, false) => this.asm.movzx(eax, word_ptr(rax)),
            (2, true) => this.asm.movsx(rax, word_ptr(rax)),
            (4, false) => this.asm.mov(eax, dword_ptr(rax)),
            (4, true) => this.asm.movsxd(rax, dword_ptr(rax)),
            _ => this.asm.mov(rax, qword_ptr(rax)),
        })
    }

    fn narrow_word(&mut self, word: Word) -> Result<(), IcedError> {
        match (word.size, word.signed) {
            (1, true) => self.asm.movsx(rax, al),
            (2, true) => self.asm.movsx(rax, ax),
            (4, true) => self.asm.movsxd(rax, eax),
            (size, _) => self.narrow(size),
        }
    }

    fn compare(&mut self, relation: Relation, imm: i64) -> Result<(), IcedError> {
        match (relation.with_aux, i32::try_from(imm)) {
            (true, _) => self.asm.cmp(rdx, rax)?,
            (false, Ok(imm)) => self.asm.cmp(rax, imm)?,
            (false, Err(_)) => {
                self.asm.mov(r12, imm)?;
                self.asm.cmp(rax, r12)?;
            }
        }
        match (relation.order, relation.unsigned, relation.negated) {
            (Order::Equal, _, false) => self.asm.sete(al)?,
            (Order::Equal, _, true) => self.asm.setne(al)?,
            (Order::Less, false, false) => self.asm.setl(al)?,
            (Order::Less, false, true) => self.asm.setge(al)?,
            (Order::Less, true, false) => self.asm.setb(al)?,
            (Order::Less, true, true) => self.asm.setae(al)?,
            (Order::Greater, false, false) => self.asm.setg(al)?,
            (Order::Greater, false, true) => self.asm.setle(al)?,
            (Order::Greater, true, false) => self.asm.seta(al)?,
            (Order::Greater, true, true) => self.asm.setbe(al)?,
        }
        self.asm.movzx(eax, al)
    }

    /// Reads the first and the last of RDX bytes at RAX, of the first `most` of them.
    fn touch(&mut self, most: i64, exits: Exits) -> Result<(), IcedError> {
        let most = most.clamp(0, MAX_FIELD_DATA as i64) as u32;
        let mut done = self.asm.create_label();
        self.asm.test(rdx, rdx)?;
        self.asm.js(exits.fault)?;
        if most > 0 {
            self.asm.je(done)?;
            self.asm.cmp(rax, LOWEST)?;
            self.asm.jb(exits.fault)?;
            self.load(exits, |this| this.asm.movzx(r12d, byte_ptr(rax)))?;
            self.asm.mov(r12d, most)?;
            self.asm.cmp(rdx, r12)?;
            self.asm.cmovb(r12, rdx)?;
            self.load(exits, |this| this.asm.movzx(r12d, byte_ptr(rax + r12 - 1)))?;
        }
        self.asm.set_label(&mut done)?;
        self.asm.zero_bytes()
    }

    /// RDX = what tells the integer at RAX from `imm`, and RAX behind it; nothing when RDX is not 0.
    fn matches(&mut self, size: u8, imm: i64, exits: Exits) -> Result<(), IcedError> {
        let mut done = self.asm.create_label();
        self.asm.test(rdx, rdx)?;
        self.asm.jne(done)?;
        self.asm.cmp(rax, LOWEST)?;
        self.asm.jb(exits.fault)?;
        self.load(exits, |this| match size {
            1 => this.asm.movzx(edx, byte_ptr(rax)),
            2 => this.asm.movzx(edx, word_ptr(rax)),
            4 => this.asm.mov(edx, dword_ptr(rax)),
            _ => this.asm.mov(rdx, qword_ptr(rax)),
        })?;
        match i32::try_from(imm) {
            Ok(imm) => self.asm.xor(rdx, imm)?,
            Err(_) => {
                self.asm.mov(r12, imm)?;
                self.asm.xor(rdx, r12)?;
            }
        }
        self.asm.add(rax, i32::from(size))?;
        self.asm.set_label(&mut done)?;
        self.asm.zero_bytes()
    }
}
