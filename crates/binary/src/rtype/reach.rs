//! All type descriptors of an executable, by name.

use super::full_name::{UNCOMMON, UNCOMMON_SIZE};
use super::info::{ELEM, MAP_ELEM, METHODS, METHODS_LEN};
use super::{KIND, KIND_MASK, SIZE, TFLAG};
use crate::bytes::u32_at;
use crate::executable::Executable;
use crate::types::{Kind, TypeId, TypeInfo};
use address::Svma;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Descriptors at the most; a bound on hostile input.
const MAX_TYPES: usize = 1 << 18;

/// Types kept; then the cache is emptied.
const MAX_CACHED: usize = 1 << 14;

/// `abi.Type.PtrToThis`.
const PTR_TO_THIS: usize = 44;

/// `abi.Imethod` and `abi.Method`: bytes, and where the func type's offset is.
const INTERFACE_METHOD: u64 = 8;
pub(super) const METHOD: u64 = 16;
const METHOD_TYPE: usize = 4;

/// Methods of one type at the most.
const MAX_METHODS: u64 = 1 << 12;

/// What was found of the descriptors of one executable.
#[derive(Debug, Default)]
pub(crate) struct RuntimeTypes {
    names: OnceLock<BTreeMap<String, Vec<Svma>>>,
    known: Mutex<HashMap<Svma, Option<Arc<TypeInfo>>>>,
    methods: OnceLock<HashMap<Svma, (Svma, Svma)>>,
}

impl RuntimeTypes {
    /// Receiver and func type of methods by the first instructions of their code.
    pub(super) fn methods(&self, executable: &Executable) -> &HashMap<Svma, (Svma, Svma)> {
        self.methods.get_or_init(|| executable.methods_by_entry())
    }
}

impl Executable {
    /// As [`Self::runtime_type`], kept.
    pub(crate) fn runtime_type_info(&self, descriptor: Svma) -> Option<Arc<TypeInfo>> {
        let cache = &self.runtime_types().known;
        let lock = || cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&descriptor) {
            return known.clone();
        }
        let found = self.runtime_type(descriptor).map(Arc::from);
        let mut known = lock();
        if known.len() >= MAX_CACHED {
            known.clear();
        }
        known.insert(descriptor, found.clone());
        found
    }

    /// All types that have a descriptor by their names: those that the linker lists, that its
    /// itabs name, and that these lead to. Functions may declare several of one name.
    pub fn runtime_type_names(&self) -> &BTreeMap<String, Vec<Svma>> {
        self.runtime_types().names.get_or_init(|| {
            let mut names: BTreeMap<String, Vec<Svma>> = BTreeMap::new();
            for descriptor in self.reachable_types() {
                if let Some(ty) = self.runtime_type_info(descriptor) {
                    names.entry(ty.name.to_string()).or_default().push(descriptor);
                }
            }
            names
        })
    }

    /// The one type whose name is that, as debug information spells it.
    pub fn runtime_type_named(&self, name: &str) -> Option<TypeId> {
        match &self.runtime_type_names().get(name)?[..] {
            [one] => Some(TypeId::of_descriptor(*one)),
            _ => None,
        }
    }

    /// Addresses of all descriptors, sorted.
    fn reachable_types(&self) -> Vec<Svma> {
        let mut left = self.listed_types();
        left.extend(self.itabs().iter().flat_map(|itab| [itab.interface, itab.dynamic]));
        let mut seen = HashSet::new();
        while let Some(at) = left.pop() {
            if seen.len() >= MAX_TYPES || seen.contains(&at) {
                continue;
            }
            let Some(ty) = self.runtime_type_info(at) else { continue };
            seen.insert(at);
            left.extend(self.parts_of(&ty));
            left.extend(self.named_by(at).unwrap_or_default());
        }
        let mut all: Vec<Svma> = seen.into_iter().collect();
        all.sort_unstable();
        all
    }

    /// Types that a module lists: by `typelinks` up to Go 1.26 (unnamed ones, which lead to all others),
    /// one behind the other since 1.27 (`moduleTypelinks`, runtime/type.go).
    fn listed_types(&self) -> Vec<Svma> {
        let Ok(module) = self.module() else { return Vec::new() };
        if let Some((start, count)) = module.typelinks {
            let count = count.min(MAX_TYPES as u64);
            let offsets = self.image().read_vec(start, 4 * count).unwrap_or_default();
            let offsets = (0..count as usize).filter_map(|index| u32_at(&offsets, 4 * index));
            return offsets.map(|offset| module.types.add(offset.into())).collect();
        }
        let Some(length) = module.typedesc_len else { return Vec::new() };
        let (mut all, mut at) = (Vec::new(), module.types.add(8));
        while at < module.types.add(length) && all.len() < MAX_TYPES {
            let Some(size) = self.descriptor_size(at) else { break };
            all.push(at);
            at = at.add(size.next_multiple_of(8));
        }
        all
    }

    /// Bytes of a descriptor with all that lies behind it (`abi.Type.DescriptorSize`, Go 1.27).
    fn descriptor_size(&self, at: Svma) -> Option<u64> {
        let head = self.image().read_vec(at, SIZE).ok()?;
        let (kind, flags) = (head.get(KIND)? & KIND_MASK, *head.get(TFLAG)?);
        let count = |offset| self.read_word(at.add(offset)).ok().filter(|count| *count < 1 << 16);
        let (base, more) = match kind {
            17 => (72, 0),
            18 => (64, 0),
            19 => {
                let types = self.in_out(at)?;
                (56, 8 * (types.params.len() + types.results.len()) as u64)
            }
            20 => (80, INTERFACE_METHOD * count(METHODS_LEN)?),
            21 => (self.map_type_size().ok()?, 0),
            22 | 23 => (56, 0),
            25 => (80, 24 * count(METHODS_LEN)?),
            1..=26 => (SIZE, 0),
            _ => return None,
        };
        let uncommon = match flags & UNCOMMON {
            0 => 0,
            _ => {
                let uncommon = self.uncommon(at, kind, flags)?;
                UNCOMMON_SIZE + METHOD * u64::from(uncommon.method_count)
            }
        };
        Some(base + more + uncommon)
    }

    /// Descriptors that a type is made of.
    fn parts_of(&self, ty: &TypeInfo) -> Vec<Svma> {
        let Some(at) = ty.id.descriptor() else { return Vec::new() };
        let word = |offset| self.read_word(at.add(offset)).ok().map(Svma);
        match &ty.kind {
            Kind::Array { .. } | Kind::Slice { .. } | Kind::Pointer { .. } | Kind::Chan => {
                word(ELEM).into_iter().collect()
            }
            Kind::Map { .. } => [ELEM, MAP_ELEM].into_iter().filter_map(word).collect(),
            Kind::Struct { fields } => {
                fields.iter().filter_map(|field| field.ty.descriptor()).collect()
            }
            Kind::Func => {
                let types = self.in_out(at);
                types.map(|types| [types.params, types.results].concat()).unwrap_or_default()
            }
            Kind::Interface { .. } => self.interface_methods(at).unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    fn interface_methods(&self, at: Svma) -> Option<Vec<Svma>> {
        let module = self.module().ok()?;
        let start = Svma(self.read_word(at.add(METHODS)).ok()?);
        let count = self.read_word(at.add(METHODS_LEN)).ok()?.min(MAX_METHODS);
        let raw = self.image().read_vec(start, INTERFACE_METHOD * count).ok()?;
        let types = raw.chunks_exact(INTERFACE_METHOD as usize);
        let types = types.filter_map(|method| u32_at(method, METHOD_TYPE));
        Some(types.map(|offset| module.types.add(offset.into())).collect())
    }

    /// Descriptors that one names beside its parts: of the pointer to it and of its methods.
    fn named_by(&self, at: Svma) -> Option<Vec<Svma>> {
        let module = self.module().ok()?;
        let head = self.image().read_vec(at, SIZE).ok()?;
        let (kind, flags) = (head.get(KIND)? & KIND_MASK, *head.get(TFLAG)?);
        let mut offsets: Vec<u32> = u32_at(&head, PTR_TO_THIS).into_iter().collect();
        if let Some(uncommon) = self.uncommon(at, kind, flags) {
            let bytes = METHOD * u64::from(uncommon.method_count).min(MAX_METHODS);
            let raw = self.image().read_vec(uncommon.methods, bytes).unwrap_or_default();
            let methods = raw.chunks_exact(METHOD as usize);
            offsets.extend(methods.filter_map(|method| u32_at(method, METHOD_TYPE)));
        }
        // 0 is none, and so is -1 of a method that the linker left out.
        let offsets = offsets.into_iter().filter(|offset| !matches!(*offset, 0 | u32::MAX));
        Some(offsets.map(|offset| module.types.add(offset.into())).collect())
    }
}
