//! Values of go-ftrace rules.

use super::auto::register_op;
use super::lost::lost_rule_param;
use super::{Builder, Compiled, op, push_add};
use crate::rule::{Expr, Register, RuleParam, RuleType, Step};
use crate::value::{ValueKind, ValueSpec};
use binary::code::Kept;
use wire::{Op, OpCode};

/// Adds the ops that fetch one parameter of a rule and tells how to read its field. What starts
/// from something that the entry site need not have any more is [`ValueKind::Unavailable`].
pub fn compile_rule_param(param: &RuleParam, kept: &Kept, builder: &mut Builder) -> ValueSpec {
    let compiled = match lost_rule_param(param, kept) {
        Ok(()) => Ok(compile(param)),
        Err(lost) => Err(lost.to_string()),
    };
    builder.value(&param.name, &param.ty.to_string(), compiled)
}

fn compile(param: &RuleParam) -> Compiled {
    let mut ops = Vec::new();
    address(&param.expr, &mut ops);
    let kind = match param.ty {
        RuleType::Signed(size) => ValueKind::Int { size },
        RuleType::Unsigned(size) => ValueKind::Uint { size },
        RuleType::Float(size) => ValueKind::Float { size },
        RuleType::Text(_) => ValueKind::Text,
    };
    let bytes = param.ty.bytes();
    ops.push(if param.expr.steps.is_empty() {
        // Text of an odd width is cut by the decoder, which knows the type's name.
        let width = bytes.min(8).next_power_of_two() as u8;
        op(OpCode::EmitAcc, width, 0)
    } else {
        op(OpCode::EmitBytes, 0, i64::from(bytes))
    });
    Compiled { kind, ops }
}

/// acc = what the expression says: the register's value, or the address its steps lead to.
fn address(expr: &Expr, ops: &mut Vec<Op>) {
    ops.push(match expr.register {
        Register::SP => op(OpCode::StackSlot, 0, 0),
        Register(number) => register_op(number),
    });
    for step in &expr.steps {
        match *step {
            Step::Offset(offset) => push_add(ops, offset),
            Step::Load(offset) => {
                push_add(ops, offset);
                ops.push(op(OpCode::Deref, 0, 0));
            }
        }
    }
}
