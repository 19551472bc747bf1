//! Fetch programs, field by field.
//!
//! A field that reads no memory, or only such as cannot fault, is a sum of a register and a constant: the accumulators of
//! the machine that `wire` describes are known symbolically at its end. A program of such
//! fields has a payload of fixed length.

use super::Refused;
use super::fetch::{BLOCK_SPILL, SPILL_SIZE};
use crate::payload::{MAX_PACKED, Packed, Payload};
use probe::compile::is_exclusive;
use wire::{
    Body, DEREF_MAPPED, Elements, FIELD_HEADER, FieldStatus, MAX_BLOCKS, MAX_FIELD_DATA,
    MAX_MAP_GROUPS, MAX_PAYLOAD, MAX_PROGRAM_OPS, MAX_STEPS, Op, OpCode,
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
    /// As many elements of `stride` bytes as aux says, and not more than `most`.
    Counted { stride: u16, most: u16 },
    /// As many bytes as the type at aux has, and not more than these.
    Dynamic(u16),
}

impl Emit {
    fn of(op: Op) -> Option<Self> {
        let len = op.imm.clamp(0, MAX_FIELD_DATA as i64) as u16;
        Some(match op.code {
            OpCode::EmitAcc => Self::Acc(if matches!(op.a, 1 | 2 | 4) { op.a } else { 8 }),
            OpCode::EmitBytes => Self::Bytes(len),
            OpCode::EmitString => Self::Counted { stride: 1, most: len },
            OpCode::EmitElements => {
                let Elements { stride, most } = Elements::of_imm(op.imm);
                Self::Counted { stride, most }
            }
            OpCode::EmitDynamic => Self::Dynamic(len),
            _ => return None,
        })
    }

    /// Bytes of data at the most.
    fn most(self) -> usize {
        match self {
            Self::Acc(width) => usize::from(width),
            Self::Bytes(len) | Self::Dynamic(len) => usize::from(len),
            Self::Counted { stride, most } => usize::from(stride) * usize::from(most),
        }
    }

    /// Bytes of data, when that is always the same.
    pub(super) fn fixed_len(self) -> Option<u16> {
        match self {
            Self::Acc(width) => Some(width.into()),
            Self::Bytes(len) => Some(len),
            Self::Counted { .. } | Self::Dynamic(_) => None,
        }
    }
}

/// A field: what leads to it, how it ends, and what is done with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Field {
    /// Neither emits nor resets.
    pub(super) steps: Vec<Op>,
    pub(super) emit: Emit,
    pub(super) body: Option<Inner>,
}

/// What is done with a field's data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Inner {
    /// Bytes of an element; 0: the data is one.
    pub(super) stride: u16,
    pub(super) nodes: Vec<Node>,
}

/// A condition and what is done if it holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct When {
    pub(super) steps: Vec<Op>,
    /// Whether the accumulator has to be 0, or not 0.
    pub(super) zero: bool,
    pub(super) nodes: Vec<Node>,
}

/// A part of a program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node {
    Field(Field),
    When(When),
}

impl Node {
    /// Bytes that it takes in the payload at the most.
    fn max_size(&self) -> usize {
        match self {
            Self::When(when) => size_of_all(&when.nodes),
            Self::Field(Field { emit, body, .. }) => {
                let own = FIELD_HEADER + emit.most().next_multiple_of(8);
                let Some(body) = body else { return own };
                let times = emit.most().checked_div(body.stride.into()).unwrap_or(1);
                own.saturating_add(size_of_all(&body.nodes).saturating_mul(times))
            }
        }
    }

    /// How many blocks are open in it at a time at the most.
    fn levels(&self) -> usize {
        match self {
            Self::When(when) => levels(&when.nodes),
            Self::Field(field) => field.body.as_ref().map_or(0, |body| 1 + levels(&body.nodes)),
        }
    }

    fn any_step(&self, test: &impl Fn(&Op) -> bool) -> bool {
        let (steps, nodes) = match self {
            Self::When(when) => (&when.steps, Some(&when.nodes)),
            Self::Field(field) => (&field.steps, field.body.as_ref().map(|body| &body.nodes)),
        };
        steps.iter().any(test) || nodes.is_some_and(|nodes| nodes.iter().any(|n| n.any_step(test)))
    }

    fn fixed(&self) -> Option<FixedField> {
        match self {
            Self::Field(field) => field.fixed(),
            Self::When(_) => None,
        }
    }
}

fn size_of_all(nodes: &[Node]) -> usize {
    let mut sum = 0usize;
    let mut before: Option<&Node> = None;
    for node in nodes {
        let mut size = node.max_size();
        if let (Some(Node::When(one)), Node::When(other)) = (before, node)
            && one.zero != other.zero
            && is_exclusive(&one.steps, &other.steps)
        {
            size = size.saturating_sub(size_of_all(&one.nodes));
        }
        sum = sum.saturating_add(size);
        before = Some(node);
    }
    sum
}

/// Bytes that the code for `nodes` keeps things in.
fn spill_size(nodes: &[Node]) -> usize {
    let searches = nodes.iter().any(|node| node.any_step(&|op| op.code == OpCode::MapElem));
    SPILL_SIZE + BLOCK_SPILL * (levels(nodes) + usize::from(searches))
}

pub(super) fn levels(nodes: &[Node]) -> usize {
    nodes.iter().map(Node::levels).max().unwrap_or(0)
}

impl Field {
    /// The field, if its length and value hang on no memory.
    fn fixed(&self) -> Option<FixedField> {
        let (Emit::Acc(width), None) = (self.emit, &self.body) else { return None };
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
    Reading(Vec<Node>),
}

/// How many fields there are of `nodes` where none can be read.
pub(super) fn count_blind(nodes: &[Node]) -> usize {
    nodes.iter().filter(|node| matches!(node, Node::Field(_))).count()
}

/// Whether the number of fields varies.
pub(super) fn varies(nodes: &[Node]) -> bool {
    nodes.iter().any(|node| !matches!(node, Node::Field(Field { body: None, .. })))
}

impl Values {
    /// What the payload looks like in the ring.
    pub(super) fn payload(&self) -> Payload {
        match self {
            Self::Fixed(fields) => {
                let width = |field: &FixedField| field.is_read().then_some(field.width);
                Payload::Packed(Packed::new(fields.iter().map(width)))
            }
            Self::Reading(nodes) if varies(nodes) => {
                let most = size_of_all(nodes) + size_of::<u64>();
                Payload::Wire { before: spill_size(nodes) as u16, most: most as u16, fields: None }
            }
            Self::Reading(nodes) => Payload::Wire {
                before: spill_size(nodes) as u16,
                most: size_of_all(nodes) as u16,
                fields: Some(nodes.len() as u16),
            },
        }
    }

    /// Bytes of the payload on the wire at the most.
    fn wire_size(&self) -> usize {
        match self {
            Self::Fixed(fields) => fields.len() * (FIELD_HEADER + 8),
            Self::Reading(nodes) => size_of_all(nodes),
        }
    }

    /// Whether SP at the function's first instruction or register `number` is asked for.
    pub(super) fn uses(&self, base: Base) -> bool {
        match self {
            Self::Fixed(fields) => fields.iter().any(|field| field.value.base == base),
            Self::Reading(nodes) => {
                let names = |op: &Op| match base {
                    Base::Register(number) => op.code == OpCode::Reg && op.a & 15 == number,
                    Base::FirstSp => op.code == OpCode::StackSlot,
                    Base::G => op.code == OpCode::CurrentG,
                    Base::Vector(number) => op.code == OpCode::FloatReg && op.a & 15 == number,
                    Base::Zero => false,
                };
                nodes.iter().any(|node| node.any_step(&names))
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
    let ops = ops.get(..MAX_PROGRAM_OPS).unwrap_or(ops);
    let (nodes, steps) = split(ops, taken, 0)?;
    if steps > MAX_STEPS {
        return Err(Refused::Program("takes too many steps"));
    }
    let fixed: Vec<Option<FixedField>> = nodes.iter().map(Node::fixed).collect();
    let is_complete = fixed.iter().all(Option::is_some);
    let values = match may_read && !is_complete {
        true => Values::Reading(nodes),
        false => {
            let fields = nodes.iter().zip(fixed).filter(|(node, _)| matches!(node, Node::Field(_)));
            Values::Fixed(fields.map(|(_, field)| field.unwrap_or(UNREAD)).collect())
        }
    };
    let is_long = matches!(&values, Values::Fixed(fields) if fields.len() > MAX_PACKED);
    match values.wire_size() {
        size if size > MAX_PAYLOAD || is_long => Err(Refused::Payload(size)),
        _ => Ok((values, is_complete || may_read)),
    }
}

/// The parts of a program or a body in which `open` blocks are open, and the steps that it takes at the most.
fn split(ops: &[Op], taken: &[u8], open: usize) -> Result<(Vec<Node>, usize), Refused> {
    let mut nodes = Vec::new();
    let mut steps = Vec::new();
    let mut cost = ops.len();
    let mut at = 0;
    while let Some(&op) = ops.get(at) {
        at += 1;
        let follows_field = at > 1 && ops[at - 2].code.is_emit();
        let mut inside = |count: usize, open| {
            let part = at.checked_add(count).and_then(|end| ops.get(at..end));
            let part = part.ok_or(Refused::Program("has a body that does not end in it"))?;
            at += count;
            split(part, taken, open)
        };
        match op.code {
            OpCode::Reg if taken.contains(&(op.a & 15)) => {
                return Err(Refused::Register(op.a & 15));
            }
            OpCode::FloatReg if op.a & 15 == 15 => return Err(Refused::Vector(15)),
            OpCode::Load
            | OpCode::Narrow
            | OpCode::Compare
            | OpCode::Touch
            | OpCode::AddAux
            | OpCode::Match
            | OpCode::Reject => return Err(Refused::Program("decides where values are read")),
            OpCode::Reset => steps.clear(),
            OpCode::MapElem => {
                cost = cost.saturating_add(MAX_MAP_GROUPS);
                steps.push(op);
            }
            OpCode::Each if open == MAX_BLOCKS => {
                return Err(Refused::Program("opens too many blocks"));
            }
            OpCode::Each => {
                let Some(Node::Field(field)) = nodes.last_mut().filter(|_| follows_field) else {
                    return Err(Refused::Program("has a body without a field"));
                };
                let body = Body::of_imm(op.imm);
                let (inner, inner_cost) = inside(body.ops.into(), open + 1)?;
                let times = field.emit.most().checked_div(body.stride.into()).unwrap_or(1);
                let passes = times.saturating_mul(inner_cost + 1);
                cost = cost.saturating_add(passes).saturating_sub(body.ops.into());
                field.body = Some(Inner { stride: body.stride, nodes: inner });
            }
            OpCode::SkipZero | OpCode::SkipNonZero
                if steps.iter().any(|op| op.code == OpCode::MapElem) =>
            {
                return Err(Refused::Program("decides by what a map holds"));
            }
            OpCode::SkipZero | OpCode::SkipNonZero => {
                let count = usize::try_from(op.imm).unwrap_or(0);
                let (nodes_inside, inner_cost) = inside(count, open)?;
                // Its ops are among ours already.
                cost = cost.saturating_add(inner_cost).saturating_sub(count);
                nodes.push(Node::When(When {
                    steps: std::mem::take(&mut steps),
                    zero: op.code == OpCode::SkipNonZero,
                    nodes: nodes_inside,
                }));
            }
            _ => match Emit::of(op) {
                Some(emit) => {
                    let steps = std::mem::take(&mut steps);
                    nodes.push(Node::Field(Field { steps, emit, body: None }));
                }
                None => steps.push(op),
            },
        }
    }
    Ok((nodes, cost))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else a plan that fits would be refused.
    #[test]
    fn steps_are_counted_as_the_planner_counts_them() {
        let op = |code, a, imm| Op::new(code, a, imm);
        let field = [op(OpCode::Reg, 0, 0), op(OpCode::EmitBytes, 0, 64)];
        let mut ops = Vec::new();
        for depth in 0..12 {
            let body = Body { stride: 8, ops: 2 };
            let mut inside = [&field[..], &[op(OpCode::Each, 0, body.to_imm())], &field].concat();
            inside.extend_from_slice(&ops);
            let code = if depth % 2 == 0 { OpCode::SkipZero } else { OpCode::SkipNonZero };
            ops = vec![op(OpCode::Reg, 3, 0), op(code, 0, inside.len() as i64)];
            ops.extend(inside);
        }
        let (_, steps) = split(&ops, &[], 0).unwrap();
        assert_eq!(steps, probe::compile::worst(&ops).steps);
        assert!(steps < 4 * 12 * 8, "{steps}");
    }
}
