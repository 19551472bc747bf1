//! One image whose goroutines are watched: its plan installed, its records on their way out.

use super::found::found_records;
use super::pipeline::{StatesOptions, StatesPipeline};
use crate::clock;
use crate::recording::Recording;
use crate::session::trampolines;
use crate::symbols::Symbols;
use crate::target::Target;
use crate::tariff::{Probed, Tariff};
use anyhow::Context as _;
use capture::{Capture, Counters};
use output::{Clock, StatesPart, Summary, Trampolines};
use probe::Plan;
use probe::planner::Planned;
use std::collections::{BTreeSet, VecDeque};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};
use timeline::states::StateCounters;
use wire::{Record, RecordKind};

/// How long what was read from memory waits for the records of the time before.
const SETTLE: Duration = Duration::from_millis(250);

/// How long after a loss memory is read again at the soonest.
const AGAIN: Duration = Duration::from_secs(1);

/// Goroutines read from memory, not yet handed on.
struct Waiting {
    since: Instant,
    records: Vec<Vec<u8>>,
}

/// A plan of goroutine states that is installed.
pub struct StatesSession {
    capture: Box<dyn Capture>,
    intake: Intake,
    target: Target,
    waiting: VecDeque<Waiting>,
    /// Gaps and losses after which memory was read.
    gaps: u64,
    lost: u64,
    last_reading: Option<Instant>,
    detach_time: Option<Duration>,
}

/// What takes the records. They are handed over one by one: all that a busy program leaves between
/// two looks would take much memory, and rings that are read meanwhile have room again.
struct Intake {
    plan: Arc<Plan>,
    pipeline: StatesPipeline,
    symbols: Symbols,
    tariff: Tariff,
    recording: Option<Recording>,
    seen: BTreeSet<u32>,
    exited: BTreeSet<u32>,
    /// When the capture ended, on its clock.
    closed_ns: Option<u64>,
}

impl StatesSession {
    /// Takes over an installed capture.
    pub fn new(
        planned: &Planned,
        capture: Box<dyn Capture>,
        target: Target,
        clock: Clock,
        options: StatesOptions,
        probed: &Probed,
    ) -> Self {
        let plan = Arc::new(planned.plan.clone());
        let intake = Intake {
            pipeline: StatesPipeline::new(Arc::clone(&plan), clock, options),
            symbols: Symbols::new(Arc::clone(&target.executable), target.bias_finder()),
            tariff: Tariff::new(planned, probed),
            plan,
            recording: None,
            seen: BTreeSet::new(),
            exited: BTreeSet::new(),
            closed_ns: None,
        };
        Self {
            capture,
            intake,
            target,
            waiting: VecDeque::new(),
            gaps: 0,
            lost: 0,
            last_reading: None,
            detach_time: None,
        }
    }

    /// Writes every record to `recording` too.
    pub fn record_to(&mut self, recording: Recording) {
        self.intake.recording = Some(recording);
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.intake.plan
    }

    /// Name of the backend.
    pub fn backend(&self) -> &'static str {
        self.capture.backend()
    }

    /// Names of this image's processes.
    pub fn symbols(&self) -> &Symbols {
        &self.intake.symbols
    }

    /// Reads which goroutines a process has by now. They are handed on when the records of what
    /// happened before have come.
    pub fn find(&mut self, pid: u32, out: &mut dyn Write) -> anyhow::Result<()> {
        self.last_reading = Some(Instant::now());
        self.gaps = self.intake.pipeline.counters().gaps;
        self.lost = self.capture.counters().map_or(self.lost, |counters| counters.lost);
        let (mark, records) = found_records(&self.target, pid, self.lost)?;
        self.take(&mark, out)?;
        self.waiting.push_back(Waiting { since: Instant::now(), records });
        Ok(())
    }

    /// Hands on what was read from memory, and reads again after a loss.
    pub fn refresh(&mut self, out: &mut dyn Write) -> anyhow::Result<()> {
        while self.waiting.front().is_some_and(|waiting| waiting.since.elapsed() >= SETTLE) {
            self.hand_on(out)?;
        }
        let rested = self.last_reading.is_none_or(|last| last.elapsed() >= AGAIN);
        if !rested || !self.waiting.is_empty() {
            return Ok(());
        }
        // A ring in which nothing follows tells of no loss.
        let told = self.intake.pipeline.counters().gaps > self.gaps;
        let lost = self.capture.counters().map_or(0, |counters| counters.lost);
        if told || lost > self.lost {
            let living = |pid: &u32| !self.intake.exited.contains(pid);
            for pid in self.intake.seen.iter().copied().filter(living).collect::<Vec<_>>() {
                // One that just ended has no goroutines left.
                _ = self.find(pid, out);
            }
            self.gaps = self.intake.pipeline.counters().gaps;
        }
        Ok(())
    }

    fn hand_on(&mut self, out: &mut dyn Write) -> anyhow::Result<()> {
        let Some(waiting) = self.waiting.pop_front() else { return Ok(()) };
        waiting.records.iter().try_for_each(|bytes| self.take(bytes, out))
    }

    /// Reads what is there, waiting up to `timeout` for the first record.
    pub fn poll(&mut self, timeout: Duration, out: &mut dyn Write) -> anyhow::Result<usize> {
        self.intake.tariff.update();
        let intake = &mut self.intake;
        let mut taken = Ok(());
        let polled = self.capture.poll(timeout, &mut |bytes| {
            if taken.is_ok() {
                taken = intake.take(bytes, out);
            }
        });
        taken?;
        polled.context("failed to read the capture")
    }

    fn take(&mut self, bytes: &[u8], out: &mut dyn Write) -> anyhow::Result<()> {
        self.intake.take(bytes, out)
    }

    /// Reads all that is left after a detach.
    pub fn poll_rest(&mut self, out: &mut dyn Write) -> anyhow::Result<()> {
        while self.poll(Duration::ZERO, out)? > 0 {}
        while !self.waiting.is_empty() {
            self.hand_on(out)?;
        }
        Ok(())
    }

    /// See [`StatesPipeline::tick`].
    pub fn tick(&mut self, now_ns: u64, out: &mut dyn Write) -> anyhow::Result<()> {
        Ok(self.intake.pipeline.tick(now_ns, &self.intake.symbols, out)?)
    }

    /// See [`StatesPipeline::show_live`].
    pub fn show_live(&mut self, now_ns: u64, out: &mut dyn Write) -> anyhow::Result<()> {
        Ok(self.intake.pipeline.show_live(now_ns, &self.intake.symbols, out)?)
    }

    /// Hands a recording's file what there is so far.
    pub fn save(&mut self) -> anyhow::Result<()> {
        let Some(recording) = &mut self.intake.recording else { return Ok(()) };
        recording.save(self.intake.pipeline.new_names().as_ref())
    }

    /// Estimated CPU time that the hits so far cost the targets, nanoseconds.
    pub fn cost_ns(&self) -> u64 {
        self.intake.tariff.owed_ns(&self.capture.counters().unwrap_or_default())
    }

    /// Removes the plan from the targets.
    pub fn detach(&mut self) -> anyhow::Result<()> {
        if self.detach_time.is_none() {
            let start = Instant::now();
            self.intake.closed_ns = Some(clock::monotonic_ns());
            self.capture.detach().context("failed to detach")?;
            self.detach_time = Some(start.elapsed());
        }
        Ok(())
    }

    /// What code in the processes did to them; complete after [`StatesSession::detach`].
    pub fn trampolines(&self) -> Option<Trampolines> {
        self.capture.code_effects().map(trampolines)
    }

    /// How long [`StatesSession::detach`] took.
    pub fn detach_time(&self) -> Option<Duration> {
        self.detach_time
    }

    /// Processes that hit a site.
    pub fn processes(&self) -> usize {
        self.intake.seen.len()
    }

    /// Whether the capture saw `pid` end (or become another program).
    pub fn has_exited(&self, pid: u32) -> bool {
        self.intake.exited.contains(&pid)
    }

    /// What the capture counted.
    pub fn capture_counters(&self) -> anyhow::Result<Counters> {
        self.capture.counters().context("failed to read the capture's counters")
    }

    /// What was counted of states.
    pub fn counters(&self) -> StateCounters {
        self.intake.pipeline.counters()
    }

    /// Tells of the goroutines that live, and writes tables.
    pub fn finish(&mut self, now_ns: u64, out: &mut dyn Write) -> anyhow::Result<()> {
        let now_ns = self.intake.closed_ns.unwrap_or(now_ns);
        self.intake.recording.iter_mut().for_each(|recording| recording.end(now_ns));
        Ok(self.intake.pipeline.finish(now_ns, &self.intake.symbols, out)?)
    }

    /// See [`StatesPipeline::part`].
    pub fn part(&self) -> Option<StatesPart<'_>> {
        self.intake.pipeline.part(&self.intake.symbols)
    }

    /// Ends the recorded file with the names it needs.
    pub fn finish_recording(&mut self, summary: &Summary) -> anyhow::Result<()> {
        let Some(recording) = self.intake.recording.take() else { return Ok(()) };
        let names = self.intake.pipeline.new_names().unwrap_or_default();
        recording.finish(&names, summary)
    }
}

impl Intake {
    fn take(&mut self, bytes: &[u8], out: &mut dyn Write) -> anyhow::Result<()> {
        let Ok(record) = Record::parse(bytes) else {
            self.pipeline.malformed();
            return Ok(());
        };
        // While sites are taken off one after the other, what is still seen is not whole.
        if record.kind == RecordKind::Hit && self.closed_ns.is_some_and(|end| record.ts_ns > end) {
            return Ok(());
        }
        if let Some(recording) = &mut self.recording {
            recording.record(bytes)?;
        }
        match record.kind {
            RecordKind::Hit => {
                self.tariff.hit(record.site);
                if self.seen.insert(record.pid) {
                    self.symbols.learn(record.pid);
                }
            }
            RecordKind::Process => self.symbols.place(&self.plan, &record),
            RecordKind::Exec | RecordKind::ProcessExit => _ = self.exited.insert(record.pid),
            RecordKind::Goroutine => {}
        }
        self.pipeline.record(&record, &self.symbols, out)?;
        if matches!(record.kind, RecordKind::Exec | RecordKind::ProcessExit) {
            self.symbols.forget(record.pid);
        }
        Ok(())
    }
}
