//! What a span's goroutine spent the span's time on, from its changes of state.

use crate::goroutine::Key;
use crate::span::Span;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use timeline::KeyHash;
use timeline::states::{Change, Event, Kind, State, Unknown};

/// How long after a span's end changes of state from before it may still come: they wait so long for others
/// that belong before them (`timeline::states`).
const PATIENCE_NS: u64 = 100_000_000;

/// Spans that wait for that at the most; more of them go on with what is known.
const WAITING: usize = 1 << 16;

/// Time by what it was spent on, nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanTime {
    /// Running Go code.
    pub running_ns: u64,
    /// Waiting for a processor.
    pub runnable_ns: u64,
    /// In system calls and C.
    pub syscall_ns: u64,
    /// In other states of the runtime's: its stack is moved, or the collector stopped it.
    pub other_ns: u64,
    /// Nobody knows: records were lost, or the end was on another goroutine.
    pub unknown_ns: u64,
    /// Waiting, by the runtime's name of the reason, in the order of names. Work for the collector is
    /// `GC assist marking` and `GC assist wait`.
    pub waiting: Vec<(Arc<str>, u64)>,
}

impl SpanTime {
    fn wait(&mut self, reason: &Arc<str>, ns: u64) {
        match self.waiting.binary_search_by(|(known, _)| known.cmp(reason)) {
            Ok(at) => self.waiting[at].1 += ns,
            Err(at) => self.waiting.insert(at, (Arc::clone(reason), ns)),
        }
    }

    fn add(&mut self, kind: Kind, reason: Option<&Arc<str>>, ns: u64) {
        match (kind, reason) {
            (Kind::Running, _) => self.running_ns += ns,
            (Kind::Runnable, _) => self.runnable_ns += ns,
            (Kind::Syscall, _) => self.syscall_ns += ns,
            (Kind::Waiting, Some(reason)) => self.wait(reason, ns),
            (Kind::Waiting, None) => self.wait(&Arc::from("unknown"), ns),
            (Kind::Other | Kind::None, _) => self.other_ns += ns,
        }
    }
}

/// A span whose time is being split.
#[derive(Debug)]
struct Split {
    span: u64,
    start_ns: u64,
    /// `None` while it is open.
    end_ns: Option<u64>,
    time: SpanTime,
    /// How much is accounted for.
    known_ns: u64,
}

/// A span that ended.
#[derive(Debug)]
struct Ended {
    span: Span,
    /// Whether that was on its own goroutine.
    is_there: bool,
}

/// Splits the time of spans.
#[derive(Debug, Default)]
pub(crate) struct TimeSplit {
    splits: HashMap<Key, Vec<Split>, KeyHash>,
    /// Spans that have ended, in that order.
    ended: VecDeque<Ended>,
}

impl TimeSplit {
    /// A span began, with that id, on that goroutine.
    pub(crate) fn begin(&mut self, key: Key, span: u64, start_ns: u64) {
        let time = SpanTime::default();
        let split = Split { span, start_ns, end_ns: None, time, known_ns: 0 };
        self.splits.entry(key).or_default().push(split);
    }

    /// A span ended, on its own goroutine or on another one. It comes back by [`TimeSplit::take`].
    pub(crate) fn end(&mut self, span: Span, is_there: bool) {
        let splits = self.splits.get_mut(&(span.pid, span.goid));
        let split = splits.and_then(|all| all.iter_mut().find(|one| one.span == span.context.span));
        if let Some(split) = split {
            split.end_ns = Some(span.end_ns);
        }
        self.ended.push_back(Ended { span, is_there });
    }

    /// Forgets a span that is none.
    pub(crate) fn forget(&mut self, key: Key, span: u64) -> Option<SpanTime> {
        self.settle(key, span).map(|split| split.time)
    }

    fn settle(&mut self, key: Key, span: u64) -> Option<Split> {
        let splits = self.splits.get_mut(&key)?;
        let at = splits.iter().position(|split| split.span == span)?;
        let split = splits.swap_remove(at);
        if splits.is_empty() {
            self.splits.remove(&key);
        }
        Some(split)
    }

    /// Takes what is known of states.
    pub(crate) fn push(&mut self, event: &Event) {
        match event {
            Event::Change(Change { who, from, since_ns, ts_ns, reason, .. }) => {
                let kind = from.kind();
                let reason = reason.as_ref().filter(|_| *from == State::WAITING);
                self.stay((who.pid, who.goid), *since_ns, *ts_ns, &mut |time, ns| {
                    time.add(kind, reason, ns);
                });
            }
            Event::Unknown(Unknown { who, from_ns, to_ns, .. }) => {
                self.stay((who.pid, who.goid), *from_ns, *to_ns, &mut |time, ns| {
                    time.unknown_ns += ns;
                });
            }
            Event::Lifetime(_) | Event::Gap { .. } | Event::ProcessExit { .. } => {}
        }
    }

    fn stay(&mut self, key: Key, from: u64, to: u64, add: &mut dyn FnMut(&mut SpanTime, u64)) {
        for split in self.splits.get_mut(&key).into_iter().flatten() {
            let end = split.end_ns.unwrap_or(u64::MAX).min(to);
            let ns = end.saturating_sub(from.max(split.start_ns));
            if ns > 0 {
                split.known_ns += ns;
                add(&mut split.time, ns);
            }
        }
    }

    /// The next span whose time is known at `now_ns`, in the order of ends.
    pub(crate) fn take(&mut self, now_ns: u64) -> Option<Span> {
        let first = self.ended.front()?;
        let is_due = first.span.end_ns.saturating_add(PATIENCE_NS) <= now_ns;
        if !is_due && self.ended.len() <= WAITING {
            return None;
        }
        let Ended { mut span, is_there } = self.ended.pop_front()?;
        if let Some(mut split) = self.settle((span.pid, span.goid), span.context.span) {
            let all = span.end_ns.saturating_sub(split.start_ns);
            let rest = all.saturating_sub(split.known_ns);
            // It has not changed its state since, and where it came to its end itself it ran.
            match span.is_finished && is_there {
                true => split.time.running_ns += rest,
                false => split.time.unknown_ns += rest,
            }
            span.time = Some(split.time);
        }
        Some(span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::{SpanContext, SpanKind, Status};
    use timeline::states::{Origin, Who};

    fn span(id: u64, start_ns: u64, end_ns: u64) -> Span {
        Span {
            name: String::new(),
            kind: SpanKind::Server,
            context: SpanContext { trace: 1, span: id },
            parent: None,
            parent_by: None,
            sampled_by_parent: None,
            links: Vec::new(),
            pid: 1,
            goid: 7,
            start_ns,
            end_ns,
            is_finished: true,
            status: Status::Unset,
            attributes: Vec::new(),
            unavailable: Vec::new(),
            events: Vec::new(),
            time: None,
            calls: None,
            tree: id,
            open_in_tree: 0,
        }
    }

    /// Goroutine 7 leaves a state at a time.
    fn change(since_ns: u64, ts_ns: u64, from: u32, reason: Option<&str>) -> Event {
        Event::Change(Change {
            ts_ns,
            who: Who { pid: 1, goid: 7 },
            tid: 1,
            from: State::of(from),
            to: State::RUNNING,
            reason: reason.map(Arc::from),
            since_ns,
            by: None,
            by_is_followed: false,
            origin: Origin::default(),
        })
    }

    /// All that has ended, as text.
    fn told(split: &mut TimeSplit) -> String {
        std::iter::from_fn(|| split.take(u64::MAX))
            .map(|span| format!("{} {:?}\n", span.context.span, span.time.unwrap()))
            .collect()
    }

    #[test]
    fn stays_are_cut_to_the_span_and_the_rest_ran() {
        let mut split = TimeSplit::default();
        split.begin((1, 7), 1, 100);
        split.push(&change(40, 160, 2, None));
        split.begin((1, 7), 2, 170);
        split.push(&change(160, 200, 4, Some("IO wait")));
        split.push(&change(200, 205, 1, None));
        split.push(&change(205, 300, 2, Some("chan receive")));
        split.end(span(2, 170, 380), true);
        split.push(&change(300, 350, 4, Some("GC assist marking")));
        split.end(span(1, 100, 390), true);
        // Told late, of a time behind the first one's end.
        split.push(&change(385, 500, 3, None));
        assert!(split.take(390).is_none(), "earlier changes may still come");
        let expected = "\
2 SpanTime { running_ns: 125, runnable_ns: 5, syscall_ns: 0, other_ns: 0, unknown_ns: 0, waiting: [(\"GC assist marking\", 50), (\"IO wait\", 30)] }
1 SpanTime { running_ns: 190, runnable_ns: 5, syscall_ns: 5, other_ns: 0, unknown_ns: 0, waiting: [(\"GC assist marking\", 50), (\"IO wait\", 40)] }
";
        assert_eq!(told(&mut split), expected);
        assert!(split.splits.is_empty());
    }

    #[test]
    fn what_nobody_saw_is_unknown() {
        let mut split = TimeSplit::default();
        split.begin((1, 7), 1, 100);
        let who = Who { pid: 1, goid: 7 };
        let state = State::WAITING;
        let origin = Origin::default();
        split.push(&Event::Unknown(Unknown { who, state, from_ns: 120, to_ns: 150, origin }));
        split.end(span(1, 100, 200), false);
        let expected = "\
1 SpanTime { running_ns: 0, runnable_ns: 0, syscall_ns: 0, other_ns: 0, unknown_ns: 100, waiting: [] }
";
        assert_eq!(told(&mut split), expected);
    }
}
