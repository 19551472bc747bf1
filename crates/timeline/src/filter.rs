//! Which calls a person wants to see: a stage between the timeline and the output.

use crate::event::{Call, Event};
use crate::hash::KeyHash;
use std::collections::{BTreeSet, HashMap, HashSet};

/// What to show. The default shows everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterOptions {
    /// Only trees rooted at these functions (indices into `Plan::functions`), roots included.
    pub drilldown: Option<HashSet<u32>>,
    /// Only this many levels, roots being the first.
    pub depth: Option<u32>,
    /// Hides calls shorter than this, nanoseconds.
    pub min_ns: Option<u64>,
    /// Only the first so many root calls that finish.
    pub limit: Option<u64>,
}

impl FilterOptions {
    /// Whether nothing is hidden, so that no [`Filter`] is needed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// An open call inside a tree of interest.
#[derive(Debug)]
struct Open {
    depth: u32,
    parent: Option<u64>,
    /// Set until its `Enter` is passed on; `None` too when the call is not shown.
    held: Option<Box<Call>>,
    shown: bool,
}

/// Passes on what [`FilterOptions`] ask for. Needs the timeline's `Enter` events.
///
/// With a drilldown, `depth` and `parent` are those within the tree. With a minimum, an
/// `Enter` is held until its call is known to be long enough: a call inside it was, or
/// [`Filter::tick`] sees that enough time passed. So entries stay in order.
#[derive(Debug)]
pub struct Filter {
    options: FilterOptions,
    open: HashMap<u64, Open, KeyHash>,
    /// (start, id) of held calls.
    held: BTreeSet<(u64, u64)>,
    roots: u64,
}

impl Filter {
    /// A filter that has seen nothing.
    pub fn new(options: FilterOptions) -> Self {
        Self { options, open: HashMap::default(), held: BTreeSet::new(), roots: 0 }
    }

    /// Whether the limit is reached: nothing more will be passed on.
    pub fn done(&self) -> bool {
        self.options.limit.is_some_and(|limit| self.roots >= limit)
    }

    /// Takes one event and appends what is shown to `out`.
    pub fn push(&mut self, event: Event, out: &mut Vec<Event>) {
        match event {
            Event::Enter(call) => self.enter(call, out),
            Event::Leave(call) => self.leave(call, out),
            other => out.push(other),
        }
    }

    /// Passes on the entries of calls that by `now_ns` have lasted long enough.
    pub fn tick(&mut self, now_ns: u64, out: &mut Vec<Event>) {
        let min = self.options.min_ns.unwrap_or(0);
        while let Some(&(start, id)) = self.held.first() {
            if now_ns.saturating_sub(start) < min {
                return;
            }
            self.release(id, out);
        }
    }

    fn enter(&mut self, mut call: Call, out: &mut Vec<Event>) {
        if self.done() {
            return;
        }
        let above = call.parent.and_then(|id| Some((id, self.open.get(&id)?.depth)));
        let (parent, depth) = match (above, &self.options.drilldown) {
            (Some((id, depth)), _) => (Some(id), depth + 1),
            (None, Some(roots)) if !roots.contains(&call.function) => return,
            (None, Some(_)) => (None, 0),
            (None, None) => (call.parent, call.depth),
        };
        (call.parent, call.depth) = (parent, depth);
        let shown = self.options.depth.is_none_or(|limit| depth < limit);
        let hold = shown && self.options.min_ns.is_some();
        let mut open = Open { depth, parent, held: None, shown };
        let id = call.id;
        if hold {
            self.held.insert((call.start_ns, id));
            open.held = Some(Box::new(call));
        } else if shown {
            out.push(Event::Enter(call));
        }
        self.open.insert(id, open);
    }

    fn leave(&mut self, mut call: Call, out: &mut Vec<Event>) {
        let Some(open) = self.open.get_mut(&call.id) else { return };
        let short = self.options.min_ns.is_some_and(|min| call.end_ns - call.start_ns < min);
        if let Some(held) = open.held.take_if(|_| short) {
            self.held.remove(&(held.start_ns, call.id));
            self.open.remove(&call.id);
            return;
        }
        self.release(call.id, out);
        let Some(open) = self.open.remove(&call.id) else { return };
        if !open.shown || self.done() {
            return;
        }
        (call.parent, call.depth) = (open.parent, open.depth);
        if call.depth == 0 {
            self.roots += 1;
        }
        out.push(Event::Leave(call));
    }

    /// Passes on the held entry of a call, after those of the calls around it.
    fn release(&mut self, id: u64, out: &mut Vec<Event>) {
        let mut chain = Vec::new();
        let mut next = Some(id);
        while let Some(open) = next.and_then(|id| self.open.get_mut(&id)) {
            let Some(mut held) = open.held.take() else { break };
            self.held.remove(&(held.start_ns, held.id));
            next = open.parent;
            // A call on a system stack may outlive the one it began in, hidden by now.
            if next.is_some_and(|parent| !self.open.contains_key(&parent)) {
                held.parent = None;
                if let Some(open) = self.open.get_mut(&held.id) {
                    open.parent = None;
                }
            }
            chain.push(held);
        }
        out.extend(chain.into_iter().rev().map(|call| Event::Enter(*call)));
    }
}
