//! One process that is watched, as the supervisor has it.

use super::prepared::{Begun, GOROUTINES, Prepared};
use crate::session::Session;
use crate::spans::Taken;
use agent::status::{SensorState, SensorStatus, SpanCounts};
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
    /// What was already told of costs, by function.
    told: Vec<u64>,
    told_total: u64,
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
    /// Of captures that are over.
    pub past: Counted,
    /// Hits by unit.
    pub hits: BTreeMap<String, u64>,
    /// CPU that the process had used when the budget was looked at last, seconds.
    pub cpu_seconds: f64,
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
        let limits = Limits { percent: service.budget, ..Limits::default() };
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
            past: Counted::default(),
            hits: BTreeMap::new(),
            cpu_seconds: 0.0,
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
        }
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

    /// Takes over a capture that began.
    pub fn begin(&mut self, begun: Begun) {
        let Begun { session, taken, notes, why } = begun;
        let told = vec![0; session.plan().functions.len()];
        (self.notes, self.why) = (notes, why);
        let capturing = Capturing { session, taken, told, told_total: 0 };
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

    /// What the command line of `spans` calls the backend.
    pub fn backend(&self) -> crate::args::Backend {
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
                count_span(&mut self.spans, &taken);
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
        self.spend(&mut capturing);
        let session = &mut capturing.session;
        let mut nowhere = std::io::sink();
        let ended = session
            .detach()
            .and_then(|()| session.poll_rest(&mut nowhere))
            .and_then(|()| session.finish(now_ns, &mut nowhere));
        if let Err(error) = ended {
            self.notes.push(format!("{error:#}"));
        }
        let counted = counted(session);
        self.past.records += counted.records;
        self.past.lost += counted.lost;
        self.past.refused += counted.refused;
        self.past.cost_ns += counted.cost_ns;
        if let Some(prepared) = &self.prepared {
            for taken in capturing.taken.try_iter() {
                count_span(&mut self.spans, &taken);
                out(prepared, taken);
            }
        }
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

    /// Tells the budget what was spent since the last time, and asks what is to change.
    pub fn decide(&mut self, now_ns: u64, cpu_seconds: Option<f64>) -> Vec<Change> {
        let stage = std::mem::replace(&mut self.stage, Stage::Planning);
        self.stage = match stage {
            Stage::Watched(mut capturing) => {
                self.spend(&mut capturing);
                Stage::Watched(capturing)
            }
            other => other,
        };
        // The kernel counts in hundredths of a second: no less than two are a bound.
        let used = cpu_seconds.map(|cpu| {
            let used = (cpu - std::mem::replace(&mut self.cpu_seconds, cpu)).max(0.0) + 0.02;
            (used * 1e9) as u64
        });
        let changes = self.budget.decide(now_ns, used);
        for change in &changes {
            match change {
                Change::Drop { unit, .. } => _ = self.dropped.insert(unit.clone()),
                Change::Restore { unit } => _ = self.dropped.remove(unit),
            }
        }
        changes
    }

    /// Spreads what hits cost over units: those that were lost as those that came.
    fn spend(&mut self, capturing: &mut Capturing) {
        let Some(prepared) = &self.prepared else { return };
        let total = capturing.session.cost_ns();
        let new_total = total.saturating_sub(capturing.told_total);
        capturing.told_total = total;
        let costs = capturing.session.costs();
        let new = |at: usize| {
            let told = capturing.told.get(at).copied().unwrap_or(0);
            costs.get(at).map_or(0, |cost| cost.ns.saturating_sub(told))
        };
        let seen: u64 = (0..costs.len()).map(new).sum();
        let factor = if seen == 0 { 1.0 } else { (new_total as f64 / seen as f64).max(1.0) };
        self.hits.clear();
        for (at, cost) in costs.iter().enumerate() {
            let unit = prepared.units.get(at).and_then(Option::as_ref);
            if let Some(unit) = unit {
                self.budget.spend(unit, (new(at) as f64 * factor) as u64);
                *self.hits.entry(unit.clone()).or_default() += cost.hits;
            }
        }
        for (told, cost) in capturing.told.iter_mut().zip(costs) {
            *told = cost.ns;
        }
    }

    /// State of what the service wants watched.
    pub fn sensors(&self, now_ns: u64) -> Vec<SensorStatus> {
        let dropped: BTreeMap<&str, u64> = self.budget.dropped(now_ns).collect();
        let costs: BTreeMap<&str, f64> = self.budget.units().collect();
        let there: BTreeSet<&str> = self
            .prepared
            .iter()
            .flat_map(|prepared| prepared.units.iter().flatten().map(String::as_str))
            .collect();
        let status = |name: &str, kind: &'static str| {
            let (state, reason) = match (&self.stage, dropped.get(name)) {
                (_, Some(left)) => {
                    let reason = format!("it cost more than the budget: tried again in {left} s");
                    (SensorState::Dropped, Some(reason))
                }
                (Stage::Planning, None) => (SensorState::Starting, None),
                (Stage::Off(reason), None) => (SensorState::Unavailable, Some(reason.clone())),
                (Stage::Watched(_), None) if !there.contains(name) => {
                    let reason =
                        "the program has none of its functions, or none that can be watched";
                    (SensorState::Unavailable, Some(reason.to_owned()))
                }
                (Stage::Watched(_), None) => (SensorState::Active, None),
            };
            SensorStatus {
                name: name.to_owned(),
                kind,
                state,
                reason,
                hits: self.hits.get(name).copied().unwrap_or(0),
                cost_percent: costs.get(name).copied().unwrap_or(0.0),
            }
        };
        let mut sensors: Vec<SensorStatus> = Vec::new();
        for &group in sensors::GROUPS {
            match self.service.sensors.iter().any(|name| name == group) {
                true => sensors.push(status(group, "sensor")),
                false => sensors.push(SensorStatus {
                    name: group.to_owned(),
                    kind: "sensor",
                    state: SensorState::Off,
                    reason: Some("the configuration leaves it out".to_owned()),
                    ..SensorStatus::default()
                }),
            }
        }
        if there.contains(GOROUTINES) {
            sensors.push(status(GOROUTINES, "sensor"));
        }
        let functions =
            there.iter().filter(|name| **name != GOROUTINES && !sensors::GROUPS.contains(name));
        sensors.extend(functions.map(|name| status(name, "function")));
        sensors
    }
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

fn count_span(counts: &mut SpanCounts, taken: &Taken) {
    let Taken::Span(span) = taken else { return };
    counts.made += 1;
    counts.unfinished += u64::from(!span.is_finished);
    counts.truncated += u64::from(!span.unavailable.is_empty());
}
