//! The capture from installation to summary.

use super::ending::{Ending, Reason};
use super::plan::plan;
use super::summary::summarize;
use crate::args::{Fallback, SchedArgs, StatesFormat};
use crate::cmd::trace::backend::{Installer, Made, Rings};
use crate::cmd::trace::who::Who;
use crate::failure::{Outcome, usage};
use crate::recording::{self, Recording};
use crate::signals::Signals;
use crate::states::{StatesOptions, StatesSession, write_summary};
use crate::target::{Target, is_young};
use crate::{clock, explain, launch, sink};
use anyhow::Context as _;
use capture::Scope;
use capture_uprobe::Options;
use output::{Clock, StatesSummary};
use probe::selection::Selection;
use process::{FileIdentity, Held, Process};
use std::fs::File;
use std::io::{IsTerminal as _, Write};
use std::time::{Duration, Instant};

/// Goroutines change their state often, and a burst has to fit. But what trampolines write to pages
/// that are new, or no longer in a cache, costs the target half as much again: with 16 MiB two
/// goroutines that answer each other need 1.5 times the CPU that they need with 4. They fill one MiB in 2 ms.
const RINGS: Rings =
    Rings { uprobes: 32, trampolines: 4, launch: 4, rest: Duration::from_millis(1) };
/// How long one round waits for records.
const ROUND: Duration = Duration::from_millis(20);
/// How often what there is so far is handed to a recorded file.
const SAVE: Duration = Duration::from_millis(100);
/// How often a terminal is shown how things stand.
const LIVE: Duration = Duration::from_secs(1);

/// A capture being set up.
pub struct Engine<'a> {
    args: &'a SchedArgs,
    who: Who,
    options: StatesOptions,
    forced: Options,
    out: Box<dyn Write>,
    clock: Clock,
}

/// A capture that runs.
pub struct Running<'a> {
    pub(super) args: &'a SchedArgs,
    pub(super) sessions: Vec<StatesSession>,
    pub(super) signals: Signals,
    pub(super) started: Instant,
    pub(super) attach_time: Duration,
    pub(super) notes: Vec<String>,
    pub(super) attached: Vec<Process>,
    pub(super) child: Option<Held>,
    out: Box<dyn Write>,
    /// Of the recording, until it begins.
    file: Option<File>,
    /// By which backend and why, when gospect chose it.
    chosen: String,
    options: StatesOptions,
    /// The newest file that is watched.
    identity: Option<FileIdentity>,
    /// Whether a terminal is shown how things stand.
    live: bool,
}

impl<'a> Engine<'a> {
    /// Prepares the capture; nothing is touched yet.
    pub fn new(
        args: &'a SchedArgs,
        who: Who,
        options: StatesOptions,
        forced: Options,
        out: Box<dyn Write>,
    ) -> Self {
        let clock =
            Clock { unix_offset_ns: clock::unix_offset_ns(), utc_offset_s: clock::utc_offset_s() };
        Self { args, who, options, forced, out, clock }
    }

    /// Plans, installs, captures, removes and sums up.
    pub fn run(mut self) -> anyhow::Result<Outcome> {
        let targets = self.who.targets(self.args.capture.debug_file.as_deref())?;
        if self.args.capture.record.is_some() && targets.len() > 1 {
            return Err(usage("--record takes processes of one executable at a time"));
        }
        let mut plans = Vec::new();
        for (target, pids) in targets {
            let planned = plan(&target)?;
            plans.push((target, pids, planned));
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
        let is_text = self.args.format == StatesFormat::Text && !self.args.events;
        let is_terminal = self.args.tell.output.is_none() && std::io::stdout().is_terminal();
        let mut running = Running {
            args: self.args,
            sessions: Vec::new(),
            signals,
            started: Instant::now(),
            attach_time: Duration::ZERO,
            notes: Vec::new(),
            attached: Vec::new(),
            live: is_text && is_terminal && child.is_none(),
            child,
            file,
            chosen: String::new(),
            identity: None,
            options: self.options.clone(),
            out: std::mem::replace(&mut self.out, Box::new(std::io::sink())),
        };
        for (target, pids, planned) in plans {
            running.identity = Some(target.identity);
            self.install(&mut running, target, pids, planned)?;
        }
        if let Who::Attach(processes) = &mut self.who {
            running.attached = std::mem::take(processes);
        }
        running.release()?;
        running.run(&self)
    }

    fn install(
        &self,
        running: &mut Running<'_>,
        target: Target,
        pids: Vec<u32>,
        mut planned: probe::planner::Planned,
    ) -> anyhow::Result<()> {
        let start = Instant::now();
        let scope = match (&running.child, &self.who) {
            (Some(child), _) => Scope::Pids(vec![child.pid()]),
            (None, Who::Exe(_)) => Scope::EveryProcess,
            (None, _) => Scope::Pids(pids.clone()),
        };
        let installer = Installer {
            plan: &planned.plan,
            target: &target,
            scope,
            capture: &self.args.capture,
            selection: &Selection::default(),
            // Every place where states change is needed, however often it is passed.
            fallback: match self.args.capture.fallback {
                Fallback::None => Fallback::None,
                Fallback::Auto | Fallback::All => Fallback::All,
            },
            rings: RINGS,
            forced: self.forced,
            without_callers: false,
        };
        let made = installer.install(running.child.as_mut())?;
        let Made { capture, notes, refused, probed, why } = made;
        if !why.is_empty() {
            running.chosen = format!(" by {}s ({why})", capture.backend());
        }
        running.notes.extend(notes);
        running.notes.extend(explain::add_refused(&mut planned.plan, &refused));
        let running_pids = match &self.who {
            Who::Exe(_) => process::find_by_exe(target.identity),
            _ => pids,
        };
        let several = running_pids.len() > 1 || matches!(self.who, Who::Exe(_));
        let options = self.options.clone();
        let mut session =
            StatesSession::new(&planned, capture, target, self.clock, options, &probed);
        if let Some((path, file)) = self.args.capture.record.as_ref().zip(running.file.take()) {
            let (plan, offset_ns) = (session.plan(), self.clock.unix_offset_ns);
            let backend = session.backend();
            let recording = Recording::begin(path, file, plan, offset_ns, backend, several)?;
            session.record_to(recording);
        }
        running.attach_time += start.elapsed();
        for pid in running_pids {
            if let Err(error) = session.find(pid, &mut running.out) {
                running.notes.push(format!(
                    "the goroutines that process {pid} had before are not known: {error:#}"
                ));
            }
        }
        running.sessions.push(session);
        Ok(())
    }

    /// Watches the new build too when the file of `--exe` was replaced.
    fn follow_file(&self, running: &mut Running<'_>) -> anyhow::Result<()> {
        let Who::Exe(path) = &self.who else { return Ok(()) };
        // A file that is gone for a moment is being replaced.
        let Ok(identity) = FileIdentity::of(path) else { return Ok(()) };
        if running.identity == Some(identity) {
            return Ok(());
        }
        if self.args.capture.record.is_some() {
            running.identity = Some(identity);
            let note = "a recording holds one build: the replaced one is not watched";
            running.notes.push(note.to_owned());
            return Ok(());
        }
        let target = Target::of_path(path, self.args.capture.debug_file.as_deref());
        let planned = target.and_then(|target| Ok((plan(&target)?, target)));
        let installed = match planned {
            // Half written: a later look finds it whole, or fails again.
            Err(_) if is_young(path) => return Ok(()),
            Err(error) => Err(error),
            Ok((planned, target)) => self.install(running, target, Vec::new(), planned),
        };
        running.identity = Some(identity);
        match installed {
            Ok(()) => {
                let note = "the executable was replaced and planned anew";
                running.notes.push(note.to_owned());
                if !self.args.tell.quiet {
                    sink::say(note);
                }
            }
            Err(error) => {
                running.notes.push(format!("the replaced executable is not watched: {error:#}"));
            }
        }
        Ok(())
    }
}

impl Running<'_> {
    /// Lets the launched command run.
    fn release(&mut self) -> anyhow::Result<()> {
        let Some(child) = &mut self.child else {
            if !self.args.tell.quiet {
                sink::say(format!("watching goroutines{}; Ctrl-C ends it", self.chosen));
            }
            return Ok(());
        };
        if !self.args.tell.quiet && !self.chosen.is_empty() {
            sink::say(format!("watching goroutines{}", self.chosen));
        }
        child.release()?;
        let pid = child.pid();
        self.sessions.iter().for_each(|session| session.symbols().learn(pid));
        Ok(())
    }

    fn run(mut self, engine: &Engine<'_>) -> anyhow::Result<Outcome> {
        let reason = self.capture(engine)?;
        if self.args.tell.verbose {
            sink::say(format!("captured until {reason}"));
        }
        for session in &mut self.sessions {
            session.detach()?;
        }
        for session in &mut self.sessions {
            session.poll_rest(&mut self.out)?;
        }
        self.notes.extend(explain::leftovers(&self.attached));
        let now_ns = clock::monotonic_ns();
        if self.live {
            self.out.write_all(b"\x1b[H\x1b[J")?;
        }
        for session in &mut self.sessions {
            session.finish(now_ns, &mut self.out)?;
        }
        self.conclude(reason)
    }

    /// Reads until something ends the capture.
    fn capture(&mut self, engine: &Engine<'_>) -> anyhow::Result<Reason> {
        let mut ending = Ending::new(self.args, self.child.is_some());
        let (mut saved, mut shown) = (Instant::now(), Instant::now());
        loop {
            self.round()?;
            if let Some(reason) = ending.check(self)? {
                return Ok(reason);
            }
            if saved.elapsed() >= SAVE {
                saved = Instant::now();
                for session in &mut self.sessions {
                    session.save()?;
                }
                engine.follow_file(self)?;
            }
            if self.live && shown.elapsed() >= LIVE {
                shown = Instant::now();
                let now_ns = clock::monotonic_ns();
                for session in &mut self.sessions {
                    session.show_live(now_ns, &mut self.out)?;
                }
                self.out.flush()?;
            }
        }
    }

    fn round(&mut self) -> anyhow::Result<()> {
        let now_ns = clock::monotonic_ns();
        let mut timeout = ROUND;
        for session in &mut self.sessions {
            if session.poll(timeout, &mut self.out)? == 0 {
                session.tick(now_ns, &mut self.out)?;
            }
            session.refresh(&mut self.out)?;
            // Only the first session waits; the others have had the same time to gather.
            timeout = Duration::ZERO;
        }
        Ok(self.out.flush()?)
    }

    /// Whether nothing is left to watch.
    pub(super) fn targets_gone(&mut self) -> anyhow::Result<bool> {
        if let Some(child) = &mut self.child {
            return Ok(child.try_wait()?.is_some());
        }
        let sessions = &self.sessions;
        let is_gone = |process: &Process| {
            let exited = |session: &StatesSession| session.has_exited(process.pid());
            !process.is_alive() || sessions.iter().any(exited)
        };
        Ok(!self.attached.is_empty() && self.attached.iter().all(is_gone))
    }

    /// Estimated CPU time that the hits so far cost the targets, nanoseconds.
    pub(super) fn cost_ns(&self) -> u64 {
        self.sessions.iter().map(StatesSession::cost_ns).sum()
    }

    /// Writes the summary and decides the exit code.
    fn conclude(mut self, reason: Reason) -> anyhow::Result<Outcome> {
        let (summary, outcome) = summarize(&mut self, reason)?;
        for session in &mut self.sessions {
            session.finish_recording(&summary)?;
        }
        let output = self.args.tell.output.as_deref();
        if self.child.is_some() && sink::is_closed_for_both(output, summary.target_signal) {
            return Ok(Outcome::Done);
        }
        let mut stderr = std::io::stderr();
        let notes: Option<&mut dyn Write> =
            if self.args.tell.quiet { None } else { Some(&mut stderr) };
        let parts = self.sessions.iter().filter_map(StatesSession::part).collect();
        let whole = StatesSummary { capture: &summary, parts };
        write_summary(&whole, &self.options, &mut self.out, notes)?;
        self.out.flush()?;
        Ok(outcome)
    }
}
