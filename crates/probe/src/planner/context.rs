//! What is read of a call beside its arguments: the variables of a closure's context, and the types that
//! a generic's dictionary has.

use super::Planner;
use crate::compile::{Builder, Later, op, push_add};
use crate::plan::ConcreteTypes;
use crate::value::{ValueKind, ValueSpec};
use address::Svma;
use binary::code::Kept;
use binary::{Kind, Piece, Place, PlacedSignature, PlacedVariable, Reg};
use std::sync::Arc;
use wire::{Op, OpCode};

/// RDX, which leads to a closure's object at its entry.
const CONTEXT: Reg = Reg::Int(2);

/// Types read of one dictionary at the most.
const MAX_DICTIONARY_TYPES: usize = 16;

impl Planner<'_> {
    /// Which words of the dictionary have the types of variables.
    fn indices(&self, variables: &[PlacedVariable]) -> Result<Vec<Option<u64>>, binary::Error> {
        let Some(debug) = self.question.debug else { return Ok(vec![None; variables.len()]) };
        variables.iter().map(|variable| debug.dictionary_index(variable.ty.id)).collect()
    }

    /// Which of these words, the first of them being value `first` at the entry, tell the types of
    /// arguments and results.
    pub(super) fn concrete_types(
        &self,
        signature: &PlacedSignature,
        types: &[(u64, ValueSpec)],
        first: usize,
    ) -> Result<ConcreteTypes, binary::Error> {
        let place = |index: &Option<u64>| {
            let at = types.iter().position(|(known, _)| Some(*known) == *index)?;
            u16::try_from(first + at).ok()
        };
        let of = |variables| Ok(self.indices(variables)?.iter().map(place).collect());
        Ok(ConcreteTypes { args: of(&signature.params)?, results: of(&signature.results)? })
    }

    /// For the parameters of a generic function the ops that leave the descriptors of their types.
    pub(super) fn type_words(
        &self,
        signature: &PlacedSignature,
        types: &[(u64, ValueSpec)],
    ) -> Result<Vec<Option<Vec<Op>>>, binary::Error> {
        let Some(number) = dictionary_register(signature) else { return Ok(Vec::new()) };
        let is_read = |index: u64| types.iter().any(|(known, _)| *known == index);
        let indices = self.indices(&signature.params)?.into_iter();
        Ok(indices.map(|index| index.filter(|i| is_read(*i)).map(|i| word_of(number, i))).collect())
    }

    /// The words of a generic's dictionary that have types of its values, as interfaces of
    /// those types.
    pub(super) fn dictionary_types(
        &self,
        signature: &PlacedSignature,
        kept: &Kept,
        builder: &mut Builder,
    ) -> Result<Vec<(u64, ValueSpec)>, binary::Error> {
        let Some(number) = dictionary_register(signature) else { return Ok(Vec::new()) };
        if kept.register(Reg::Int(number), 8).is_err() {
            return Ok(Vec::new());
        }
        let mut indices = self.indices(&signature.params)?;
        indices.extend(self.indices(&signature.results)?);
        let mut indices: Vec<u64> = indices.into_iter().flatten().collect();
        indices.sort_unstable();
        indices.dedup();
        let mut types = Vec::new();
        for index in indices.into_iter().take(MAX_DICTIONARY_TYPES) {
            let mut ops = word_of(number, index);
            ops.extend([
                op(OpCode::EmitAcc, 8, 0),
                op(OpCode::Reg, number, 0),
                op(OpCode::EmitAcc, 8, 0),
            ]);
            if builder.append(&ops) {
                let (name, type_name) = ("".into(), "".into());
                types.push((index, ValueSpec { name, type_name, kind: ValueKind::Interface }));
            }
        }
        Ok(types)
    }

    /// What the closure captured whose first instruction is at `entry`.
    pub(super) fn captured(
        &self,
        entry: Svma,
        kept: &Kept,
        builder: &mut Builder,
    ) -> Result<Vec<ValueSpec>, binary::Error> {
        let Some(debug) = self.question.debug else { return Ok(Vec::new()) };
        let signature = debug.signature(entry)?;
        let all = signature.map(|signature| signature.captured).unwrap_or_default();
        builder.leave(Later::default());
        let lost = kept.behind_register(CONTEXT).err();
        let mut specs = Vec::with_capacity(all.len());
        for variable in all {
            let mut ops = vec![op(OpCode::Reg, 2, 0)];
            push_add(&mut ops, variable.offset as i64);
            let mut ty = debug.type_info(variable.ty)?;
            let mut name = variable.name.as_str();
            if let (Some(plain), Kind::Pointer { elem: Some(elem) }) =
                (name.strip_prefix('&'), &ty.kind)
            {
                ops.extend([op(OpCode::Deref, 0, 0), op(OpCode::NilCheck, 0, 0)]);
                (name, ty) = (plain, debug.type_info(*elem)?);
            }
            specs.push(match &lost {
                Some(lost) => {
                    let kind = ValueKind::Unavailable(lost.to_string());
                    ValueSpec { name: name.into(), type_name: Arc::clone(&ty.name), kind }
                }
                None => self.values().at(name, &ty, &ops, builder),
            });
        }
        Ok(specs)
    }
}

/// The register that has a generic's dictionary.
fn dictionary_register(signature: &PlacedSignature) -> Option<u8> {
    let Some(Place::Registers(pieces)) = &signature.dictionary else { return None };
    match pieces[..] {
        [Piece { reg: Reg::Int(number), .. }] => Some(number),
        _ => None,
    }
}

/// acc = a word of the dictionary in a register.
fn word_of(number: u8, index: u64) -> Vec<Op> {
    let mut ops = vec![op(OpCode::Reg, number, 0)];
    push_add(&mut ops, (8 * index) as i64);
    ops.push(op(OpCode::Deref, 0, 0));
    ops
}
