//! An installed plan: attach or launch, read, count, detach.

use crate::Error;
use crate::clock::{self, Clock};
use crate::emit::Refused;
use crate::host::Host;
use crate::install::{self, Place, Removal, Report, Target};
use crate::launch::{self, Start};
use crate::memory::TargetMemory;
use crate::prepare::{self, Hooks, Made, Order};
use crate::ptrace;
use crate::reader::{Reader, SiteInfo, Writers};
use crate::slice;
use address::{Avma, Bias, Svma};
use binary::Executable;
use capture::{Capture, CodeEffects, Counters, Request, Scope};
use probe::Plan;
use process::{FileIdentity, FileSource, Process};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::{Record, RecordFlags, RecordKind};

/// Longest pause between two rounds while nothing comes.
const MAX_PAUSE: Duration = Duration::from_millis(4);

/// Longest while something comes. A ring of a busy CPU is full after a few milliseconds.
const BUSY_PAUSE: Duration = Duration::from_millis(2);

/// Shortest pause, unless there is none: waking up costs some microseconds.
const MIN_PAUSE: Duration = Duration::from_micros(250);

/// How often a target is asked whether it still has the memory we know. A program that replaces
/// itself and ends within that time is only seen to end.
const CHECK: Duration = Duration::from_millis(1);

/// What differs between installations.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The executable of the request's path, when it is open already.
    pub executable: Option<Arc<Executable>>,
    /// Makes code for a CPU without `rdpid`, also where there is one; for tests.
    pub no_rdpid: bool,
    /// Functions of the plan (by their index) that somebody else serves: nothing is written into
    /// them, and [`TrampolineCapture::refused`] names them.
    pub excluded: BTreeSet<u32>,
}

/// How it is to be brought into one process.
enum Way<'a> {
    Attach,
    Launch(Start<'a>),
}

/// A plan in the code of one or more processes.
pub struct TrampolineCapture {
    installed: Vec<Installed>,
    refused: BTreeMap<u32, String>,
    /// Those that carry nothing in any process.
    bare: BTreeSet<u32>,
    removals: Vec<Removal>,
    /// Measured before the first installation; each process goes on with its own.
    clock: Clock,
    pause: Duration,
    /// See [`Capture::rest_up_to`].
    rest: Duration,
    attached: bool,
    /// For each site of the plan its function, and where that begins.
    functions: Vec<(u32, Svma)>,
    /// Whether the thread that reads has been told to the kernel.
    is_reading: bool,
}

/// What was put into a process.
pub(crate) struct What<'a> {
    pub plan: &'a Plan,
    pub sites: Arc<[SiteInfo]>,
    /// Where the image lies there.
    pub bias: Bias,
}

struct Installed {
    target: Host,
    reader: Reader,
    /// Its own: what one process has given out says nothing about the records of another.
    clock: Clock,
    /// Nothing more will come.
    is_over: bool,
    checked: Instant,
    /// Where the plan's first site lies in the process, until that is told.
    untold: Option<Avma>,
}

impl TrampolineCapture {
    /// Installs the request's plan in running processes. Hits count from the moment all sites
    /// of a process are in place.
    ///
    /// Errors: [`capture::Error::Unsupported`] for [`Scope::EveryProcess`] and where the time stamp
    /// counter tells no time, [`capture::Error::Permission`], [`capture::Error::ProcessGone`],
    /// [`capture::Error::Failed`] with the reason. All targets are as before then.
    pub fn install(request: &Request<'_>, options: Options) -> Result<Self, capture::Error> {
        Self::install_by(request, &options, &mut Way::Attach)
    }

    /// Installs the plan in a process that is about to become the program: `release` lets it, and is
    /// called once the process is watched. The code is in place before the program's first
    /// instruction. The scope is that one process.
    ///
    /// When the program is there and can carry no code, `instead` is called with the reason while it
    /// still stands before its first instruction: what that does is in place when it begins. The
    /// reason is the result nevertheless. When `release` was not called the process still waits.
    ///
    /// Errors as for [`TrampolineCapture::install`], and [`capture::Error::Failed`] with that of
    /// `release` as its source.
    pub fn launch<E>(
        request: &Request<'_>,
        options: Options,
        release: impl FnOnce() -> Result<(), E>,
        mut instead: impl FnMut(&capture::Error),
    ) -> Result<Self, capture::Error>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        let mut release = Some(release);
        let mut release = move || match release.take() {
            Some(release) => release().map_err(|error| capture::Error::Failed {
                what: "start the program".to_owned(),
                source: Box::new(error),
            }),
            None => Ok(()),
        };
        let start = Start { release: &mut release, instead: &mut instead };
        Self::install_by(request, &options, &mut Way::Launch(start))
    }

    fn install_by(
        request: &Request<'_>,
        options: &Options,
        way: &mut Way<'_>,
    ) -> Result<Self, capture::Error> {
        if let Some(have) = clock::why_unusable() {
            return Err(capture::Error::Unsupported {
                feature: "the in-process backend",
                needs: "a time stamp counter that the kernel trusts".to_owned(),
                have,
            });
        }
        let pids = pids(&request.scope)?;
        let executable = open(request, options)?;
        let rings = prepare::ring_sizes(prepare::possible_cpus(), request.ring_bytes, pids.len());
        let order = Order {
            executable: &executable,
            plan: request.plan,
            excluded: &options.excluded,
            rings,
            no_rdpid: options.no_rdpid,
        };
        let mut capture = Self::empty(Clock::new());
        for pid in pids {
            // When one fails, dropping `capture` takes it out of the others.
            let (target, made) = match way {
                Way::Attach => attach(pid, request, &order)?,
                Way::Launch(start) => launch::launch(pid, request, &order, start)?,
            };
            let what = What { plan: request.plan, sites: made.sites.into(), bias: made.bias };
            capture.add(Host::Traced(target), &made.emitted.refused, what);
        }
        Ok(capture)
    }

    fn empty(clock: Clock) -> Self {
        Self {
            installed: Vec::new(),
            refused: BTreeMap::new(),
            bare: BTreeSet::new(),
            removals: Vec::new(),
            clock,
            pause: Duration::ZERO,
            rest: Duration::ZERO,
            attached: true,
            functions: Vec::new(),
            is_reading: false,
        }
    }

    /// Of a process that has put the code into itself.
    pub(crate) fn given(
        host: Host,
        clock: Clock,
        refused: &[(u32, Refused)],
        what: What<'_>,
    ) -> Self {
        let mut capture = Self::empty(clock);
        capture.add(host, refused, what);
        capture
    }

    fn add(&mut self, target: Host, refused: &[(u32, Refused)], what: What<'_>) {
        let reasons = refused.iter().map(|(f, reason)| (*f, reason.to_string()));
        let busy = "a goroutine is parked where a jump would have to stand";
        let foreign = "its code in memory differs from the file: another tracer is at work there";
        let mut refused: BTreeMap<u32, String> = reasons.collect();
        let report = target.report();
        refused.extend(report.busy.iter().map(|&f| (f, busy.to_owned())));
        refused.extend(report.foreign.iter().map(|&f| (f, foreign.to_owned())));
        let is_first = self.installed.is_empty();
        self.bare.retain(|function| refused.contains_key(function));
        self.bare.extend(refused.keys().filter(|_| is_first));
        self.refused.extend(refused);
        let entry = |function: u32| {
            let known = what.plan.functions.get(function as usize);
            (function, known.map_or(Svma(u64::MAX), |function| function.entry))
        };
        self.functions = what.plan.sites.iter().map(|site| entry(site.function)).collect();
        let rings = target.area().layout.rings;
        let first_ring = rings.count.wrapping_mul(self.installed.len() as u32);
        let opened = target.area().opened;
        let reader = Reader::new(target.process().pid(), rings, first_ring, what.sites, opened);
        let untold = what.plan.sites.first().map(|site| what.bias.to_avma(site.address));
        let (clock, checked) = (self.clock.clone(), Instant::now());
        self.installed.push(Installed { target, reader, clock, is_over: false, checked, untold });
    }

    /// Functions of the plan that carry no trampolines in at least one process, and why.
    pub fn refused(&self) -> &BTreeMap<u32, String> {
        &self.refused
    }

    /// Those of [`TrampolineCapture::refused`] that carry no trampolines in any of the processes: a
    /// backend that cannot tell the processes apart may serve these, and no others.
    pub fn bare(&self) -> &BTreeSet<u32> {
        &self.bare
    }

    /// How each process's installation went: process id and report.
    pub fn reports(&self) -> impl Iterator<Item = (u32, &Report)> {
        self.installed.iter().map(|one| (one.target.process().pid(), one.target.report()))
    }

    /// How the removals went, after [`Capture::detach`].
    pub fn removals(&self) -> &[Removal] {
        &self.removals
    }

    /// One look at all rings; gives what was handed over and how full the fullest was.
    fn round(&mut self, sink: &mut dyn FnMut(&[u8])) -> (usize, u64) {
        let (mut handed, mut fill) = (0, 0);
        for one in &mut self.installed {
            if one.is_over {
                continue;
            }
            one.clock.refine();
            let pid = one.target.process().pid();
            if let Some(place) = one.untold.take() {
                // No record is older.
                let ts_ns = one.clock.ns(one.target.area().opened);
                announce(RecordKind::Process, pid, place, ts_ns, sink);
                handed += 1;
            }
            let end = one.end(self.attached);
            let writers = match end {
                None => Writers::Live,
                Some(None) => Writers::Removed,
                Some(Some(_)) => Writers::Dead,
            };
            let view = &one.target.area().rings;
            let round = one.reader.round(view, &mut one.clock, writers, sink);
            handed += round.handed;
            fill = fill.max(round.fill);
            one.is_over = writers != Writers::Live;
            if one.is_over {
                one.target.close();
            }
            if let Some(Some(kind)) = end {
                let ts_ns = one.clock.ns(clock::tsc());
                announce(kind, pid, Avma(0), ts_ns, sink);
                handed += 1;
            }
        }
        (handed, fill)
    }

    /// Waits, but not beyond the end of a target.
    fn wait(&self, pause: Duration) {
        let live = self.installed.iter().filter(|one| !one.is_over);
        let mut fds: Vec<_> =
            live.map(|one| PollFd::new(one.target.process(), PollFlags::IN)).collect();
        let timeout = Timespec::try_from(pause).ok();
        // An interrupted wait is a short one.
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
    }
}

impl Installed {
    /// Whether nothing more is written into the rings, and what ended it.
    fn end(&mut self, attached: bool) -> Option<Option<RecordKind>> {
        // A look costs two system calls.
        if attached && self.checked.elapsed() < CHECK {
            return None;
        }
        self.checked = Instant::now();
        if !self.target.process().is_alive() {
            return Some(Some(RecordKind::ProcessExit));
        }
        if !attached {
            return Some(None);
        }
        if self.target.is_current() {
            return None;
        }
        // Its memory is gone: either it has ended a moment ago, or it is another program.
        let ended = self.target.process().wait_exit(Duration::from_millis(100));
        Some(Some(if ended { RecordKind::ProcessExit } else { RecordKind::Exec }))
    }
}

impl Capture for TrampolineCapture {
    fn backend(&self) -> &'static str {
        "trampoline"
    }

    fn poll(
        &mut self,
        timeout: Duration,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, capture::Error> {
        if !std::mem::replace(&mut self.is_reading, true) {
            slice::shorten();
        }
        let deadline = Instant::now().checked_add(timeout);
        let left =
            || deadline.map_or(Duration::MAX, |d| d.saturating_duration_since(Instant::now()));
        loop {
            // First: what comes in small pieces costs more to read than it has to.
            let pause = self.pause.min(left());
            if !pause.is_zero() {
                self.wait(pause);
            }
            let (handed, fill) = self.round(sink);
            let most = if handed > 0 { BUSY_PAUSE } else { MAX_PAUSE };
            self.pause = next_pause(self.pause, fill, most.max(self.rest));
            let is_done = self.installed.iter().all(|one| one.is_over);
            if handed > 0 || is_done || left().is_zero() {
                return Ok(handed);
            }
        }
    }

    fn rest_up_to(&mut self, longest: Duration) {
        self.rest = longest;
    }

    fn counters(&self) -> Result<Counters, capture::Error> {
        let mut counters = Counters::default();
        for one in &self.installed {
            let (produced, lost, unfinished) = one.reader.counters(&one.target.area().rings);
            counters.produced += produced;
            counters.lost += lost;
            counters.unfinished += unfinished;
            counters.rejected += one.reader.rejected(&one.target.area().rings);
        }
        Ok(counters)
    }

    fn detach(&mut self) -> Result<(), capture::Error> {
        if !std::mem::take(&mut self.attached) {
            return Ok(());
        }
        let mut result = Ok(());
        for one in &mut self.installed {
            match one.target.remove() {
                Ok(removal) => self.removals.push(removal),
                Err(Error::Gone(_) | Error::Replaced(_)) => {}
                Err(error) => result = result.and(Err(error.into())),
            }
        }
        result
    }

    fn set_watched(
        &mut self,
        sites: &BTreeSet<u32>,
        watched: bool,
    ) -> Result<bool, capture::Error> {
        if !self.attached {
            return Ok(false);
        }
        let functions = sites.iter().filter_map(|&site| self.functions.get(site as usize));
        let functions = functions.map(|&(function, entry)| (entry, function)).collect();
        for one in self.installed.iter_mut().filter(|one| !one.is_over) {
            match one.target.set_watched(&functions, watched) {
                Ok(true) | Err(Error::Gone(_) | Error::Replaced(_)) => {}
                Ok(false) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    fn code_effects(&self) -> Option<CodeEffects> {
        let mut effects = CodeEffects::default();
        let mut stops: Vec<Duration> = Vec::new();
        for one in &self.installed {
            let report = one.target.report();
            effects.code_bytes += one.target.area().code_len;
            effects.functions += report.functions as u64;
            effects.private_pages += report.private_pages as u64;
            stops.extend(&report.stops);
        }
        stops.extend(self.removals.iter().flat_map(|removal| &removal.stops));
        effects.stops = stops.len() as u64;
        effects.longest_stop = stops.into_iter().max().unwrap_or_default();
        Some(effects)
    }
}

/// How long to wait before the next round, `most` at the most, when the fullest ring was so full in this one, in
/// percent. Aims at some percent: far from full when the next round comes late, and so much that waking up for it
/// is worth it.
fn next_pause(pause: Duration, fill: u64, most: Duration) -> Duration {
    match fill {
        25.. => Duration::ZERO,
        10.. => pause / 2,
        3.. => pause.clamp(MIN_PAUSE, most),
        _ => (pause * 2).clamp(MIN_PAUSE, most),
    }
}

impl Drop for TrampolineCapture {
    fn drop(&mut self) {
        // Whoever wants to know how it went calls `detach`.
        let _ = self.detach();
    }
}

fn announce(kind: RecordKind, pid: u32, place: Avma, ts_ns: u64, sink: &mut dyn FnMut(&[u8])) {
    let mut bytes = Vec::new();
    let record = Record {
        ts_ns,
        goid: 0,
        stack: 0,
        depth: 0,
        caller: place.0,
        site: 0,
        pid,
        tid: pid,
        lost: 0,
        cpu: u16::MAX,
        flags: RecordFlags(0),
        kind,
        payload: &[],
    };
    record.write(&mut bytes);
    sink(&bytes);
}

fn pids(scope: &Scope) -> Result<Vec<u32>, capture::Error> {
    match scope {
        Scope::Pids(pids) => Ok(pids.clone()),
        Scope::EveryProcess => Err(capture::Error::Unsupported {
            feature: "tracing every process of a file",
            needs: "the uprobe backend: trampolines go into named processes".to_owned(),
            have: "--backend trampoline".to_owned(),
        }),
    }
}

fn open(request: &Request<'_>, options: &Options) -> Result<Arc<Executable>, capture::Error> {
    if let Some(executable) = &options.executable {
        return Ok(Arc::clone(executable));
    }
    let source = FileSource::open(&request.path).map_err(Error::from)?;
    let executable = Executable::open(Arc::new(source)).map_err(|e| capture::Error::Failed {
        what: format!("read `{}`", request.name()),
        source: Box::new(e),
    })?;
    Ok(Arc::new(executable))
}

fn attach(pid: u32, request: &Request<'_>, order: &Order<'_>) -> Result<(Target, Made), Error> {
    let process = Process::open(pid)?;
    ptrace::check_access(pid)?;
    check_image(&process, request)?;
    if install::remove_leftovers(pid)?.is_some_and(|removal| removal.left_bytes > 0) {
        return Err(Error::Unsuitable {
            pid,
            reason: "code of an earlier capture is still in use there: try again".to_owned(),
        });
    }
    let attach = |hooks| {
        let (process, memory) = (Process::open(pid)?, TargetMemory::open(pid)?);
        let place = Place::of(&process, order.executable.image())?;
        let made = prepare::prepare(&process, &place, order, hooks)?;
        let target = Target::attach(process, memory, &place, &made.prepared)?;
        Ok((target, made))
    };
    let result = match attach(Hooks::Allowed) {
        // Without the hook, and so without what can fault.
        Err(Error::ForeignHandler { .. }) => attach(Hooks::Forbidden),
        result => result,
    };
    result.map_err(|error| match install::is_carrier(pid) {
        true => Error::Left { pid, source: Box::new(error) },
        false => error,
    })
}

/// The process must run the image that the plan is for.
pub(crate) fn check_image(process: &Process, request: &Request<'_>) -> Result<(), Error> {
    if process.exe_identity()? == FileIdentity::of(&request.path)? {
        return Ok(());
    }
    Err(Error::Unsuitable {
        pid: process.pid(),
        reason: format!("it does not run `{}`", request.name()),
    })
}

/// Whether trampolines can be put into a process, as far as can be known without stopping it.
///
/// Errors: as for an installation, with what stands in the way.
pub fn check(pid: u32) -> Result<(), capture::Error> {
    Ok(ptrace::check_access(pid)?)
}

/// Takes out of a process what a killed tracer left in it. `Ok(None)` when there is nothing.
///
/// Errors: [`capture::Error::Permission`] when the tracer lives, and as for an installation.
pub fn remove_leftovers(pid: u32) -> Result<Option<Removal>, capture::Error> {
    Ok(install::remove_leftovers(pid)?)
}

/// A process that runs the file at `path` and has code of ours in it, whoever put it there; not one of
/// `besides`. Processes that cannot be looked into are passed over.
pub fn carrier(path: &Path, besides: &[u32]) -> Option<u32> {
    let file = FileIdentity::of(path).ok()?;
    let pids = std::fs::read_dir("/proc").ok()?.flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| !besides.contains(pid)).find(|&pid| {
        let runs = || Process::open(pid)?.exe_identity();
        runs().is_ok_and(|identity| identity == file) && install::is_carrier(pid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pauses of rounds that find a ring so full each, in microseconds.
    fn pauses(first: Duration, most: Duration, fills: &[u64]) -> Vec<u128> {
        let mut pause = first;
        let each = fills.iter().map(|&fill| {
            pause = next_pause(pause, fill, most);
            pause.as_micros()
        });
        each.collect()
    }

    #[test]
    fn little_is_waited_for_longer_each_time_up_to_the_most() {
        let all = pauses(Duration::ZERO, BUSY_PAUSE, &[0, 1, 2, 0, 0]);
        assert_eq!(all, [250, 500, 1000, 2000, 2000]);
        let all = pauses(Duration::from_millis(8), Duration::from_millis(20), &[2, 2, 5]);
        assert_eq!(all, [16_000, 20_000, 20_000]);
    }

    #[test]
    fn a_ring_that_fills_is_looked_at_sooner() {
        let all = pauses(Duration::from_millis(20), Duration::from_millis(20), &[12, 24, 3, 25, 3]);
        assert_eq!(all, [10_000, 5_000, 5_000, 0, 250]);
    }

    /// What was allowed for idle times does not hold while something comes.
    #[test]
    fn a_pause_is_never_longer_than_the_most() {
        assert_eq!(pauses(MAX_PAUSE, BUSY_PAUSE, &[4]), [2_000]);
    }
}
