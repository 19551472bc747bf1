//! The names a recorded file needs, so that it can be read without the process.

use probe::Plan;
use probe::shape::Shape;
use probe::value::Value;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use timeline::states::Origin;
use timeline::{Call, Event, Location, Symbolizer};

/// Addresses asked for at the most; what is beyond stays an address.
const MAX_NAMES: usize = 1 << 20;

/// Resolved addresses. A [`Symbolizer`] itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SymbolTable {
    /// Code addresses of processes.
    code: ByPid<Location>,
    /// Code addresses of the image.
    image: BTreeMap<u64, Location>,
    /// Type descriptors.
    types: ByPid<(String, u8)>,
    /// What values of these types are made of.
    shapes: ByPid<Arc<Shape>>,
    /// (pid, address) already asked for, so that an unknown one is asked for once.
    #[serde(skip)]
    asked: HashSet<(u32, u64)>,
}

/// By pid, then by address: JSON has string keys only, so pairs are nested.
type ByPid<T> = BTreeMap<u32, BTreeMap<u64, T>>;

impl SymbolTable {
    /// Whether it holds no name.
    pub fn is_empty(&self) -> bool {
        self.code.is_empty() && self.image.is_empty() && self.types.is_empty()
    }

    /// Hands out what was resolved since the last time, for a file that is written piece by
    /// piece; nothing is asked for twice.
    pub fn take_new(&mut self) -> Self {
        let asked = std::mem::take(&mut self.asked);
        std::mem::replace(self, Self { asked, ..Self::default() })
    }

    /// Adds the names of another piece.
    pub fn merge(&mut self, piece: Self) {
        for (pid, places) in piece.code {
            self.code.entry(pid).or_default().extend(places);
        }
        for (pid, types) in piece.types {
            self.types.entry(pid).or_default().extend(types);
        }
        for (pid, shapes) in piece.shapes {
            self.shapes.entry(pid).or_default().extend(shapes);
        }
        self.image.extend(piece.image);
    }

    /// Resolves the return places of `plan`.
    pub fn observe_plan(&mut self, plan: &Plan, symbols: &dyn Symbolizer) {
        for site in plan.sites.iter().take(MAX_NAMES) {
            if let Some(place) = symbols.image_location(site.address.0) {
                self.image.insert(site.address.0, place);
            }
        }
    }

    /// Resolves the addresses `event` mentions, while the process can still be asked.
    pub fn observe(&mut self, event: &Event, symbols: &dyn Symbolizer) {
        match event {
            Event::Enter(call) | Event::Leave(call) => self.observe_call(call, symbols),
            Event::Panic(panic) | Event::Panicking(panic) => {
                self.observe_type(panic.pid, panic.type_word, symbols)
            }
            _ => {}
        }
    }

    /// Resolves where a goroutine comes from, while the process can still be asked.
    pub fn observe_origin(&mut self, pid: u32, origin: &Origin, symbols: &dyn Symbolizer) {
        let go = origin.gopc.checked_sub(1);
        for address in go.into_iter().chain(Some(origin.startpc).filter(|&start| start != 0)) {
            if self.is_new(pid, address)
                && let Some(place) = symbols.location(pid, address)
            {
                self.code.entry(pid).or_default().insert(address, place);
            }
        }
    }

    fn observe_call(&mut self, call: &Call, symbols: &dyn Symbolizer) {
        if let Some(address) = call.caller.checked_sub(1) {
            self.observe_code(call.pid, address, symbols);
        }
        for value in call.args.iter().chain(&call.results) {
            value.visit(&mut |value| match value {
                Value::Interface { type_word, .. } | Value::Holding { type_word, .. } => {
                    self.observe_type(call.pid, *type_word, symbols);
                }
                Value::Func(code) | Value::Closure { code, .. } => {
                    self.observe_code(call.pid, *code, symbols);
                }
                _ => {}
            });
        }
    }

    fn observe_code(&mut self, pid: u32, address: u64, symbols: &dyn Symbolizer) {
        if self.is_new(pid, address)
            && let Some(place) = symbols.location(pid, address)
        {
            self.code.entry(pid).or_default().insert(address, place);
        }
    }

    fn observe_type(&mut self, pid: u32, address: u64, symbols: &dyn Symbolizer) {
        if address != 0
            && self.is_new(pid, address)
            && let Some(name) = symbols.type_name(pid, address)
        {
            self.types.entry(pid).or_default().insert(address, name);
            if let Some(shape) = symbols.held_shape(pid, address) {
                self.shapes.entry(pid).or_default().insert(address, shape);
            }
        }
    }

    fn is_new(&mut self, pid: u32, address: u64) -> bool {
        self.asked.len() < MAX_NAMES && self.asked.insert((pid, address))
    }
}

impl Symbolizer for SymbolTable {
    fn location(&self, pid: u32, address: u64) -> Option<Location> {
        self.code.get(&pid)?.get(&address).cloned()
    }

    fn image_location(&self, address: u64) -> Option<Location> {
        self.image.get(&address).cloned()
    }

    fn type_name(&self, pid: u32, address: u64) -> Option<(String, u8)> {
        self.types.get(&pid)?.get(&address).cloned()
    }

    fn held_shape(&self, pid: u32, address: u64) -> Option<Arc<Shape>> {
        self.shapes.get(&pid)?.get(&address).cloned()
    }
}
