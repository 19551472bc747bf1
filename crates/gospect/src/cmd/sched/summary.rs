//! The summary of a capture and the exit code it means.

use super::ending::Reason;
use super::engine::Running;
use crate::duration::{milliseconds, rounded};
use crate::ends;
use crate::failure::Outcome;
use output::{Summary, nothing_changed};
use std::time::Duration;
use timeline::states::StateCounters;

/// What all sessions together say, and the exit code.
pub fn summarize(running: &mut Running<'_>, reason: Reason) -> anyhow::Result<(Summary, Outcome)> {
    let mut total = Summary::default();
    let mut changes = 0;
    let mut detach = Duration::ZERO;
    for session in &running.sessions {
        let one = Summary::of_plan(session.backend(), session.plan());
        total.backend = one.backend;
        total.sites += one.sites;
        total.refused += one.refused;
        total.refusals.extend(one.refusals);
        let counters = session.capture_counters()?;
        total.lost += counters.lost.max(session.counters().lost);
        total.unfinished += counters.unfinished;
        total.processes += session.processes() as u64;
        detach += session.detach_time().unwrap_or_default();
        if let Some(trampolines) = session.trampolines() {
            total.trampolines.get_or_insert_default().add(&trampolines);
        }
        changes += session.counters().changes;
    }
    let elapsed = running.started.elapsed();
    let share = 100.0 * running.cost_ns() as f64 / elapsed.as_nanos().max(1) as f64;
    total.duration_ms = Some(milliseconds(elapsed));
    total.attach_ms = Some(milliseconds(running.attach_time));
    total.detach_ms = Some(milliseconds(detach));
    total.overhead_pct = Some(rounded(share));
    total.notes.append(&mut running.notes);
    let gone = reason == Reason::TargetsGone;
    ends::tell(running.child.as_mut(), &running.attached, gone, &mut total)?;
    if gone && running.child.is_none() {
        total.notes.push("every watched process is gone".to_owned());
    }
    let counters = StateCounters { changes, ..StateCounters::default() };
    total.zero_hits = nothing_changed(&total, &counters);
    let outcome =
        if total.target_signal.is_some() || (running.args.capture.strict && total.lost > 0) {
            Outcome::Grave
        } else if changes == 0 {
            Outcome::Nothing
        } else {
            Outcome::Done
        };
    Ok((total, outcome))
}
