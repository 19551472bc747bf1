//! One goroutine: its state as the records have it, and what its time went to.

use super::event::{Change, Lifetime, Origin, Times, Unknown, Who};
use super::reasons::Reasons;
use super::state::{Kind, State};

/// A change as a record tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub ts_ns: u64,
    pub tid: u32,
    pub old: State,
    pub new: State,
    /// `g.waitreason` at the change.
    pub reason: u8,
    /// Whether its thread works for it all the same.
    pub works: bool,
    /// The goroutine that changed it; 0 when none did.
    pub by: u64,
    /// Whether records of other CPUs were lost around it.
    pub beside_loss: bool,
    /// Whether the capture proves that nothing earlier comes later.
    pub ordered: bool,
}

impl Step {
    /// What its goroutine looks like before it: what goes on running, and is not switched to, only
    /// seemed to wait.
    fn shown(&self, reasons: &Reasons) -> State {
        let seems = (self.old, self.new) == (State::WAITING, State::RUNNING);
        if seems && !reasons.is_switched(self.reason) { State::RUNNING } else { self.old }
    }
}

/// A goroutine that lives.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub origin: Origin,
    pub born_ns: Option<u64>,
    /// Since when its time is counted.
    pub from_ns: u64,
    /// The time of the last record about it.
    pub last_ns: u64,
    /// How many losses were known by then.
    pub gaps: u64,
    /// Whether a record told the state; else it was read from memory, some time ago.
    pub is_told: bool,
    state: State,
    /// What it looks like: a goroutine that only seems to wait still runs.
    shown: State,
    reason: u8,
    /// The thread that it runs on, or that is in its system call; 0 when that is not known.
    on: u32,
    since_ns: u64,
    changes: u64,
    times: Times,
}

/// What a goroutine with this state does.
fn in_truth(state: State, reason: u8, reasons: &Reasons) -> State {
    let seems_to_wait = state == State::WAITING && reasons.is_pseudo(reason);
    if seems_to_wait { State::RUNNING } else { state }
}

/// A stay in a state that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stay {
    pub kind: Kind,
    pub reason: u8,
    pub since_ns: u64,
    pub to_ns: u64,
}

impl Stay {
    pub fn ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.since_ns)
    }
}

impl Chain {
    /// A goroutine that is in `state` since `from_ns`, when its time begins to be counted.
    pub fn new(origin: Origin, state: State, reason: u8, from_ns: u64) -> Self {
        Self {
            origin,
            born_ns: None,
            from_ns,
            last_ns: from_ns,
            gaps: 0,
            is_told: true,
            state,
            shown: state,
            reason,
            on: 0,
            since_ns: from_ns,
            changes: 0,
            times: Times::default(),
        }
    }

    /// What the next record has to have as its old state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether a state read from memory is another one, or another wait, than the one that it is in.
    pub fn is_other(&self, state: State, reason: u8, reasons: &Reasons) -> bool {
        let is_other_wait = self.shown == State::WAITING && self.reason != reason;
        (self.state, self.shown) != (state, in_truth(state, reason, reasons)) || is_other_wait
    }

    /// Takes a state read from memory for what it was in all along, when nothing better was known.
    pub fn correct(&mut self, state: State, reason: u8, reasons: &Reasons) {
        let shown = in_truth(state, reason, reasons);
        (self.state, self.shown, self.reason, self.on) = (state, shown, reason, 0);
    }

    /// Takes what the next step begins with for what it was in all along.
    pub fn correct_by(&mut self, step: &Step, reasons: &Reasons) {
        self.correct(step.old, step.reason, reasons);
        self.shown = step.shown(reasons);
    }

    /// Goes on at `ts_ns` as it is corrected to next; nobody knows what was in between, if anything.
    pub fn interrupt(&mut self, who: Who, ts_ns: u64) -> Option<Unknown> {
        let lost = ts_ns.saturating_sub(self.since_ns);
        self.times.unknown_ns = self.times.unknown_ns.saturating_add(lost);
        let from_ns = self.since_ns;
        self.since_ns = from_ns.max(ts_ns);
        let (state, origin) = (self.shown, self.origin);
        (lost > 0).then_some(Unknown { who, state, from_ns, to_ns: ts_ns, origin })
    }

    /// Whether something is missing before a step although its old state is the one that it is in:
    /// it began another wait since, or runs on another thread.
    pub fn contradicts(&self, step: &Step, reasons: &Reasons) -> bool {
        match self.state {
            State::WAITING if self.shown != step.shown(reasons) => true,
            State::WAITING if self.shown == State::WAITING => {
                self.reason != 0 && step.reason != 0 && self.reason != step.reason
            }
            State::RUNNING | State::SYSCALL => self.on != 0 && step.tid != 0 && self.on != step.tid,
            _ => false,
        }
    }

    /// Makes the step, which fits. `None` when it changes nothing that is shown.
    pub fn step(&mut self, who: Who, step: &Step, reasons: &Reasons) -> Option<(Change, Stay)> {
        let seems_to_wait = self.state == State::WAITING && self.shown == State::RUNNING;
        // Who runs, or is in a system call, leaves that on its own thread; it may have been made on
        // another one.
        let is_on = match (step.old, step.new) {
            (_, State::RUNNING) => true,
            (old, State::SYSCALL) => old == State::RUNNING,
            _ => false,
        };
        self.on = if is_on { step.tid } else { 0 };
        self.state = step.new;
        self.last_ns = self.last_ns.max(step.ts_ns);
        if step.new == State::WAITING && (step.works || reasons.is_pseudo(step.reason)) {
            if self.shown == State::RUNNING {
                return None;
            }
        } else if seems_to_wait && step.new == State::RUNNING {
            return None;
        }
        let ts_ns = step.ts_ns.max(self.since_ns);
        if self.shown == State::WAITING && self.reason == 0 {
            self.reason = step.reason;
        }
        let stay = self.leave(step.new, ts_ns, reasons);
        let reason = match (step.new == State::WAITING, self.shown == State::WAITING) {
            (true, _) => reasons.name(step.reason),
            (false, true) => reasons.name(self.reason),
            (false, false) => None,
        };
        let by = Some(step.by).filter(|&by| by != 0 && by != who.goid);
        let change = Change {
            ts_ns,
            who,
            tid: step.tid,
            from: self.shown,
            to: step.new,
            reason,
            since_ns: self.since_ns,
            by,
            by_is_followed: false,
            origin: self.origin,
        };
        self.shown = step.new;
        self.since_ns = ts_ns;
        self.reason = if step.new == State::WAITING { step.reason } else { 0 };
        self.changes += 1;
        Some((change, stay))
    }

    /// Adds up the stay that ends.
    fn leave(&mut self, new: State, ts_ns: u64, reasons: &Reasons) -> Stay {
        let stay = self.stay(Some(new), ts_ns, reasons);
        credit(&mut self.times, &stay);
        stay
    }

    /// The stay in the state shown, until `ts_ns`, when it goes on to `new`.
    fn stay(&self, new: Option<State>, ts_ns: u64, reasons: &Reasons) -> Stay {
        // Up to Go 1.19 the reason comes after the state: what waits ends runnable, except
        // coroutines, which are switched to.
        let ran = self.shown == State::WAITING
            && new == Some(State::RUNNING)
            && !reasons.is_switched(self.reason);
        let kind = if ran { Kind::Running } else { self.shown.kind() };
        Stay { kind, reason: self.reason, since_ns: self.since_ns, to_ns: ts_ns.max(self.since_ns) }
    }

    /// The stay that is not over at `now_ns`.
    pub fn open_stay(&self, now_ns: u64, reasons: &Reasons) -> Stay {
        self.stay(None, now_ns, reasons)
    }

    /// All there is to say at `now_ns`.
    pub fn lifetime(&self, who: Who, now_ns: u64, reasons: &Reasons) -> Lifetime {
        let mut times = self.times.clone();
        credit(&mut times, &self.open_stay(now_ns, reasons));
        let is_over = !self.state.is_alive();
        let waits = self.shown == State::WAITING;
        Lifetime {
            who,
            origin: self.origin,
            born_ns: self.born_ns,
            ended_ns: is_over.then_some(self.since_ns),
            from_ns: self.from_ns,
            to_ns: if is_over { self.since_ns } else { now_ns.max(self.since_ns) },
            state: self.shown,
            reason: waits.then(|| reasons.name(self.reason)).flatten(),
            since_ns: self.since_ns,
            changes: self.changes,
            times,
        }
    }
}

/// Adds a stay to the times.
pub(crate) fn credit(times: &mut Times, stay: &Stay) {
    let sum = match stay.kind {
        Kind::Running => &mut times.running_ns,
        Kind::Runnable => &mut times.runnable_ns,
        Kind::Syscall => &mut times.syscall_ns,
        Kind::Other => &mut times.other_ns,
        Kind::Waiting => return times.wait(stay.reason, stay.ns()),
        Kind::None => return,
    };
    *sum = sum.saturating_add(stay.ns());
}
