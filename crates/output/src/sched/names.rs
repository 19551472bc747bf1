//! Where goroutines come from, each place resolved once.

use crate::places::push_file_line;
use crate::printable::push_printable;
use serde::Serialize;
use std::collections::HashMap;
use std::rc::Rc;
use timeline::states::Origin;
use timeline::{Location, Symbolizer};

/// Places remembered before all are forgotten.
const MAX_PLACES: usize = 1 << 16;

/// What makes the main goroutine (runtime/asm_amd64.s; the wrapper that it calls).
const START_UP: [&str; 2] = ["runtime.rt0_go", "runtime.newproc"];

/// A place in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PlaceJson<'a> {
    func: &'a str,
    file: &'a str,
    line: u32,
}

impl<'a> PlaceJson<'a> {
    pub(crate) fn of(place: &'a Location) -> Self {
        Self { func: &place.func, file: &place.file, line: place.line }
    }
}

/// Resolves the origins of goroutines.
#[derive(Debug, Default)]
pub struct Origins {
    places: HashMap<(u32, u64), Option<Rc<Location>>>,
}

impl Origins {
    fn place(&mut self, pid: u32, address: u64, symbols: &dyn Symbolizer) -> Option<Rc<Location>> {
        if self.places.len() >= MAX_PLACES {
            self.places.clear();
        }
        let resolve = || symbols.location(pid, address).map(Rc::new);
        self.places.entry((pid, address)).or_insert_with(resolve).clone()
    }

    /// The `go` statement.
    pub fn created_by(
        &mut self,
        pid: u32,
        origin: &Origin,
        symbols: &dyn Symbolizer,
    ) -> Option<Rc<Location>> {
        let place = self.place(pid, origin.gopc.checked_sub(1)?, symbols)?;
        // The main goroutine is made by assembly, before there is Go code to name.
        (!START_UP.contains(&place.func.as_str())).then_some(place)
    }

    /// The function it begins with.
    pub fn start(
        &mut self,
        pid: u32,
        origin: &Origin,
        symbols: &dyn Symbolizer,
    ) -> Option<Rc<Location>> {
        (origin.startpc != 0).then(|| self.place(pid, origin.startpc, symbols)).flatten()
    }

    /// For people: the function it begins with, and where it was started.
    pub fn text(&mut self, pid: u32, origin: &Origin, symbols: &dyn Symbolizer) -> String {
        let mut text = String::new();
        match self.start(pid, origin, symbols).filter(|place| !place.func.is_empty()) {
            Some(place) => push_printable(&mut text, &place.func),
            None => text.push('?'),
        }
        if let Some(place) = self.created_by(pid, origin, symbols) {
            text.push_str(" by ");
            push_printable(&mut text, &place.func);
            text.push(' ');
            push_file_line(&mut text, &place);
        }
        text
    }

    /// Forgets the addresses of a process: it is gone or has another image.
    pub fn forget(&mut self, pid: u32) {
        self.places.retain(|(owner, _), _| *owner != pid);
    }
}
