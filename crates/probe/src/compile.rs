//! Builds fetch programs, and the [`ValueSpec`]s that give their fields a meaning.
//!
//! One [`Builder`] makes the program of one site; [`OpTable`] keeps the programs of a plan,
//! equal ones once (all returns of a function read the same results).

mod auto;
mod lost;
mod nested;
mod rule_value;
mod witness;
mod worst;

pub use auto::{AutoPlace, AutoShape, VECTOR, compile_value};
pub(crate) use auto::{compile, register_op};
pub use lost::{lost_rule_param, lost_value};
pub use nested::{Held, ValuePlace, compile_nested, compile_typed};
pub use rule_value::compile_rule_param;
pub use witness::{PANIC_TEXT_BYTES, RecoverySp, WitnessOffsets, witness_ops};
pub use worst::{Worst, is_exclusive, worst};

use crate::plan::Program;
use crate::value::{ValueKind, ValueSpec};
use std::collections::HashMap;
use wire::{Elements, FIELD_HEADER, MAX_FIELD_DATA, MAX_PAYLOAD, MAX_PROGRAM_OPS, Op, OpCode};

/// Bytes of a string that are captured unless told otherwise.
pub const DEFAULT_STRING_BYTES: u16 = 64;

/// Collects the ops of one program, within the limits of ops and payload.
#[derive(Clone, Debug)]
pub struct Builder {
    ops: Vec<Op>,
    /// What the ops may cost at the most.
    worst: Worst,
    string_bytes: u16,
    /// What is left to values that are added later.
    later: Later,
}

/// What some values need at the least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Later {
    /// Payload bytes.
    pub bytes: usize,
    /// Ops.
    pub ops: usize,
}

impl Later {
    /// Both together. Among too many values the first ones have an advantage all the same.
    pub fn and(self, other: Self) -> Self {
        Self {
            bytes: (self.bytes + other.bytes).min(MAX_PAYLOAD / 2),
            ops: (self.ops + other.ops).min(MAX_PROGRAM_OPS / 2),
        }
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self::new(DEFAULT_STRING_BYTES)
    }
}

impl Builder {
    /// An empty program that captures at most `string_bytes` bytes of a string, itself at
    /// most [`MAX_FIELD_DATA`].
    pub fn new(string_bytes: u16) -> Self {
        Self {
            ops: Vec::new(),
            worst: Worst::default(),
            string_bytes: string_bytes.min(MAX_FIELD_DATA as u16),
            later: Later::default(),
        }
    }

    /// What is added from now on leaves so much for what comes later.
    pub fn leave(&mut self, later: Later) {
        self.later = later;
    }

    /// What the ops added so far need.
    pub fn needs(&self) -> Later {
        Later { bytes: self.worst.bytes, ops: self.ops.len() }
    }

    /// Bytes of a string that are captured.
    pub fn string_bytes(&self) -> u16 {
        self.string_bytes
    }

    /// Adds ops that emit whole fields, all or (over a limit) none; tells which.
    pub fn append(&mut self, ops: &[Op]) -> bool {
        let with = self.worst.and(worst(ops));
        let count = self.ops.len() + ops.len() + self.later.ops;
        let bytes = with.bytes.saturating_add(self.later.bytes);
        if count > MAX_PROGRAM_OPS || bytes > MAX_PAYLOAD || !with.fits() {
            return false;
        }
        self.ops.extend_from_slice(ops);
        self.worst = with;
        true
    }

    /// Adds the ops of one value; without room the value is unavailable, and later,
    /// smaller ones may still fit.
    pub(crate) fn value(
        &mut self,
        name: &str,
        type_name: &str,
        compiled: Result<Compiled, String>,
    ) -> ValueSpec {
        let kind = match compiled {
            Ok(Compiled { kind, ops }) if self.append(&ops) => kind,
            Ok(_) => ValueKind::Unavailable("too many values".to_owned()),
            Err(reason) => ValueKind::Unavailable(reason),
        };
        ValueSpec { name: name.into(), type_name: type_name.into(), kind }
    }

    /// The program.
    pub fn finish(self) -> Vec<Op> {
        self.ops
    }
}

/// One value's ops, which emit as many fields as its kind consumes.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    pub(crate) kind: ValueKind,
    pub(crate) ops: Vec<Op>,
}

/// Payload bytes that an op may emit at the most.
fn emitted_bytes(op: &Op) -> usize {
    let data = match op.code {
        OpCode::EmitAcc => 8,
        OpCode::EmitBytes | OpCode::EmitString | OpCode::EmitDynamic => {
            op.imm.clamp(0, MAX_FIELD_DATA as i64) as usize
        }
        OpCode::EmitElements => Elements::of_imm(op.imm).bytes(),
        _ => return 0,
    };
    FIELD_HEADER + data.next_multiple_of(8)
}

/// The programs of a plan in one table, equal ones stored once.
#[derive(Clone, Debug, Default)]
pub struct OpTable {
    ops: Vec<Op>,
    known: HashMap<Vec<Op>, Program>,
}

impl OpTable {
    /// Where the table has the program; an empty one is `Program::default()`.
    /// Ops beyond [`MAX_PROGRAM_OPS`], which would not run, are not stored.
    pub fn intern(&mut self, ops: &[Op]) -> Program {
        let ops = &ops[..ops.len().min(MAX_PROGRAM_OPS)];
        if ops.is_empty() {
            return Program::default();
        }
        if let Some(program) = self.known.get(ops) {
            return *program;
        }
        let program = Program { start: self.ops.len() as u32, len: ops.len() as u16 };
        self.ops.extend_from_slice(ops);
        self.known.insert(ops.to_vec(), program);
        program
    }

    /// The same with a condition right before the program.
    pub fn intern_behind(&mut self, condition: &[Op], ops: &[Op]) -> Program {
        if condition.is_empty() {
            return self.intern(ops);
        }
        let all = [condition, &ops[..ops.len().min(MAX_PROGRAM_OPS)]].concat();
        let table = &mut self.ops;
        let whole = *self.known.entry(all).or_insert_with_key(|all| {
            let start = table.len() as u32;
            table.extend_from_slice(all);
            Program { start, len: all.len() as u16 }
        });
        let before = condition.len() as u16;
        Program { start: whole.start + u32::from(before), len: whole.len - before }
    }

    /// The ops of a program that the table gave out.
    pub fn get(&self, program: Program) -> &[Op] {
        let start = program.start as usize;
        self.ops.get(start..start + usize::from(program.len)).unwrap_or_default()
    }

    /// The table: what [`Plan::ops`](crate::Plan::ops) takes.
    pub fn finish(self) -> Vec<Op> {
        self.ops
    }
}

pub(crate) fn op(code: OpCode, a: u8, imm: i64) -> Op {
    Op::new(code, a, imm)
}

/// acc = acc + `offset`, nothing for 0; one op for additions in a row.
pub(crate) fn push_add(ops: &mut Vec<Op>, offset: i64) {
    match ops.last_mut() {
        _ if offset == 0 => {}
        Some(last) if last.code == OpCode::Add => last.imm = last.imm.wrapping_add(offset),
        _ => ops.push(op(OpCode::Add, 0, offset)),
    }
}

#[cfg(test)]
mod tests;
