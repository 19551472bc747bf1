//! Fetch programs, evaluated as far as they can be before anything runs.
//!
//! A program that reads no memory is a list of sums of a register and a constant: the
//! accumulators of the machine that `wire` describes are known symbolically at every op.

use super::Refused;
use wire::{FIELD_HEADER, MAX_PROGRAM_OPS, Op, OpCode};

/// The longest payload that code is made for, bytes.
const MAX_FIXED_PAYLOAD: usize = 1024;

/// What a sum starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Base {
    /// 0.
    Zero,
    /// A general register, in hardware order.
    Register(u8),
    /// SP at the function's first instruction.
    FirstSp,
    /// The address of g.
    G,
}

/// A sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sum {
    pub(super) base: Base,
    pub(super) add: i64,
}

const ZERO: Sum = Sum { base: Base::Zero, add: 0 };

/// One field: the low bytes of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FixedField {
    pub(super) value: Sum,
    /// 1, 2, 4 or 8.
    pub(super) width: u8,
}

/// Bytes that each field takes in the payload.
pub(super) const FIELD_SIZE: usize = FIELD_HEADER + 8;

/// The fields that `ops` emit.
pub(super) fn evaluate(ops: &[Op]) -> Result<Vec<FixedField>, Refused> {
    let (mut acc, mut aux) = (ZERO, ZERO);
    let mut fields = Vec::new();
    for op in ops.iter().take(MAX_PROGRAM_OPS) {
        match op.code {
            OpCode::Reg => acc = Sum { base: register(op.a & 15)?, add: 0 },
            OpCode::StackSlot => acc = Sum { base: Base::FirstSp, add: op.imm },
            OpCode::CurrentG => acc = Sum { base: Base::G, add: 0 },
            OpCode::Add => acc.add = acc.add.wrapping_add(op.imm),
            OpCode::SetAux => aux = acc,
            OpCode::GetAux => acc = aux,
            OpCode::Reset => (acc, aux) = (ZERO, ZERO),
            OpCode::EmitAcc => {
                let width = if matches!(op.a, 1 | 2 | 4) { op.a } else { 8 };
                fields.push(FixedField { value: acc, width });
                (acc, aux) = (ZERO, ZERO);
            }
            // Whether a field is nil decides how long it is.
            OpCode::Deref | OpCode::EmitBytes | OpCode::EmitString | OpCode::NilCheck => {
                return Err(Refused::Loads);
            }
        }
    }
    let payload = fields.len() * FIELD_SIZE;
    if payload > MAX_FIXED_PAYLOAD {
        return Err(Refused::Payload(payload));
    }
    Ok(fields)
}

/// SP is not what it was at the plan's site, and the recorder uses the others.
fn register(number: u8) -> Result<Base, Refused> {
    match number {
        4 | 12 | 13 | 15 => Err(Refused::Register(number)),
        _ => Ok(Base::Register(number)),
    }
}
