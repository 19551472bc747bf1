//! What the agent's threads share: what is known of each process, and of the agent.

use super::report::Own;
use agent::status::{
    Activity, ConfigStatus, Decision, DiscoveryStatus, ExportStatus, PreloadStatus, ProcessStatus,
    SeriesStatus, Status,
};
use agent::{Change, Requests};
use otlp::Origin;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Decisions kept.
const DECISIONS: usize = 200;

/// A process as the threads see it.
pub struct Row {
    /// What is said of it.
    pub status: ProcessStatus,
    /// Its start, in clock ticks since boot.
    pub start_ticks: u64,
    /// Whether metrics are read.
    pub metrics: bool,
    /// What its spans and metrics are told to come from.
    pub origin: Arc<Origin>,
    /// Since when requests are counted, Unix time in nanoseconds.
    pub since_unix_ns: u64,
    /// Its requests as metrics.
    pub requests: Requests,
    /// Its requests of the last minutes.
    pub activity: Activity,
    /// Metrics of the last minutes.
    pub series: Vec<SeriesStatus>,
}

/// Processes that have ended and whose requests were not sent yet, at the most.
const ENDED: usize = 256;

/// All of it.
#[derive(Default)]
pub struct Inner {
    /// Processes by id.
    pub rows: BTreeMap<u32, Row>,
    /// Those that have ended since metrics were sent last.
    pub ended: Vec<Row>,
    /// How many more there were, of whose last requests nothing is told.
    pub ended_unsent: u64,
    /// Decisions, the oldest first.
    pub decisions: VecDeque<Decision>,
    /// How many there were.
    pub decisions_made: u64,
    /// The configuration.
    pub config: ConfigStatus,
    /// How processes are found.
    pub discovery: DiscoveryStatus,
    /// Where preloaded programs ask.
    pub preload: PreloadStatus,
    /// What was sent.
    pub exports: Vec<ExportStatus>,
    /// What the agent costs.
    pub own: Own,
    /// When the agent began.
    pub started_unix_ns: u64,
    /// From the clock of spans to Unix time.
    pub unix_offset_ns: i64,
}

/// See the module.
#[derive(Clone, Default)]
pub struct Board(Arc<Mutex<Inner>>);

impl Board {
    /// All of it, for as long as it is held.
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Takes a process off; what its requests came to is sent once more where metrics are sent.
    pub fn forget(&mut self, pid: u32, is_sent: bool) {
        let Some(mut row) = self.rows.remove(&pid) else { return };
        if !is_sent {
            return;
        }
        if self.ended.len() == ENDED {
            self.ended_unsent += 1;
            return;
        }
        (row.activity, row.series) = (Activity::default(), Vec::new());
        self.ended.push(row);
    }

    /// Notes a decision.
    pub fn decided(&mut self, unix_ns: u64, pid: u32, change: Change) {
        let Some(row) = self.rows.get_mut(&pid) else { return };
        match change {
            Change::Drop { .. } => row.status.budget.drops += 1,
            Change::Restore { .. } => row.status.budget.restores += 1,
        }
        let service = row.status.service.clone();
        self.decisions_made += 1;
        self.decisions.push_back(Decision { unix_ns, pid, service, change });
        if self.decisions.len() > DECISIONS {
            self.decisions.pop_front();
        }
    }

    /// What is said of the agent at `now_ns` of the clock of spans. `whole` has requests and charts too.
    pub fn status(&mut self, now_ns: u64, whole: bool) -> Status {
        let offset = self.unix_offset_ns;
        let processes = self.rows.values_mut().map(|row| {
            let mut status = row.status.clone();
            if whole {
                status.requests = row.activity.requests(now_ns);
                status.slowest = row.activity.slowest(now_ns, offset);
                status.runtime = row.series.clone();
            }
            status
        });
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started_unix_ns: self.started_unix_ns,
            now_unix_ns: now_ns.saturating_add_signed(offset),
            processes: processes.collect(),
            config: self.config.clone(),
            discovery: self.discovery.clone(),
            preload: self.preload.clone(),
            own: self.own.status(),
            exports: self.exports.clone(),
            decisions: self.decisions.iter().cloned().collect(),
            decisions_made: self.decisions_made,
            ended_unsent: self.ended_unsent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row {
            status: ProcessStatus::default(),
            start_ticks: 0,
            metrics: true,
            origin: Arc::default(),
            since_unix_ns: 0,
            requests: Requests::default(),
            activity: Activity::default(),
            series: Vec::new(),
        }
    }

    #[test]
    fn processes_that_end_together_are_told_of_or_counted() {
        let mut inner = Inner::default();
        for pid in 0..ENDED as u32 + 3 {
            inner.rows.insert(pid, row());
            inner.forget(pid, true);
            // Nobody takes metrics: there is nothing to be told.
            inner.rows.insert(pid, row());
            inner.forget(pid, false);
        }
        assert_eq!((inner.ended.len(), inner.ended_unsent), (ENDED, 3));
        assert_eq!(inner.status(0, true).ended_unsent, 3);
    }
}
