//! Pairs entries with exits, by (pid, goroutine, depth).

use crate::counters::Counters;
use crate::event::{Call, End, Event, Panic};
use crate::ledger::{Exit, Ledger, footprint};
use crate::loss::Losses;
use crate::stack::{Frame, Pending, inferred_system_end};
use crate::table::{Key, Table};
use crate::witness;
use probe::value::decode;
use probe::{Plan, PlannedFunction, Witness};
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
    /// Whether [`Event::Enter`] is produced. Default true; text, filters and statistics
    /// need it, JSON alone does not.
    pub enters: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { limits: Limits::default(), enters: true }
    }
}

/// Makes calls of records. See the crate's documentation.
#[derive(Debug)]
pub struct Timeline {
    plan: Arc<Plan>,
    options: Options,
    table: Table,
    losses: Losses,
    ledger: Ledger,
    last_id: u64,
    draining: bool,
}

/// One hit with what the plan says about its site.
struct Hit<'a> {
    record: &'a Record<'a>,
    index: u32,
    function: &'a PlannedFunction,
    key: Key,
}

impl Timeline {
    /// A timeline for records of `plan`.
    pub fn new(plan: Arc<Plan>, options: Options) -> Self {
        Self {
            plan,
            options,
            table: Table::default(),
            losses: Losses::default(),
            ledger: Ledger::default(),
            last_id: 0,
            draining: false,
        }
    }

    /// Counts so far.
    pub fn counters(&self) -> Counters {
        self.ledger.counters
    }

    /// Whether no call is open.
    pub fn is_idle(&self) -> bool {
        self.ledger.counters.open == 0
    }

    /// Entries in the tables that tell stacks apart: what grows if something leaks.
    pub fn remembered(&self) -> usize {
        self.table.remembered()
    }

    /// From now on no new root call opens; open trees go on.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Takes one record and appends what it means to `out`.
    pub fn push(&mut self, record: &Record<'_>, out: &mut Vec<Event>) {
        self.ledger.counters.records += 1;
        if let Some((gap, lost)) = self.losses.note(record) {
            self.ledger.counters.gaps += 1;
            self.ledger.counters.lost += u64::from(lost);
            out.push(gap);
        }
        match record.kind {
            RecordKind::Hit => self.hit(record, out),
            RecordKind::Exec => self.end_process(record.pid, End::Exec, record.ts_ns, out),
            RecordKind::ProcessExit => {
                self.ledger.counters.process_exits += 1;
                self.end_process(record.pid, End::Open, record.ts_ns, out);
                out.push(Event::ProcessExit { pid: record.pid, ts_ns: record.ts_ns });
            }
            // Says where the image lies: for those who name addresses.
            RecordKind::Process => {}
        }
    }

    /// Reports every open call as [`End::Open`] (or panic, where the goroutine ends the
    /// process by one). `now_ns` is a time on the capture's clock.
    pub fn finish(&mut self, now_ns: u64, out: &mut Vec<Event>) {
        for pid in self.table.pids() {
            self.end_process(pid, End::Open, now_ns, out);
        }
    }

    fn end_process(&mut self, pid: u32, end: End, ts_ns: u64, out: &mut Vec<Event>) {
        for (_, mut stack) in self.table.remove_process(pid) {
            let end = if stack.fatal && end == End::Open { End::Panic } else { end };
            while let Some(frame) = stack.frames.pop() {
                self.ledger.infer(frame, end, ts_ns, out);
            }
        }
    }

    fn hit(&mut self, record: &Record<'_>, out: &mut Vec<Event>) {
        let plan = Arc::clone(&self.plan);
        let Some((site, function)) = plan.function_of(record.site) else {
            self.ledger.counters.invalid += 1;
            return;
        };
        let witness = function.witness.filter(|_| site.kind == SiteKind::Entry);
        let exit = matches!(site.kind, SiteKind::Return | SiteKind::TailJump);
        if witness.is_some() {
            self.ledger.counters.witnesses += 1;
        }
        match self.key(record) {
            Some(key) => {
                let hit = Hit { record, index: site.function, function, key };
                self.leave_system_stacks(&hit, out);
                self.close_from(&hit, u64::from(exit), out);
                match site.kind {
                    SiteKind::Entry if function.traced => self.enter(&hit, out),
                    SiteKind::Return => self.exit(&hit, End::Return, out),
                    SiteKind::TailJump => self.exit(&hit, End::Tail, out),
                    _ if witness.is_some() => {}
                    _ => self.ledger.counters.invalid += 1,
                }
                self.table.remove_if_idle(record.pid, key);
            }
            // Recovery and death name their goroutine in a field.
            None if witness.is_some() => {}
            None => return,
        }
        if let Some(witness) = witness {
            self.witness(witness, record, out);
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
    fn leave_system_stacks(&mut self, hit: &Hit<'_>, out: &mut Vec<Event>) {
        let Key::Own(goid) = hit.key else { return };
        let record = hit.record;
        let over = self.table.get_mut(record.pid, hit.key).map(|stack| &mut stack.over);
        for system in over.map(std::mem::take).unwrap_or_default() {
            let key = Key::System(system);
            let Some(stack) = self.table.get_mut(record.pid, key) else { continue };
            let gone: Vec<Frame> = stack.frames.extract_if(.., |f| f.call.goid == goid).collect();
            for frame in gone.into_iter().rev() {
                let end = inferred_system_end(&frame, self.ledger.counters.gaps);
                self.ledger.infer(frame, end, record.ts_ns, out);
            }
            self.table.remove_if_idle(record.pid, key);
        }
    }

    /// Closes every open call at the hit's depth + `beyond` or deeper: its frame is gone.
    fn close_from(&mut self, hit: &Hit<'_>, beyond: u64, out: &mut Vec<Event>) {
        let record = hit.record;
        let Some(stack) = self.table.get_mut(record.pid, hit.key) else { return };
        let floor = record.depth + beyond;
        let gaps = self.ledger.counters.gaps;
        while let Some(frame) = stack.frames.pop_if(|frame| frame.depth >= floor) {
            let end = match hit.key {
                Key::Own(_) => stack.inferred_end(&frame, gaps),
                Key::System(_) => inferred_system_end(&frame, gaps),
            };
            self.ledger.infer(frame, end, record.ts_ns, out);
        }
        stack.forget_from(record.depth);
    }

    fn enter(&mut self, hit: &Hit<'_>, out: &mut Vec<Event>) {
        self.ledger.counters.entries += 1;
        let record = hit.record;
        if self.draining && self.above(hit).1.is_none() {
            self.ledger.counters.drained += 1;
            return;
        }
        self.make_room(hit, out);
        let (depth, parent) = self.above(hit);
        let mut fields = Fields::new(record.payload);
        for _ in 0..hit.function.witness.map_or(0, witness::field_count) {
            fields.next();
        }
        self.last_id += 1;
        let call = Call {
            id: self.last_id,
            parent,
            depth,
            pid: record.pid,
            tid: record.tid,
            goid: record.goid,
            function: hit.index,
            start_ns: record.ts_ns,
            end_ns: record.ts_ns,
            end: End::Open,
            end_exact: false,
            args: decode(&hit.function.args, &mut fields),
            results: Vec::new(),
            caller: if record.flags.has(RecordFlags::NO_CALLER) { 0 } else { record.caller },
            exit_site: None,
        };
        if self.options.enters {
            out.push(Event::Enter(call.clone()));
        }
        let bytes = footprint(&call);
        let frame = Frame { call, depth: record.depth, gaps: self.ledger.counters.gaps, bytes };
        self.ledger.opened(&frame);
        if let Key::System(system) = hit.key
            && let Some(own) = self.table.get_mut(record.pid, Key::Own(record.goid))
        {
            own.went_over(system);
        }
        self.table.get_or_make(record.pid, hit.key).frames.push(frame);
    }

    /// How many traced calls are open above a hit on its goroutine, and the innermost one.
    /// A system stack serves many goroutines: only the hit's own count.
    fn above(&self, hit: &Hit<'_>) -> (u32, Option<u64>) {
        let record = hit.record;
        let of = |key| self.table.get(record.pid, key).map_or(&[][..], |stack| &stack.frames);
        let own = of(Key::Own(record.goid));
        let Key::System(_) = hit.key else {
            return (depth_of(own.len()), own.last().map(|frame| frame.call.id));
        };
        let system = of(hit.key).iter().filter(|frame| frame.call.goid == record.goid);
        let (count, last) = system.fold((own.len(), own.last()), |(n, _), f| (n + 1, Some(f)));
        (depth_of(count), last.map(|frame| frame.call.id))
    }

    /// Closes what the limits leave no room for.
    fn make_room(&mut self, hit: &Hit<'_>, out: &mut Vec<Event>) {
        let limits = self.options.limits;
        let ts_ns = hit.record.ts_ns;
        if let Some(stack) = self.table.get_mut(hit.record.pid, hit.key)
            && stack.frames.len() >= limits.frames.max(2)
        {
            let outer = stack.frames.len() / 2;
            let evicted: Vec<Frame> = stack.frames.drain(..outer).collect();
            self.evict(evicted, ts_ns, out);
        }
        self.make_room_for_stack(hit.record.pid, hit.key, ts_ns, out);
        while self.ledger.bytes >= limits.bytes {
            let Some(stack) = self.table.remove_oldest() else { break };
            self.evict(stack.frames, ts_ns, out);
        }
    }

    fn evict(&mut self, frames: Vec<Frame>, ts_ns: u64, out: &mut Vec<Event>) {
        self.ledger.counters.evicted += frames.len() as u64;
        for frame in frames.into_iter().rev() {
            self.ledger.infer(frame, End::Lost, ts_ns, out);
        }
    }

    fn exit(&mut self, hit: &Hit<'_>, end: End, out: &mut Vec<Event>) {
        self.ledger.counters.exits += 1;
        let record = hit.record;
        let frame = self
            .table
            .get_mut(record.pid, hit.key)
            .and_then(|stack| stack.frames.pop_if(|frame| frame.depth == record.depth));
        match frame {
            Some(frame) if frame.call.function == hit.index => {
                let results = match end {
                    End::Return => decode(&hit.function.results, &mut Fields::new(record.payload)),
                    _ => Vec::new(),
                };
                // With records missing, this may be the exit of a later call from the same
                // place, both its entry and the first one's exit being lost.
                let certain = frame.gaps == self.ledger.counters.gaps;
                let exit = Exit { site: record.site, results, certain };
                self.ledger.exit(frame, end, record.ts_ns, exit, out);
                return;
            }
            // Another function leaves from the same place: this one was left unseen.
            Some(frame) => self.ledger.infer(frame, End::Lost, record.ts_ns, out),
            None => {}
        }
        if self.draining {
            self.ledger.counters.drained_exits += 1;
        } else {
            self.ledger.counters.orphan_exits += 1;
        }
    }

    fn witness(&mut self, witness: Witness, record: &Record<'_>, out: &mut Vec<Event>) {
        let mut fields = Fields::new(record.payload);
        let on_own_stack = record.goid != 0 && record.stack == 0;
        let understood = match witness {
            Witness::Panic if on_own_stack => {
                let value = witness::panic_value(record, &mut fields);
                let key = Key::Own(record.goid);
                self.make_room_for_stack(record.pid, key, record.ts_ns, out);
                let stack = self.table.get_or_make(record.pid, key);
                stack.push_panic(Pending { depth: record.depth, value });
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

    fn make_room_for_stack(&mut self, pid: u32, key: Key, ts_ns: u64, out: &mut Vec<Event>) {
        if self.table.get(pid, key).is_some() {
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
    fn recover(&mut self, record: &Record<'_>, goid: u64, depth: u64, out: &mut Vec<Event>) {
        let key = Key::Own(goid);
        let Some(stack) = self.table.get_mut(record.pid, key) else { return };
        let depth = stack.goexit.map_or(depth, |goexit| goexit.max(depth));
        while let Some(frame) = stack.frames.pop_if(|frame| frame.depth > depth) {
            self.ledger.infer(frame, End::Panic, record.ts_ns, out);
        }
        while stack.panics.pop_if(|panic| panic.depth > depth).is_some() {}
        self.table.remove_if_idle(record.pid, key);
    }

    fn death(&mut self, record: &Record<'_>, goid: u64, out: &mut Vec<Event>) {
        let Some(mut stack) = self.table.remove(record.pid, Key::Own(goid)) else { return };
        while let Some(frame) = stack.frames.pop() {
            let end = match stack.goexit {
                Some(_) => End::Goexit,
                None => stack.inferred_end(&frame, self.ledger.counters.gaps),
            };
            self.ledger.infer(frame, end, record.ts_ns, out);
        }
    }

    fn fatal_panic(&mut self, record: &Record<'_>, out: &mut Vec<Event>) {
        self.ledger.counters.panics += 1;
        let key = Key::Own(record.goid);
        self.make_room_for_stack(record.pid, key, record.ts_ns, out);
        let stack = self.table.get_or_make(record.pid, key);
        let started = stack.panics.pop().map(|pending| pending.value);
        let panic = started.unwrap_or_else(|| witness::unseen_panic(record));
        out.push(Event::Panic(Panic { ts_ns: record.ts_ns, ..panic }));
        stack.fatal = true;
        while let Some(frame) = stack.frames.pop() {
            self.ledger.infer(frame, End::Panic, record.ts_ns, out);
        }
    }
}

fn depth_of(frames: usize) -> u32 {
    u32::try_from(frames).unwrap_or(u32::MAX)
}
