//! From what captures give to what others are told.

use super::Supervisor;
use crate::agent::board::Board;
use crate::agent::export::Exporters;
use crate::agent::prepared::Prepared;
use crate::agent::target::{Stage, Target};
use crate::clock;
use crate::spans::Taken;
use agent::status::{BudgetStatus, CaptureStatus, ExportStatus, SensorState, SensorStatus};
use agent::{Change, percent};
use std::fmt;

/// Takes spans and calls of one process.
pub struct Teller<'a> {
    pid: u32,
    now_ns: u64,
    board: &'a Board,
    exporters: &'a Exporters,
}

impl<'a> Teller<'a> {
    /// Of the process `pid`, at `now_ns` of the clock of spans.
    pub fn new(pid: u32, now_ns: u64, board: &'a Board, exporters: &'a Exporters) -> Self {
        Self { pid, now_ns, board, exporters }
    }

    /// Counts all, and sends what is sampled.
    pub fn take(&mut self, prepared: &Prepared, taken: Taken) {
        let mut board = self.board.lock();
        let Some(row) = board.rows.get_mut(&self.pid) else { return };
        match taken {
            Taken::Span(span) => {
                row.requests.span(&span);
                row.activity.span(&span, self.now_ns);
                let origin = std::sync::Arc::clone(&row.origin);
                drop(board);
                self.exporters.span(*span, &origin);
            }
            Taken::Call { function, ns } => {
                let function = prepared.planned.plan.functions.get(function as usize);
                if let Some(function) = function {
                    row.requests.call(&function.name, ns);
                }
            }
        }
    }
}

impl Supervisor {
    /// Puts on the board how far everything is watched.
    pub(super) fn tell(&mut self) {
        let now_ns = clock::monotonic_ns();
        let discovery = self.discovery.as_ref().map(super::Discovery::status);
        let mut board = self.board.lock();
        board.discovery = discovery.unwrap_or_default();
        board.own.look();
        for (pid, target) in &self.targets {
            let Some(row) = board.rows.get_mut(pid) else { continue };
            let counted = target.counted();
            if let Some(since_ns) = target.since_ns {
                row.activity.watched_since(since_ns);
            }
            let status = &mut row.status;
            status.capture = capture(target);
            status.capture.records = counted.records;
            status.capture.lost = counted.lost;
            status.spans = target.spans;
            (status.spans.lost, status.spans.refused) = (counted.lost, counted.refused);
            status.sensors = target.sensors(now_ns);
            status.sensors.push(metrics(target, status.restricted.clone()));
            let BudgetStatus { drops, restores, .. } = status.budget;
            status.budget = BudgetStatus {
                limit_percent: target.service.budget,
                cost_percent: target.budget.percent(),
                cost_ns: counted.cost_ns,
                drops,
                restores,
            };
        }
    }
}

fn capture(target: &Target) -> CaptureStatus {
    let notes = target.notes.clone();
    match &target.stage {
        Stage::Planning => CaptureStatus {
            reason: Some("its plan is being made".to_owned()),
            notes,
            ..CaptureStatus::default()
        },
        Stage::Off(reason) => {
            CaptureStatus { reason: Some(reason.clone()), notes, ..CaptureStatus::default() }
        }
        Stage::Watched(capturing) => {
            let (functions, sites) = target.watched().unzip();
            CaptureStatus {
                backend: Some(capturing.session.backend().to_owned()),
                way: Some(target.way.name().to_owned()),
                reason: Some(target.why.clone()).filter(|why| !why.is_empty()),
                notes,
                functions,
                sites,
                ..CaptureStatus::default()
            }
        }
    }
}

fn metrics(target: &Target, restricted: Option<String>) -> SensorStatus {
    let (state, reason) = match (target.service.metrics, restricted) {
        (false, _) => (SensorState::Off, Some("the configuration leaves it out".to_owned())),
        (true, Some(reason)) => (SensorState::Unavailable, Some(reason)),
        (true, None) => (SensorState::Active, None),
    };
    let name = "metrics".to_owned();
    SensorStatus { name, kind: "metrics", state, reason, ..SensorStatus::default() }
}

/// A decision, as a person reads it.
pub struct Decided<'a>(pub u32, pub &'a Change);

impl fmt::Display for Decided<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Change::Drop { unit, percent: own, total, pause_s } => write!(
                f,
                "{}: {unit} is given up for {pause_s} s: it costs {} of a CPU, all together {}",
                self.0,
                percent(*own),
                percent(*total)
            ),
            Change::Restore { unit } => write!(f, "{}: {unit} is tried again", self.0),
        }
    }
}

/// What was sent, likewise.
pub struct Sent<'a>(pub &'a ExportStatus);

impl fmt::Display for Sent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ExportStatus { what, endpoint, delivered, unsampled, dropped, failed, error } = self.0;
        let items = if what == "metrics" { "points of metrics" } else { "spans" };
        write!(f, "{delivered} {items} sent to {endpoint}")?;
        for (count, why) in
            [(unsampled, "not sampled"), (dropped, "dropped"), (failed, "not delivered")]
        {
            if *count > 0 {
                write!(f, "; {count} {why}")?;
            }
        }
        match error {
            Some(error) => write!(f, ": {error}"),
            None => Ok(()),
        }
    }
}
