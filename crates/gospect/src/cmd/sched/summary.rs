//! The summary of a capture and the exit code it means.

use super::ending::Reason;
use super::engine::Running;
use crate::failure::Outcome;
use output::{Summary, nothing_changed};
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;
use timeline::states::StateCounters;

/// How long the end of a process takes, once it began, before it is taken for an execve.
const DYING: Duration = Duration::from_millis(200);

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
        total.lost += session.capture_counters()?.lost.max(session.counters().lost);
        total.processes += session.processes() as u64;
        detach += session.detach_time().unwrap_or_default();
        changes += session.counters().changes;
    }
    let elapsed = running.started.elapsed();
    let share = 100.0 * running.cost_ns() as f64 / elapsed.as_nanos().max(1) as f64;
    total.duration_ms = Some(milliseconds(elapsed));
    total.attach_ms = Some(milliseconds(running.attach_time));
    total.detach_ms = Some(milliseconds(detach));
    total.overhead_pct = Some(rounded(share));
    total.notes.append(&mut running.notes);
    note_ends(running, reason, &mut total)?;
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

/// How the processes ended that did.
fn note_ends(running: &mut Running<'_>, reason: Reason, total: &mut Summary) -> anyhow::Result<()> {
    if let Some(child) = &mut running.child
        && let Some(status) = child.try_wait()?
    {
        total.target_signal = status.signal();
        total.target_exit = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    }
    for process in &running.attached {
        // The capture hears of an end a moment before it is complete.
        if reason == Reason::TargetsGone {
            process.wait_exit(DYING);
        }
        if let Some(signal) = process.exit_status().and_then(|status| status.signal()) {
            total.target_signal = Some(signal);
            total.notes.push(format!("process {} died by signal {signal}", process.pid()));
        }
    }
    if reason == Reason::TargetsGone && running.child.is_none() {
        total.notes.push("every watched process is gone".to_owned());
    }
    Ok(())
}

/// To three decimals: more is noise.
fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

fn milliseconds(time: Duration) -> f64 {
    rounded(time.as_secs_f64() * 1e3)
}
