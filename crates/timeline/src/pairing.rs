//! Pairs entries with exits, by (pid, goroutine, depth).

use crate::counters::Counters;
use crate::event::{End, Event, Panic};
use crate::ledger::Ledger;
use crate::loss::Losses;
use crate::out::{Exit, Out};
use crate::screening::{Conditions, Screened};
use crate::sites::{self, SiteFacts};
use crate::stack::{Frame, Pending, inferred_system_end};
use crate::stat::Stats;
use crate::table::{Key, Place, Table};
use crate::witness;
use probe::value::{Value, decode};
use probe::{Plan, Witness};
use std::sync::Arc;
use wire::{Fields, Record, RecordFlags, RecordKind, SiteKind};

/// A deeper frame than any stack has: Go's own limit is 1 GB, `debug.SetMaxStack` may
/// raise it, the address space ends here.
const MAX_DEPTH: u64 = 1 << 47;

/// How much a timeline may remember.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open calls of one stack; the outer half is closed as lost beyond. Default 262,144.
    pub frames: usize,
    /// Stacks with open calls; the oldest is closed as lost beyond. Default 1,048,576.
    pub stacks: usize,
    /// Bytes held by open calls; the oldest stacks are closed as lost beyond. Default 256 MiB.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { frames: 1 << 18, stacks: 1 << 20, bytes: 256 << 20 }
    }
}

/// How a timeline works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bounds of memory.
    pub limits: Limits,
    /// Whether [`Event::Enter`] is produced. Default true; text and filters need it, JSON alone
    /// does not.
    pub enters: bool,
    /// Whether [`Event::Panicking`] is produced. Default false.
    pub panics: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { limits: Limits::default(), enters: true, panics: false }
    }
}

/// Makes calls of records. See the crate's documentation.
#[derive(Debug)]
pub struct Timeline {
    plan: Arc<Plan>,
    sites: Vec<Option<SiteFacts>>,
    options: Options,
    table: Table,
    losses: Losses,
    /// Grows wherever records may be missing: calls that were open then may have ended unseen.
    doubts: u64,
    /// Whether the last record had losses beside it.
    was_beside: bool,
    ledger: Ledger,
    /// What entries decide.
    conditions: Conditions,
    last_id: u64,
    /// `runtime.goexit1`, if it is in the plan.
    goexit1: Option<u32>,
    /// When draining begins, on the capture's clock.
    drained_from: Option<u64>,
}

/// One hit with what the plan says about its site.
struct Hit<'a> {
    record: &'a Record<'a>,
    site: SiteFacts,
    key: Key,
}

impl Timeline {
    /// A timeline for records of `plan`.
    pub fn new(plan: Arc<Plan>, options: Options) -> Self {
        Self {
            sites: sites::of(&plan),
            goexit1: index_of(&plan, "runtime.goexit1"),
            conditions: Conditions::at_entry(&plan),
            plan,
            options,
            table: Table::default(),
            losses: Losses::default(),
            doubts: 0,
            was_beside: false,
            ledger: Ledger::default(),
            last_id: 0,
            drained_from: None,
        }
    }

    /// Counts so far.
    pub fn counters(&self) -> Counters {
        self.ledger.counters
    }

    /// What conditions at the entry came to so far, beside what was rejected at the hit.
    pub fn screened(&self) -> &Screened {
        &self.conditions.screened
    }

    /// Whether no call is open.
    pub fn is_idle(&self) -> bool {
        self.ledger.counters.open == 0
    }

    /// Entries in the tables that tell stacks apart: what grows if something leaks.
    pub fn remembered(&self) -> usize {
        self.table.remembered()
    }

    /// No root call opens that begins at `ts_ns` (the capture's clock) or later; open trees go on.
    pub fn drain_from(&mut self, ts_ns: u64) {
        self.drained_from = Some(ts_ns);
    }

    /// Some functions are not watched any more, or not yet again: what is open of them ends as [`End::Lost`] at
    /// `now_ns`, a time on the capture's clock. The exit of a later call would be taken for theirs.
    pub fn release(
        &mut self,
        is_released: &dyn Fn(u32) -> bool,
        now_ns: u64,
        out: &mut Vec<Event>,
    ) {
        let mut released: Vec<Frame> = Vec::new();
        for stack in self.table.stacks() {
            released.extend(stack.frames.extract_if(.., |frame| is_released(frame.function)));
        }
        released.sort_unstable_by_key(|frame| (frame.pid, frame.goid, std::cmp::Reverse(frame.id)));
        for frame in released {
            self.ledger.infer(frame, End::Lost, now_ns, &mut [], out);
        }
    }

    fn is_drained(&self, record: &Record<'_>) -> bool {
        self.drained_from.is_some_and(|from| record.ts_ns >= from)
    }

    /// Takes one record and appends what it means to `out`.
    pub fn push(&mut self, record: &Record<'_>, out: &mut Vec<Event>) {
        self.take(record, out);
    }

    /// Takes one record of a capture that is wanted as statistics alone. [`Timeline::finish`] tells
    /// of the calls that are still open.
    pub fn tally(&mut self, record: &Record<'_>, stats: &mut Stats) {
        self.take(record, stats);
    }

    /// Reports every open call as [`End::Open`] (or panic, where the goroutine ends the
    /// process by one). `now_ns` is a time on the capture's clock.
    pub fn finish(&mut self, now_ns: u64, out: &mut Vec<Event>) {
        for pid in self.table.pids() {
            self.end_process(pid, End::Open, now_ns, out);
        }
    }

    fn take(&mut self, record: &Record<'_>, out: &mut impl Out) {
        self.ledger.counters.records += 1;
        if let Some((gap, lost)) = self.losses.note(record) {
            self.ledger.counters.gaps += 1;
            self.ledger.counters.lost += u64::from(lost);
            self.doubts += 1;
            out.say(gap);
        }
        // What was lost beside a record lies before or behind it.
        let is_beside = record.flags.has(RecordFlags::BESIDE_LOSS);
        self.doubts += u64::from(is_beside || self.was_beside);
        self.was_beside = is_beside;
        match record.kind {
            RecordKind::Hit => self.hit(record, out),
            RecordKind::Exec => self.end_process(record.pid, End::Exec, record.ts_ns, out),
            RecordKind::ProcessExit => {
                self.ledger.counters.process_exits += 1;
                self.end_process(record.pid, End::Open, record.ts_ns, out);
                out.say(Event::ProcessExit { pid: record.pid, ts_ns: record.ts_ns });
            }
            // Says where the image lies: for those who name addresses.
            RecordKind::Process | RecordKind::Goroutine => {}
        }
    }

    fn end_process(&mut self, pid: u32, end: End, ts_ns: u64, out: &mut impl Out) {
        for (_, mut stack) in self.table.remove_process(pid) {
            let end = if stack.fatal && end == End::Open { End::Panic } else { end };
            while let Some(frame) = stack.frames.pop() {
                self.ledger.infer(frame, end, ts_ns, &mut stack.frames, out);
            }
        }
    }

    fn hit(&mut self, record: &Record<'_>, out: &mut impl Out) {
        let Some(site) = self.sites.get(record.site as usize).copied().flatten() else {
            self.ledger.counters.invalid += 1;
            return;
        };
        if site.witness.is_some() {
            self.ledger.counters.witnesses += 1;
        }
        match self.key(record) {
            Some(key) => self.hit_on(&Hit { record, site, key }, out),
            // Recovery and death name their goroutine in a field.
            None if site.witness.is_some() => {}
            None => return,
        }
        if let Some(witness) = site.witness {
            self.witness(witness, record, out);
        }
    }

    /// A hit whose stack is known.
    fn hit_on(&mut self, hit: &Hit<'_>, out: &mut impl Out) {
        let SiteFacts { kind, traced, witness, .. } = hit.site;
        let place = self.table.find(hit.record.pid, hit.key);
        if let Some(place) = place {
            let exit = matches!(kind, SiteKind::Return | SiteKind::TailJump);
            self.leave_system_stacks(hit, place, out);
            self.close_from(hit, place, u64::from(exit), out);
        }
        match kind {
            SiteKind::Entry if traced => self.enter(hit, place, out),
            SiteKind::Return => self.exit(hit, place, End::Return, out),
            SiteKind::TailJump => self.exit(hit, place, End::Tail, out),
            _ if witness.is_some() => {}
            _ => self.ledger.counters.invalid += 1,
        }
        if let Some(place) = place {
            self.table.remove_if_idle(place);
        }
    }

    /// The stack a hit belongs to; counts the hits that have none.
    fn key(&mut self, record: &Record<'_>) -> Option<Key> {
        let counters = &mut self.ledger.counters;
        let system = record.stack != 0 || record.flags.has(RecordFlags::SYSTEM_STACK);
        if record.flags.has(RecordFlags::NO_G) || (!system && record.goid == 0) {
            counters.no_goroutine += 1;
            return None;
        }
        if record.depth >= MAX_DEPTH || (system && record.stack == 0) {
            counters.invalid += 1;
            return None;
        }
        Some(if system { Key::System(record.stack) } else { Key::Own(record.goid) })
    }

    /// A goroutine that runs on its own stack has left the system stacks it was on: by a
    /// return (seen) or by a switch.
    fn leave_system_stacks(&mut self, hit: &Hit<'_>, place: Place, out: &mut impl Out) {
        let Key::Own(goid) = hit.key else { return };
        let record = hit.record;
        let over = match self.table.at(place) {
            Some(stack) if !stack.over.is_empty() => std::mem::take(&mut stack.over),
            _ => return,
        };
        for system in over {
            let Some(system) = self.table.find(record.pid, Key::System(system)) else { continue };
            let Some(stack) = self.table.at(system) else { continue };
            let mut gone: Vec<Frame> = stack.frames.extract_if(.., |f| f.goid == goid).collect();
            while let Some(frame) = gone.pop() {
                let end = inferred_system_end(&frame, self.doubts);
                let below = self.ledger.infer(frame, end, record.ts_ns, &mut gone, out);
                if let (Some(below), Some(own)) = (below, self.table.at(place)) {
                    below.add_to(&mut own.frames);
                }
            }
            self.table.remove_if_idle(system);
        }
    }

    /// Closes every open call at the hit's depth + `beyond` or deeper: its frame is gone.
    fn close_from(&mut self, hit: &Hit<'_>, place: Place, beyond: u64, out: &mut impl Out) {
        let record = hit.record;
        let floor = record.depth + beyond;
        let doubts = self.doubts;
        while let Some(stack) = self.table.at(place) {
            let Some(frame) = stack.frames.pop_if(|frame| frame.depth >= floor) else {
                stack.forget_from(record.depth);
                return;
            };
            let end = match hit.key {
                Key::Own(_) => stack.inferred_end(&frame, doubts),
                Key::System(_) => inferred_system_end(&frame, doubts),
            };
            self.end(place, frame, end, record, None, out);
        }
    }

    /// Ends a call of the stack at `place`. The time of one on a system stack may be the time of
    /// one on the goroutine's own stack too.
    fn end(
        &mut self,
        place: Place,
        frame: Frame,
        end: End,
        record: &Record<'_>,
        exit: Option<Exit>,
        out: &mut impl Out,
    ) {
        let own = Key::Own(frame.goid);
        let above = self.table.at(place).map_or(&mut [][..], |stack| &mut stack.frames);
        let below = self.ledger.end(frame, end, record.ts_ns, exit, above, out);
        if let Some(below) = below
            && let Some(own) = self.table.get_mut(record.pid, own)
        {
            below.add_to(&mut own.frames);
        }
    }

    fn enter<O: Out>(&mut self, hit: &Hit<'_>, place: Option<Place>, out: &mut O) {
        self.ledger.counters.entries += 1;
        let record = hit.record;
        if self.is_drained(record) && self.above(hit, place).1 == 0 {
            self.ledger.counters.drained += 1;
            return;
        }
        let function = hit.site.function;
        let is_conditional = self.conditions.are_about(function);
        let mut args =
            if O::VALUES || is_conditional { self.values(hit, true) } else { Vec::new() };
        // As if there were no record, which there is none of where the hit decides.
        if is_conditional && !self.conditions.admit_entry(function, record.goid, &args) {
            self.ledger.counters.hidden += 1;
            return;
        }
        if !O::VALUES {
            args = Vec::new();
        }
        let place = self.make_room(hit, place, out);
        let (level, parent) = self.above(hit, place);
        self.last_id += 1;
        let frame = Frame {
            depth: record.depth,
            doubts: self.doubts,
            id: self.last_id,
            parent,
            goid: record.goid,
            start_ns: record.ts_ns,
            below_ns: 0,
            caller: if record.flags.has(RecordFlags::NO_CALLER) { 0 } else { record.caller },
            function,
            level,
            pid: record.pid,
            tid: record.tid,
            args_bytes: args.iter().map(Value::memory).sum(),
            args: args.into(),
        };
        if self.options.enters {
            out.enter(&frame);
        }
        self.ledger.opened(&frame);
        if let Key::System(system) = hit.key
            && let Some(own) = self.table.get_mut(record.pid, Key::Own(record.goid))
        {
            own.went_over(system);
        }
        let place = place.unwrap_or_else(|| self.table.make(record.pid, hit.key));
        if let Some(stack) = self.table.at(place) {
            stack.frames.push(frame);
        }
    }

    /// What a hit's record says of arguments or results.
    fn values(&self, hit: &Hit<'_>, at_entry: bool) -> Vec<Value> {
        let function = self.plan.functions.get(hit.site.function as usize);
        let Some(function) = function else { return Vec::new() };
        let mut fields = Fields::new(hit.record.payload);
        if !at_entry {
            return decode(&function.results, &mut fields);
        }
        for _ in 0..function.witness.map_or(0, witness::field_count) {
            fields.next();
        }
        decode(&function.args, &mut fields)
    }

    /// The level of a call that begins with a hit, and the id of the innermost one that is open
    /// above it on its goroutine, 0 without any. A system stack serves many goroutines: only the
    /// hit's own count.
    fn above(&mut self, hit: &Hit<'_>, place: Option<Place>) -> (u32, u64) {
        let goid = hit.record.goid;
        let own = match hit.key {
            Key::Own(_) => place,
            Key::System(_) => self.table.find(hit.record.pid, Key::Own(goid)),
        };
        // Outer calls may have been given up: what counts is where the innermost one stands.
        let below = |frame: &Frame| (frame.level.saturating_add(1), frame.id);
        let mut above = (0, 0);
        if let Some(stack) = own.and_then(|own| self.table.at(own)) {
            above = stack.frames.last().map_or(above, below);
        }
        if let (Key::System(_), Some(place)) = (hit.key, place)
            && let Some(stack) = self.table.at(place)
        {
            above = stack.frames.iter().rfind(|frame| frame.goid == goid).map_or(above, below);
        }
        above
    }

    /// Closes what the limits leave no room for. Gives where the hit's stack is now.
    fn make_room(
        &mut self,
        hit: &Hit<'_>,
        place: Option<Place>,
        out: &mut impl Out,
    ) -> Option<Place> {
        let limits = self.options.limits;
        let record = hit.record;
        let stack = place.and_then(|place| self.table.at(place));
        let is_new = stack.is_none();
        if let Some(stack) = stack
            && stack.frames.len() >= limits.frames.max(2)
        {
            let outer = stack.frames.len() / 2;
            let evicted: Vec<Frame> = stack.frames.drain(..outer).collect();
            self.evict(evicted, record.ts_ns, out);
        }
        if is_new {
            self.make_room_for_stack(record.pid, hit.key, record.ts_ns, out);
        }
        if self.ledger.bytes < limits.bytes {
            return place;
        }
        while self.ledger.bytes >= limits.bytes {
            let Some(stack) = self.table.remove_oldest() else { break };
            self.evict(stack.frames, record.ts_ns, out);
        }
        self.table.find(record.pid, hit.key)
    }

    fn evict(&mut self, frames: Vec<Frame>, ts_ns: u64, out: &mut impl Out) {
        self.ledger.counters.evicted += frames.len() as u64;
        for frame in frames.into_iter().rev() {
            self.ledger.infer(frame, End::Lost, ts_ns, &mut [], out);
        }
    }

    fn exit<O: Out>(&mut self, hit: &Hit<'_>, place: Option<Place>, end: End, out: &mut O) {
        self.ledger.counters.exits += 1;
        let record = hit.record;
        let frame = place
            .and_then(|place| self.table.at(place))
            .and_then(|stack| stack.frames.pop_if(|frame| frame.depth == record.depth));
        if let (Some(frame), Some(place)) = (frame, place) {
            let certain = frame.doubts == self.doubts;
            // With records missing, and no record of calls that were not wanted, it is more likely
            // one of those than the call that was open.
            let is_anyones = !certain && self.conditions.reject_at_hits(hit.site.function);
            if frame.function == hit.site.function && !is_anyones {
                let results = match end {
                    End::Return if O::VALUES => self.values(hit, false),
                    _ => Vec::new(),
                };
                // With records missing, this may be the exit of a later call from the same
                // place, both its entry and the first one's exit being lost.
                let exit = Exit { site: record.site, results, certain };
                self.end(place, frame, end, record, Some(exit), out);
                return;
            }
            // Another call leaves from the same place: this one was left unseen.
            self.end(place, frame, End::Lost, record, None, out);
        }
        if self.is_drained(record) {
            self.ledger.counters.drained_exits += 1;
        } else if self.conditions.are_about(hit.site.function) {
            self.ledger.counters.hidden_exits += 1;
        } else {
            self.ledger.counters.orphan_exits += 1;
        }
    }

    fn witness(&mut self, witness: Witness, record: &Record<'_>, out: &mut impl Out) {
        let mut fields = Fields::new(record.payload);
        let on_own_stack = record.goid != 0 && record.stack == 0;
        let understood = match witness {
            Witness::Panic if on_own_stack => {
                let value = witness::panic_value(record, &mut fields);
                if self.options.panics {
                    out.say(Event::Panicking(value.clone()));
                }
                let key = Key::Own(record.goid);
                self.make_room_for_stack(record.pid, key, record.ts_ns, out);
                let place = self.table.make(record.pid, key);
                if let Some(stack) = self.table.at(place) {
                    stack.push_panic(Pending { depth: record.depth, value });
                }
                true
            }
            Witness::Goexit if on_own_stack => {
                // Of interest only while something is open: what deferred functions open
                // and leave behind ends with the goroutine too.
                if let Some(stack) = self.table.get_mut(record.pid, Key::Own(record.goid)) {
                    stack.goexit = Some(record.depth);
                }
                true
            }
            Witness::FatalPanic if record.goid != 0 => {
                self.fatal_panic(record, out);
                true
            }
            Witness::Recovery => witness::recovery(&mut fields)
                .map(|(goid, depth)| self.recover(record, goid, depth, out))
                .is_some(),
            Witness::GoroutineDeath => {
                witness::dead_goid(&mut fields).map(|goid| self.death(record, goid, out)).is_some()
            }
            _ => false,
        };
        if !understood {
            self.ledger.counters.invalid += 1;
        }
    }

    fn make_room_for_stack(&mut self, pid: u32, key: Key, ts_ns: u64, out: &mut impl Out) {
        if self.table.find(pid, key).is_some() {
            return;
        }
        while self.table.len() >= self.options.limits.stacks.max(1) {
            let Some(stack) = self.table.remove_oldest() else { break };
            self.evict(stack.frames, ts_ns, out);
        }
    }

    /// Everything deeper than the recovering frame is gone, by the panic. A pending
    /// Goexit is not jumped over: the runtime goes back to it (`recovery` and `Goexit` in
    /// runtime/panic.go), and what lies above it stays until the goroutine dies.
    fn recover(&mut self, record: &Record<'_>, goid: u64, depth: u64, out: &mut impl Out) {
        let Some(place) = self.table.find(record.pid, Key::Own(goid)) else { return };
        let Some(stack) = self.table.at(place) else { return };
        let depth = stack.goexit.map_or(depth, |goexit| goexit.max(depth));
        while let Some(frame) = stack.frames.pop_if(|frame| frame.depth > depth) {
            self.ledger.infer(frame, End::Panic, record.ts_ns, &mut stack.frames, out);
        }
        while stack.panics.pop_if(|panic| panic.depth > depth).is_some() {}
        self.table.remove_if_idle(place);
    }

    fn death(&mut self, record: &Record<'_>, goid: u64, out: &mut impl Out) {
        let Some(mut stack) = self.table.remove(record.pid, Key::Own(goid)) else { return };
        while let Some(frame) = stack.frames.pop() {
            let end = match stack.goexit {
                Some(_) => End::Goexit,
                // Every goroutine ends in it: it does not return (runtime/proc.go).
                None if self.goexit1 == Some(frame.function) && !self.has_gap_since(&frame) => {
                    End::Goexit
                }
                None => stack.inferred_end(&frame, self.doubts),
            };
            self.ledger.infer(frame, end, record.ts_ns, &mut stack.frames, out);
        }
    }

    fn has_gap_since(&self, frame: &Frame) -> bool {
        frame.doubts != self.doubts
    }

    fn fatal_panic(&mut self, record: &Record<'_>, out: &mut impl Out) {
        self.ledger.counters.panics += 1;
        let key = Key::Own(record.goid);
        self.make_room_for_stack(record.pid, key, record.ts_ns, out);
        let place = self.table.make(record.pid, key);
        let Some(stack) = self.table.at(place) else { return };
        let started = stack.panics.pop().map(|pending| pending.value);
        let panic = started.unwrap_or_else(|| witness::unseen_panic(record));
        out.say(Event::Panic(Panic { ts_ns: record.ts_ns, ..panic }));
        stack.fatal = true;
        while let Some(frame) = stack.frames.pop() {
            self.ledger.infer(frame, End::Panic, record.ts_ns, &mut stack.frames, out);
        }
    }
}

fn index_of(plan: &Plan, name: &str) -> Option<u32> {
    let found = plan.functions.iter().position(|function| function.name == name)?;
    u32::try_from(found).ok()
}
