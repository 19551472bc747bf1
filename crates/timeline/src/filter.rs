//! Which calls a person wants to see: a stage between the timeline and the output.

use crate::event::{Call, Event};
use crate::hash::KeyHash;
use crate::screening::{Conditions, Screened};
use probe::Plan;
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
    /// Only the trees of the first so many root calls, until as many roots have finished.
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
    /// Whether its entry was passed on.
    shown: bool,
    /// The root of its tree, itself if it is one.
    root: u64,
    /// Of a root: whether its tree is shown, once that is known.
    admitted: Option<bool>,
    /// Its entry, when the end decides whether it is shown.
    undecided: Option<Box<Call>>,
}

/// Passes on what [`FilterOptions`] ask for. Needs the timeline's `Enter` events.
///
/// With a drilldown, `depth` and `parent` are those within the tree. With a minimum, an
/// `Enter` is held until its call is known to be long enough: a call inside it was, or
/// [`Filter::tick`] sees that enough time passed. So entries stay in order.
///
/// Where a condition of the plan is decided by the end of a call, the call's entry is passed on with its
/// end, behind the calls inside it. What entries decide the timeline has seen to.
#[derive(Debug)]
pub struct Filter {
    options: FilterOptions,
    open: HashMap<u64, Open, KeyHash>,
    /// (start, id) of held calls.
    held: BTreeSet<(u64, u64)>,
    /// Roots whose trees are shown.
    admitted: u64,
    /// Roots that have finished, shown or not.
    finished: u64,
    conditions: Conditions,
}

impl Filter {
    /// A filter that has seen nothing.
    pub fn new(options: FilterOptions) -> Self {
        Self {
            options,
            open: HashMap::default(),
            held: BTreeSet::new(),
            admitted: 0,
            finished: 0,
            conditions: Conditions::default(),
        }
    }

    /// The same with the conditions of a plan.
    pub fn with_conditions(mut self, plan: &Plan) -> Self {
        self.conditions = Conditions::at_end(plan);
        self
    }

    /// What conditions at the end of calls came to so far.
    pub fn screened(&self) -> &Screened {
        &self.conditions.screened
    }

    /// Whether the limit is reached. What is still open of the trees that are shown may finish.
    pub fn done(&self) -> bool {
        self.options.limit.is_some_and(|limit| self.finished >= limit)
    }

    /// Whether a tree is shown. The first ones are: it is decided when the root's entry is passed on,
    /// so that no call is shown without those around it.
    fn admits(&mut self, root: u64) -> bool {
        // Gone: a call on a system stack may outlive the one it began in.
        let Some(open) = self.open.get_mut(&root) else { return self.options.limit.is_none() };
        let has_room = self.options.limit.is_none_or(|limit| self.admitted < limit);
        *open.admitted.get_or_insert_with(|| {
            self.admitted += u64::from(has_room);
            has_room
        })
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
        let above = call.parent.and_then(|id| Some((id, self.open.get(&id)?)));
        let root = above.map(|(_, open)| open.root);
        let (parent, depth) = match (above, &self.options.drilldown) {
            (Some((id, open)), _) => (Some(id), open.depth + 1),
            (None, Some(roots)) if !roots.contains(&call.function) => return,
            (None, Some(_)) => (None, 0),
            (None, None) => (call.parent, call.depth),
        };
        (call.parent, call.depth) = (parent, depth);
        let id = call.id;
        let root = root.unwrap_or(id);
        let mut open =
            Open { depth, parent, held: None, shown: false, root, admitted: None, undecided: None };
        let shown = self.options.depth.is_none_or(|limit| depth < limit);
        if shown && self.conditions.are_about(call.function) {
            open.undecided = Some(Box::new(call));
            self.open.insert(id, open);
            return;
        }
        let hold = shown && self.options.min_ns.is_some();
        if hold {
            self.held.insert((call.start_ns, id));
            open.held = Some(Box::new(call));
            self.open.insert(id, open);
            return;
        }
        self.open.insert(id, open);
        if shown && self.admits(root) {
            self.pass_on(call, out);
        }
    }

    fn pass_on(&mut self, call: Call, out: &mut Vec<Event>) {
        if let Some(open) = self.open.get_mut(&call.id) {
            open.shown = true;
        }
        out.push(Event::Enter(call));
    }

    fn leave(&mut self, mut call: Call, out: &mut Vec<Event>) {
        let Some(open) = self.open.get_mut(&call.id) else { return };
        if let Some(entry) = open.undecided.take() {
            return self.leave_undecided(*entry, call, out);
        }
        let short = self.options.min_ns.is_some_and(|min| call.end_ns - call.start_ns < min);
        if let Some(held) = open.held.take_if(|_| short) {
            self.held.remove(&(held.start_ns, call.id));
            self.open.remove(&call.id);
            return;
        }
        self.release(call.id, out);
        let Some(open) = self.open.remove(&call.id) else { return };
        (call.parent, call.depth) = (open.parent, open.depth);
        if call.depth == 0 {
            self.finished += 1;
        }
        if open.shown {
            out.push(Event::Leave(call));
        }
    }

    /// The end of a call that waited for it.
    fn leave_undecided(&mut self, entry: Call, mut call: Call, out: &mut Vec<Event>) {
        let Some(open) = self.open.get(&call.id) else { return };
        let (id, root) = (call.id, open.root);
        (call.parent, call.depth) = (open.parent, open.depth);
        let short = self.options.min_ns.is_some_and(|min| call.end_ns - call.start_ns < min);
        if !short && self.conditions.admit_end(&call) {
            self.finished += u64::from(call.depth == 0);
            if self.admits(root) {
                out.extend([Event::Enter(entry), Event::Leave(call)]);
            }
        }
        self.open.remove(&id);
    }

    /// Passes on the held entry of a call, after those of the calls around it.
    fn release(&mut self, id: u64, out: &mut Vec<Event>) {
        let Some(open) = self.open.get(&id) else { return };
        let root = open.root;
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
        if chain.is_empty() || !self.admits(root) {
            return;
        }
        chain.into_iter().rev().for_each(|call| self.pass_on(*call, out));
    }
}
