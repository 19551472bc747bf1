//! The thread that holds all captures: it finds processes, begins and ends captures, reads them, and decides what is
//! given up.

mod door;
mod finding;
mod leftovers;
mod ports;
mod reloading;
mod telling;

use super::board::Board;
use super::config_file::Rereading;
use super::discovery::{Discovery, Look};
use super::door::{Asking, Door};
use super::export::Exporters;
use super::launching::{Launched, launch};
use super::loaded::Loaded;
use super::monitor::Monitor;
use super::planner::Planner;
use super::serve::Server;
use super::signals::Signals;
use super::target::{Stage, Target};
use crate::args::AgentArgs;
use crate::failure::Outcome;
use crate::{clock, sink};
use agent::Way;
use anyhow::Context as _;
use finding::Strangers;
use leftovers::clean;
use output::Clock;
use ports::Awaiting;
use process::{Held, Process, UsageReader};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the state is looked at: ends of processes, budgets, counts.
const LOOK: Duration = Duration::from_millis(250);
/// How often it is told to the board.
const TELL: Duration = Duration::from_millis(500);
/// How often it is looked whether there are plans for programs that will ask.
const EXPECT: Duration = Duration::from_secs(2);
/// The longest rest.
const REST: Duration = Duration::from_millis(200);

/// See the module.
pub struct Supervisor {
    args: AgentArgs,
    loaded: Loaded,
    /// While the configuration is read again.
    rereading: Option<Rereading>,
    signals: Signals,
    clock: Clock,
    board: Board,
    exporters: Exporters,
    monitor: Monitor,
    server: Option<Server>,
    /// Where that listens, as the configuration has it.
    served: Option<SocketAddr>,
    planner: Planner,
    discovery: Option<Discovery>,
    targets: BTreeMap<u32, Target>,
    strangers: Strangers,
    awaiting: Awaiting,
    /// Whether what others have left was looked for.
    is_swept: bool,
    usages: UsageReader,
    /// Where preloaded programs ask, and who waits there.
    door: Option<Door>,
    waiting: Vec<Asking>,
    child: Option<Held>,
    /// Whether it was said how that has ended.
    is_told: bool,
    last_look: Instant,
    last_told: Instant,
    last_expected: Instant,
}

impl Supervisor {
    /// Starts all threads, and the command where there is one.
    pub fn open(args: AgentArgs, loaded: Loaded) -> anyhow::Result<Self> {
        allow_many_files();
        let signals =
            Signals::install(args.command.is_some()).context("failed to watch signals")?;
        let clock =
            Clock { unix_offset_ns: clock::unix_offset_ns(), utc_offset_s: clock::utc_offset_s() };
        let (board, exporters) = (Board::default(), Exporters::default());
        exporters.set(&loaded, clock);
        let monitor = Monitor::start(board.clone(), exporters.clone(), loaded.interval)
            .context("failed to start a thread")?;
        // Without a file a command is all that is meant.
        let finds = args.command.is_none() || loaded.path.is_some();
        let mut supervisor = Self {
            discovery: finds.then(Discovery::start),
            planner: Planner::start().context("failed to start a thread")?,
            server: None,
            served: None,
            rereading: None,
            signals,
            clock,
            board,
            exporters,
            monitor,
            targets: BTreeMap::new(),
            strangers: Strangers::default(),
            awaiting: Awaiting::default(),
            is_swept: false,
            usages: UsageReader::new(),
            door: None,
            waiting: Vec::new(),
            child: None,
            is_told: false,
            last_look: Instant::now(),
            last_told: Instant::now(),
            last_expected: Instant::now(),
            args,
            loaded,
        };
        supervisor.prepare()?;
        Ok(supervisor)
    }

    fn prepare(&mut self) -> anyhow::Result<()> {
        {
            let mut board = self.board.lock();
            board.unix_offset_ns = self.clock.unix_offset_ns;
            board.started_unix_ns = self.unix_ns();
        }
        self.tell_config(None);
        self.serve()?;
        self.open_door();
        if let Some(argv) = self.args.command.clone() {
            let launched = launch(&argv, &self.loaded.config, self.clock)?;
            self.take_launched(launched)?;
        }
        Ok(())
    }

    /// Watches until it is asked to end, or the command has ended.
    pub fn run(mut self) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::Done;
        while !self.signals.ends() {
            if self.signals.reloads() {
                self.rereading = Some(Rereading::new(Instant::now()));
            }
            self.reload();
            self.round();
            let status = self.child.as_mut().map(Held::try_wait).transpose()?.flatten();
            if let Some(status) = status {
                if !std::mem::replace(&mut self.is_told, true)
                    && !status.success()
                    && !self.args.quiet
                {
                    sink::say(format_args!("the command has ended: {status}"));
                }
                if self.discovery.is_none() {
                    outcome = if status.code().is_some() { outcome } else { Outcome::Grave };
                    break;
                }
            }
            self.rest();
        }
        self.end();
        Ok(outcome)
    }

    /// One round of everything.
    fn round(&mut self) {
        self.find();
        self.follow_ports();
        self.answer();
        self.advance();
        self.read();
        if self.last_look.elapsed() >= LOOK {
            self.last_look = Instant::now();
            self.follow_ends();
            self.decide();
            if self.last_told.elapsed() >= TELL {
                self.last_told = Instant::now();
                self.tell();
            }
        }
        if self.last_expected.elapsed() >= EXPECT {
            self.expect();
        }
    }

    fn rest(&self) {
        let now = Instant::now();
        let due = self.targets.values().map(|target| match &target.stage {
            Stage::Planning => now + Duration::from_millis(20),
            Stage::Watched(_) => target.next,
            Stage::Off(_) => now + REST,
        });
        let pause = due.min().map_or(REST, |next| next.saturating_duration_since(now)).min(REST);
        let is_asked = !self.waiting.is_empty();
        let pause = if is_asked { pause.min(Duration::from_millis(20)) } else { pause };
        let door = self.door.as_ref().map(AsFd::as_fd);
        Discovery::wait(self.discovery.as_ref(), door, pause);
    }

    fn find(&mut self) {
        let Some(discovery) = &mut self.discovery else { return };
        let pids = match discovery.look() {
            Look::At(pids) => pids,
            Look::AtAll(pids) => {
                self.strangers.retain(&pids);
                self.awaiting.retain(&pids);
                pids
            }
        };
        for &pid in &pids {
            self.meet(pid);
        }
        if !std::mem::replace(&mut self.is_swept, true) {
            self.sweep(&pids);
        }
    }

    /// Begins captures whose plans are ready, and those that failed again.
    fn advance(&mut self) {
        let now = Instant::now();
        let due = self.targets.iter().filter(|(_, target)| match &target.stage {
            Stage::Planning => true,
            Stage::Off(_) => target.again.is_some_and(|again| again <= now),
            Stage::Watched(_) => false,
        });
        let due: Vec<u32> = due.map(|(pid, _)| *pid).collect();
        for pid in due {
            if !self.may_carry(pid) {
                self.begin(pid);
            }
        }
    }

    fn begin(&mut self, pid: u32) {
        let Some(target) = self.targets.get_mut(&pid) else { return };
        target.again = None;
        let service = Arc::clone(&target.service);
        if !service.is_instrumented() || !service.inject.contains(&target.way) {
            let reason = match service.is_instrumented() {
                true => "the configuration leaves out what runs already",
                false => "the configuration wants metrics only",
            };
            return self.leave(pid, reason.to_owned());
        }
        if target.prepared.is_none() {
            let process = &target.process;
            let open = || crate::target::Target::of_process(process, None);
            let Some(file) = target.file_stamp() else { return };
            match self.planner.of(file, &service, open) {
                None => return target.stage = Stage::Planning,
                Some(Ok(prepared)) => target.prepared = Some(prepared),
                Some(Err(reason)) => return self.leave(pid, reason),
            }
        }
        let Some(prepared) = target.prepared.clone() else { return };
        if self.door.is_some() && target.may_ask(&prepared) {
            return target.stage = Stage::Planning;
        }
        let backend = target.backend();
        if let Err(reason) = clean(pid) {
            return target.failed(reason);
        }
        let install = |backend| prepared.install(pid, backend, &target.dropped, self.clock, None);
        let begun = match install(backend) {
            // It carried code, and can carry none any more.
            Err(_) if backend != target.asked_backend() => install(target.asked_backend()),
            begun => begun,
        };
        match begun {
            Ok(begun) => target.begin(begun, clock::monotonic_ns()),
            Err(error) => target.failed(format!("{error:#}")),
        }
    }

    /// Reads all captures that are due.
    fn read(&mut self) {
        let (now, now_ns) = (Instant::now(), clock::monotonic_ns());
        let mut replaced = Vec::new();
        for (pid, target) in &mut self.targets {
            if target.next > now || !matches!(target.stage, Stage::Watched(_)) {
                continue;
            }
            let mut teller = telling::Teller::new(*pid, now_ns, &self.board, &self.exporters);
            match target.read(now_ns, &mut |prepared, taken| teller.take(prepared, taken)) {
                Ok(true) => {}
                Ok(false) => replaced.push(*pid),
                Err(reason) => {
                    target.end(now_ns, reason, &mut |prepared, taken| teller.take(prepared, taken));
                }
            }
        }
        for pid in replaced {
            self.meet(pid);
        }
    }

    /// Forgets processes that have ended; looks anew at those that run something else.
    fn follow_ends(&mut self) {
        let pids: Vec<u32> = self.targets.keys().copied().collect();
        for pid in pids {
            let Some(target) = self.targets.get(&pid) else { continue };
            if !target.process.is_alive() {
                self.forget(pid, "it has ended");
            } else if target.process.image_stamp().is_ok_and(|stamp| stamp != target.stamp) {
                self.meet(pid);
            }
        }
    }

    /// Ends what is known of a process.
    fn forget(&mut self, pid: u32, reason: &str) {
        if let Some(mut target) = self.targets.remove(&pid) {
            let now_ns = clock::monotonic_ns();
            let mut teller = telling::Teller::new(pid, now_ns, &self.board, &self.exporters);
            target.end(now_ns, reason.to_owned(), &mut |prepared, taken| {
                teller.take(prepared, taken);
            });
        }
        let is_sent = self.exporters.has_metrics();
        self.board.lock().forget(pid, is_sent);
    }

    /// Gives up what costs too much, and brings back what may be tried again.
    fn decide(&mut self) {
        let now_ns = clock::monotonic_ns();
        self.usages.begin();
        let mut changed = Vec::new();
        for (pid, target) in &mut self.targets {
            // What costs nothing changes nothing, and asking takes a while too.
            if target.is_calm() {
                target.budget.rest(now_ns);
                continue;
            }
            let cpu = self.usages.read(&target.process).ok().map(|usage| usage.cpu_seconds);
            let changes = target.decide(now_ns, cpu);
            if changes.is_empty() {
                continue;
            }
            let mut board = self.board.lock();
            for change in changes {
                if !self.args.quiet {
                    sink::say(telling::Decided(*pid, &change));
                }
                board.decided(
                    now_ns.saturating_add_signed(self.clock.unix_offset_ns),
                    *pid,
                    change,
                );
            }
            changed.push(*pid);
        }
        for pid in changed {
            self.adjust(pid);
        }
    }

    /// Has watched what is wanted now: in the capture that there is, else in another one.
    fn adjust(&mut self, pid: u32) {
        let Some(target) = self.targets.get_mut(&pid) else { return };
        if target.has_units_left() {
            match target.adjust(clock::monotonic_ns()) {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => target.notes.push(format!("{error:#}")),
            }
        }
        self.restart(pid);
    }

    /// Ends a capture and begins it anew with what is wanted now.
    fn restart(&mut self, pid: u32) {
        let now_ns = clock::monotonic_ns();
        let Some(target) = self.targets.get_mut(&pid) else { return };
        let mut teller = telling::Teller::new(pid, now_ns, &self.board, &self.exporters);
        let reason = "all of it costs more than the budget".to_owned();
        target.end(now_ns, reason, &mut |prepared, taken| teller.take(prepared, taken));
        if target.has_units_left() {
            self.begin(pid);
        }
    }

    fn take_launched(&mut self, launched: Launched) -> anyhow::Result<()> {
        let Launched { child, service, begun } = launched;
        let pid = child.pid();
        self.child = Some(child);
        let Ok(process) = Process::open(pid) else { return Ok(()) };
        let file = process.exe_identity().ok();
        let stamp = process.image_stamp().unwrap_or_default();
        let candidate = finding::candidate(&process, false);
        let mut target = Target::new(process, file, stamp, candidate, service);
        target.way = Way::Launch;
        match begun {
            Ok((prepared, begun)) => {
                self.planner.add(&target.service, &prepared);
                target.prepared = Some(prepared);
                target.begin(begun, clock::monotonic_ns());
            }
            Err(reason) => {
                if !self.args.quiet {
                    sink::say(format_args!("the command is not watched for requests: {reason}"));
                }
                target.stage = Stage::Off(reason);
            }
        }
        self.add(target);
        Ok(())
    }

    /// Takes everything off and sends what is left.
    fn end(&mut self) {
        for pid in self.targets.keys().copied().collect::<Vec<_>>() {
            let now_ns = clock::monotonic_ns();
            let Some(target) = self.targets.get_mut(&pid) else { continue };
            let mut teller = telling::Teller::new(pid, now_ns, &self.board, &self.exporters);
            target.end(now_ns, "the agent ends".to_owned(), &mut |prepared, taken| {
                teller.take(prepared, taken);
            });
        }
        self.tell();
        self.monitor.finish();
        self.exporters.finish();
        if !self.args.quiet {
            for export in self.exporters.statuses() {
                sink::say(telling::Sent(&export));
            }
        }
    }

    fn unix_ns(&self) -> u64 {
        clock::monotonic_ns().saturating_add_signed(self.clock.unix_offset_ns)
    }
}

/// Each process takes some descriptors; of the soft limit, mostly 1024, that is soon too many.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Without it the first thousand descriptors have to do.
    let _ = setrlimit(Resource::Nofile, wanted);
}
