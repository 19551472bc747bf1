//! The summary of a capture and the exit code it means.

use super::end::Reason;
use super::engine::Running;
use crate::duration::{milliseconds, rounded};
use crate::ends;
use crate::failure::Outcome;
use crate::session::Session;
use output::{Summary, zero_hits_reason};
use std::time::Duration;

/// How the capture ended.
pub struct Finished {
    /// Why.
    pub reason: Reason,
}

/// Sums up all sessions.
pub fn summarize(
    running: &mut Running<'_>,
    finished: Finished,
) -> anyhow::Result<(Summary, Outcome)> {
    let mut total = Summary::default();
    let mut counters = timeline::Counters::default();
    let mut detach = Duration::ZERO;
    let mut cost_ns = 0;
    for session in &running.sessions {
        let mut one = Summary::of_plan(session.backend(), session.plan());
        let seen = session.capture_counters()?;
        (one.lost, one.unfinished) = (seen.lost, seen.unfinished);
        one.count(&session.counters()?);
        total.screen(session.screened()?.as_ref());
        if session.plan().decides_at_hits() {
            *total.hidden_at_hit.get_or_insert(0) += seen.rejected;
        }
        total.count_spans(session.spans());
        total.notes.extend(session.exported());
        detach += session.detach_time().unwrap_or_default();
        if let Some(trampolines) = session.trampolines() {
            total.trampolines.get_or_insert_default().add(&trampolines);
        }
        cost_ns += session.cost_ns();
        total.processes += session.processes() as u64;
        add(&mut total, one);
        add_counters(&mut counters, session.counters()?);
    }
    let elapsed = running.started.elapsed();
    total.duration_ms = Some(milliseconds(elapsed));
    total.attach_ms = Some(milliseconds(running.attach_time));
    total.detach_ms = Some(milliseconds(detach));
    total.overhead_pct = Some(rounded(100.0 * cost_ns as f64 / elapsed.as_nanos().max(1) as f64));
    total.notes.append(&mut running.notes);
    if running.watched.is_some() {
        total.notes.push("calls that began before the attach are not seen".to_owned());
    }
    let gone = finished.reason == Reason::TargetsGone;
    ends::tell(running.child.as_mut(), &running.attached, gone, &mut total)?;
    for (pid, signal) in running.sessions.iter().flat_map(Session::died_by_signal) {
        ends::tell_signal(pid, signal, &mut total);
    }
    if gone && running.child.is_none() {
        total.notes.push("every traced process is gone".to_owned());
    }
    total.zero_hits = zero_hits_reason(&total, &counters);
    let outcome = if total.target_signal.is_some()
        || total.panics > 0
        || (running.args.capture.strict && total.lost > 0)
    {
        Outcome::Grave
    } else if total.entries == 0 {
        Outcome::Nothing
    } else {
        Outcome::Done
    };
    Ok((total, outcome))
}

fn add(total: &mut Summary, one: Summary) {
    total.backend = one.backend;
    total.functions += one.functions;
    total.sites += one.sites;
    total.refused += one.refused;
    total.refusals.extend(one.refusals);
    total.entries += one.entries;
    total.exits += one.exits;
    total.calls += one.calls;
    total.open += one.open;
    total.lost += one.lost;
    total.unfinished += one.unfinished;
    total.orphan_exits += one.orphan_exits;
    total.drained += one.drained;
    total.evicted += one.evicted;
    total.no_goroutine += one.no_goroutine;
    total.invalid += one.invalid;
    total.panics += one.panics;
    total.notes.extend(one.notes);
}

fn add_counters(total: &mut timeline::Counters, one: timeline::Counters) {
    total.entries += one.entries;
    total.exits += one.exits;
}
