//! From goroutines as they were seen to what is written.

use inspect::{Frame, Goroutine, LabelsEnd, Shown, StackEnd};
use output::{GoNames, GoroutineFrame, GoroutineSite, ListedGoroutine};
use std::borrow::Cow;
use std::sync::Arc;

/// What of a goroutine is listed.
pub struct Lister {
    /// Which functions of user goroutines.
    pub functions: Shown,
    /// The target's monotonic clock now; none for a core dump.
    pub now_ns: Option<u64>,
    /// Whether stacks were asked for.
    pub stacks: bool,
}

impl Lister {
    /// What is written of one.
    pub fn listed(&self, of: &Goroutine) -> ListedGoroutine {
        // The stacks of the runtime's goroutines are all its own.
        let which = if of.system { Shown::All } else { self.functions };
        let whole = of.stack.end.is_whole();
        ListedGoroutine {
            goid: of.goid,
            state: of.state.name(),
            reason: of.reason.clone(),
            parent_goid: of.parent_goid,
            created_by: of.created_by.as_ref().map(|place| GoroutineSite {
                func: Arc::clone(&place.func),
                file: Arc::clone(&place.file),
                line: place.line,
                offset: place.offset,
            }),
            start: of.start.clone(),
            labels: of.labels.texts.clone(),
            labels_unavailable: (of.labels.end != LabelsEnd::Complete)
                .then(|| of.labels.end.to_string()),
            locked: of.locked,
            bubble: of.bubble,
            system: of.system,
            torn: of.torn,
            waited_ns: self.now_ns.zip(of.wait_since_ns).map(|(now, at)| now.saturating_sub(at)),
            stack: of.stack.shown(which).into_iter().map(frame).collect(),
            stack_is_cut: self.stacks && of.stack.end.is_cut(),
            stack_unavailable: (self.stacks && !whole && of.stack.end != StackEnd::NotRead)
                .then(|| of.stack.end.to_string()),
        }
    }
}

fn frame(of: &Frame) -> GoroutineFrame {
    GoroutineFrame {
        func: Arc::clone(&of.func),
        file: Arc::clone(&of.file),
        line: of.line,
        inlined: of.inlined,
        offset: of.offset,
    }
}

/// Names as the runtime prints them.
pub struct Names {
    /// Whether its own functions are shown.
    pub system: bool,
}

impl GoNames for Names {
    fn shown_name<'a>(&self, func: &'a str) -> Cow<'a, str> {
        inspect::shown_name(func)
    }

    fn is_shown(&self, func: &str) -> bool {
        self.system || inspect::is_shown(func, false)
    }
}
