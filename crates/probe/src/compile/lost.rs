//! Which values an entry site need not have any more: what registers hold, and what pointers lead
//! to, when the stack grew at the check before it.

use crate::rule::{Expr, Register, RuleParam, Step};
use binary::code::{Kept, Lost};
use binary::{Kind, Place, PlacedVariable, Reg};

/// Whether a parameter is as the caller passed it. A string is read where its pointer leads to.
/// Types and itabs never go away, and of other pointers the address is there: who captures what
/// lies behind them asks for each (see `planner::values`).
pub fn lost_value(variable: &PlacedVariable, kept: &Kept) -> Result<(), Lost> {
    let is_read_behind = variable.ty.kind == Kind::String;
    match &variable.place {
        Ok(Place::Registers(pieces)) => {
            pieces.iter().try_for_each(|piece| kept.register(piece.reg, piece.size))?;
            match pieces.first() {
                Some(data) if is_read_behind => kept.behind_register(data.reg),
                _ => Ok(()),
            }
        }
        // From the CFA, which is 8 bytes above SP at the first instruction.
        Ok(Place::Stack { offset }) if is_read_behind => kept.behind_stack(i64::from(*offset) + 8),
        Ok(Place::Stack { .. } | Place::Empty) | Err(_) => Ok(()),
    }
}

/// Whether the first thing that a rule's expression reads is as the caller left it. What lies
/// behind a pointer that the runtime follows is kept too.
pub fn lost_rule_param(param: &RuleParam, kept: &Kept) -> Result<(), Lost> {
    let Expr { register, steps } = &param.expr;
    let reg = register.vector().map_or(Reg::Int(register.0), Reg::Float);
    if steps.is_empty() {
        return kept.register(reg, param.ty.bytes().min(8) as u8);
    }
    if *register != Register::SP {
        return kept.behind_register(reg);
    }
    let mut offset = 0i64;
    for step in steps {
        match *step {
            Step::Offset(by) => offset = offset.wrapping_add(by),
            Step::Load(by) => return kept.behind_stack(offset.wrapping_add(by)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Rule;
    use binary::code::{Spill, Spills};
    use binary::{ArgumentMap, Piece, TypeId, TypeInfo};
    use std::sync::Arc;

    /// `f(p *T, n int, s string, b bool)` with one more string on the stack; s and that one are
    /// not used.
    fn kept(spills: bool) -> Kept {
        let spill = |number, offset, bytes| Spill { reg: Reg::Int(number), offset, bytes };
        let all = vec![
            spill(0, 24, 8),
            spill(3, 32, 8),
            spill(1, 40, 8),
            spill(7, 48, 8),
            spill(6, 56, 1),
        ];
        let spills = Spills::Reloaded(if spills { all } else { Vec::new() });
        Kept::by(spills, ArgumentMap::new(vec![0b100]))
    }

    fn text(result: Result<(), Lost>) -> String {
        result.map_or_else(|lost| lost.to_string(), |()| "kept".to_owned())
    }

    #[test]
    fn rules_start_from_what_is_kept() {
        let of = |rule: &str, kept: &Kept| {
            let rule = Rule::parse(&format!("main.f(v={rule})")).unwrap();
            text(lost_rule_param(&rule.params.unwrap()[0], kept))
        };
        let unused = "not used by the function, so not kept when its stack grows";
        let register = "register not kept when the stack grows";
        let pointee = "what it points to is not kept when the stack grows";
        let byte = "only the low 8 bits of the register are kept when the stack grows";
        for (rule, when_spilled, when_not) in [
            ("%ax:u64", "kept", unused),
            ("%si:u8", "kept", unused),
            ("%si:u64", byte, unused),
            ("(+16(%si)):u64", byte, unused),
            ("%r9:u8", register, unused),
            ("%r13:u64", register, register),
            ("%dx:u64", register, register),
            ("(*+8(%dx)):u64", register, register),
            ("%r14:u64", "kept", "kept"),
            ("(+8(%r14)):u64", "kept", "kept"),
            ("%bp:u64", "kept", "kept"),
            ("(+16(%ax)):s64", "kept", unused),
            ("(*+0(%ax)):c128", "kept", unused),
            ("(+0(%cx)):c64", pointee, unused),
            ("%sp:u64", "kept", "kept"),
            ("(+8(%sp)):u64", "kept", "kept"),
            ("(*+8(%sp)):c64", pointee, pointee),
            ("(*+16(+8(%sp))):c64", "kept", "kept"),
            ("(*-8(%sp)):c64", pointee, pointee),
        ] {
            let found = [true, false].map(|spilled| of(rule, &kept(spilled)));
            assert_eq!(found, [when_spilled, when_not], "{rule}");
            assert_eq!(of(rule, &Kept::all()), "kept", "{rule}");
        }
    }

    fn variable(kind: Kind, place: Place) -> PlacedVariable {
        let ty = TypeInfo { id: TypeId(0), name: "T".into(), size: 8, align: 8, kind };
        PlacedVariable { name: "v".to_owned(), ty: Arc::new(ty), place: Ok(place) }
    }

    #[test]
    fn values_are_kept_whole_or_lost() {
        let pieces = |registers: &[(u8, u8)]| {
            let piece = |&(number, size)| Piece { reg: Reg::Int(number), offset: 0, size };
            Place::Registers(registers.iter().map(piece).collect())
        };
        let lost = |kind, place| lost_value(&variable(kind, place), &kept(true)).err();
        assert_eq!(lost(Kind::Int { signed: true }, pieces(&[(3, 8)])), None);
        assert_eq!(lost(Kind::Bool, pieces(&[(6, 1)])), None);
        assert_eq!(lost(Kind::Int { signed: true }, pieces(&[(6, 8)])), Some(Lost::Wide(1)));
        assert_eq!(lost(Kind::String, pieces(&[(1, 8), (7, 8)])), Some(Lost::Pointee));
        assert_eq!(lost(Kind::String, pieces(&[(0, 8), (3, 8)])), None);
        assert_eq!(lost(Kind::String, pieces(&[(0, 8), (8, 8)])), Some(Lost::Register));
        assert_eq!(lost(Kind::UnsafePointer, pieces(&[(1, 8)])), None);
        assert_eq!(lost(Kind::String, Place::Stack { offset: 0 }), Some(Lost::Pointee));
        assert_eq!(lost(Kind::String, Place::Stack { offset: 16 }), None);
        assert_eq!(lost(Kind::UnsafePointer, Place::Stack { offset: 0 }), None);
        assert_eq!(lost(Kind::Bool, Place::Empty), None);
    }
}
