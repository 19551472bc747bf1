//! What a condition needs of a call, read though it is not shown.

use super::access::{Access, Location};
use super::compare::{Class, Kinds, check};
use super::predicate::{Predicate, Term};
use super::resolve::{Failure, checked, find, resolve, word};
use super::scope::{Moment, Scope};
use super::{Condition, ExpressionError, Literal, Operand, Side, Start};
use crate::compile::{Builder, Compiled, compile, op};
use crate::value::{ValueKind, ValueSpec};
use wire::{MAX_FIELD_DATA, Op, OpCode};

/// Bytes read of strings that are compared with one another.
const TEXT_BYTES: u16 = 256;

/// One value to read.
#[derive(Debug)]
struct Want {
    name: String,
    type_name: String,
    compiled: Result<Compiled, String>,
}

/// The values that the conditions on one function need, each once.
#[derive(Debug, Default)]
pub struct Wants {
    args: Vec<Want>,
    results: Vec<Want>,
}

/// A side of a comparison with what is known of its type.
struct Typed<'a> {
    kinds: Kinds,
    value: Source<'a>,
}

enum Source<'a> {
    Literal(Literal),
    Value {
        access: Access<'a>,
        at: Moment,
        name: String,
    },
    /// Known to be unknown.
    Unavailable {
        reason: String,
        at: Moment,
        name: String,
    },
    Goid,
    Duration,
}

impl Wants {
    /// Finds the values of a condition and checks their types. Of [`Moment::Entry`] only what the entry knows
    /// is meant; else results come first, and parameters are as they were passed.
    pub fn condition(
        &mut self,
        condition: &Condition,
        scope: &Scope<'_>,
        at: Moment,
    ) -> Result<Predicate, Failure> {
        let mut all = |parts: &[Condition]| -> Result<Vec<Predicate>, Failure> {
            parts.iter().map(|part| self.condition(part, scope, at)).collect()
        };
        Ok(match condition {
            Condition::Not(inner) => Predicate::Not(Box::new(self.condition(inner, scope, at)?)),
            Condition::All(parts) => Predicate::All(all(parts)?),
            Condition::Any(parts) => Predicate::Any(all(parts)?),
            Condition::Is(side) => {
                let typed = typed(side, scope, at)?;
                typed.kinds.expect_bool()?;
                Predicate::Is(self.term(typed, TEXT_BYTES))
            }
            Condition::Compare { column, comparison, left, right } => {
                let (left, right) = (typed(left, scope, at)?, typed(right, scope, at)?);
                check(*comparison, *column, &left.kinds, &right.kinds)?;
                let bytes = text_bytes(&left).or(text_bytes(&right)).unwrap_or(TEXT_BYTES);
                let (left, right) = (self.term(left, bytes), self.term(right, bytes));
                Predicate::Compare(*comparison, left, right)
            }
        })
    }

    /// A value that calls are told apart by, as it would be shown.
    pub fn shown(
        &mut self,
        operand: &Operand,
        scope: &Scope<'_>,
        string_bytes: u16,
    ) -> Result<Term, Failure> {
        match (&operand.start, operand.steps.is_empty()) {
            (Start::Goid, true) => return Ok(Term::Goid),
            (Start::Duration, true) => return Ok(Term::Duration),
            _ => {}
        }
        let at = moment(operand, scope, Moment::Return);
        let mut alone = Builder::new(string_bytes);
        let ValueSpec { type_name, kind, .. } = resolve(operand, scope, at, &mut alone)?;
        let compiled = match kind {
            ValueKind::Unavailable(reason) => Err(reason),
            kind => Ok(Compiled { kind, ops: alone.finish() }),
        };
        let type_name = type_name.to_string();
        Ok(self.want(at, Want { name: operand.to_string(), type_name, compiled }))
    }

    /// Whether nothing is wanted.
    pub fn is_empty(&self) -> bool {
        self.args.is_empty() && self.results.is_empty()
    }

    /// Adds what is wanted at a moment to a program; gives the values, each with its part of that.
    pub fn build(&mut self, at: Moment, builder: &mut Builder) -> Vec<(ValueSpec, Vec<Op>)> {
        let wants = match at {
            Moment::Entry => &mut self.args,
            Moment::Return => &mut self.results,
        };
        let wants = std::mem::take(wants).into_iter();
        wants
            .map(|want| {
                let ops = want.compiled.as_ref().map_or_else(|_| Vec::new(), |it| it.ops.clone());
                (builder.value(&want.name, &want.type_name, want.compiled), ops)
            })
            .collect()
    }

    fn want(&mut self, at: Moment, want: Want) -> Term {
        let wants = match at {
            Moment::Entry => &mut self.args,
            Moment::Return => &mut self.results,
        };
        let same = |known: &Want| match (&known.compiled, &want.compiled) {
            (Ok(known), Ok(new)) => known.kind == new.kind && known.ops == new.ops,
            (Err(known), Err(new)) => known == new,
            _ => false,
        };
        let index = wants.iter().position(same).unwrap_or(wants.len());
        if index == wants.len() {
            wants.push(want);
        }
        // More than that do not fit into a program.
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        match at {
            Moment::Entry => Term::Arg(index),
            Moment::Return => Term::Result(index),
        }
    }

    fn term(&mut self, typed: Typed<'_>, bytes: u16) -> Term {
        match typed.value {
            Source::Literal(literal) => constant(literal),
            Source::Goid => Term::Goid,
            Source::Duration => Term::Duration,
            Source::Unavailable { reason, at, name } => {
                self.want(at, Want { name, type_name: String::new(), compiled: Err(reason) })
            }
            Source::Value { access, at, name } => {
                let type_name = access.ty.name.to_string();
                let compiled = scalar(&access, typed.kinds.class, bytes);
                let compiled = compiled.map_err(|failure| failure.to_string());
                self.want(at, Want { name, type_name, compiled })
            }
        }
    }
}

/// When the operand's value is read.
fn moment(operand: &Operand, scope: &Scope<'_>, at: Moment) -> Moment {
    if at == Moment::Entry || (!scope.is_result(operand) && scope.is_of_entry(operand)) {
        Moment::Entry
    } else {
        Moment::Return
    }
}

fn typed<'a>(side: &Side, scope: &Scope<'a>, at: Moment) -> Result<Typed<'a>, Failure> {
    let operand = match side {
        Side::Literal { column, literal } => {
            let kinds = Kinds::of_literal(*column, literal);
            return Ok(Typed { kinds, value: Source::Literal(literal.clone()) });
        }
        Side::Operand(operand) => operand,
    };
    let (column, name) = (operand.column, operand.to_string());
    match operand.start {
        Start::Goid if operand.steps.is_empty() => {
            let kinds = Kinds { column, name, ty: "uint64".to_owned(), class: Class::Int };
            return Ok(Typed { kinds, value: Source::Goid });
        }
        Start::Duration if at == Moment::Return => {
            if let Some(step) = operand.steps.first() {
                return Err(ExpressionError::meaning(step.column, "a duration has no parts").into());
            }
            let ty = "time.Duration".to_owned();
            let kinds = Kinds { column, name, ty, class: Class::Duration };
            return Ok(Typed { kinds, value: Source::Duration });
        }
        _ => {}
    }
    let at = moment(operand, scope, at);
    match find(operand, scope, at) {
        Ok(access) => {
            let kinds = Kinds::of_value(column, name.clone(), &access.ty);
            Ok(Typed { kinds, value: Source::Value { access, at, name } })
        }
        Err(Failure::Unavailable(reason)) => {
            let class = Class::Unknown;
            let kinds = Kinds { column, name: name.clone(), ty: "unknown".to_owned(), class };
            Ok(Typed { kinds, value: Source::Unavailable { reason, at, name } })
        }
        Err(failure) => Err(failure),
    }
}

/// How much of a string decides a comparison with this constant: one byte more than it has.
fn text_bytes(typed: &Typed<'_>) -> Option<u16> {
    let Source::Literal(Literal::Text(bytes)) = &typed.value else { return None };
    Some((bytes.len() + 1).min(MAX_FIELD_DATA) as u16)
}

fn constant(literal: Literal) -> Term {
    match literal {
        Literal::Int(n) => match i64::try_from(n) {
            Ok(n) => Term::Int(n),
            Err(_) => Term::Uint(u64::try_from(n).unwrap_or(u64::MAX)),
        },
        Literal::Duration(ns) => Term::Int(ns),
        Literal::Float(n) => Term::Float(n),
        Literal::Text(bytes) => Term::Text(bytes),
        Literal::Bool(value) => Term::Bool(value),
        Literal::Nil => Term::Nil,
    }
}

/// The least that is read of a value to compare it.
fn scalar(access: &Access<'_>, class: Class, bytes: u16) -> Result<Compiled, Failure> {
    if class == Class::Nilable {
        let mut ops = access.word(0)?;
        ops.push(op(OpCode::EmitAcc, 8, 0));
        return Ok(checked(&access.checks, Compiled { kind: ValueKind::Pointer, ops }));
    }
    if let Location::Word(ops) = &access.place {
        return Ok(word(access, ops));
    }
    let (shape, place) = access.shape_and_place()?;
    let compiled = compile(&shape, &place, bytes).map_err(Failure::Unavailable)?;
    Ok(checked(&access.checks, compiled))
}
