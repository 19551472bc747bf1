//! One image being captured: its plan installed, its records on their way out.

use crate::ends::Ends;
use crate::pipeline::{Pipeline, ShowOptions};
use crate::recording::Recording;
use crate::symbols::Symbols;
use crate::tariff::{Probed, Tariff};
use anyhow::Context as _;
use capture::{Capture, CodeEffects, Counters};
use output::{Clock, SpanCounts, Trampolines};
use probe::Plan;
use probe::planner::Planned;
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::{Record, RecordKind};

/// Rounds in which a capture gives all that it had when it was asked.
const REST_ROUNDS: usize = 4;

/// Hits of one function's sites.
#[derive(Clone, Copy, Debug, Default)]
pub struct FunctionCost {
    /// How many.
    pub hits: u64,
    /// What they cost, picoseconds of CPU.
    pub ps: u64,
}

/// A plan that is installed.
pub struct Session {
    plan: Arc<Plan>,
    capture: Box<dyn Capture>,
    pipeline: Pipeline,
    symbols: Symbols,
    tariff: Tariff,
    recording: Option<Recording>,
    /// What each function's hits cost, where that is kept.
    by_function: Option<Vec<FunctionCost>>,
    seen: BTreeSet<u32>,
    exited: BTreeSet<u32>,
    /// Kept for processes that only the records tell of.
    ends: Option<Ends>,
    detach_time: Option<Duration>,
}

impl Session {
    /// Takes over an installed capture.
    pub fn new(
        planned: &Planned,
        plan: Arc<Plan>,
        capture: Box<dyn Capture>,
        symbols: Symbols,
        clock: Clock,
        show: &ShowOptions,
        probed: &Probed,
    ) -> Self {
        Self {
            pipeline: Pipeline::new(Arc::clone(&plan), clock, show),
            tariff: Tariff::new(planned, probed),
            plan,
            capture,
            symbols,
            recording: None,
            by_function: None,
            seen: BTreeSet::new(),
            exited: BTreeSet::new(),
            ends: None,
            detach_time: None,
        }
    }

    /// Writes every record to `recording` too.
    pub fn record_to(&mut self, recording: Recording) {
        self.recording = Some(recording);
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Names of this image's processes.
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// Name of the backend.
    pub fn backend(&self) -> &'static str {
        self.capture.backend()
    }

    /// Reads what is there, waiting up to `timeout` for the first record.
    pub fn poll(&mut self, timeout: Duration, out: &mut dyn Write) -> anyhow::Result<usize> {
        let Self {
            plan,
            capture,
            pipeline,
            symbols,
            tariff,
            recording,
            by_function,
            seen,
            exited,
            ends,
            ..
        } = self;
        tariff.update();
        let mut result = Ok(());
        // Most records are of the process that the one before was of.
        let mut known = None;
        let polled = capture.poll(timeout, &mut |bytes| {
            if result.is_err() {
                return;
            }
            result = (|| -> anyhow::Result<()> {
                let Ok(record) = Record::parse(bytes) else {
                    pipeline.malformed();
                    return Ok(());
                };
                if let Some(recording) = recording {
                    recording.record(bytes)?;
                }
                match record.kind {
                    RecordKind::Hit => {
                        let ps = tariff.hit(record.site);
                        if let Some(costs) = by_function
                            && let Some(site) = plan.sites.get(record.site as usize)
                            && let Some(cost) = costs.get_mut(site.function as usize)
                        {
                            cost.hits += 1;
                            cost.ps += ps;
                        }
                        if known != Some(record.pid) && seen.insert(record.pid) {
                            if let Some(ends) = ends {
                                ends.begin(record.pid);
                            }
                            symbols.learn(record.pid);
                        }
                        known = Some(record.pid);
                    }
                    RecordKind::Process => {
                        symbols.place(plan, &record);
                        if let Some(ends) = ends {
                            ends.begin(record.pid);
                        }
                    }
                    RecordKind::Exec | RecordKind::ProcessExit => {
                        exited.insert(record.pid);
                        if let Some(ends) =
                            ends.as_mut().filter(|_| record.kind == RecordKind::ProcessExit)
                        {
                            ends.end(record.pid);
                        }
                    }
                    RecordKind::Goroutine => {}
                }
                pipeline.record(&record, symbols, out)?;
                if matches!(record.kind, RecordKind::Exec | RecordKind::ProcessExit) {
                    symbols.forget(record.pid);
                }
                Ok(())
            })();
        });
        result?;
        polled.context("failed to read the capture")
    }

    /// Reads all that is left after a detach.
    pub fn poll_rest(&mut self, out: &mut dyn Write) -> anyhow::Result<()> {
        while self.poll(Duration::ZERO, out)? > 0 {}
        Ok(())
    }

    /// See [`Pipeline::tick`].
    pub fn tick(&mut self, now_ns: u64, out: &mut dyn Write) -> anyhow::Result<()> {
        Ok(self.pipeline.tick(now_ns, &self.symbols, out)?)
    }

    /// Hands a recording's file what there is so far.
    pub fn save(&mut self) -> anyhow::Result<()> {
        let Some(recording) = &mut self.recording else { return Ok(()) };
        recording.save(self.pipeline.new_names(&self.symbols).as_ref())
    }

    /// No new root opens that begins at `ts_ns` (the capture's clock) or later.
    pub fn drain_from(&mut self, ts_ns: u64) {
        self.recording.iter_mut().for_each(|recording| recording.drain_from(ts_ns));
        self.pipeline.drain_from(ts_ns);
    }

    /// Whether no call is open.
    pub fn is_idle(&self) -> bool {
        self.pipeline.is_idle()
    }

    /// Whether the limit of root calls is reached.
    pub fn is_done(&self) -> bool {
        self.pipeline.is_done()
    }

    /// Estimated CPU time that the hits so far cost the targets, nanoseconds.
    pub fn cost_ns(&self) -> u64 {
        self.tariff.owed_ns(&self.capture.counters().unwrap_or_default())
    }

    /// From now on keeps what each function's hits cost.
    pub fn observe_costs(&mut self) {
        self.by_function = Some(vec![FunctionCost::default(); self.plan.functions.len()]);
    }

    /// What each function's hits cost so far, by its number in the plan; those that were lost are in
    /// [`Session::cost_ns`] alone. Empty when it is not kept.
    pub fn costs(&self) -> &[FunctionCost] {
        self.by_function.as_deref().unwrap_or_default()
    }

    /// Takes functions out of the targets, or puts such ones back, while the others go on; see
    /// [`Capture::set_watched`]. Their calls that are open end as lost. False when that cannot be done.
    pub fn set_watched(
        &mut self,
        functions: &BTreeSet<u32>,
        watched: bool,
        now_ns: u64,
        out: &mut dyn Write,
    ) -> anyhow::Result<bool> {
        let sites = (0u32..).zip(&self.plan.sites);
        let sites = sites.filter(|(_, site)| functions.contains(&site.function));
        let sites: BTreeSet<u32> = sites.map(|(number, _)| number).collect();
        let is_theirs = |function: u32| functions.contains(&function);
        if watched {
            self.pipeline.release(&is_theirs, now_ns, &self.symbols, out)?;
            return self.capture.set_watched(&sites, true).context("failed to put functions back");
        }
        let done = self.capture.set_watched(&sites, false);
        let done = done.context("failed to take functions out")?;
        // What they gave until then.
        for _ in 0..REST_ROUNDS {
            self.poll(Duration::ZERO, out)?;
        }
        self.pipeline.release(&is_theirs, now_ns, &self.symbols, out)?;
        Ok(done)
    }

    /// Removes the plan from the targets.
    pub fn detach(&mut self) -> anyhow::Result<()> {
        if self.detach_time.is_none() {
            let start = Instant::now();
            self.capture.detach().context("failed to detach")?;
            self.detach_time = Some(start.elapsed());
        }
        Ok(())
    }

    /// How long [`Session::detach`] took.
    pub fn detach_time(&self) -> Option<Duration> {
        self.detach_time
    }

    /// Processes that hit a site.
    pub fn processes(&self) -> usize {
        self.seen.len()
    }

    /// From now on observes how the processes end that records tell of.
    pub fn observe_ends(&mut self) {
        self.ends = Some(Ends::default());
    }

    /// Processes so observed that died by a signal, and which.
    pub fn died_by_signal(&self) -> Vec<(u32, i32)> {
        self.ends.iter().flat_map(Ends::signals).collect()
    }

    /// Whether the capture saw `pid` end (or become another program).
    pub fn has_exited(&self, pid: u32) -> bool {
        self.exited.contains(&pid)
    }

    /// What the capture counted.
    pub fn capture_counters(&self) -> anyhow::Result<Counters> {
        self.capture.counters().context("failed to read the capture's counters")
    }

    /// What code in the processes did to them; complete after [`Session::detach`].
    pub fn trampolines(&self) -> Option<Trampolines> {
        self.capture.code_effects().map(trampolines)
    }

    /// What the timeline counted; calls that began and were rejected at the hit are among its entries.
    pub fn counters(&self) -> anyhow::Result<timeline::Counters> {
        let rejected = self.capture_counters()?.rejected;
        let mut counters = self.pipeline.counters();
        counters.entries += rejected;
        counters.hidden += rejected;
        Ok(counters)
    }

    /// What conditions came to, where there are some, at hits too.
    pub fn screened(&self) -> anyhow::Result<Option<timeline::Screened>> {
        let rejected = self.capture_counters()?.rejected;
        Ok(self.pipeline.screened().map(|mut screened| {
            screened.hidden += rejected;
            screened
        }))
    }

    /// See [`Pipeline::spans`].
    pub fn spans(&self) -> Option<SpanCounts> {
        self.pipeline.spans()
    }

    /// See [`crate::spans::Spans::exported`].
    pub fn exported(&self) -> Option<String> {
        self.pipeline.exported()
    }

    /// Reports what is still open and writes what was held back.
    pub fn finish(&mut self, now_ns: u64, out: &mut dyn Write) -> anyhow::Result<()> {
        self.recording.iter_mut().for_each(|recording| recording.end(now_ns));
        Ok(self.pipeline.finish(now_ns, &self.symbols, out)?)
    }

    /// Ends the recorded file with the names it needs.
    pub fn finish_recording(&mut self, summary: &output::Summary) -> anyhow::Result<()> {
        let Some(recording) = self.recording.take() else { return Ok(()) };
        let names = self.pipeline.new_names(&self.symbols).unwrap_or_default();
        recording.finish(&names, summary)
    }
}

/// The same for the summary. To three decimals: a recorded file gives such a number back unchanged.
pub fn trampolines(effects: CodeEffects) -> Trampolines {
    Trampolines {
        code_bytes: effects.code_bytes,
        functions: effects.functions,
        private_pages: effects.private_pages,
        stops: effects.stops,
        longest_stop_ms: (effects.longest_stop.as_secs_f64() * 1e6).round() / 1e3,
    }
}
