//! The types of one executable: by debug information where there is some, and by the
//! descriptors that the runtime has.

use super::closures::Closures;
use super::types::{Closure, Implementation, Types};
use super::{Shape, ShapeBuilder};
use crate::planner::map_form;
use crate::shape::Extent;
use address::Svma;
use binary::{DebugInfo, Executable, Kind, RuntimeType, TypeId, TypeInfo, TypeSource};
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

/// Types that one interface is looked into for at the most.
const MAX_KNOWN: usize = crate::planner::MOST_KNOWN as usize;

/// Types kept.
const MAX_CACHED: usize = 1 << 14;

/// Errors that hold their message in fields, in the order of how often they are met.
const ERRORS: [&str; 6] = [
    "*errors.errorString",
    "*fmt.wrapError",
    "*fs.PathError",
    "*errors.joinError",
    "*fmt.wrapErrors",
    "*strconv.NumError",
];

/// The types of an executable.
pub struct ProgramTypes<'a> {
    executable: &'a Executable,
    debug: Option<&'a DebugInfo>,
    known: RefCell<HashMap<Svma, Option<Arc<TypeInfo>>>>,
    /// Types of the linker's itabs by their interface.
    itabs: OnceCell<HashMap<Svma, Vec<Svma>>>,
    /// What was found out of interfaces: each is met in many signatures, and asking means to read
    /// the names of all types that implement it.
    implementations: RefCell<HashMap<Svma, Arc<[Implementation]>>>,
    closures: OnceCell<Closures>,
    /// What an interface without methods is looked into for.
    any: OnceCell<Vec<Implementation>>,
}

impl<'a> ProgramTypes<'a> {
    /// The types of `executable`, by `debug` where that is given.
    pub fn new(executable: &'a Executable, debug: Option<&'a DebugInfo>) -> Self {
        Self {
            executable,
            debug,
            known: RefCell::default(),
            itabs: OnceCell::new(),
            implementations: RefCell::default(),
            closures: OnceCell::new(),
            any: OnceCell::new(),
        }
    }

    /// What an interface of the dynamic type with that descriptor holds, of which only the
    /// value's own bytes are captured: of a pointer type, what it points to. `None` for what
    /// is no address of a value.
    pub fn held_shape(&self, descriptor: Svma) -> Option<Shape> {
        let ty = self.executable.runtime_type(descriptor)?;
        let behind = self.behind(ty)?;
        let extent = Extent { depth: 0, elements: 8, inner: 8, known: 0 };
        let form = map_form(self.executable.go_version());
        Some(ShapeBuilder::new(self, form, extent).shape(&behind))
    }

    /// What the data word of an interface leads to.
    fn behind(&self, ty: RuntimeType) -> Option<Arc<TypeInfo>> {
        match ty.info.kind {
            Kind::Pointer { elem: Some(elem) } => self.info(elem),
            _ if ty.is_direct => None,
            _ => Some(ty.into()),
        }
    }

    fn of_descriptor(&self, descriptor: Svma) -> Option<Arc<TypeInfo>> {
        if let Some(known) = self.known.borrow().get(&descriptor) {
            return known.clone();
        }
        let found = self.executable.runtime_type(descriptor).map(Arc::from);
        let mut known = self.known.borrow_mut();
        if known.len() < MAX_CACHED {
            known.insert(descriptor, found.clone());
        }
        found
    }

    fn itabs(&self) -> &HashMap<Svma, Vec<Svma>> {
        self.itabs.get_or_init(|| {
            let mut by_interface: HashMap<Svma, Vec<Svma>> = HashMap::new();
            for itab in self.executable.itabs() {
                by_interface.entry(itab.interface).or_default().push(itab.dynamic);
            }
            by_interface
        })
    }

    /// The types that are looked into for the interface with that descriptor, first things first.
    fn ranked(&self, interface: Svma) -> Vec<Implementation> {
        let Some(types) = self.itabs().get(&interface) else { return Vec::new() };
        let ranked = types.iter().filter_map(|descriptor| {
            let (short, _) = self.executable.type_name(*descriptor)?;
            let ty = self.executable.runtime_type(*descriptor)?;
            let word = ty.word;
            let behind = self.behind(ty)?;
            let rank = self.rank(&short, &behind)?;
            Some((rank, *descriptor, Implementation { word, behind }))
        });
        let mut ranked: Vec<_> = ranked.collect();
        ranked.sort_by_key(|(rank, descriptor, _)| (*rank, *descriptor));
        ranked.dedup_by_key(|(_, descriptor, _)| *descriptor);
        ranked.into_iter().map(|(.., implementation)| implementation).take(MAX_KNOWN).collect()
    }

    /// How early a type is looked into: errors that tell their message, then the program's own types.
    fn rank(&self, name: &str, behind: &TypeInfo) -> Option<usize> {
        if let Some(rank) = ERRORS.iter().position(|known| *known == name) {
            return Some(rank);
        }
        self.is_own(&behind.name).then_some(ERRORS.len())
    }

    /// Whether a name is one of the program's own.
    fn is_own(&self, name: &str) -> bool {
        let own = self.executable.build_info().map_or("", |info| &info.main.path);
        name.starts_with("main.") || (!own.is_empty() && name.starts_with(own))
    }

    /// Strings, and types of the program itself: what they point to first.
    fn in_any(&self) -> Vec<Implementation> {
        let types = TypeSource::new(self.executable, self.debug);
        let names = types.type_names().unwrap_or_default().into_iter();
        let ranked = names.filter_map(|(name, id)| {
            let rank = match name.strip_prefix('*') {
                None if name == "string" => 0,
                Some(behind) if self.is_own(behind) => 1,
                Some(_) if name == "*errors.errorString" => 2,
                None if self.is_own(&name) => 3,
                _ => return None,
            };
            let ty = self.executable.runtime_type(types.descriptor(id).ok()??)?;
            let word = ty.word;
            let behind = self.behind(ty)?;
            let is_of_parts = matches!(behind.kind, Kind::Struct { .. } | Kind::String);
            is_of_parts.then_some((rank, name, Implementation { word, behind }))
        });
        let mut ranked: Vec<_> = ranked.collect();
        ranked.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
        ranked.dedup_by(|one, other| one.1 == other.1);
        ranked.into_iter().map(|(.., implementation)| implementation).take(MAX_KNOWN).collect()
    }
}

impl Types for ProgramTypes<'_> {
    fn info(&self, id: TypeId) -> Option<Arc<TypeInfo>> {
        match id.descriptor() {
            Some(descriptor) => self.of_descriptor(descriptor),
            None => TypeSource::new(self.executable, self.debug).type_info(id).ok(),
        }
    }

    fn constants(&self, ty: &TypeInfo) -> Arc<[(i64, Arc<str>)]> {
        // Other types than named ones have none, and descriptors tell of none.
        let package = package_of(&ty.name).filter(|_| ty.id.descriptor().is_none());
        let Some((debug, package)) = self.debug.zip(package) else { return Arc::default() };
        debug.constants_of(ty.id, package).unwrap_or_default()
    }

    fn closures(&self, func: &TypeInfo) -> Vec<Closure> {
        let Some(debug) = self.debug.filter(|_| func.id.descriptor().is_none()) else {
            return Vec::new();
        };
        let all = self.closures.get_or_init(|| {
            Closures::of(self.executable, debug, &|name| self.is_own(name)).unwrap_or_default()
        });
        all.of_type(debug, func.id)
    }

    fn implementations(&self, interface: &TypeInfo) -> Vec<Implementation> {
        if interface.kind == (Kind::Interface { empty: true }) {
            return self.any.get_or_init(|| self.in_any()).clone();
        }
        let source = TypeSource::new(self.executable, self.debug);
        let descriptor = source.descriptor(interface.id).ok().flatten();
        let Some(interface) = descriptor else { return Vec::new() };
        if let Some(known) = self.implementations.borrow().get(&interface) {
            return known.to_vec();
        }
        let found = self.ranked(interface);
        let mut known = self.implementations.borrow_mut();
        if known.len() < MAX_CACHED {
            known.insert(interface, Arc::from(found.as_slice()));
        }
        found
    }
}

/// The package's path in the full name of a type.
fn package_of(name: &str) -> Option<&str> {
    let plain = name.split('[').next().unwrap_or(name);
    let slash = plain.rfind('/').map_or(0, |slash| slash + 1);
    let dot = plain.get(slash..)?.find('.')?;
    plain.get(..slash + dot)
}
