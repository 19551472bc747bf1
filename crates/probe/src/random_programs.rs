//! Random fetch programs over random memory: the one list on which the reference interpreter, the BPF interpreter and
//! the compiled trampolines are compared. For tests only.
//!
//! All programs are as a compiler may make them: bodies end in what they are part of, and at their worst they fit a record. A new
//! op belongs into [`Random::step`], [`Random::emit`] (if it emits a field) or [`Random::question`] (if conditions alone have it), and is then
//! part of the list.

use crate::compile::worst;
use wire::{Body, Elements, IMAGE_PLACE, MAX_PROGRAM_OPS, Op, OpCode};

/// How long the list is.
pub const PROGRAMS: usize = 100_000;

/// Programs that share memory and registers.
pub const PER_BATCH: usize = 5_000;

/// States of the registers in which each program is run.
pub const STATES: usize = 4;

/// Words that programs are pointed at; before and behind them are as many that they may stray to.
pub const WORDS: usize = 4096;

/// Registers that trampolines can name, in hardware order: neither SP nor BP, nor those that their code uses.
const REGISTERS: [u8; 10] = [0, 1, 2, 3, 6, 7, 8, 9, 10, 11];

/// Fields at the most of a program: trampolines have a limit for those that read no memory.
const MOST_FIELDS: u64 = 40;

/// Numbers that are the same on every run: xorshift64*, Vigna.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Those of a seed.
    pub fn new(seed: u64) -> Self {
        // The generator has no way out of 0, and its first numbers are much like the seed.
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.next();
        random
    }

    /// The next one.
    #[expect(clippy::should_implement_trait, reason = "there is no end to it")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// One below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// One of `from`.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    fn register(&mut self) -> Op {
        Op::new(OpCode::Reg, self.pick(&REGISTERS), 0)
    }

    /// A value that one can begin with, `open` blocks being open.
    fn word(&mut self, open: u8) -> Op {
        if open == 0 || self.below(8) == 0 {
            return self.register();
        }
        // The innermost block mostly, or one that is not there.
        let block =
            (open - 1).saturating_sub(self.pick(&[0, 0, 0, 1])) + self.pick(&[0, 0, 0, 0, 1]);
        let offset = self.pick(&[0, 0, 8, 8, 16, 24, 4, 40, -1, 2000]);
        Op::new(OpCode::BlockWord, block, offset)
    }

    /// An op that emits nothing, `open` blocks being open.
    ///
    /// What a backend places itself (its stack, the image) is not read: addresses there are moved so far that
    /// nothing lies at them.
    fn step(&mut self, open: u8) -> Op {
        const FAR: i64 = 1 << 60;
        let any = self.next() as i64;
        match self.below(18) {
            0..=2 => self.word(open),
            3 => Op::new(OpCode::StackSlot, any as u8, any | FAR),
            4 => Op::new(OpCode::CurrentG, any as u8, any),
            5 | 6 => Op::new(OpCode::Add, 0, self.below(64) as i64 * 8),
            7 => Op::new(OpCode::Add, 0, self.below(1100) as i64 - 64),
            8 => Op::new(OpCode::Add, 0, any | FAR),
            9..=11 => Op::new(OpCode::Deref, 0, any),
            12 => Op::new(OpCode::SetAux, 0, 0),
            13 => Op::new(OpCode::GetAux, 0, 0),
            14 => Op::new(OpCode::NilCheck, 0, 0),
            15 => Op::new(OpCode::FloatReg, self.below(15) as u8, 0),
            16 => Op::new(OpCode::Image, self.pick(&[0, IMAGE_PLACE]), any | FAR),
            _ => Op::new(OpCode::Reset, any as u8, any),
        }
    }

    /// An op that emits a field, and its stride where it has elements.
    fn emit(&mut self) -> (Op, u16) {
        let width = self.pick(&[1, 2, 4, 8, 8, 8, 0, 3, 255]);
        let length = match self.below(4) {
            0 => self.pick(&[0, 1, 7, 8, 1023, 1024, 1025, -1, i64::MIN, i64::MAX]),
            1 => self.below(1100) as i64,
            _ => self.below(100) as i64,
        };
        match self.below(8) {
            0..=2 => (Op::new(OpCode::EmitAcc, width, length), 0),
            3 => (Op::new(OpCode::EmitBytes, 0, length), 0),
            4 => (Op::new(OpCode::EmitString, 0, length), 0),
            5 => (Op::new(OpCode::EmitDynamic, 0, length), 0),
            _ => {
                let stride = self.pick(&[0, 1, 3, 8, 8, 16, 24, 40, 2000]);
                let elements = Elements { stride, most: self.below(8) as u16 };
                (Op::new(OpCode::EmitElements, 0, elements.to_imm()), stride)
            }
        }
    }

    /// The steps to a field: those that real programs take, or any.
    fn steps(&mut self, open: u8, ops: &mut Vec<Op>) {
        match self.below(4) {
            0 => {
                for _ in 0..self.below(8) {
                    ops.push(self.step(open));
                }
            }
            1 => ops.extend([self.word(open), Op::new(OpCode::SetAux, 0, 0), self.word(open)]),
            _ => {
                ops.push(self.word(open));
                for _ in 0..self.below(3) {
                    let add = Op::new(OpCode::Add, 0, self.below(32) as i64 * 8);
                    ops.extend([
                        Op::new(OpCode::NilCheck, 0, 0),
                        add,
                        Op::new(OpCode::Deref, 0, 0),
                    ]);
                }
            }
        }
    }

    /// A field with bodies for what lies behind it, perhaps under a condition.
    fn field(&mut self, open: u8, ops: &mut Vec<Op>) {
        let condition = (self.below(4) == 0).then(|| {
            ops.push(self.word(open));
            if self.below(3) == 0 {
                ops.push(Op::new(OpCode::Deref, 0, 0));
            }
            ops.push(Op::new(self.pick(&[OpCode::SkipZero, OpCode::SkipNonZero]), 0, 0));
            ops.len()
        });
        self.steps(open, ops);
        let (emit, stride) = self.emit();
        ops.push(emit);
        if open < 5 && self.below(3) == 0 {
            let at = ops.len();
            ops.push(Op::new(OpCode::Each, 0, 0));
            for _ in 0..self.below(3) {
                self.field(open + 1, ops);
            }
            if self.below(4) == 0 {
                // A field that is begun and not emitted.
                ops.push(self.step(open + 1));
            }
            // Elements one by one, or all of them as one.
            let stride = if self.below(8) == 0 { 0 } else { stride };
            ops[at].imm = Body { ops: (ops.len() - at - 1) as u16, stride }.to_imm();
        }
        if let Some(at) = condition {
            ops[at - 1].imm = (ops.len() - at) as i64;
        }
    }

    /// What begins where a backend knows it.
    fn place(&mut self, ops: &mut Vec<Op>) {
        let imm = (self.next() >> self.below(64)) as i64;
        let emit = Op::new(OpCode::EmitAcc, 8, 0);
        match self.below(3) {
            0 => ops.extend([Op::new(OpCode::Image, 0, imm), emit]),
            1 => ops.extend([self.register(), Op::new(OpCode::Image, IMAGE_PLACE, imm), emit]),
            _ => ops.extend([Op::new(OpCode::StackSlot, 0, imm), emit]),
        }
    }

    /// Ways to reject a hit, as conditions have them before a program.
    fn condition(&mut self) -> Vec<Op> {
        let mut ops = Vec::new();
        for _ in 0..self.below(4) {
            let mut way = vec![Op::new(OpCode::Reject, 0, 0)];
            for _ in 0..=self.below(2) {
                let skip = self.pick(&[OpCode::SkipZero, OpCode::SkipNonZero]);
                let mut guard = self.question();
                guard.push(Op::new(skip, 0, way.len() as i64));
                guard.extend(way);
                way = guard;
            }
            ops.extend(way);
        }
        ops
    }

    /// What a condition asks, with all ops that may stand there.
    fn question(&mut self) -> Vec<Op> {
        let word = self.pick(&[1, 2, 4, 8, 17, 18, 20, 24, 3]);
        let any = self.next() as i64;
        let mut ops = match self.below(12) {
            0 => vec![Op::new(OpCode::Image, 0, any)],
            1 => vec![Op::new(OpCode::StackSlot, 0, 0), Op::new(OpCode::Narrow, 17, 0)],
            2 => vec![Op::new(OpCode::CurrentG, 0, 0)],
            3 => vec![],
            _ => vec![self.register()],
        };
        match self.below(8) {
            0 => ops.push(Op::new(OpCode::Narrow, word, 0)),
            1 => ops.push(Op::new(OpCode::NilCheck, 0, 0)),
            2 => ops.push(Op::new(OpCode::Deref, 0, 0)),
            3 => ops.push(Op::new(OpCode::Add, 0, (any | 1 << 60) >> self.below(8))),
            4 => ops.push(Op::new(OpCode::Image, IMAGE_PLACE, any)),
            _ => {}
        }
        match self.below(5) {
            0 => {}
            1 => ops.push(Op::new(OpCode::Load, word, 0)),
            2 | 3 => {
                let most = self.pick(&[0, 1, 7, 8, 24, 1024, -1]);
                let length = if self.below(3) == 0 { any } else { 0 };
                if self.below(4) > 0 {
                    ops.extend([Op::new(OpCode::SetAux, 0, 0), self.register()]);
                }
                ops.push(Op::new(OpCode::Touch, 0, most));
                ops.push(Op::new(OpCode::AddAux, 0, length - self.below(3) as i64 * 8));
                for _ in 0..self.below(3) {
                    let imm = (self.next() >> self.below(64)) as i64;
                    ops.push(Op::new(OpCode::Match, word, imm));
                }
                ops.push(Op::new(OpCode::GetAux, 0, 0));
            }
            _ => ops.extend([Op::new(OpCode::SetAux, 0, 0), self.register()]),
        }
        if self.below(3) > 0 {
            let imm = self.pick(&[0, 1, -1, 255, 1 << 40, any]);
            ops.push(Op::new(OpCode::Compare, self.below(32) as u8, imm));
        }
        ops
    }

    /// A program that fits a record whatever it meets.
    fn program(&mut self) -> Vec<Op> {
        let mut ops = Vec::new();
        let wanted = self.pick(&[1, 2, 4, 8, 16, MOST_FIELDS]);
        for _ in 0..=self.below(wanted) {
            let before = ops.len();
            match self.below(12) {
                0 => self.place(&mut ops),
                _ => self.field(0, &mut ops),
            }
            if ops.len() > MAX_PROGRAM_OPS || !worst(&ops).fits() {
                ops.truncate(before);
            }
        }
        ops
    }
}

/// A part of the list, with its memory.
#[derive(Clone, Debug)]
pub struct Batch {
    random: Random,
    /// The programs, [`PER_BATCH`] of them.
    pub programs: Vec<Vec<Op>>,
    /// What stands before each of them to decide whether the hit is wanted.
    pub conditions: Vec<Vec<Op>>,
}

impl Batch {
    /// The batches of so many programs of the list, the last one perhaps shorter.
    pub fn list(programs: usize) -> impl Iterator<Item = Self> {
        let numbers = 0..programs.div_ceil(PER_BATCH);
        numbers.map(move |number| Self::new(number as u64, programs - number * PER_BATCH))
    }

    fn new(number: u64, most: usize) -> Self {
        let mut random = Random::new(number + 1);
        let count = PER_BATCH.min(most);
        let programs = (0..count).map(|_| random.program()).collect();
        let mut random = Random::new(1 << 32 | number);
        let conditions = (0..count).map(|_| random.condition()).collect();
        Self { random: Random::new(!number), programs, conditions }
    }

    /// Memory whose word [`WORDS`] lies at `start`: words that point at one another, are small, nil, nonsense, or one of
    /// `bad`, addresses at which nothing can be read.
    pub fn memory(&self, start: u64, bad: &[u64]) -> Vec<u64> {
        let mut random = self.random.clone();
        let nonsense =
            [u64::MAX, u64::MAX - 3, 1 << 63, 0x8000_0000_0000, 0xffff_8000_0000_0000, 8];
        let word = |random: &mut Random| match random.below(8) {
            0..4 => start + random.below(8 * WORDS as u64),
            4 => 0,
            5 => random.below(300),
            6 => random.pick(&[&nonsense, bad].concat()),
            _ => random.next(),
        };
        (0..3 * WORDS).map(|_| word(&mut random)).collect()
    }

    /// What is in the registers, in hardware order: addresses and lengths. A backend sets those it needs itself.
    pub fn registers(&self, start: u64) -> [[u64; 16]; STATES] {
        let mut random = Random::new(!self.random.0);
        let mut word = || match random.below(6) {
            0 => random.below(40),
            1 => random.below(400),
            _ => start + random.below(8 * WORDS as u64),
        };
        std::array::from_fn(|_| std::array::from_fn(|_| word()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use wire::MAX_CONDITION_OPS;

    /// How many steps of each kind there are, by name.
    fn counted(ops: &[Op], counts: &mut BTreeMap<String, usize>) {
        for op in ops {
            *counts.entry(format!("{:?}", op.code)).or_default() += 1;
        }
    }

    #[test]
    fn the_list_has_programs_of_all_ops_that_fit() {
        let mut counts = BTreeMap::new();
        let mut longest = 0;
        for batch in Batch::list(2 * PER_BATCH) {
            assert_eq!(batch.programs.len(), PER_BATCH);
            for condition in &batch.conditions {
                assert!(condition.len() <= MAX_CONDITION_OPS, "{condition:?}");
                counted(condition, &mut counts);
            }
            for program in &batch.programs {
                let worst = worst(program);
                assert!(worst.fits() && program.len() <= MAX_PROGRAM_OPS, "{program:?}");
                longest = longest.max(program.len());
                counted(program, &mut counts);
            }
        }
        assert!(longest > 100, "{longest}");
        // They are numbered from 1 on, and this is the last one.
        assert_eq!(counts.len(), OpCode::Reject as usize, "{counts:?}");
        assert!(counts.values().all(|count| *count > 1000), "{counts:?}");
    }

    #[test]
    fn a_batch_is_the_same_every_time() {
        let last = |programs| Batch::list(programs).last().expect("a batch");
        let (one, other) = (last(PER_BATCH + 10), last(2 * PER_BATCH));
        assert_eq!(one.programs, other.programs[..10]);
        assert_eq!(one.conditions, other.conditions[..10]);
        assert_eq!(one.memory(1 << 20, &[1]), other.memory(1 << 20, &[1]));
        assert_eq!(one.registers(1 << 20), other.registers(1 << 20));
    }
}
