//! Records of state changes to goroutines' lives: an unbroken chain of states for each, sums of
//! what its time went to, who woke it.
//!
//! Hand every record to [`States::push`] and take the events. A record whose old state is not
//! the one its goroutine is in waits for the missing one; what is never mended is counted. Memory
//! is bounded, and records are untrusted.

mod chain;
mod counters;
mod event;
mod reasons;
mod state;
mod tally;
mod threads;

pub use counters::StateCounters;
pub use event::{Change, Event, Lifetime, Origin, Times, Unknown, Who};
pub use reasons::Reasons;
pub use state::{Kind, State};
pub use tally::{Latency, LongWait, SiteSum, Tally, WaitSum};

use crate::hash::KeyHash;
use crate::loss::Losses;
use chain::{Chain, Step};
use probe::Plan;
use probe::states::{Creation, StateChange, StateEvent};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use threads::Threads;
use wire::{Field, Fields, Record, RecordFlags, RecordKind};

/// Goroutines that are followed at once.
const MAX_GOROUTINES: usize = 1 << 19;

/// Records of one goroutine that wait for an earlier one.
const MAX_HELD: usize = 32;

/// Records that wait, of all goroutines.
const MAX_PATIENCE: usize = 1 << 16;

/// Goroutines whose ends are remembered while memory is read.
const MAX_ENDED: usize = 1 << 18;

/// Goroutines that ended last and are remembered.
const MAX_GONE: usize = 256;

/// Breaks that may still find their explanation.
const MAX_BREAKS: usize = 1 << 12;

/// How long a record waits for an earlier one, nanoseconds.
const WINDOW_NS: u64 = 50_000_000;

/// How long after a loss was counted the change may be made that it swallowed: a thread that found
/// no room may lose the CPU before its compare-and-swap. Readers wait as long for a record, nanoseconds.
const SLIP_NS: u64 = 2_000_000_000;

/// A process that is watched.
#[derive(Debug)]
struct Process {
    /// The first that was heard of it.
    begin_ns: u64,
    reading: Option<Reading>,
}

/// Goroutines are being read from memory.
#[derive(Debug)]
struct Reading {
    /// When that began.
    ts_ns: u64,
    found: HashSet<u64>,
    /// Those that ended since.
    ended: HashSet<u64>,
}

/// What a record of [`RecordKind::Goroutine`] says.
struct Found {
    state: State,
    reason: u8,
    origin: Origin,
}

impl Found {
    fn parse(record: &Record<'_>) -> Option<Self> {
        let mut fields = Fields::new(record.payload);
        let mut word = || fields.next().as_ref().and_then(Field::as_u64);
        let (state, reason) = (State::of(word()? as u32), word()? as u8);
        let origin = Origin { gopc: word()?, startpc: word()?, parent: word()? };
        Some(Self { state, reason, origin })
    }
}

/// Follows every goroutine of the processes that run one image.
#[derive(Debug)]
pub struct States {
    plan: Arc<Plan>,
    reasons: Reasons,
    losses: Losses,
    processes: BTreeMap<u32, Process>,
    chains: HashMap<Who, Chain, KeyHash>,
    /// Steps that do not fit yet.
    held: HashMap<Who, Vec<Step>, KeyHash>,
    /// Whose steps are to be given up, and when.
    patience: VecDeque<(u64, Who)>,
    threads: Threads,
    /// Those that ended last.
    gone: VecDeque<Who>,
    /// When breaks were that no loss explains so far.
    breaks: VecDeque<u64>,
    /// Losses that are known by now, to tell chains from before one.
    epoch: u64,
    /// The time of the last record that told of one.
    last_loss_ns: Option<u64>,
    /// Records lost that no record has told of, at the last reading of memory.
    untold: u64,
    tally: Tally,
    counters: StateCounters,
}

impl States {
    /// For records of `plan`.
    pub fn new(plan: Arc<Plan>) -> Self {
        Self {
            reasons: Reasons::of(&plan),
            plan,
            losses: Losses::default(),
            processes: BTreeMap::new(),
            chains: HashMap::default(),
            held: HashMap::default(),
            patience: VecDeque::new(),
            threads: Threads::default(),
            gone: VecDeque::new(),
            breaks: VecDeque::new(),
            epoch: 0,
            last_loss_ns: None,
            untold: 0,
            tally: Tally::default(),
            counters: StateCounters::default(),
        }
    }

    /// The names of wait reasons.
    pub fn reasons(&self) -> &Reasons {
        &self.reasons
    }

    /// What was counted.
    pub fn counters(&self) -> StateCounters {
        let live = self.counters.live + self.chains.len() as u64;
        StateCounters { live, ..self.counters }
    }

    /// Goroutines that live, as they are at `now_ns`.
    pub fn living(&self, now_ns: u64) -> impl Iterator<Item = Lifetime> + '_ {
        self.chains.iter().map(move |(who, chain)| chain.lifetime(*who, now_ns, &self.reasons))
    }

    /// Sums of all that was seen, living goroutines at `now_ns` included.
    pub fn tally(&self, now_ns: u64) -> Tally {
        let mut tally = self.tally.clone();
        for (who, chain) in &self.chains {
            tally.add(&chain.lifetime(*who, now_ns, &self.reasons));
            tally.open_wait(&chain.open_stay(now_ns, &self.reasons), *who, chain.origin);
        }
        tally
    }

    /// Adds the stay that a living goroutine is in at `now_ns`.
    pub fn add_open(&self, tally: &mut Tally, who: Who, now_ns: u64) {
        if let Some(chain) = self.chains.get(&who) {
            tally.add_open(&chain.open_stay(now_ns, &self.reasons), who, chain.origin);
        }
    }

    /// Takes one record; what it means is added to `out`.
    pub fn push(&mut self, record: &Record<'_>, out: &mut Vec<Event>) {
        self.counters.records += 1;
        self.tick(record.ts_ns, out);
        let begin_ns = record.ts_ns;
        self.processes.entry(record.pid).or_insert(Process { begin_ns, reading: None });
        if record.kind == RecordKind::Goroutine {
            return self.found(record, out);
        }
        if let Some((gap, lost)) = self.losses.note(record) {
            out.extend(Event::of_gap(&gap));
            self.explain_breaks(&gap);
            self.threads = Threads::default();
            self.counters.gaps += 1;
            self.epoch += 1;
            self.counters.lost += u64::from(lost);
            self.last_loss_ns = Some(record.ts_ns);
        }
        match record.kind {
            RecordKind::Hit => self.hit(record, out),
            RecordKind::Exec | RecordKind::ProcessExit => {
                self.end_process(record.pid, record.ts_ns, out);
                out.push(Event::ProcessExit { pid: record.pid, ts_ns: record.ts_ns });
            }
            RecordKind::Process | RecordKind::Goroutine => {}
        }
    }

    /// Gives up what waited too long for a record that did not come.
    pub fn tick(&mut self, now_ns: u64, out: &mut Vec<Event>) {
        while let Some((deadline, who)) = self.patience.front().copied()
            && deadline < now_ns
        {
            self.patience.pop_front();
            self.force(who, out);
        }
    }

    /// Tells of all goroutines that live at the end.
    pub fn finish(&mut self, now_ns: u64, out: &mut Vec<Event>) {
        self.tick(u64::MAX, out);
        let pids: Vec<u32> = self.processes.keys().copied().collect();
        for pid in pids {
            self.end_process(pid, now_ns, out);
        }
    }

    fn hit(&mut self, record: &Record<'_>, out: &mut Vec<Event>) {
        match StateEvent::parse(&self.plan, record) {
            Some(StateEvent::Change(change)) => self.change(record, &change, out),
            Some(StateEvent::Creation(creation)) => self.creation(record, &creation, out),
            None => self.counters.invalid += 1,
        }
    }

    fn creation(&mut self, record: &Record<'_>, made: &Creation, out: &mut Vec<Event>) {
        let parent = made.parent.filter(|&parent| parent != 0).unwrap_or(record.goid);
        let origin = Origin { gopc: made.gopc, startpc: made.startpc, parent };
        let who = Who { pid: record.pid, goid: made.goid };
        let state = State::of(made.state);
        if made.goid == 0 || !state.is_alive() {
            self.counters.invalid += 1;
            return;
        }
        if let Some(known) = self.chains.get_mut(&who)
            && known.is_told
        {
            // It ran before this record came: where it is from is still news.
            known.origin = origin;
            known.born_ns = Some(known.from_ns);
            self.counters.repairs += 1;
            return;
        }
        let mut chain = Chain::new(origin, State::DEAD, 0, record.ts_ns);
        chain.born_ns = Some(record.ts_ns);
        self.counters.made += 1;
        self.tally.made(who.pid, origin);
        let step = Step {
            ts_ns: record.ts_ns,
            tid: record.tid,
            old: State::DEAD,
            new: state,
            reason: made.reason,
            works: false,
            by: parent,
            beside_loss: record.flags.has(RecordFlags::BESIDE_LOSS),
            ordered: record.flags.has(RecordFlags::ORDERED),
        };
        if self.follow(who, chain) {
            self.take(who, &step, out);
        }
    }

    fn change(&mut self, record: &Record<'_>, change: &StateChange, out: &mut Vec<Event>) {
        let (old, new) = (State::of(change.old), State::of(change.new));
        // Before the record of its creation its id may be that of the one before.
        let is_making = !old.is_alive() && matches!(new, State::RUNNABLE | State::WAITING);
        if is_making || !(old.is_alive() || new.is_alive()) {
            self.counters.making += 1;
            return;
        }
        if change.goid == 0 {
            self.counters.no_goroutine += 1;
            return;
        }
        if old == new {
            return;
        }
        let who = Who { pid: record.pid, goid: change.goid };
        let (ts_ns, tid, reason, by) = (record.ts_ns, record.tid, change.reason, record.goid);
        let beside_loss = record.flags.has(RecordFlags::BESIDE_LOSS);
        let ordered = record.flags.has(RecordFlags::ORDERED);
        let works = change.works;
        let step = Step { ts_ns, tid, old, new, reason, works, by, beside_loss, ordered };
        let by = self.threads.pass(who, &step, self.reasons.is_switched(reason));
        let step = Step { by, ..step };
        if !self.chains.contains_key(&who) && !self.begin(who, &step) {
            return;
        }
        self.offer(who, step, out);
    }

    /// A goroutine that nothing was known of: it was there all along, or C calls Go.
    fn begin(&mut self, who: Who, step: &Step) -> bool {
        let begin_ns = self.processes.get(&who.pid).map_or(step.ts_ns, |process| process.begin_ns);
        let is_new = !step.old.is_alive();
        // After a loss it may have been made meanwhile.
        let from_ns = if is_new || self.epoch > 0 { step.ts_ns } else { begin_ns };
        let mut chain = Chain::new(Origin::default(), step.old, step.reason, from_ns);
        chain.born_ns = is_new.then_some(step.ts_ns);
        chain.correct_by(step, &self.reasons);
        self.counters.made += u64::from(is_new);
        self.follow(who, chain)
    }

    fn follow(&mut self, who: Who, mut chain: Chain) -> bool {
        if self.chains.len() >= MAX_GOROUTINES && !self.chains.contains_key(&who) {
            self.counters.evicted += 1;
            return false;
        }
        chain.gaps = self.epoch;
        self.chains.insert(who, chain);
        true
    }

    /// Takes a step that fits, or holds it until it does.
    fn offer(&mut self, who: Who, step: Step, out: &mut Vec<Event>) {
        // A loss of another CPU may become known later, or never. What waits for one that is lost
        // would go behind what comes later, as soon as that fits.
        let slipped =
            || self.last_loss_ns.is_some_and(|ns| step.ts_ns <= ns.saturating_add(SLIP_NS));
        let Some(chain) = self.chains.get_mut(&who) else { return };
        let is_beside = chain.gaps != self.epoch || step.beside_loss;
        let is_doubtful = is_beside || !chain.is_told;
        let by_chance = is_doubtful && chain.contradicts(&step, &self.reasons);
        if chain.state() != step.old || by_chance {
            if !chain.is_told {
                chain.correct_by(&step, &self.reasons);
            } else if is_beside || (step.ordered && slipped()) {
                self.mend(who, &step, out);
            } else if step.ordered {
                self.give_up(who, &step, out);
            } else {
                return self.hold(who, step, out);
            }
        }
        self.take(who, &step, out);
        self.release(who, out);
    }

    /// Goes on with a step before which others were lost.
    fn mend(&mut self, who: Who, step: &Step, out: &mut Vec<Event>) {
        self.go_on(who, step, out);
        self.counters.mended += 1;
    }

    fn go_on(&mut self, who: Who, step: &Step, out: &mut Vec<Event>) {
        if let Some(chain) = self.chains.get_mut(&who) {
            out.extend(chain.interrupt(who, step.ts_ns).map(Event::Unknown));
            chain.correct_by(step, &self.reasons);
        }
    }

    /// Goes on with a step whose predecessors are missing, and nobody knows why.
    fn give_up(&mut self, who: Who, step: &Step, out: &mut Vec<Event>) {
        self.go_on(who, step, out);
        self.counters.breaks += 1;
        if self.breaks.len() >= MAX_BREAKS {
            self.breaks.pop_front();
        }
        self.breaks.push_back(step.ts_ns);
    }

    fn hold(&mut self, who: Who, step: Step, out: &mut Vec<Event>) {
        let held = self.held.entry(who).or_default();
        held.push(step);
        if held.len() > MAX_HELD || self.patience.len() >= MAX_PATIENCE {
            self.force(who, out);
        } else {
            self.patience.push_back((step.ts_ns.saturating_add(WINDOW_NS), who));
        }
    }

    /// Takes held steps as long as one fits.
    fn release(&mut self, who: Who, out: &mut Vec<Event>) {
        while let Some(held) = self.held.get_mut(&who) {
            let state = self.chains.get(&who).map(Chain::state);
            let Some(at) = held.iter().position(|step| Some(step.old) == state) else { break };
            let step = held.remove(at);
            if held.is_empty() {
                self.held.remove(&who);
            }
            self.counters.repairs += 1;
            self.take(who, &step, out);
        }
    }

    /// Takes held steps whether they fit or not.
    fn force(&mut self, who: Who, out: &mut Vec<Event>) {
        let Some(mut held) = self.held.remove(&who) else { return };
        held.sort_by_key(|step| step.ts_ns);
        for step in held {
            match self.chains.get_mut(&who) {
                Some(chain) if chain.state() == step.old => {}
                // A loss may become known later than what follows it on another CPU.
                Some(chain) if chain.gaps != self.epoch => self.mend(who, &step, out),
                Some(_) => self.give_up(who, &step, out),
                None => continue,
            }
            self.take(who, &step, out);
        }
    }

    /// A loss becomes known by the next record of its ring, and that may come long after what
    /// follows the loss elsewhere: breaks of that time are its doing.
    fn explain_breaks(&mut self, gap: &crate::Event) {
        if let crate::Event::Gap { from_ns, to_ns, .. } = *gap {
            let within = from_ns..=to_ns.saturating_add(WINDOW_NS);
            let before = self.breaks.len();
            self.breaks.retain(|ts_ns| !within.contains(ts_ns));
            let explained = before.saturating_sub(self.breaks.len()) as u64;
            self.counters.breaks = self.counters.breaks.saturating_sub(explained);
            self.counters.mended += explained;
        }
    }

    fn take(&mut self, who: Who, step: &Step, out: &mut Vec<Event>) {
        let Some(chain) = self.chains.get_mut(&who) else { return };
        (chain.is_told, chain.gaps) = (true, self.epoch);
        match chain.step(who, step, &self.reasons) {
            Some((mut change, stay)) => {
                self.counters.changes += 1;
                let ran = change.to == State::RUNNING;
                self.tally.stay(&stay, ran, who, chain.origin);
                change.by_is_followed =
                    change.by.is_some_and(|goid| self.is_followed(Who { goid, ..who }, step.ts_ns));
                out.push(Event::Change(change));
            }
            None => self.counters.pseudo += 1,
        }
        if self.chains.get(&who).is_some_and(|chain| !chain.state().is_alive()) {
            self.counters.ended += 1;
            self.remove(who, step.ts_ns, out);
        }
    }

    /// Whether there is, or will be, a stay of that goroutine at `ts_ns` to be told of.
    fn is_followed(&self, who: Who, ts_ns: u64) -> bool {
        match self.chains.get(&who) {
            Some(chain) => chain.from_ns <= ts_ns,
            None => self.gone.contains(&who),
        }
    }

    fn remove(&mut self, who: Who, now_ns: u64, out: &mut Vec<Event>) {
        let Some(chain) = self.chains.remove(&who) else { return };
        if self.gone.len() >= MAX_GONE {
            self.gone.pop_front();
        }
        self.gone.push_back(who);
        let reading = self.processes.get_mut(&who.pid).and_then(|known| known.reading.as_mut());
        if let Some(reading) = reading.filter(|reading| reading.ended.len() < MAX_ENDED) {
            reading.ended.insert(who.goid);
        }
        let lifetime = chain.lifetime(who, now_ns, &self.reasons);
        self.tally.add(&lifetime);
        out.push(Event::Lifetime(Box::new(lifetime)));
    }

    fn end_process(&mut self, pid: u32, now_ns: u64, out: &mut Vec<Event>) {
        self.processes.remove(&pid);
        self.threads.forget(pid);
        let mut all: Vec<Who> = self.chains.keys().filter(|who| who.pid == pid).copied().collect();
        all.sort_unstable();
        for who in all {
            self.force(who, out);
            if let Some(chain) = self.chains.get(&who) {
                self.counters.live += 1;
                let stay = chain.open_stay(now_ns, &self.reasons);
                self.tally.open_wait(&stay, who, chain.origin);
                self.remove(who, now_ns, out);
            }
        }
    }

    /// A goroutine read from memory, or a mark around them.
    fn found(&mut self, record: &Record<'_>, out: &mut Vec<Event>) {
        let Some(found) = Found::parse(record) else {
            self.counters.invalid += 1;
            return;
        };
        let who = Who { pid: record.pid, goid: record.goid };
        let Some(process) = self.processes.get_mut(&who.pid) else { return };
        let (begin_ns, ts_ns) = (process.begin_ns, record.ts_ns);
        let Some(reading) = &mut process.reading else {
            if who.goid == 0 {
                // The first mark has what was lost by then. What no record has told of so far, and
                // maybe none will, is behind every chain all the same.
                let untold = found.origin.gopc.saturating_sub(self.counters.lost);
                let (found, ended) = (HashSet::new(), HashSet::new());
                process.reading = Some(Reading { ts_ns, found, ended });
                if untold > self.untold {
                    self.epoch += 1;
                }
                self.untold = untold;
            }
            return;
        };
        if who.goid == 0 {
            return self.end_reading(who.pid, out);
        }
        if reading.ended.contains(&who.goid) || !found.state.is_alive() {
            return;
        }
        if reading.found.len() < MAX_GOROUTINES {
            reading.found.insert(who.goid);
        }
        let gaps = self.epoch;
        match self.chains.get_mut(&who) {
            Some(chain) => {
                if chain.origin.gopc == 0 {
                    chain.origin = found.origin;
                }
                if chain.gaps != gaps && chain.last_ns < ts_ns {
                    if chain.is_other(found.state, found.reason, &self.reasons) {
                        out.extend(chain.interrupt(who, ts_ns).map(Event::Unknown));
                        chain.correct(found.state, found.reason, &self.reasons);
                        self.counters.mended += 1;
                    }
                    (chain.gaps, chain.is_told) = (gaps, false);
                }
            }
            None => {
                let from_ns = if gaps > 0 { ts_ns } else { begin_ns };
                let mut chain = Chain::new(found.origin, found.state, found.reason, from_ns);
                chain.correct(found.state, found.reason, &self.reasons);
                chain.is_told = false;
                self.counters.found += 1;
                self.follow(who, chain);
            }
        }
    }

    /// What a loss left over and is no more: its end was among what was lost.
    fn end_reading(&mut self, pid: u32, out: &mut Vec<Event>) {
        let reading = self.processes.get_mut(&pid).and_then(|process| process.reading.take());
        let Some(reading) = reading else { return };
        let gaps = self.epoch;
        let is_gone = |(who, chain): (&Who, &Chain)| {
            who.pid == pid
                && chain.gaps != gaps
                && chain.last_ns < reading.ts_ns
                && !reading.found.contains(&who.goid)
        };
        let gone = self.chains.iter().filter(|&(who, chain)| is_gone((who, chain)));
        let mut gone: Vec<Who> = gone.map(|(who, _)| *who).collect();
        gone.sort_unstable();
        for who in gone {
            self.counters.vanished += 1;
            if let Some(chain) = self.chains.get_mut(&who) {
                out.extend(chain.interrupt(who, reading.ts_ns).map(Event::Unknown));
            }
            self.remove(who, reading.ts_ns, out);
        }
    }
}
