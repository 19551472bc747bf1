//! One process with code of ours in it.

use super::area::{self, Area};
use super::gap::Layout;
use super::place::Place;
use super::remote::{CallSites, Remote};
use super::rest;
use super::room;
use super::scan::{self, Wanted};
use super::stacks::{self, StackFacts};
use super::stop::while_stopped;
use super::text::{self, Direction, TextPatch};
use crate::Error;
use crate::memory::TargetMemory;
use crate::ptrace::Stopped;
use crate::step;
use address::Avma;
use process::Process;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Stops in which a thread is looked for that may be left alone at any moment.
const SAFE_ATTEMPTS: usize = 8;

/// Stops in which functions with saved PCs are tried again.
pub(super) const ROUNDS: usize = 12;

/// Stops that change nothing before what is left is taken for words that only look like PCs.
pub(super) const STALLED: usize = 4;

/// What to install.
pub(crate) struct Prepared {
    /// Where the areas go.
    pub layout: Layout,
    /// The code.
    pub code: Vec<u8>,
    /// Sorted by address.
    pub patches: Vec<TextPatch>,
    /// The hook of the runtime's signal handler: in first, out last.
    pub hook: Option<TextPatch>,
    /// The handlers that lead to it.
    pub handlers: Vec<Range<Avma>>,
    /// Where the runtime keeps its stacks.
    pub stacks: Option<StackFacts>,
    /// Where threads sleep that may be borrowed.
    pub sleepers: Vec<Range<Avma>>,
    /// Where a PC strictly inside a patch goes on.
    pub relocated: Box<dyn Fn(Avma) -> Option<Avma> + Send + Sync>,
}

/// How the process stood still, and what could not be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How long each stop took.
    pub stops: Vec<Duration>,
    /// Whether a thread was used for system calls that did not tolerate our death.
    pub was_exposed: bool,
    /// Pages of text written, each private to the process from then on.
    pub private_pages: usize,
    /// Patches in place.
    pub patches: usize,
    /// Functions that carry them.
    pub functions: usize,
    /// Functions (of the plan) left alone because a goroutine is parked inside a place to patch.
    pub busy: BTreeSet<u32>,
    /// Functions left alone because the code in memory is not the file's.
    pub foreign: BTreeSet<u32>,
    /// Those of them that the program has changed itself: they must not get uprobes either.
    pub rewritten: BTreeSet<u32>,
}

/// How a removal went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// How long each stop took.
    pub stops: Vec<Duration>,
    /// Patches that somebody else changed, left alone.
    pub foreign: usize,
    /// Bytes of ours still mapped: something may still return into them.
    pub left_bytes: u64,
}

/// A process with our code.
pub(crate) struct Target {
    pub(crate) process: Process,
    pub(crate) memory: TargetMemory,
    pub(crate) area: Area,
    sites: CallSites,
    /// Those in place.
    patches: Vec<TextPatch>,
    /// Those that were taken out and may come back.
    resting: Vec<TextPatch>,
    /// The one that comes out last.
    hook: Option<TextPatch>,
    stacks: Option<StackFacts>,
    pub(crate) report: Report,
}

impl Target {
    fn new(
        process: Process,
        memory: TargetMemory,
        area: Area,
        sites: CallSites,
        report: Report,
    ) -> Self {
        Self {
            process,
            memory,
            area,
            sites,
            patches: Vec::new(),
            resting: Vec::new(),
            hook: None,
            stacks: None,
            report,
        }
    }

    /// Installs in a running process, in as few and short stops as there can be.
    pub(crate) fn attach(
        process: Process,
        memory: TargetMemory,
        place: &Place,
        prepared: &Prepared,
    ) -> Result<Self, Error> {
        let mut report = Report::default();
        room::check(process.pid(), prepared)?;
        let (patches, foreign) = own_bytes(&memory, prepared)?;
        report.rewritten = rewritten(&memory, prepared, &foreign);
        report.foreign = foreign;
        let sites =
            CallSites::find(&process.maps()?, &place.text, prepared.sleepers.clone(), &memory)?;
        step::at("checked");
        let area = map_area(&process, &memory, &sites, prepared, &mut report)?;
        let mut target = Self::new(process, memory, area, sites, report);
        target.stacks = prepared.stacks;
        let result = target
            .area
            .open_rings()
            .inspect(|()| step::at("opened"))
            .and_then(|()| target.patch_in_rounds(patches, prepared))
            .inspect(|()| step::at("patched all"))
            .and_then(|()| target.area.enable(&target.memory, true));
        if let Err(error) = result {
            // The error that made us give up is the one to tell.
            let _ = target.remove();
            return Err(error);
        }
        Ok(target)
    }

    /// Installs in a process that stands before its first instruction, and goes on standing there.
    pub(crate) fn launch(
        process: Process,
        memory: TargetMemory,
        place: &Place,
        prepared: &Prepared,
        stopped: &mut Stopped,
    ) -> Result<Self, Error> {
        let mut report = Report::default();
        room::check(process.pid(), prepared)?;
        let (patches, foreign) = own_bytes(&memory, prepared)?;
        report.rewritten = rewritten(&memory, prepared, &foreign);
        report.foreign = foreign;
        let sites =
            CallSites::find(&process.maps()?, &place.text, prepared.sleepers.clone(), &memory)?;
        let Some(mut remote) = Remote::at_start(stopped, &sites, &memory)? else {
            return Err(Error::Gone(memory.pid()));
        };
        report.was_exposed = !remote.is_safe();
        let area = Area::map(&mut remote, &memory, prepared.layout, &prepared.code)?;
        remote.finish()?;
        area.open_rings()?;
        let mut target = Self::new(process, memory, area, sites, report);
        target.stacks = prepared.stacks;
        let written = write_in(&target.memory, prepared.hook.as_ref(), patches.iter())?;
        target.hook = prepared.hook;
        target.report.private_pages = written.pages;
        target.report.patches = written.right;
        target.patches = patches;
        target.count_functions();
        target.area.enable(&target.memory, true)?;
        step::at("patched");
        target.report.stops.push(stopped.elapsed());
        Ok(target)
    }

    /// Stops, looks for saved PCs, writes what can be written, and lets go, until nothing is left
    /// or nothing changes.
    fn patch_in_rounds(
        &mut self,
        mut waiting: Vec<TextPatch>,
        prepared: &Prepared,
    ) -> Result<(), Error> {
        let mut stalled = 0;
        for round in 0..ROUNDS {
            if waiting.is_empty() || stalled == STALLED {
                break;
            }
            // Parked goroutines need a moment to move on.
            std::thread::sleep(Duration::from_millis(5) * round as u32);
            let hook = prepared.hook.filter(|_| self.hook.is_none());
            let work = Work {
                process: &self.process,
                memory: &self.memory,
                hook: hook.as_ref(),
                patches: &waiting,
                wanted: Wanted::inside(hook.iter().chain(&waiting)),
                relocated: &*prepared.relocated,
                has_begun: AtomicBool::new(false),
            };
            let done = while_stopped(&self.memory, |stopped| work.patch(stopped));
            if done.is_err() && work.has_begun.into_inner() {
                // Nobody knows which of them are in, and a removal takes out those that are.
                self.hook = prepared.hook;
                self.patches.append(&mut waiting);
                self.patches.sort_unstable_by_key(|patch| patch.start);
            }
            let ((busy, written), stop) = done?;
            if !busy.contains(&HOOK) {
                self.hook = prepared.hook;
            }
            self.report.stops.push(stop);
            self.report.private_pages += written.pages;
            self.report.patches += written.right;
            let (later, done): (Vec<_>, Vec<_>) =
                waiting.into_iter().partition(|patch| busy.contains(&patch.function));
            stalled = if done.is_empty() { stalled + 1 } else { 0 };
            self.patches.extend(done);
            waiting = later;
        }
        self.patches.sort_unstable_by_key(|patch| patch.start);
        self.report.busy = waiting.iter().map(|patch| patch.function).collect();
        self.count_functions();
        Ok(())
    }

    fn count_functions(&mut self) {
        let functions = self.patches.iter().map(|patch| patch.function);
        self.report.functions = functions.collect::<BTreeSet<_>>().len();
    }

    /// Takes the patches of some functions out, or puts those back that were; the code stays mapped. Whether all
    /// are as wanted: some may be busy, or under somebody's breakpoint.
    pub(crate) fn set_watched(
        &mut self,
        functions: &BTreeSet<u32>,
        watched: bool,
    ) -> Result<bool, Error> {
        let is_theirs = |patch: &TextPatch| functions.contains(&patch.function);
        if !watched {
            let theirs: Vec<_> = self.patches.iter().copied().filter(is_theirs).collect();
            if !rest::take_out(&self.memory, &theirs, &mut self.report.stops)? {
                return Ok(false);
            }
            self.patches.retain(|patch| !is_theirs(patch));
            self.resting.extend(theirs);
            return Ok(true);
        }
        let waiting = self.resting.extract_if(.., |patch| is_theirs(patch)).collect();
        let put = rest::put_back(&self.process, &self.memory, waiting, &mut self.report.stops);
        // When it failed, a removal looks after those that are in.
        self.patches.extend(put.done);
        self.patches.sort_unstable_by_key(|patch| patch.start);
        self.resting.extend(put.waiting);
        put.result
    }

    /// Restores the text, and unmaps the areas when nothing can return into them any more.
    /// Idempotent.
    pub(crate) fn remove(&mut self) -> Result<Removal, Error> {
        let mut removal = Removal::default();
        if !self.memory.is_current() {
            return Ok(removal);
        }
        self.area.enable(&self.memory, false)?;
        let memory = &self.memory;
        let patches = &self.patches;
        let (written, stop) =
            while_stopped(memory, |_| text::write(memory, patches.iter(), Direction::Out))?;
        step::at("restored");
        removal.stops.push(stop);
        removal.foreign = written.foreign;
        if written.foreign > 0 {
            // Somebody's bytes may still lead into our code.
            removal.left_bytes = self.area.ranges().iter().map(|range| range.1).sum();
            return Ok(removal);
        }
        self.patches.clear();
        let start = self.area.layout.code;
        let unmapping = Unmapping {
            process: &self.process,
            memory,
            sites: &self.sites,
            code: start..start.add(self.area.code_len),
            ranges: &self.area.ranges(),
            hook: self.hook.as_ref(),
            stacks: self.stacks.as_ref(),
        };
        removal.left_bytes = unmapping.run(&mut removal)?;
        Ok(removal)
    }
}

/// The last step of a removal.
pub(super) struct Unmapping<'a> {
    pub(super) process: &'a Process,
    pub(super) memory: &'a TargetMemory,
    pub(super) sites: &'a CallSites,
    /// No PC and no saved PC may lie here.
    pub(super) code: Range<Avma>,
    pub(super) ranges: &'a [(u64, u64)],
    /// Faults in our code need it until there is no code.
    pub(super) hook: Option<&'a TextPatch>,
    pub(super) stacks: Option<&'a StackFacts>,
}

impl Unmapping<'_> {
    /// Tries some times; gives the bytes that had to stay.
    pub(super) fn run(&self, removal: &mut Removal) -> Result<u64, Error> {
        let wanted = Wanted::all_of(self.code.clone());
        for round in 0..ROUNDS {
            std::thread::sleep(Duration::from_millis(2) * round as u32);
            let unsafe_too = round + 1 >= SAFE_ATTEMPTS;
            let (is_unmapped, stop) =
                while_stopped(self.memory, |stopped| self.once(stopped, &wanted, unsafe_too))?;
            removal.stops.push(stop);
            if is_unmapped {
                return Ok(0);
            }
        }
        Ok(self.ranges.iter().map(|range| range.1).sum())
    }

    fn once(
        &self,
        stopped: &mut Stopped,
        wanted: &Wanted,
        unsafe_too: bool,
    ) -> Result<bool, Error> {
        for thread in stopped.threads() {
            let Some(registers) = thread.registers()? else { continue };
            let is_there = wanted.find(registers.rip).is_some();
            if is_there || stacks::holds(self.stacks, &registers, self.memory, wanted) {
                return Ok(false);
            }
        }
        let Some(mut remote) = Remote::borrow(stopped, self.sites, self.memory, unsafe_too)? else {
            return Ok(false);
        };
        let written = text::write(self.memory, self.hook.into_iter(), Direction::Out)?;
        step::at("unhooked");
        if written.foreign > 0 {
            return Ok(false);
        }
        for &(start, len) in self.ranges {
            remote.require("munmap", libc::SYS_munmap, [start, len, 0, 0, 0, 0])?;
            step::at("unmapped");
        }
        // A tracer that was killed while it mapped has not closed them.
        for fd in area::open_memfds(self.process.pid()) {
            // One that cannot be closed harms nobody.
            let _ = remote.call(libc::SYS_close, [fd, 0, 0, 0, 0, 0])?;
        }
        remote.finish()?;
        Ok(true)
    }
}

/// Splits off the functions whose bytes in memory are not the file's.
fn own_bytes(
    memory: &TargetMemory,
    prepared: &Prepared,
) -> Result<(Vec<TextPatch>, BTreeSet<u32>), Error> {
    let foreign = text::foreign(memory, prepared.patches.iter(), Direction::In)?;
    let hook = prepared.hook.iter();
    if let (Some(hook), false) =
        (&prepared.hook, text::foreign(memory, hook, Direction::In)?.is_empty())
    {
        return Err(Error::ForeignCode { pid: memory.pid(), address: hook.start.0 });
    }
    let patches = prepared.patches.iter();
    let own = patches.filter(|p| !foreign.contains(&p.function)).copied().collect();
    Ok((own, foreign))
}

/// Those of the `foreign` functions whose code is not the file's with breakpoints in it.
fn rewritten(memory: &TargetMemory, prepared: &Prepared, foreign: &BTreeSet<u32>) -> BTreeSet<u32> {
    let patches_of = |function| prepared.patches.iter().filter(move |p| p.function == function);
    let is_rewritten = |function: &u32| text::is_rewritten(memory, patches_of(*function).copied());
    foreign.iter().copied().filter(is_rewritten).collect()
}

/// The hook first: what the other patches lead to may fault.
fn write_in<'a>(
    memory: &TargetMemory,
    hook: Option<&TextPatch>,
    patches: impl Iterator<Item = &'a TextPatch>,
) -> Result<text::Written, Error> {
    let hooked = text::write(memory, hook.into_iter(), Direction::In)?;
    let mut written = text::write(memory, patches, Direction::In)?;
    written.pages += hooked.pages;
    Ok(written)
}

fn map_area(
    process: &Process,
    memory: &TargetMemory,
    sites: &CallSites,
    prepared: &Prepared,
    report: &mut Report,
) -> Result<Area, Error> {
    for attempt in 1..=SAFE_ATTEMPTS {
        let (area, stop) = while_stopped(memory, |stopped| {
            let unsafe_too = attempt == SAFE_ATTEMPTS;
            let Some(mut remote) = Remote::borrow(stopped, sites, memory, unsafe_too)? else {
                return Ok(None);
            };
            let area = Area::map(&mut remote, memory, prepared.layout, &prepared.code)?;
            step::at("mapped");
            if prepared.hook.is_some() && !area.handles(&mut remote, memory, &prepared.handlers)? {
                area.unmap(&mut remote)?;
                remote.finish()?;
                return Err(Error::ForeignHandler { pid: process.pid() });
            }
            let is_safe = remote.is_safe();
            remote.finish()?;
            Ok(Some((area, is_safe)))
        })?;
        report.stops.push(stop);
        if let Some((area, is_safe)) = area {
            report.was_exposed = !is_safe;
            return Ok(area);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(Error::Gone(process.pid()))
}

/// The number of the hook's function.
const HOOK: u32 = u32::MAX;

/// One round of patching.
pub(super) struct Work<'a> {
    pub(super) process: &'a Process,
    pub(super) memory: &'a TargetMemory,
    /// Unless it is in.
    pub(super) hook: Option<&'a TextPatch>,
    pub(super) patches: &'a [TextPatch],
    pub(super) wanted: Wanted,
    pub(super) relocated: &'a (dyn Fn(Avma) -> Option<Avma> + Send + Sync),
    /// Whether something may have been written.
    pub(super) has_begun: AtomicBool,
}

impl Work<'_> {
    /// Looks, moves threads out of the way, writes; gives the functions that have to wait.
    pub(super) fn patch(&self, stopped: &Stopped) -> Result<(BTreeSet<u32>, text::Written), Error> {
        let (process, memory) = (self.process, self.memory);
        let mut busy = scan::saved(stopped, &process.maps()?, &process.memory()?, &self.wanted)?;
        // What changed since the first look, e.g. a breakpoint.
        let all = self.hook.into_iter().chain(self.patches);
        busy.extend(text::foreign(memory, all, Direction::In)?);
        let mut moves = Vec::new();
        for thread in stopped.threads() {
            let Some(registers) = thread.registers()? else { continue };
            let Some(function) = self.wanted.find(registers.rip) else { continue };
            match (self.relocated)(Avma(registers.rip)) {
                Some(to) => moves.push((thread, registers, to, function)),
                None => {
                    busy.insert(function);
                }
            }
        }
        if busy.contains(&HOOK) {
            busy.extend(self.patches.iter().map(|patch| patch.function));
        }
        // The copy is complete, so a thread may run it before the jump to it stands.
        for (thread, mut registers, to, function) in moves {
            if !busy.contains(&function) {
                registers.rip = to.0;
                thread.set_registers(&registers)?;
                step::at("redirected");
            }
        }
        let hook = self.hook.filter(|_| !busy.contains(&HOOK));
        let free = self.patches.iter().filter(|patch| !busy.contains(&patch.function));
        self.has_begun.store(true, Ordering::Relaxed);
        let written = write_in(memory, hook, free)?;
        step::at("patched");
        Ok((busy, written))
    }
}
