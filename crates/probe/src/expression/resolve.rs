//! From an operand to ops, in one function.

use super::access::{Access, Location, shape_of};
use super::scope::{Moment, Scope};
use super::{ExpressionError, Operand, Step, StepKind};
use crate::compile::{Builder, Compiled, op};
use crate::package::package_of;
use crate::value::{Check, ValueKind, ValueSpec};
use thiserror::Error;
use wire::{Op, OpCode};

/// Why an operand gives no value in a function.
#[derive(Debug, Error)]
pub enum Failure {
    /// It means nothing there.
    #[error(transparent)]
    Mistake(#[from] ExpressionError),
    /// It means something that can not be read, for this reason.
    #[error("{0}")]
    Unavailable(String),
    /// The executable or its debug information could not be read.
    #[error(transparent)]
    Binary(#[from] binary::Error),
}

/// Compiles a value that is shown. What can not be read is unavailable, with the reason.
pub fn resolve(
    operand: &Operand,
    scope: &Scope<'_>,
    at: Moment,
    builder: &mut Builder,
) -> Result<ValueSpec, Failure> {
    let name = operand.to_string();
    let unavailable = |reason, type_name: &str, builder: &mut Builder| {
        Ok(builder.value(&name, type_name, Err(reason)))
    };
    let access = match find(operand, scope, at) {
        Ok(access) => access,
        Err(Failure::Unavailable(reason)) => return unavailable(reason, "", builder),
        Err(failure) => return Err(failure),
    };
    let type_name = access.ty.name.clone();
    if let Location::Word(ops) = &access.place {
        return Ok(builder.value(&name, &type_name, Ok(word(&access, ops))));
    }
    // The checks and the value, or neither.
    let mut with_checks = builder.clone();
    for (_, ops) in &access.checks {
        if !with_checks.append(ops) {
            return unavailable("too many values".to_owned(), &type_name, builder);
        }
    }
    let mut spec = access.whole(&name, &scope.values, &mut with_checks);
    if !matches!(spec.kind, ValueKind::Unavailable(_)) {
        *builder = with_checks;
        spec.kind = checked_kind(&access.checks, spec.kind);
    }
    Ok(spec)
}

/// Finds the value.
pub(super) fn find<'a>(
    operand: &Operand,
    scope: &Scope<'a>,
    at: Moment,
) -> Result<Access<'a>, Failure> {
    let (mut access, taken) = scope.start(operand, at)?;
    let package = package_of(scope.function);
    let steps = operand.steps.get(taken..).unwrap_or_default();
    for (index, Step { column, kind }) in steps.iter().enumerate() {
        access = access.step(scope.types(), kind, &package, scope.values.map_form, *column)?;
        let is_end = matches!(kind, StepKind::Address);
        if let (true, Some(next)) = (is_end, steps.get(index + 1)) {
            let message = "nothing is taken of an address: leave out the &";
            return Err(ExpressionError::meaning(next.column, message).into());
        }
    }
    Ok(access)
}

/// A value that ops leave in acc.
pub(super) fn word(access: &Access<'_>, ops: &[Op]) -> Compiled {
    let kind = match shape_of(&access.ty) {
        crate::compile::AutoShape::Int { signed: true, size } => ValueKind::Int { size },
        crate::compile::AutoShape::Int { signed: false, size } => ValueKind::Uint { size },
        _ => ValueKind::Pointer,
    };
    let mut ops = ops.to_vec();
    ops.push(op(OpCode::EmitAcc, 8, 0));
    checked(&access.checks, Compiled { kind, ops })
}

/// Puts the checks before the value, the first one outermost.
pub(super) fn checked(checks: &[(Check, Vec<Op>)], value: Compiled) -> Compiled {
    let Compiled { kind, ops } = value;
    let mut all: Vec<Op> = Vec::new();
    for (_, check) in checks {
        all.extend_from_slice(check);
    }
    all.extend(ops);
    Compiled { kind: checked_kind(checks, kind), ops: all }
}

fn checked_kind(checks: &[(Check, Vec<Op>)], mut kind: ValueKind) -> ValueKind {
    for (check, _) in checks.iter().rev() {
        kind = ValueKind::Checked { check: check.clone(), value: Box::new(kind) };
    }
    kind
}
