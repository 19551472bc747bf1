//! Fetch programs, field by field.
//!
//! A field that reads no memory, or only such as cannot fault, is a sum of a register and a constant: the accumulators of
//! the machine that `wire` describes are known symbolically at its end. A program of such
//! fields has a payload of fixed length.

use super::Refused;
use crate::payload::{MAX_PACKED, Packed, Payload};
use wire::{
    DEREF_MAPPED, FIELD_HEADER, FieldStatus, MAX_FIELD_DATA, MAX_PAYLOAD, MAX_PROGRAM_OPS, Op,
    OpCode,
};

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
    /// The low half of a vector register.
    Vector(u8),
}

/// Words read one through the other at the most.
const MAX_LOADS: usize = 2;

/// A sum, or a word that is known to be mapped, at such a sum, and so on, and a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sum {
    pub(super) base: Base,
    /// What to add before each read, in order.
    pub(super) loads: [Option<i64>; MAX_LOADS],
    pub(super) add: i64,
}

const ZERO: Sum = Sum::of(Base::Zero, 0);

impl Sum {
    const fn of(base: Base, add: i64) -> Self {
        Self { base, loads: [None; MAX_LOADS], add }
    }

    /// The word at this sum.
    fn load(mut self) -> Option<Self> {
        let free = self.loads.iter_mut().find(|load| load.is_none())?;
        *free = Some(std::mem::take(&mut self.add));
        Some(self)
    }
}

/// A field without reads: the low bytes of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FixedField {
    pub(super) value: Sum,
    /// 1, 2, 4 or 8.
    pub(super) width: u8,
    /// `Ok`, or `Unread` for a field that would have to read memory.
    pub(super) status: FieldStatus,
}

impl FixedField {
    /// Whether it has data.
    pub(super) fn is_read(&self) -> bool {
        self.status == FieldStatus::Ok
    }
}

/// What stands for a field that may not be read.
const UNREAD: FixedField = FixedField { value: ZERO, width: 8, status: FieldStatus::Unread };

/// How a field ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Emit {
    /// So many low bytes of the accumulator: 1, 2, 4 or 8.
    Acc(u8),
    /// So many bytes at the accumulator.
    Bytes(u16),
    /// As many bytes as aux says, and not more than these.
    Text(u16),
}

/// A field: what leads to it, and how it ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Field {
    /// Neither emits nor resets.
    pub(super) steps: Vec<Op>,
    pub(super) emit: Emit,
}

impl Field {
    /// Bytes that it takes in the payload at the most.
    fn max_size(&self) -> usize {
        let data = match self.emit {
            Emit::Acc(_) => 8,
            Emit::Bytes(len) | Emit::Text(len) => usize::from(len),
        };
        FIELD_HEADER + data.next_multiple_of(8)
    }

    /// The field, if its length and value hang on no memory.
    fn fixed(&self) -> Option<FixedField> {
        let Emit::Acc(width) = self.emit else { return None };
        let (mut acc, mut aux) = (ZERO, ZERO);
        for op in &self.steps {
            match op.code {
                OpCode::Reg => acc = Sum::of(Base::Register(op.a & 15), 0),
                OpCode::FloatReg => acc = Sum::of(Base::Vector(op.a & 15), 0),
                OpCode::StackSlot => acc = Sum::of(Base::FirstSp, op.imm),
                OpCode::CurrentG => acc = Sum::of(Base::G, 0),
                OpCode::Deref if op.a == DEREF_MAPPED => acc = acc.load()?,
                OpCode::Add => acc.add = acc.add.wrapping_add(op.imm),
                OpCode::SetAux => aux = acc,
                OpCode::GetAux => acc = aux,
                _ => return None,
            }
        }
        Some(FixedField { value: acc, width, status: FieldStatus::Ok })
    }
}

/// What a recorder adds to the header.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Values {
    /// Always the same number of bytes.
    Fixed(Vec<FixedField>),
    /// Reads memory.
    Reading(Vec<Field>),
}

impl Values {
    /// What the payload looks like in the ring.
    pub(super) fn payload(&self) -> Payload {
        match self {
            Self::Fixed(fields) => {
                let width = |field: &FixedField| field.is_read().then_some(field.width);
                Payload::Packed(Packed::new(fields.iter().map(width)))
            }
            Self::Reading(fields) => {
                let most: usize = fields.iter().map(Field::max_size).sum();
                Payload::Wire { most: most as u16, fields: fields.len() as u16 }
            }
        }
    }

    /// Bytes of the payload on the wire at the most.
    fn wire_size(&self) -> usize {
        match self {
            Self::Fixed(fields) => fields.len() * (FIELD_HEADER + 8),
            Self::Reading(fields) => fields.iter().map(Field::max_size).sum(),
        }
    }

    /// Whether SP at the function's first instruction or register `number` is asked for.
    pub(super) fn uses(&self, base: Base) -> bool {
        match self {
            Self::Fixed(fields) => fields.iter().any(|field| field.value.base == base),
            Self::Reading(fields) => {
                let mut steps = fields.iter().flat_map(|field| &field.steps);
                steps.any(|op| match base {
                    Base::Register(number) => op.code == OpCode::Reg && op.a & 15 == number,
                    Base::FirstSp => op.code == OpCode::StackSlot,
                    Base::G => op.code == OpCode::CurrentG,
                    Base::Vector(number) => op.code == OpCode::FloatReg && op.a & 15 == number,
                    Base::Zero => false,
                })
            }
        }
    }
}

/// General registers that a program cannot name where a call begins or ends: SP and BP are not what
/// they were at the plan's site where instructions were passed over, and the recorder uses the
/// others.
pub(super) const TAKEN: &[u8] = &[4, 5, 12, 13, 15];

/// The fields of a program that names none of the registers in `taken`. Without permission to read memory, those that would are there as
/// unread; the flag says whether there are none of them.
pub(super) fn evaluate(
    ops: &[Op],
    may_read: bool,
    taken: &[u8],
) -> Result<(Values, bool), Refused> {
    let fields = split(ops, taken)?;
    let fixed: Vec<Option<FixedField>> = fields.iter().map(Field::fixed).collect();
    let is_complete = fixed.iter().all(Option::is_some);
    let values = match may_read && !is_complete {
        true => Values::Reading(fields),
        false => Values::Fixed(fixed.into_iter().map(|field| field.unwrap_or(UNREAD)).collect()),
    };
    let is_long = matches!(&values, Values::Fixed(fields) if fields.len() > MAX_PACKED);
    match values.wire_size() {
        size if size > MAX_PAYLOAD || is_long => Err(Refused::Payload(size)),
        _ => Ok((values, is_complete || may_read)),
    }
}

fn split(ops: &[Op], taken: &[u8]) -> Result<Vec<Field>, Refused> {
    let mut fields = Vec::new();
    let mut steps = Vec::new();
    for &op in ops.iter().take(MAX_PROGRAM_OPS) {
        let len = op.imm.clamp(0, MAX_FIELD_DATA as i64) as u16;
        let emit = match op.code {
            OpCode::Reg if taken.contains(&(op.a & 15)) => {
                return Err(Refused::Register(op.a & 15));
            }
            OpCode::FloatReg if op.a & 15 == 15 => return Err(Refused::Vector(15)),
            OpCode::Reset => {
                steps.clear();
                continue;
            }
            OpCode::EmitAcc => Emit::Acc(if matches!(op.a, 1 | 2 | 4) { op.a } else { 8 }),
            OpCode::EmitBytes => Emit::Bytes(len),
            OpCode::EmitString => Emit::Text(len),
            _ => {
                steps.push(op);
                continue;
            }
        };
        fields.push(Field { steps: std::mem::take(&mut steps), emit });
    }
    Ok(fields)
}
