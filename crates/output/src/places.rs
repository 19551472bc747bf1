//! Source places of calls and returns, each resolved once.

use crate::printable::push_printable;
use std::collections::HashMap;
use std::rc::Rc;
use timeline::{Call, Location, Symbolizer};

/// Places remembered before all are forgotten.
const MAX_PLACES: usize = 1 << 16;

/// A call site: the place, with the offset of the return address.
pub(crate) type Place = Option<Rc<Location>>;

/// Remembers resolved addresses.
#[derive(Debug, Default)]
pub(crate) struct Places {
    callers: HashMap<(u32, u64), Place>,
    exits: HashMap<u32, Place>,
}

impl Places {
    /// Where `call` was called from.
    pub fn caller(&mut self, call: &Call, symbols: &dyn Symbolizer) -> Place {
        let back = call.caller.checked_sub(1)?;
        if self.callers.len() >= MAX_PLACES {
            self.callers.clear();
        }
        let resolve = || {
            let mut place = symbols.location(call.pid, back)?;
            // People know return addresses from Go's tracebacks.
            place.offset = place.offset.saturating_add(1);
            Some(Rc::new(place))
        };
        self.callers.entry((call.pid, call.caller)).or_insert_with(resolve).clone()
    }

    /// Where `call` returned, when its exit was seen.
    pub fn exit(&mut self, call: &Call, plan: &probe::Plan, symbols: &dyn Symbolizer) -> Place {
        let site = call.exit_site?;
        let address = plan.sites.get(site as usize)?.address.0;
        let resolve = || symbols.image_location(address).map(Rc::new);
        self.exits.entry(site).or_insert_with(resolve).clone()
    }

    /// Forgets the addresses of a process: it is gone or has another image.
    pub fn forget(&mut self, pid: u32) {
        self.callers.retain(|(owner, _), _| *owner != pid);
    }
}

/// `main.go:10`, without the directories.
pub(crate) fn push_file_line(out: &mut String, place: &Location) {
    let base = place.file.rsplit('/').next().unwrap_or_default();
    if base.is_empty() {
        return;
    }
    push_printable(out, base);
    if place.line > 0 {
        out.push_str(&format!(":{}", place.line));
    }
}

/// `main.main+0x2f main.go:10`.
pub(crate) fn push_call_site(out: &mut String, place: &Location) {
    if !place.func.is_empty() {
        push_printable(out, &place.func);
        out.push_str(&format!("+0x{:x} ", place.offset));
    }
    push_file_line(out, place);
}
