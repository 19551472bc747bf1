//! The capture from installation to summary.

use super::end::{Ending, Reason};
use super::install::{Installed, Installing, Planning};
use super::progress::{Extent, Progress, choice};
use super::summary::{Finished, summarize};
use super::who::Who;
use crate::args::{Format, TraceArgs};
use crate::failure::{Outcome, is_nothing, nothing, usage};
use crate::launch;
use crate::pipeline::ShowOptions;
use crate::recording::{self, Recording};
use crate::session::Session;
use crate::signals::Signals;
use crate::target::{Target, is_young};
use crate::{clock, explain, sink};
use anyhow::Context as _;
use capture::Scope;
use capture_uprobe::Options;
use output::{Clock, PerfettoFile};
use probe::planner::Planned;
use probe::selection::Selection;
use process::{FileIdentity, Held, Process};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long one round waits for records.
const ROUND: Duration = Duration::from_millis(20);
/// How long the records of a moment ago are waited for when no new calls are to be followed.
const CATCH_UP: Duration = Duration::from_millis(100);
/// Without a record for that long there are none.
const PAUSE: Duration = Duration::from_millis(5);
/// How often processes and files are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// A capture being set up, run and ended.
pub struct Engine<'a> {
    args: &'a TraceArgs,
    selection: &'a Selection,
    out: Box<dyn Write>,
    show: ShowOptions,
    clock: Clock,
    forced: Options,
    who: Who,
    progress: Progress,
    notes: Vec<String>,
}

/// An executable, the processes to attach to, and the plan for them.
type PlannedTarget = (Target, Vec<u32>, Planned);

/// A capture that runs.
pub struct Running<'a> {
    pub(super) args: &'a TraceArgs,
    pub(super) sessions: Vec<Session>,
    pub(super) out: Box<dyn Write>,
    pub(super) signals: Signals,
    pub(super) started: Instant,
    pub(super) attach_time: Duration,
    pub(super) notes: Vec<String>,
    pub(super) attached: Vec<Process>,
    pub(super) child: Option<Held>,
    pub(super) watched: Option<Watched<'a>>,
    /// Of the recording, until it begins.
    file: Option<File>,
    /// By which backend and why, when gospect chose it.
    chosen: Option<String>,
    /// To be closed behind all requests.
    timeline: Option<PerfettoFile>,
    progress: Progress,
    /// Whether text shows pids.
    pids: bool,
    /// Read before the first record is awaited, so that a burst of them finds a warm reader.
    last_look: Instant,
}

/// The file of `--exe`, which may be replaced by a new build.
pub struct Watched<'a> {
    path: PathBuf,
    identity: FileIdentity,
    engine: Engine2<'a>,
}

/// What a later installation needs.
struct Engine2<'a> {
    planning: Planning<'a>,
    forced: Options,
    clock: Clock,
    show: ShowOptions,
}

impl<'a> Engine<'a> {
    /// Prepares the capture; nothing is touched yet.
    pub fn new(
        args: &'a TraceArgs,
        who: Who,
        selection: &'a Selection,
        forced: Options,
        out: Box<dyn Write>,
    ) -> anyhow::Result<Self> {
        let color = sink::is_colored(args.show.tell.color, args.show.tell.output.as_deref());
        let mut show = ShowOptions::new(&args.show, color);
        show.pids = match &who {
            Who::Attach(processes) => processes.len() > 1,
            Who::Exe(_) => true,
            Who::Launch { .. } => false,
        };
        show.keep_names = args.capture.record.is_some();
        show.spans = args.spans.clone();
        let is_timeline = args.spans.as_ref().is_some_and(|choice| choice.timeline);
        show.timeline = is_timeline.then(PerfettoFile::default);
        let clock =
            Clock { unix_offset_ns: clock::unix_offset_ns(), utc_offset_s: clock::utc_offset_s() };
        let (progress, notes) = (Progress::new(args), Vec::new());
        Ok(Self { args, selection, out, show, clock, forced, who, progress, notes })
    }

    /// Plans, installs, captures, removes and sums up.
    pub fn run(mut self) -> anyhow::Result<Outcome> {
        let planning = Planning::new(self.args, self.selection, &self.who);
        let plans = self.plans(planning)?;
        if self.args.select.dry_run {
            for (_, _, planned) in &plans {
                write!(self.out, "{}", probe::golden::PlanText(&planned.plan))?;
            }
            self.out.flush()?;
            return Ok(Outcome::Done);
        }
        if self.args.capture.record.is_some() && plans.len() > 1 {
            return Err(usage("--record takes processes of one executable at a time"));
        }
        // A program that is started may run before a recording of it can begin.
        let file = self.args.capture.record.as_deref().map(recording::open).transpose()?;
        let signals = Signals::install().context("failed to watch signals")?;
        let child = match &self.who {
            Who::Launch { program, argv } => {
                Some(launch::hold(program, argv, self.args.capture.user.as_deref())?)
            }
            _ => None,
        };
        let mut running = Running {
            args: self.args,
            sessions: Vec::new(),
            out: std::mem::replace(&mut self.out, Box::new(std::io::sink())),
            signals,
            started: Instant::now(),
            attach_time: Duration::ZERO,
            notes: std::mem::take(&mut self.notes),
            attached: Vec::new(),
            child,
            watched: None,
            chosen: None,
            file,
            progress: Progress::new(self.args),
            pids: self.show.pids,
            timeline: self.show.timeline.clone(),
            last_look: Instant::now(),
        };
        for (target, pids, planned) in plans {
            running.notes.extend(explain::inlined_too(&planned));
            let scope = match (&running.child, &self.who) {
                (Some(child), _) => Scope::Pids(vec![child.pid()]),
                (None, Who::Exe(_)) => Scope::EveryProcess,
                (None, _) => Scope::Pids(pids),
            };
            let child = running.child.as_mut();
            let installed = self.installing().install(&target, planned, scope, child)?;
            let backend = installed.session.backend();
            running.progress.done(choice(backend, &installed.why));
            running.chosen =
                (!installed.why.is_empty()).then(|| format!(" by {backend}s ({})", installed.why));
            running.add(installed, self.clock)?;
            if let Who::Exe(path) = &self.who {
                running.watched = Some(self.watch(path, target.identity, planning));
            }
        }
        if let Who::Attach(processes) = self.who {
            running.attached = processes;
        }
        running.release()?;
        running.run()
    }

    fn watch(&self, path: &Path, identity: FileIdentity, planning: Planning<'a>) -> Watched<'a> {
        let (forced, clock, show) = (self.forced, self.clock, self.show.clone());
        let engine = Engine2 { planning, forced, clock, show };
        Watched { path: path.to_owned(), identity, engine }
    }

    /// Plans every executable. Of several, those without anything to trace are left out.
    fn plans(&mut self, planning: Planning<'a>) -> anyhow::Result<Vec<PlannedTarget>> {
        let groups = self.who.targets(self.args.capture.debug_file.as_deref())?;
        self.progress.done("opened what is to be traced");
        let several = groups.len() > 1;
        let mut plans = Vec::new();
        let mut left_out = Vec::new();
        for (target, pids) in groups {
            let planned = match planning.plan(&target) {
                Ok(planned) => planned,
                Err(error) if several && is_nothing(&error) => {
                    left_out.push(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.progress.done(Extent(&planned));
            self.check_drilldown(&target, &planned)?;
            if let Some(reason) = explain::why_less(&target.executable, self.selection, &planned)? {
                sink::say(reason);
            }
            for partial in &planned.partial {
                let traced = planned.plan.functions.iter().filter(|f| f.traced).count();
                let what = match partial.is_signature {
                    true => ("is not the signature of", "which are read as without it"),
                    false => ("decides nothing in", "whose calls are all shown"),
                };
                let note = format!(
                    "`{}` {} {} of {traced} functions, {}: {}",
                    partial.text, what.0, partial.functions, what.1, partial.error
                );
                sink::say(&note);
                self.notes.push(note);
            }
            plans.push((target, pids, planned));
        }
        if plans.is_empty()
            && let Some(error) = left_out.pop()
        {
            return Err(error);
        }
        for error in left_out {
            sink::say(format!("not traced: {error:#}"));
            self.notes.push(format!("not traced: {error:#}"));
        }
        Ok(plans)
    }

    /// A drilldown to nothing would hide everything.
    fn check_drilldown(&self, target: &Target, planned: &Planned) -> anyhow::Result<()> {
        let Some(name) = &self.show.drilldown else { return Ok(()) };
        if self.show.drilldown(&planned.plan).is_none_or(|roots| !roots.is_empty()) {
            return Ok(());
        }
        let refused = planned.plan.refused.iter().find(|refusal| refusal.function == *name);
        Err(nothing(match refused {
            Some(refusal) => format!("{name} can not be traced: it {}", refusal.reason.0),
            None => explain::unmatched(&target.executable, std::slice::from_ref(name))?,
        }))
    }

    fn installing(&self) -> Installing<'_> {
        let Self { args, selection, forced, clock, show, .. } = self;
        Installing { args, selection, forced: *forced, clock: *clock, show }
    }
}

impl Running<'_> {
    fn add(&mut self, installed: Installed, clock: Clock) -> anyhow::Result<()> {
        let Installed { mut session, attach_time, notes, .. } = installed;
        if let Some((path, file)) = self.args.capture.record.as_ref().zip(self.file.take()) {
            let backend = session.backend();
            let (plan, offset_ns) = (session.plan(), clock.unix_offset_ns);
            let recording = Recording::begin(path, file, plan, offset_ns, backend, self.pids)?;
            session.record_to(recording);
        }
        self.attach_time += attach_time;
        self.notes.extend(notes);
        self.sessions.push(session);
        Ok(())
    }

    /// Lets the launched command run. Its mappings are read at once: a short-lived process
    /// is gone before its first record is.
    fn release(&mut self) -> anyhow::Result<()> {
        let sessions = self.sessions.iter();
        let functions: usize = sessions
            .map(|session| session.plan().functions.iter().filter(|f| f.traced).count())
            .sum();
        let functions = match functions {
            1 => "1 function".to_owned(),
            many => format!("{many} functions"),
        };
        let chosen = self.chosen.take();
        let Some(child) = &mut self.child else {
            if !self.args.show.tell.quiet {
                let by = chosen.unwrap_or_default();
                let what = if self.args.spans.is_some() { "watching" } else { "tracing" };
                sink::say(format!("{what} {functions}{by}; Ctrl-C ends it"));
            }
            return Ok(());
        };
        if let Some(by) = chosen.filter(|_| !self.args.show.tell.quiet) {
            sink::say(format!("tracing {functions}{by}"));
        }
        child.release()?;
        let pid = child.pid();
        self.progress.done(format_args!("started the command as process {pid}"));
        self.sessions.iter().for_each(|session| session.symbols().learn(pid));
        Ok(())
    }

    fn run(mut self) -> anyhow::Result<Outcome> {
        let reason = self.capture()?;
        let finished = self.end(reason)?;
        self.conclude(finished)
    }

    /// Reads until something ends the capture.
    fn capture(&mut self) -> anyhow::Result<Reason> {
        let mut ending = Ending::new(self.args, self.child.is_some());
        loop {
            self.round(ROUND)?;
            if let Some(reason) = ending.check(self)? {
                return Ok(reason);
            }
            if self.last_look.elapsed() >= LOOK {
                self.last_look = Instant::now();
                self.follow_file()?;
                for session in &mut self.sessions {
                    session.save()?;
                }
            }
        }
    }

    /// One round of reading, ticking and writing. Gives how many records came.
    pub(super) fn round(&mut self, timeout: Duration) -> anyhow::Result<usize> {
        let now_ns = clock::monotonic_ns();
        let (mut timeout, mut read) = (timeout, 0);
        for session in &mut self.sessions {
            // More may be waiting behind what came, of an earlier time than now: then only the
            // records say how far time has got.
            match session.poll(timeout, &mut self.out)? {
                0 => session.tick(now_ns, &mut self.out)?,
                some => read += some,
            }
            // Only the first session waits; the others have had the same time to gather.
            timeout = Duration::ZERO;
        }
        self.out.flush()?;
        Ok(read)
    }

    /// Plans a replaced file anew.
    fn follow_file(&mut self) -> anyhow::Result<()> {
        let Some(watched) = &self.watched else { return Ok(()) };
        // A file that is gone for a moment is being replaced.
        let Ok(identity) = FileIdentity::of(&watched.path) else { return Ok(()) };
        if identity == watched.identity {
            return Ok(());
        }
        let clock = watched.engine.clock;
        let installed = watched.replan(self.args);
        if installed.is_err() && is_young(&watched.path) {
            // Half written: a later look finds it whole, or fails again.
            return Ok(());
        }
        if let Some(watched) = &mut self.watched {
            watched.identity = identity;
        }
        match installed {
            Ok(_) if self.args.capture.record.is_some() => {
                self.notes
                    .push("a recording holds one build: the replaced one is not traced".into());
            }
            Ok(installed) => {
                let note = "the executable was replaced and planned anew";
                self.notes.push(note.to_owned());
                self.add(installed, clock)?;
                if !self.args.show.tell.quiet {
                    sink::say(note);
                }
            }
            Err(error) => {
                self.notes.push(format!("the replaced executable is not traced: {error:#}"));
            }
        }
        Ok(())
    }

    /// Takes the plan off and reports what is left.
    fn end(&mut self, reason: Reason) -> anyhow::Result<Finished> {
        let now_ns = clock::monotonic_ns();
        // One more ends the draining, as soon as anybody can know of it. Of those that ask for the
        // end a second one may have come already.
        let interrupts = self.signals.interrupts().min(self.signals.needed(self.child.is_some()));
        self.progress.done(format_args!("captured until {reason}"));
        if reason.drains() {
            self.drain(now_ns, interrupts)?;
            self.progress.done("let open calls finish");
        }
        for session in &mut self.sessions {
            session.detach()?;
        }
        self.notes.extend(explain::leftovers(&self.attached));
        self.progress.done("detached");
        for session in &mut self.sessions {
            session.poll_rest(&mut self.out)?;
        }
        let now_ns = clock::monotonic_ns();
        for session in &mut self.sessions {
            session.finish(now_ns, &mut self.out)?;
        }
        if let Some(timeline) = &self.timeline {
            timeline.close(&mut self.out)?;
        }
        self.progress.done("read what was left");
        Ok(Finished { reason })
    }

    /// No new root opens from `now_ns` on; open trees may finish for a while.
    fn drain(&mut self, now_ns: u64, interrupts: u32) -> anyhow::Result<()> {
        let deadline = Instant::now() + self.args.capture.drain.0;
        self.sessions.iter_mut().for_each(|session| session.drain_from(now_ns));
        // Calls that began before count, though they are still in a ring: without them nothing
        // seems to be open. A busy target always has more: this ends.
        let until = Instant::now() + CATCH_UP;
        while self.round(PAUSE)? > 0 && Instant::now() < until {}
        while Instant::now() < deadline
            && !self.signals.terminated()
            && self.signals.interrupts() == interrupts
            && !self.sessions.iter().all(Session::is_idle)
        {
            self.round(ROUND)?;
        }
        Ok(())
    }

    /// Writes the summary and decides the exit code.
    fn conclude(mut self, finished: Finished) -> anyhow::Result<Outcome> {
        let (summary, outcome) = summarize(&mut self, finished)?;
        for session in &mut self.sessions {
            session.finish_recording(&summary)?;
        }
        let output = self.args.show.tell.output.as_deref();
        if self.child.is_some() && sink::is_closed_for_both(output, summary.target_signal) {
            return Ok(Outcome::Done);
        }
        match self.args.show.format {
            Format::Json => summary.write_json(&mut self.out)?,
            Format::Text if self.args.show.tell.quiet => {}
            Format::Text => {
                self.out.flush()?;
                summary.write_text(&mut std::io::stderr())?;
            }
        }
        self.out.flush()?;
        Ok(outcome)
    }
}

impl Watched<'_> {
    fn replan(&self, args: &TraceArgs) -> anyhow::Result<Installed> {
        let target = Target::of_path(&self.path, args.capture.debug_file.as_deref())?;
        let planned = self.engine.planning.plan(&target)?;
        let Engine2 { planning, forced, clock, show } = &self.engine;
        let selection = planning.selection;
        let installing = Installing { args, selection, forced: *forced, clock: *clock, show };
        installing.install(&target, planned, Scope::EveryProcess, None)
    }
}
