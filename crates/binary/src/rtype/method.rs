//! Signatures of methods, by the method tables of types: types without names.

use super::reach::METHOD;
use super::{KIND, KIND_MASK, SIZE, TFLAG};
use crate::bytes::u32_at;
use crate::executable::Executable;
use crate::types::TypeId;
use address::Svma;
use std::collections::HashMap;

/// `abi.Method`: where the func type's offset is, and those of the code for interfaces and for direct calls.
const TYPE: usize = 4;
const DIRECT: usize = 12;

/// What a method takes and gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeSignature {
    /// The receiver's type, then those of the parameters.
    pub params: Vec<TypeId>,
    /// Types of the results.
    pub results: Vec<TypeId>,
}

impl Executable {
    /// The methods that types list, by the first instruction of their code: those that are called
    /// through interfaces or by reflection, the others the linker leaves out.
    pub(super) fn methods_by_entry(&self) -> HashMap<Svma, (Svma, Svma)> {
        let mut methods = HashMap::new();
        for descriptor in self.runtime_type_names().values().flatten() {
            for (entry, ty) in self.methods_of(*descriptor).unwrap_or_default() {
                methods.entry(entry).or_insert((*descriptor, ty));
            }
        }
        methods
    }

    fn methods_of(&self, at: Svma) -> Option<Vec<(Svma, Svma)>> {
        let module = self.module().ok()?;
        let head = self.image().read_vec(at, SIZE).ok()?;
        let (kind, flags) = (head.get(KIND)? & KIND_MASK, *head.get(TFLAG)?);
        let uncommon = self.uncommon(at, kind, flags)?;
        // Methods of interface types have no code.
        if kind == 20 {
            return None;
        }
        let bytes = METHOD * u64::from(uncommon.method_count);
        let raw = self.image().read_vec(uncommon.methods, bytes).ok()?;
        let methods = raw.chunks_exact(METHOD as usize).filter_map(|method| {
            let (ty, code) = (u32_at(method, TYPE)?, u32_at(method, DIRECT)?);
            let is_there = !matches!(ty, 0 | u32::MAX) && !matches!(code, 0 | u32::MAX);
            let entry = module.text.add(code.into());
            is_there.then(|| (entry, module.types.add(ty.into())))
        });
        Some(methods.collect())
    }

    /// What the method whose first instruction is at `entry` takes and gives, by the table of methods
    /// of its type; `None` when no table has it.
    pub fn method_signature(&self, entry: Svma) -> Option<RuntimeSignature> {
        let (receiver, ty) = *self.runtime_types().methods(self).get(&entry)?;
        let types = self.in_out(ty)?;
        let ids = |types: &[Svma]| types.iter().map(|at| TypeId::of_descriptor(*at)).collect();
        let mut params = vec![TypeId::of_descriptor(receiver)];
        let rest: Vec<TypeId> = ids(&types.params);
        params.extend(rest);
        Some(RuntimeSignature { params, results: ids(&types.results) })
    }
}
