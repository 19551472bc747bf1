//! Which values a comparison makes sense for.

use super::predicate::Comparison;
use super::resolve::Failure;
use super::{ExpressionError, Literal};
use binary::{Kind, TypeInfo};

/// Values that are compared alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Bool,
    Int,
    /// An integer constant, or a constant that is one of nanoseconds.
    Constant,
    Duration,
    Float,
    Text,
    /// Pointers, interfaces, slices, maps, channels, funcs.
    Nilable,
    Nil,
    /// Arrays, structs, complex numbers.
    Whole,
    /// Nothing is known of it.
    Unknown,
}

/// A side of a comparison, for messages.
#[derive(Clone, Debug)]
pub(super) struct Kinds {
    pub(super) column: usize,
    /// As the person wrote it.
    pub(super) name: String,
    /// Its type.
    pub(super) ty: String,
    pub(super) class: Class,
}

impl Kinds {
    pub(super) fn of_value(column: usize, name: String, ty: &TypeInfo) -> Self {
        let class = match &ty.kind {
            Kind::Bool => Class::Bool,
            Kind::Int { .. } if &*ty.name == "time.Duration" => Class::Duration,
            Kind::Int { .. } => Class::Int,
            Kind::Float => Class::Float,
            Kind::String => Class::Text,
            Kind::Pointer { .. }
            | Kind::Interface { .. }
            | Kind::Slice { .. }
            | Kind::Map { .. }
            | Kind::Chan
            | Kind::Func
            | Kind::UnsafePointer => Class::Nilable,
            Kind::Complex | Kind::Array { .. } | Kind::Struct { .. } | Kind::Other => Class::Whole,
        };
        Self { column, name, ty: ty.name.to_string(), class }
    }

    pub(super) fn of_literal(column: usize, literal: &Literal) -> Self {
        let (name, ty, class) = match literal {
            Literal::Int(n) => (n.to_string(), "an integer", Class::Constant),
            Literal::Float(n) => (n.to_string(), "a number with a fraction", Class::Float),
            Literal::Text(_) => ("the string".to_owned(), "a string", Class::Text),
            Literal::Bool(value) => (value.to_string(), "a boolean", Class::Bool),
            Literal::Nil => ("nil".to_owned(), "nil", Class::Nil),
            Literal::Duration(ns) => (format!("{ns}ns"), "a duration", Class::Duration),
        };
        Self { column, name, ty: ty.to_owned(), class }
    }

    /// Fails when it is no condition by itself.
    pub(super) fn expect_bool(&self) -> Result<(), Failure> {
        if matches!(self.class, Class::Bool | Class::Unknown) {
            return Ok(());
        }
        let message = format!("{} is {}: compare it with something", self.name, self.ty);
        Err(ExpressionError::meaning(self.column, message).into())
    }
}

/// Fails when two sides can not be compared so.
pub(super) fn check(
    comparison: Comparison,
    column: usize,
    left: &Kinds,
    right: &Kinds,
) -> Result<(), Failure> {
    use Class::{Bool, Constant, Duration, Float, Int, Nil, Nilable, Text, Unknown, Whole};
    let error = |message: String| Err(ExpressionError::meaning(column, message).into());
    for side in [left, right] {
        if side.class == Whole {
            let Kinds { name, ty, .. } = side;
            return error(format!("{name} is {ty}, which is not compared: compare a part of it"));
        }
    }
    let has_order = match (left.class, right.class) {
        (Unknown, _) | (_, Unknown) => return Ok(()),
        (Int | Duration | Constant, Int | Duration | Constant) => true,
        (Float | Constant, Float | Constant) => true,
        (Text, Text) => true,
        (Bool, Bool) | (Nilable, Nil) | (Nil, Nilable) => false,
        (Nilable, Nilable) if is_pointer(left) && is_pointer(right) => false,
        (Nilable, Nilable) => {
            return error(format!("{} and {} compare with nil only", left.name, right.name));
        }
        _ => {
            let side = |side: &Kinds| format!("{} is {}", side.name, side.ty);
            return error(format!("not comparable: {}, {}", side(left), side(right)));
        }
    };
    let is_literal = |side: &Kinds, other: &Kinds| side.class == Duration && other.class == Int;
    for (side, other) in [(left, right), (right, left)] {
        if is_literal(side, other) && side.ty == "a duration" {
            let Kinds { name, ty, .. } = other;
            return error(format!("{name} is {ty}, no time.Duration: write a number"));
        }
    }
    if comparison.is_of_order() && !has_order {
        return error(format!("{comparison} makes no sense for {}", left.ty));
    }
    Ok(())
}

fn is_pointer(side: &Kinds) -> bool {
    side.ty.starts_with('*')
}
