//! Names for addresses of the traced processes, over the executable's own tables.

use address::{Avma, Bias, Svma};
use binary::Executable;
use probe::Plan;
use probe::shape::{ProgramTypes, Shape};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use timeline::{Location, Symbolizer};
use wire::Record;

/// Locations kept at the most; call sites are few, a hostile target's are not.
const MAX_CACHED: usize = 1 << 16;

/// How the bias of a process is found: `None` while it cannot be known.
pub type FindBias = Box<dyn Fn(u32) -> Option<Bias>>;

/// A [`Symbolizer`] for the processes of one image.
pub struct Symbols {
    executable: Arc<Executable>,
    find_bias: FindBias,
    biases: RefCell<HashMap<u32, Option<Bias>>>,
    locations: RefCell<HashMap<u64, Option<Location>>>,
    types: RefCell<HashMap<u64, Option<(String, u8)>>>,
    shapes: RefCell<HashMap<u64, Option<Arc<Shape>>>>,
}

impl Symbols {
    /// Names from `executable`; `find_bias` is asked once per process of a PIE.
    pub fn new(executable: Arc<Executable>, find_bias: FindBias) -> Self {
        Self {
            executable,
            find_bias,
            biases: RefCell::default(),
            locations: RefCell::default(),
            types: RefCell::default(),
            shapes: RefCell::default(),
        }
    }

    /// Forgets what is known of a process: it is gone, or it is another program now.
    pub fn forget(&self, pid: u32) {
        self.biases.borrow_mut().remove(&pid);
    }

    /// Looks the bias of `pid` up now, while its mappings can be read.
    pub fn learn(&self, pid: u32) {
        self.bias(pid);
    }

    /// Takes from an announcement ([`RecordKind::Process`](wire::RecordKind::Process)) where
    /// the image lies: it is known also of a process that is gone before anyone can look.
    pub fn place(&self, plan: &Plan, announced: &Record<'_>) {
        if let Some((site, _)) = plan.function_of(announced.site) {
            let bias = Bias(announced.caller.wrapping_sub(site.address.0));
            self.biases.borrow_mut().insert(announced.pid, Some(bias));
        }
    }

    fn bias(&self, pid: u32) -> Option<Bias> {
        if !self.executable.image().is_pie() {
            return Some(Bias(0));
        }
        *self.biases.borrow_mut().entry(pid).or_insert_with(|| (self.find_bias)(pid))
    }

    fn locate(&self, address: Svma) -> Option<Location> {
        let mut cache = self.locations.borrow_mut();
        if let Some(known) = cache.get(&address.0) {
            return known.clone();
        }
        let found = self.look_up(address);
        if cache.len() < MAX_CACHED {
            cache.insert(address.0, found.clone());
        }
        found
    }

    /// The innermost frame: an inlined function's name with the place in its source. The
    /// offset counts from the function whose code it is.
    fn look_up(&self, address: Svma) -> Option<Location> {
        let frames = self.executable.symbolize(address);
        let frame = frames.first()?;
        Some(Location {
            func: frame.func.clone(),
            offset: address.since(frame.entry)?,
            file: frame.file.clone(),
            line: frame.line,
        })
    }
}

impl Symbolizer for Symbols {
    fn location(&self, pid: u32, address: u64) -> Option<Location> {
        self.locate(self.bias(pid)?.to_svma(Avma(address)))
    }

    fn image_location(&self, address: u64) -> Option<Location> {
        self.locate(Svma(address))
    }

    fn type_name(&self, pid: u32, address: u64) -> Option<(String, u8)> {
        let descriptor = self.bias(pid)?.to_svma(Avma(address));
        let mut cache = self.types.borrow_mut();
        if let Some(known) = cache.get(&descriptor.0) {
            return known.clone();
        }
        let found = self.executable.type_name(descriptor);
        if cache.len() < MAX_CACHED {
            cache.insert(descriptor.0, found.clone());
        }
        found
    }

    fn held_shape(&self, pid: u32, address: u64) -> Option<Arc<Shape>> {
        let descriptor = self.bias(pid)?.to_svma(Avma(address));
        let mut cache = self.shapes.borrow_mut();
        if let Some(known) = cache.get(&descriptor.0) {
            return known.clone();
        }
        let found = ProgramTypes::new(&self.executable, None).held_shape(descriptor).map(Arc::new);
        if cache.len() < MAX_CACHED {
            cache.insert(descriptor.0, found.clone());
        }
        found
    }
}
