//! The end of a capture of goroutine states.

use super::names::{Origins, PlaceJson};
use crate::duration::short_duration;
use crate::printable::push_printable;
use crate::summary::{Summary, UNFINISHED};
use serde::Serialize;
use std::cmp::Reverse;
use std::io::{self, Write};
use std::sync::Arc;
use timeline::Symbolizer;
use timeline::states::{Latency, LongWait, Reasons, StateCounters, Tally};

/// Waits that are listed.
const LONGEST: usize = 10;

/// Columns of the longest bar.
const BAR: u128 = 40;

/// Figures of calls in the summary of a trace.
const CALLS: [&str; 7] =
    ["functions", "entries", "exits", "calls", "open", "orphan_exits", "drained"];

/// What is said at the end.
pub struct StatesSummary<'a> {
    /// What every capture says: backend, sites, refusals, times, notes.
    pub capture: &'a Summary,
    /// What was seen, by executable.
    pub parts: Vec<StatesPart<'a>>,
}

/// What was seen of the processes of one executable.
#[derive(Clone, Copy)]
pub struct StatesPart<'a> {
    /// What was counted.
    pub counters: StateCounters,
    /// Sums.
    pub tally: &'a Tally,
    /// Names of reasons.
    pub reasons: &'a Reasons,
    /// Names of addresses.
    pub symbols: &'a dyn Symbolizer,
}

#[derive(Serialize)]
struct LatencyJson {
    count: u64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    histogram: Vec<StepJson>,
}

/// Stays that were shorter than this and not shorter than the one before.
#[derive(Serialize)]
struct StepJson {
    below_ns: u64,
    count: u64,
}

#[derive(Serialize)]
struct LongWaitJson<'a> {
    ns: u64,
    pid: u32,
    goid: u64,
    reason: Option<Arc<str>>,
    created_by: Option<PlaceJson<'a>>,
    still: bool,
}

#[derive(Serialize)]
struct SummaryJson<'a> {
    #[serde(flatten)]
    counters: StateCounters,
    latency: LatencyJson,
    longest: Vec<LongWaitJson<'a>>,
}

impl<'a> StatesSummary<'a> {
    fn counters(&self) -> StateCounters {
        let mut sum = StateCounters::default();
        self.parts.iter().for_each(|part| sum.add(&part.counters));
        sum
    }

    /// The latencies of all.
    fn latencies(&self) -> Tally {
        let mut sum = Tally::default();
        self.parts.iter().for_each(|part| sum.add_latency(part.tally));
        sum
    }

    /// The longest waits of all, with what tells their names.
    fn longest(&self) -> Vec<(LongWait, &StatesPart<'a>)> {
        let of = |part: &'_ StatesPart<'a>| part.tally.longest().to_vec();
        let mut all: Vec<_> = self
            .parts
            .iter()
            .flat_map(|part| of(part).into_iter().map(move |w| (w, part)))
            .collect();
        all.sort_by_key(|(wait, _)| Reverse(wait.ns));
        all.truncate(LONGEST);
        all
    }

    /// Writes the JSON line: what the summary of a trace has that holds here too, and the
    /// counts of states.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut origins = Origins::default();
        let longest = self.longest();
        let places: Vec<_> = longest
            .iter()
            .map(|(wait, part)| origins.created_by(wait.who.pid, &wait.origin, part.symbols))
            .collect();
        let longest = longest.iter().zip(&places).map(|((wait, part), place)| LongWaitJson {
            ns: wait.ns,
            pid: wait.who.pid,
            goid: wait.who.goid,
            reason: part.reasons.name(wait.reason),
            created_by: place.as_deref().map(PlaceJson::of),
            still: wait.is_open,
        });
        let latencies = self.latencies();
        let Latency { count, p50_ns, p90_ns, p99_ns, max_ns } = latencies.latency();
        let steps = latencies.latency_steps().into_iter();
        let histogram = steps.map(|(below_ns, count)| StepJson { below_ns, count }).collect();
        let states = SummaryJson {
            counters: self.counters(),
            latency: LatencyJson { count, p50_ns, p90_ns, p99_ns, max_ns, histogram },
            longest: longest.collect(),
        };
        let mut all = serde_json::to_value(self.capture)?;
        let states = serde_json::to_value(&states)?;
        if let (Some(all), serde_json::Value::Object(states)) = (all.as_object_mut(), states) {
            // Figures of calls, of which there are none.
            for key in CALLS {
                all.remove(key);
            }
            all.extend(states);
            all.insert("lost".to_owned(), self.lost().into());
        }
        // As in every other object the type comes first.
        all.as_object_mut().and_then(|all| all.remove("type"));
        let rest = serde_json::to_string(&all)?;
        writeln!(out, "{{\"type\":\"summary\",{}", rest.trim_start_matches('{'))
    }

    /// Records lost, whoever counted more.
    fn lost(&self) -> u64 {
        self.capture.lost.max(self.counters().lost)
    }

    /// Writes the part of the summary that is a result: latency and the longest waits.
    pub fn write_results(&self, out: &mut dyn Write) -> io::Result<()> {
        let latencies = self.latencies();
        let latency = latencies.latency();
        if latency.count > 0 {
            let [p50, p90, p99, max] =
                [latency.p50_ns, latency.p90_ns, latency.p99_ns, latency.max_ns]
                    .map(short_duration);
            writeln!(
                out,
                "\nrunnable before running: p50 {p50}, p90 {p90}, p99 {p99}, max {max} ({} times)",
                latency.count
            )?;
            write_histogram(&latencies.latency_steps(), out)?;
        }
        let longest = self.longest();
        if !longest.is_empty() {
            writeln!(out, "\nwaited longest:")?;
        }
        let mut origins = Origins::default();
        for (wait, part) in &longest {
            let LongWait { ns, who, is_open, .. } = wait;
            let mut reason = String::new();
            let name = part.reasons.name(wait.reason);
            push_printable(&mut reason, name.as_deref().unwrap_or("unknown"));
            let still = if *is_open { " (still)" } else { "" };
            let origin = origins.text(who.pid, &wait.origin, part.symbols);
            let ns = short_duration(*ns);
            writeln!(out, "  {ns:>10}  g{} {reason}{still}  {origin}", who.goid)?;
        }
        Ok(())
    }

    /// Writes what else there is to know, for stderr.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let counters = &self.counters();
        writeln!(
            out,
            "{} changes of state; {} goroutines made, {} ended, {} live; {} sites ({}); {} lost",
            counters.changes,
            counters.made,
            counters.ended,
            counters.live,
            self.capture.sites,
            self.capture.backend,
            self.lost()
        )?;
        let figures = [
            (counters.found, "goroutines were there already"),
            (counters.repairs, "records were out of order and put right"),
            (counters.breaks, "changes do not follow from the ones before"),
            (counters.mended, "chains go on behind a loss"),
            (self.capture.unfinished, UNFINISHED),
            (counters.vanished, "goroutines ended during a loss"),
            (counters.evicted, "goroutines were not followed: there are too many"),
            (counters.no_goroutine, "hits whose goroutine could not be read"),
            (counters.invalid, "records that made no sense"),
        ];
        for (figure, what) in figures.into_iter().filter(|(figure, _)| *figure > 0) {
            writeln!(out, "  {figure} {what}")?;
        }
        self.capture.write_times(out)
    }
}

/// A line for each step, with a bar.
fn write_histogram(steps: &[(u64, u64)], out: &mut dyn Write) -> io::Result<()> {
    let most = steps.iter().map(|(_, count)| *count).max().unwrap_or_default().max(1);
    for (below_ns, count) in steps {
        let length = (u128::from(*count) * BAR).div_ceil(u128::from(most)) as usize;
        let (below, bar) = (short_duration(*below_ns), "#".repeat(length));
        writeln!(out, "{}", format!("  < {below:>8} {count:>12}  {bar}").trim_end())?;
    }
    Ok(())
}

/// Why nothing was seen; `None` when something was.
pub fn nothing_changed(summary: &Summary, counters: &StateCounters) -> Option<String> {
    if counters.changes > 0 {
        return None;
    }
    Some(if summary.sites == 0 {
        "nothing is watched: every place was refused (see above)".to_owned()
    } else if summary.lost > 0 {
        format!("no change was seen, but {} records were lost", summary.lost)
    } else {
        "no goroutine changed its state while attached".to_owned()
    })
}
