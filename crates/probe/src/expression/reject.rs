//! Conditions decided at the hit: ops that reject a hit for which a condition surely does not hold.
//!
//! A condition is known to be false when some of its comparisons are known to be so, in one of several ways: as
//! many ways are tried, one after the other, and each is a chain of guards with a rejection at its end. What a guard
//! can not read passes over the rest of its chain, so that an unknown value decides at the hit as little as
//! it does outside. What can not be asked at a hit (floats, the order of strings, strings of two values)
//! leaves its ways out: the hit is recorded, and decided outside.

use super::predicate::{Comparison, Predicate, Term};
use crate::compile::op;
use crate::value::{Check, ValueKind, ValueSpec};
use wire::{DEREF_MAPPED, MAX_CONDITION_OPS, MAX_FIELD_DATA, Op, OpCode, Order, Relation, Word};

/// Ways that are followed at the most.
const MAX_WAYS: usize = 64;

/// What a site has of the values that a condition names.
pub(crate) struct Values<'a> {
    /// Of the record, in order, each with its part of the fetch program.
    pub(crate) specs: &'a [(ValueSpec, Vec<Op>)],
    /// Whether these are results.
    pub(crate) at_return: bool,
    /// Offset of `g.goid`, bytes.
    pub(crate) g_goid: u32,
}

/// Ops that leave a value, and when it is not that of a way.
#[derive(Clone, Debug)]
struct Guard {
    ops: Vec<Op>,
    /// The skip that leaves the way.
    leave: OpCode,
}

/// All of these have to be passed.
type Way = Vec<Guard>;

/// A value as it is compared at a hit.
struct Operand {
    /// What has to be for the value to be there.
    guards: Way,
    /// What it is instead, behind these guards: 0.
    is_zero: Option<Way>,
    /// Leave it in acc: a number, or an address with a length in aux.
    ops: Vec<Op>,
    form: Form,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Bool,
    Signed,
    Unsigned,
    Address,
    /// So many bytes are captured.
    Text(i64),
}

/// Ops that end with [`OpCode::Reject`] when `predicate` is known to be false; none when that can not be
/// told at the hit.
pub(crate) fn rejection(predicate: &Predicate, values: &Values<'_>) -> Vec<Op> {
    let mut all = Vec::new();
    for way in values.ways(predicate, false) {
        let ops = chain(&way);
        if all.len() + ops.len() <= MAX_CONDITION_OPS {
            all.extend(ops);
        }
    }
    all
}

fn chain(way: &[Guard]) -> Vec<Op> {
    way.iter().rev().fold(vec![op(OpCode::Reject, 0, 0)], |rest, guard| {
        let mut ops = guard.ops.clone();
        ops.push(op(guard.leave, 0, rest.len() as i64));
        ops.extend(rest);
        ops
    })
}

fn guard(ops: Vec<Op>, leave: OpCode) -> Guard {
    Guard { ops, leave }
}

impl Values<'_> {
    /// How it may become known that a condition comes to `wanted`.
    fn ways(&self, predicate: &Predicate, wanted: bool) -> Vec<Way> {
        match predicate {
            Predicate::Is(term) => self.truth(term, wanted),
            Predicate::Compare(comparison, left, right) => {
                self.compared(*comparison, left, right, wanted)
            }
            Predicate::Not(inner) => self.ways(inner, !wanted),
            Predicate::All(parts) if wanted => self.together(parts, wanted),
            Predicate::Any(parts) if !wanted => self.together(parts, wanted),
            Predicate::All(parts) | Predicate::Any(parts) => {
                let ways = parts.iter().flat_map(|part| self.ways(part, wanted));
                ways.take(MAX_WAYS).collect()
            }
        }
    }

    /// All parts come to `wanted`.
    fn together(&self, parts: &[Predicate], wanted: bool) -> Vec<Way> {
        parts.iter().fold(vec![Way::new()], |ways, part| {
            let more = self.ways(part, wanted);
            let both =
                ways.iter().flat_map(|way| more.iter().map(|next| [&way[..], next].concat()));
            both.take(MAX_WAYS).collect()
        })
    }

    fn truth(&self, term: &Term, wanted: bool) -> Vec<Way> {
        if let Term::Bool(value) = term {
            return always(*value == wanted);
        }
        let operand = self.operand(term).filter(|operand| operand.form == Form::Bool);
        let leave = if wanted { OpCode::SkipZero } else { OpCode::SkipNonZero };
        operand.map(|operand| operand.way(leave)).into_iter().collect()
    }

    fn compared(&self, how: Comparison, left: &Term, right: &Term, wanted: bool) -> Vec<Way> {
        if is_constant(left) {
            return match is_constant(right) {
                true => Vec::new(),
                false => self.compared(turned(how), right, left, wanted),
            };
        }
        let Some(operand) = self.operand(left) else { return Vec::new() };
        let relation = |unsigned, with_aux| relation(how, wanted, unsigned, with_aux);
        match (operand.form, right) {
            (Form::Bool, Term::Bool(value)) if !how.is_of_order() => {
                self.truth(left, wanted == (*value == (how == Comparison::Equal)))
            }
            (Form::Signed, Term::Int(n)) => operand.against(relation(false, false), *n),
            (Form::Unsigned, Term::Int(n)) if *n >= 0 => operand.against(relation(true, false), *n),
            (Form::Unsigned, Term::Uint(n)) => operand.against(relation(true, false), *n as i64),
            (Form::Address, Term::Nil) => operand.against(relation(true, false), 0),
            (Form::Text(captured), Term::Text(bytes)) if !how.is_of_order() => {
                operand.matched(captured, bytes, wanted == (how == Comparison::Equal))
            }
            (form, _) if !is_constant(right) => {
                let other = self.operand(right).filter(|other| other.form == form);
                let unsigned = form != Form::Signed;
                let is_number = matches!(form, Form::Signed | Form::Unsigned | Form::Address);
                let both = other.filter(|_| is_number);
                both.and_then(|other| operand.with(other, relation(unsigned, true)))
                    .into_iter()
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    fn operand(&self, term: &Term) -> Option<Operand> {
        let index = match (term, self.at_return) {
            (Term::Arg(index), false) | (Term::Result(index), true) => *index,
            (Term::Goid, _) => {
                let ops = vec![
                    op(OpCode::CurrentG, 0, 0),
                    op(OpCode::Add, 0, self.g_goid.into()),
                    op(OpCode::Deref, DEREF_MAPPED, 0),
                ];
                return Some(Operand { guards: vec![], is_zero: None, ops, form: Form::Unsigned });
            }
            _ => return None,
        };
        let (spec, ops) = self.specs.get(usize::from(index))?;
        Operand::of(&spec.kind, ops)
    }
}

fn always(holds: bool) -> Vec<Way> {
    if holds { vec![Way::new()] } else { Vec::new() }
}

fn is_constant(term: &Term) -> bool {
    !matches!(term, Term::Arg(_) | Term::Result(_) | Term::Goid | Term::Duration)
}

/// The same with the sides exchanged.
fn turned(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Less => Comparison::Greater,
        Comparison::LessOrEqual => Comparison::GreaterOrEqual,
        Comparison::Greater => Comparison::Less,
        Comparison::GreaterOrEqual => Comparison::LessOrEqual,
        same => same,
    }
}

/// The relation in which the sides are when the comparison comes to `wanted`.
fn relation(comparison: Comparison, wanted: bool, unsigned: bool, with_aux: bool) -> Relation {
    let (order, negated) = match comparison {
        Comparison::Equal => (Order::Equal, false),
        Comparison::NotEqual => (Order::Equal, true),
        Comparison::Less => (Order::Less, false),
        Comparison::GreaterOrEqual => (Order::Less, true),
        Comparison::Greater => (Order::Greater, false),
        Comparison::LessOrEqual => (Order::Greater, true),
    };
    Relation { order, negated: negated == wanted, unsigned, with_aux }
}

/// Ops that leave in acc what they and `emit` would emit.
fn word(before: &[Op], emit: &Op, signed: bool) -> Option<Vec<Op>> {
    let mut ops = before.to_vec();
    match (emit.code, emit.imm) {
        (OpCode::EmitAcc, _) => {
            let word = Word { signed, ..Word::of_operand(emit.a & 15) };
            if word.size < 8 {
                ops.push(op(OpCode::Narrow, word.to_operand(), 0));
            }
        }
        (OpCode::EmitBytes, size @ (1 | 2 | 4 | 8)) => {
            let word = Word { size: size as u8, signed };
            ops.push(op(OpCode::Load, word.to_operand(), 0));
        }
        _ => return None,
    }
    Some(ops)
}

impl Operand {
    /// From the ops that would capture it.
    fn of(kind: &ValueKind, ops: &[Op]) -> Option<Self> {
        let (mut kind, mut rest) = (kind, ops);
        let (mut guards, mut is_zero) = (Way::new(), None);
        while let ValueKind::Checked { check, value } = kind {
            let emit = rest.iter().position(|op| op.code.is_emit())?;
            let mut ops = word(&rest[..emit], &rest[emit], false)?;
            rest = &rest[emit + 1..];
            kind = value;
            let (order, negated, imm) = match check {
                Check::Index(index) => (Order::Greater, false, *index as i64),
                Check::Type { hash, .. } => (Order::Equal, false, i64::from(*hash)),
                Check::LengthAt => {
                    let mut zero = guards.clone();
                    zero.push(guard(ops.clone(), OpCode::SkipNonZero));
                    // Of one such length inside another only the outermost says anything.
                    is_zero.get_or_insert(zero);
                    guards.push(guard(ops, OpCode::SkipZero));
                    continue;
                }
            };
            let relation = Relation { order, negated, unsigned: false, with_aux: false };
            ops.push(op(OpCode::Compare, relation.to_operand(), imm));
            guards.push(guard(ops, OpCode::SkipZero));
        }
        let (emit, before) = rest.split_last()?;
        if before.iter().any(|op| op.code.is_emit() || op.code.opens_field()) {
            return None;
        }
        let form = match kind {
            ValueKind::Bool => Form::Bool,
            ValueKind::Int { .. } => Form::Signed,
            ValueKind::Uint { .. } => Form::Unsigned,
            ValueKind::Pointer => Form::Address,
            ValueKind::String if emit.code == OpCode::EmitString => Form::Text(emit.imm),
            _ => return None,
        };
        let ops = match form {
            Form::Text(_) => before.to_vec(),
            _ => word(before, emit, form == Form::Signed)?,
        };
        Some(Self { guards, is_zero, ops, form })
    }

    /// The way that goes on unless `leave` skips.
    fn way(mut self, leave: OpCode) -> Way {
        self.guards.push(guard(self.ops, leave));
        self.guards
    }

    /// The value is in this relation to a constant.
    fn against(mut self, relation: Relation, n: i64) -> Vec<Way> {
        let zero = self.is_zero.take().filter(|_| relation.holds(0, n as u64));
        let leave = match (relation.order, relation.negated, n) {
            (Order::Equal, false, 0) => OpCode::SkipNonZero,
            (Order::Equal, true, 0) => OpCode::SkipZero,
            _ => {
                self.ops.push(op(OpCode::Compare, relation.to_operand(), n));
                OpCode::SkipZero
            }
        };
        [self.way(leave)].into_iter().chain(zero).collect()
    }

    /// The value is in this relation to another.
    fn with(mut self, other: Self, relation: Relation) -> Option<Way> {
        let uses_aux = |op: &Op| matches!(op.code, OpCode::SetAux | OpCode::GetAux);
        let is_simple = starts_anew(&other.ops) && !other.ops.iter().any(uses_aux);
        if self.is_zero.is_some() || other.is_zero.is_some() || !is_simple {
            return None;
        }
        self.guards.extend(other.guards);
        self.ops.push(op(OpCode::SetAux, 0, 0));
        self.ops.extend(other.ops);
        self.ops.push(op(OpCode::Compare, relation.to_operand(), 0));
        Some(self.way(OpCode::SkipZero))
    }

    /// The string has these bytes, or others.
    fn matched(mut self, captured: i64, bytes: &[u8], equal: bool) -> Vec<Way> {
        // What is longer than is captured is not told from what is as long.
        if captured <= bytes.len() as i64 || captured > MAX_FIELD_DATA as i64 {
            return Vec::new();
        }
        self.ops.push(op(OpCode::Touch, 0, captured));
        if !bytes.is_empty() {
            self.ops.push(op(OpCode::AddAux, 0, -(bytes.len() as i64)));
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let size = [8, 4, 2, 1].into_iter().find(|size| *size <= rest.len()).unwrap_or(1);
            let (head, tail) = rest.split_at(size);
            let mut word = [0; 8];
            word[..size].copy_from_slice(head);
            self.ops.push(op(OpCode::Match, size as u8, i64::from_le_bytes(word)));
            rest = tail;
        }
        self.ops.push(op(OpCode::GetAux, 0, 0));
        let leave = if equal { OpCode::SkipNonZero } else { OpCode::SkipZero };
        vec![self.way(leave)]
    }
}

/// Whether ops leave the same whatever was in acc.
fn starts_anew(ops: &[Op]) -> bool {
    let sets = [OpCode::Reg, OpCode::StackSlot, OpCode::CurrentG];
    ops.first().is_some_and(|first| sets.contains(&first.code))
}

#[cfg(test)]
mod tests;
