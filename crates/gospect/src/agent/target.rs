//! One process that is watched, as the supervisor has it.

mod sensing;

use super::prepared::{Begun, Prepared};
use super::shares::Shares;
use crate::session::{FunctionCost, Session};
use crate::spans::Taken;
use agent::status::{SensorSpans, SpanCounts};
use agent::{Backend, Budget, Candidate, Change, Limits, Service, Way};
use process::{FileIdentity, FileStamp, ImageStamp, Process};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// How often a process is read that has something to tell.
pub const BUSY: Duration = Duration::from_millis(20);
/// How often one that has not.
pub const QUIET: Duration = Duration::from_millis(200);
/// When one is quiet.
const CALM: Duration = Duration::from_secs(1);
/// After which time a failed attach is tried again; each further time is twice as long.
const RETRY: Duration = Duration::from_secs(5);
/// Attempts.
const ATTEMPTS: u32 = 6;

/// As long as a rate is measured at the least.
const SHORTEST: Duration = Duration::from_millis(50);
/// How long a program may take from its start until it asks for its plan: its loader comes first.
const LOADING: Duration = Duration::from_millis(500);

/// How far its requests are watched.
pub enum Stage {
    /// The plan is being made.
    Planning,
    /// It is.
    Watched(Box<Capturing>),
    /// It is not, with the reason.
    Off(String),
}

/// A capture and what it gives.
pub struct Capturing {
    /// It.
    pub session: Session,
    /// What it gives.
    pub taken: Receiver<Taken>,
    /// Functions that are taken out of it for now, by their numbers in the plan.
    resting: BTreeSet<u32>,
    /// What was already told of costs, by function.
    told: Vec<FunctionCost>,
    told_total: u64,
    /// A moment, what it had cost by then, and what a nanosecond before that cost.
    mark: (Instant, u64),
    rate: f64,
    shares: Shares,
}

/// What was counted in captures that are over.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Records that came.
    pub records: u64,
    /// Records that were lost.
    pub lost: u64,
    /// Calls without a span.
    pub refused: u64,
    /// Estimated cost.
    pub cost_ns: u64,
}

/// A process that is watched.
pub struct Target {
    /// The process.
    pub process: Process,
    /// What it runs; `None` when we may not look.
    pub file: Option<FileIdentity>,
    /// Which image.
    pub stamp: ImageStamp,
    /// What is known of it.
    pub candidate: Candidate,
    /// What its service wants.
    pub service: Arc<Service>,
    /// How it came.
    pub way: Way,
    /// How far it is watched.
    pub stage: Stage,
    /// Its plan.
    pub prepared: Option<Arc<Prepared>>,
    /// What is given up for now.
    pub dropped: BTreeSet<String>,
    /// What is decided of that.
    pub budget: Budget,
    /// What spans came to.
    pub spans: SpanCounts,
    /// The same by sensor.
    pub sensor_spans: BTreeMap<&'static str, SensorSpans>,
    /// Of captures that are over.
    pub past: Counted,
    /// Hits by unit.
    pub hits: BTreeMap<String, u64>,
    /// Since when its requests are watched, nanoseconds of the capture's clock.
    pub since_ns: Option<u64>,
    /// What a person should know.
    pub notes: Vec<String>,
    /// Why this backend.
    pub why: String,
    /// When it is read next.
    pub next: Instant,
    last_news: Instant,
    attempts: u32,
    /// When a failed attach is tried again.
    pub again: Option<Instant>,
    /// When it was met.
    met: Instant,
    /// Whether it has asked what to carry.
    pub asked: bool,
    /// When it was told what to carry, having asked.
    pub offered: Option<Instant>,
    /// Whether something came since the budget was asked last.
    pub has_news: bool,
    /// Whether there was code in it by another way than by attaching.
    has_carried: bool,
}

impl Target {
    /// One that is not watched yet.
    pub fn new(
        process: Process,
        file: Option<FileIdentity>,
        stamp: ImageStamp,
        candidate: Candidate,
        service: Arc<Service>,
    ) -> Self {
        let limits =
            Limits { percent: service.budget, pause: retry(&service), ..Limits::default() };
        let now = Instant::now();
        Self {
            process,
            file,
            stamp,
            candidate,
            service,
            way: Way::Attach,
            stage: Stage::Planning,
            prepared: None,
            dropped: BTreeSet::new(),
            budget: Budget::new(limits),
            spans: SpanCounts::default(),
            sensor_spans: BTreeMap::new(),
            past: Counted::default(),
            hits: BTreeMap::new(),
            since_ns: None,
            notes: Vec::new(),
            why: String::new(),
            next: now,
            last_news: now,
            attempts: 0,
            again: None,
            met: now,
            asked: false,
            offered: None,
            has_news: false,
            has_carried: false,
        }
    }

    /// How it came, and whether it carried code then: for one that is met anew.
    pub fn origin(&self) -> (Way, bool) {
        (self.way, self.has_carried)
    }

    /// Takes that over.
    pub fn comes_from(&mut self, (way, has_carried): (Way, bool)) {
        (self.way, self.has_carried) = (way, has_carried);
    }

    /// Whether it may have the preloaded library and be about to ask: what is put into it before is in the way.
    pub fn may_ask(&self, prepared: &Prepared) -> bool {
        !self.asked
            && self.met.elapsed() < LOADING
            && self.service.inject.contains(&Way::Preload)
            && prepared.has_loader()
    }

    /// The state of the file that it runs: one that was written over is another program. `None` when we may not look.
    pub fn file_stamp(&self) -> Option<FileStamp> {
        self.process.executable().ok()?.stamp()
    }

    /// Its id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Takes over a capture that began at `now_ns`.
    pub fn begin(&mut self, begun: Begun, now_ns: u64) {
        let Begun { session, taken, notes, why } = begun;
        let told = vec![FunctionCost::default(); session.plan().functions.len()];
        (self.notes, self.why) = (notes, why);
        self.since_ns.get_or_insert(now_ns);
        self.has_carried = self.way != Way::Attach && session.backend() == "trampoline";
        self.budget.begin(now_ns);
        let resting = BTreeSet::new();
        let (mark, shares) = ((Instant::now(), 0), Shares::default());
        let capturing =
            Capturing { session, taken, resting, told, told_total: 0, mark, rate: 0.0, shares };
        self.stage = Stage::Watched(Box::new(capturing));
        (self.next, self.again, self.attempts) = (Instant::now(), None, 0);
    }

    /// An attach failed: it is tried again a few times.
    pub fn failed(&mut self, reason: String) {
        let pause = RETRY * 2_u32.saturating_pow(self.attempts.min(10));
        self.attempts += 1;
        self.again = (self.attempts < ATTEMPTS).then(|| Instant::now() + pause);
        self.stage = Stage::Off(reason);
    }

    /// What the command line of `spans` calls the backend. Whoever was started with code in it, or asked for it, may
    /// have it again.
    pub fn backend(&self) -> crate::args::Backend {
        match self.service.backend {
            Backend::Auto if self.has_carried => crate::args::Backend::Trampoline,
            _ => self.asked_backend(),
        }
    }

    /// The same by what the configuration says alone.
    pub fn asked_backend(&self) -> crate::args::Backend {
        match self.service.backend {
            Backend::Auto | Backend::None => crate::args::Backend::Auto,
            Backend::Uprobe => crate::args::Backend::Uprobe,
            Backend::Trampoline => crate::args::Backend::Trampoline,
        }
    }

    /// Reads what came; the spans and calls go to `out`. False when the capture has failed.
    pub fn read(
        &mut self,
        now_ns: u64,
        out: &mut dyn FnMut(&Prepared, Taken),
    ) -> Result<bool, String> {
        let Stage::Watched(capturing) = &mut self.stage else { return Ok(true) };
        let session = &mut capturing.session;
        let mut nowhere = std::io::sink();
        let mut read = || -> anyhow::Result<usize> {
            let count = session.poll(Duration::ZERO, &mut nowhere)?;
            if count == 0 {
                session.tick(now_ns, &mut nowhere)?;
            }
            Ok(count)
        };
        let count = read().map_err(|error| format!("{error:#}"))?;
        if let Some(prepared) = &self.prepared {
            for taken in capturing.taken.try_iter() {
                count_span(&mut self.spans, &mut self.sensor_spans, &taken);
                out(prepared, taken);
            }
        }
        let now = Instant::now();
        if count > 0 {
            (self.last_news, self.has_news) = (now, true);
        }
        let is_busy = now.duration_since(self.last_news) < CALM;
        self.next = now + if is_busy { BUSY } else { QUIET };
        Ok(!session.has_exited(self.process.pid()))
    }

    /// Ends a capture; what was left goes to `out`.
    pub fn end(&mut self, now_ns: u64, reason: String, out: &mut dyn FnMut(&Prepared, Taken)) {
        let stage = std::mem::replace(&mut self.stage, Stage::Off(reason));
        let Stage::Watched(mut capturing) = stage else { return };
        self.spend(&mut capturing, 0);
        let session = &mut capturing.session;
        let begin = Instant::now();
        let mut nowhere = std::io::sink();
        let ended = session
            .detach()
            .and_then(|()| session.poll_rest(&mut nowhere))
            .and_then(|()| session.finish(now_ns, &mut nowhere));
        if let Err(error) = ended {
            self.notes.push(format!("{error:#}"));
        }
        // Breakpoints that nobody looks at any more cost the same until the kernel has taken them out.
        let is_unseen = session.backend() == capture_uprobe::NAME;
        let while_leaving = capturing.rate * begin.elapsed().as_nanos() as f64;
        let least = if is_unseen { while_leaving as u64 } else { 0 };
        let unseen = self.spend(&mut capturing, least);
        let mut counted = counted(&capturing.session);
        counted.cost_ns += unseen;
        self.past.records += counted.records;
        self.past.lost += counted.lost;
        self.past.refused += counted.refused;
        self.past.cost_ns += counted.cost_ns;
        if let Some(prepared) = &self.prepared {
            for taken in capturing.taken.try_iter() {
                count_span(&mut self.spans, &mut self.sensor_spans, &taken);
                out(prepared, taken);
            }
        }
    }

    /// Takes out of the capture what is given up now, and puts back what is not any more, while the rest goes on and
    /// open requests stay open. False when that cannot be done.
    pub fn adjust(&mut self, now_ns: u64) -> anyhow::Result<bool> {
        let (Stage::Watched(capturing), Some(prepared)) = (&mut self.stage, &self.prepared) else {
            return Ok(false);
        };
        let wanted = prepared.functions_of(&self.dropped);
        let planned = &prepared.planned.plan.functions;
        let change: BTreeSet<u32> =
            capturing.resting.symmetric_difference(&wanted).copied().collect();
        let plan = capturing.session.plan();
        let is_there = |function: &u32| plan.sites.iter().any(|site| site.function == *function);
        // What tells of goroutines has to be seen without a gap, or from the begin.
        let is_traced =
            |function: &u32| planned.get(*function as usize).is_some_and(|it| it.traced);
        if !change.iter().all(|function| is_there(function) && is_traced(function)) {
            return Ok(false);
        }
        let mut nowhere = std::io::sink();
        for watched in [false, true] {
            let now = change.iter().filter(|it| capturing.resting.contains(it) == watched);
            let now: BTreeSet<u32> = now.copied().collect();
            if now.is_empty() {
                continue;
            }
            if !capturing.session.set_watched(&now, watched, now_ns, &mut nowhere)? {
                return Ok(false);
            }
        }
        capturing.resting = wanted;
        Ok(true)
    }

    /// Whether anything is not given up.
    pub fn has_units_left(&self) -> bool {
        let mut units = self.prepared.iter().flat_map(|prepared| prepared.units.iter().flatten());
        units.any(|unit| !self.dropped.contains(unit))
    }

    /// Functions that are watched now, in so many sites.
    pub fn watched(&self) -> Option<(u64, u64)> {
        let Stage::Watched(capturing) = &self.stage else { return None };
        let plan = capturing.session.plan();
        let is_on = |function: u32| !capturing.resting.contains(&function);
        let traced = (0u32..).zip(&plan.functions);
        let with_sites: BTreeSet<u32> = plan.sites.iter().map(|site| site.function).collect();
        let traced = traced
            .filter(|(at, function)| function.traced && is_on(*at) && with_sites.contains(at));
        let sites = plan.sites.iter().filter(|site| is_on(site.function));
        Some((traced.count() as u64, sites.count() as u64))
    }

    /// All that was counted.
    pub fn counted(&self) -> Counted {
        let mut all = self.past;
        if let Stage::Watched(capturing) = &self.stage {
            let now = counted(&capturing.session);
            all.records += now.records;
            all.lost += now.lost;
            all.refused += now.refused;
            all.cost_ns += now.cost_ns;
        }
        all
    }

    /// Whether nothing was spent since the budget was asked last and nothing is to come back. Hits that were lost
    /// are told by no record.
    pub fn is_calm(&mut self) -> bool {
        let has_news = std::mem::take(&mut self.has_news);
        let is_spent = match &self.stage {
            Stage::Watched(capturing) => capturing.session.cost_ns() > capturing.told_total,
            Stage::Planning | Stage::Off(_) => false,
        };
        self.budget.is_calm() && !has_news && !is_spent
    }

    /// Tells the budget what was spent since the last time, and asks what is to change. `cpu_seconds` is what the
    /// process has used of CPU.
    pub fn decide(&mut self, now_ns: u64, cpu_seconds: Option<f64>) -> Vec<Change> {
        let stage = std::mem::replace(&mut self.stage, Stage::Planning);
        self.stage = match stage {
            Stage::Watched(mut capturing) => {
                self.spend(&mut capturing, 0);
                Stage::Watched(capturing)
            }
            other => other,
        };
        let cpu_ns = cpu_seconds.map(|seconds| (seconds * 1e9) as u64);
        let changes = self.budget.decide(now_ns, cpu_ns);
        for change in &changes {
            match change {
                Change::Drop { unit, .. } => _ = self.dropped.insert(unit.clone()),
                Change::Restore { unit } => _ = self.dropped.remove(unit),
            }
        }
        changes
    }

    /// Spreads what hits cost over units. Gives how much of it was not seen,
    /// where it was `least` nanoseconds at the least.
    fn spend(&mut self, capturing: &mut Capturing, least: u64) -> u64 {
        let Some(prepared) = &self.prepared else { return 0 };
        let total = capturing.session.cost_ns();
        let seen_total = total.saturating_sub(capturing.told_total);
        let new_total = seen_total.max(least);
        let (marked, total_then) = capturing.mark;
        let passed = marked.elapsed();
        if passed >= SHORTEST {
            capturing.rate = total.saturating_sub(total_then) as f64 / passed.as_nanos() as f64;
            capturing.mark = (marked + passed, total);
        }
        capturing.told_total = total;
        let costs = capturing.session.costs();
        let told = costs.iter().zip(&capturing.told);
        let new: Vec<u64> = told.map(|(cost, told)| cost.ps.saturating_sub(told.ps)).collect();
        let unseen = new_total.saturating_sub(new.iter().sum::<u64>() / 1_000);
        // As before among those that are on, or nobody knows.
        let otherwise = || {
            let is_on = |unit: &Option<String>| {
                unit.as_ref().is_some_and(|unit| !self.dropped.contains(unit))
            };
            let with_units = || costs.iter().zip(&prepared.units).map(|(c, u)| (c, is_on(u)));
            let before: Vec<u64> =
                with_units().map(|(cost, is_on)| if is_on { cost.ps } else { 0 }).collect();
            match before.iter().any(|&ps| ps > 0) {
                true => before,
                false => with_units().map(|(_, is_on)| u64::from(is_on)).collect(),
            }
        };
        let paid = capturing.shares.split(&new, unseen, Instant::now(), otherwise);
        for (at, (cost, paid)) in costs.iter().zip(paid).enumerate() {
            if let Some(unit) = prepared.units.get(at).and_then(Option::as_ref) {
                self.budget.spend(unit, paid);
                let told = capturing.told.get(at).map_or(0, |told| told.hits);
                *self.hits.entry(unit.clone()).or_default() += cost.hits.saturating_sub(told);
            }
        }
        capturing.told = costs.to_vec();
        new_total - seen_total
    }
}

/// After which time what was given up is tried again for the first time.
pub fn retry(service: &Service) -> Duration {
    service.retry.unwrap_or(Limits::default().pause)
}

fn counted(session: &Session) -> Counted {
    let counters = session.capture_counters().unwrap_or_default();
    Counted {
        records: counters.produced,
        lost: counters.lost,
        refused: session.spans().map_or(0, |spans| spans.refused),
        cost_ns: session.cost_ns(),
    }
}

fn count_span(
    counts: &mut SpanCounts,
    by_sensor: &mut BTreeMap<&'static str, SensorSpans>,
    taken: &Taken,
) {
    let Taken::Span(span) = taken else { return };
    by_sensor.entry(agent::status::sensor_of(span)).or_default().count(span);
    counts.made += 1;
    counts.unfinished += u64::from(!span.is_finished);
    counts.truncated += u64::from(!span.unavailable.is_empty());
}
