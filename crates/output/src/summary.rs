//! The last line of a capture: what was done, what was lost, what could not be done.

use crate::duration::short_duration;
use crate::printable::push_printable;
use probe::Plan;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write};
use timeline::{Counters, Screened};

/// Refusals spelled out in text; JSON has all.
const SHOWN_REFUSALS: usize = 10;

/// A function that matched and is not traced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedFunction {
    /// Symbol name.
    pub func: String,
    /// Why, in words a person can act on.
    pub reason: String,
}

/// Code in the traced processes, all of them together, and what it has cost them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trampolines {
    /// Bytes of code and tables mapped, whole pages.
    pub code_bytes: u64,
    /// Functions with jumps to it, those of the watched runtime included.
    pub functions: u64,
    /// Pages of text that were written: private to a process from then on, after the removal too.
    pub private_pages: u64,
    /// How often all threads of a process stood.
    pub stops: u64,
    /// The longest of these times, milliseconds.
    pub longest_stop_ms: f64,
}

impl Trampolines {
    /// Takes in those of another capture.
    pub fn add(&mut self, other: &Self) {
        self.code_bytes += other.code_bytes;
        self.functions += other.functions;
        self.private_pages += other.private_pages;
        self.stops += other.stops;
        self.longest_stop_ms = self.longest_stop_ms.max(other.longest_stop_ms);
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let each = self.code_bytes.checked_div(self.functions).unwrap_or(0);
        let pages = count(self.private_pages, "page", "pages");
        let stops = count(self.stops, "stop", "stops");
        writeln!(
            out,
            "  {} KiB of code ({each} bytes for each function with a jump), {pages} of text made \
             private; {stops}, the longest {}",
            self.code_bytes >> 10,
            milliseconds(self.longest_stop_ms)
        )
    }
}

/// The summary of one capture. `None` is "not known", and stands as `null` in JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "summary", default)]
pub struct Summary {
    /// The backend used.
    pub backend: String,
    /// Functions traced.
    pub functions: u64,
    /// Sites installed, those of the watched runtime functions included.
    pub sites: u64,
    /// Functions that matched and are not traced.
    pub refused: u64,
    /// Each of them with the reason.
    pub refusals: Vec<RefusedFunction>,
    /// Entry records of traced functions.
    pub entries: u64,
    /// Exit records.
    pub exits: u64,
    /// Calls reported (before any filter).
    pub calls: u64,
    /// Calls still open at the end.
    pub open: u64,
    /// Records produced and not delivered.
    pub lost: u64,
    /// Records that threads had begun when they ended with their process, or it became another
    /// program. Not part of `lost`: what they were about may not have happened.
    #[serde(skip_serializing_if = "is_zero")]
    pub unfinished: u64,
    /// Exits of calls that already ran at the attach, or whose entry was lost.
    pub orphan_exits: u64,
    /// Entries ignored because tracing was ending.
    pub drained: u64,
    /// Calls given up because a memory limit was reached.
    pub evicted: u64,
    /// Hits whose goroutine could not be read.
    pub no_goroutine: u64,
    /// Records that made no sense.
    pub invalid: u64,
    /// Unrecovered panics seen.
    pub panics: u64,
    /// Spans written, where requests are shown and not calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spans: Option<u64>,
    /// Calls not shown since they belong to no span, where calls are shown within spans.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_outside_spans: Option<u64>,
    /// Calls hidden by a condition that did not hold, where there are conditions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<u64>,
    /// Those of them that left no record, since the hit decided it; where hits decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden_at_hit: Option<u64>,
    /// Calls shown although a condition could not be decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undecided: Option<u64>,
    /// Why it could not, and how often.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub undecided_for: BTreeMap<String, u64>,
    /// Processes traced.
    pub processes: u64,
    /// Length of the capture, milliseconds.
    pub duration_ms: Option<f64>,
    /// Time to install, milliseconds.
    pub attach_ms: Option<f64>,
    /// Time to remove, milliseconds.
    pub detach_ms: Option<f64>,
    /// Estimated cost in percent of one CPU.
    pub overhead_pct: Option<f64>,
    /// Exit status of the launched command, 128 + signal if one ended it.
    pub target_exit: Option<i32>,
    /// The signal that ended the launched command, or one of the processes attached to.
    pub target_signal: Option<i32>,
    /// What trampolines did to the processes, when there were any; the key is left out otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trampolines: Option<Trampolines>,
    /// Why nothing was seen, when nothing was.
    pub zero_hits: Option<String>,
    /// Anything else the person should know.
    pub notes: Vec<String>,
}

/// What was counted of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// Spans written.
    pub written: u64,
    /// Calls that gave none since too many were open.
    pub refused: u64,
    /// Calls of functions asked for that belong to no span; `None` when none were asked for.
    pub calls_outside: Option<u64>,
}

impl Summary {
    /// What the plan says: functions, sites, refusals.
    pub fn of_plan(backend: &str, plan: &Plan) -> Self {
        let refusals: Vec<RefusedFunction> = plan
            .refused
            .iter()
            .map(|refusal| RefusedFunction {
                func: refusal.function.clone(),
                reason: refusal.reason.0.clone(),
            })
            .collect();
        Self {
            backend: backend.to_owned(),
            functions: plan.functions.iter().filter(|function| function.traced).count() as u64,
            sites: plan.sites.len() as u64,
            refused: refusals.len() as u64,
            refusals,
            ..Self::default()
        }
    }

    /// Takes over what the timeline counted. `lost` stays the larger of what the capture
    /// counted (set before) and the gaps seen.
    pub fn count(&mut self, counters: &Counters) {
        self.entries = counters.entries;
        self.exits = counters.exits;
        self.calls = counters.calls;
        self.open = counters.open_ends;
        self.orphan_exits = counters.orphan_exits;
        self.drained = counters.drained;
        self.evicted = counters.evicted;
        self.no_goroutine = counters.no_goroutine;
        self.invalid = counters.invalid;
        self.panics = counters.panics;
        self.lost = self.lost.max(counters.lost);
    }

    /// Adds what conditions came to, where there are some.
    pub fn screen(&mut self, screened: Option<&Screened>) {
        let Some(screened) = screened else { return };
        *self.hidden.get_or_insert(0) += screened.hidden;
        *self.undecided.get_or_insert(0) += screened.undecided;
        for (reason, count) in &screened.reasons {
            *self.undecided_for.entry(reason.clone()).or_default() += count;
        }
    }

    /// Adds what was counted of spans, where requests are shown.
    pub fn count_spans(&mut self, counts: Option<SpanCounts>) {
        let Some(SpanCounts { written, refused, calls_outside }) = counts else { return };
        *self.spans.get_or_insert(0) += written;
        if let Some(calls) = calls_outside {
            *self.calls_outside_spans.get_or_insert(0) += calls;
        }
        if refused > 0 {
            let calls = count(refused, "request", "requests");
            self.notes.push(format!("{calls} not shown: too many were open at a time"));
        }
    }

    /// Writes the JSON line.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        out.write_all(&line)
    }

    /// Writes it for people.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let calls = count(self.calls, "call", "calls");
        let functions = count(self.functions, "function", "functions");
        let sites = count(self.sites, "site", "sites");
        let shown = self.spans.map_or(calls, |spans| count(spans, "span", "spans"));
        writeln!(out, "{shown}; {functions} at {sites} ({}); {} lost", self.backend, self.lost)?;
        let figures = [
            (self.open, "still open"),
            (self.orphan_exits, "exits of calls that began before, or whose entry was lost"),
            (self.drained, "entries ignored while ending"),
            (self.unfinished, UNFINISHED),
            (self.evicted, "calls given up at a memory limit"),
            (self.no_goroutine, "hits whose goroutine could not be read"),
            (self.invalid, "records that made no sense"),
            (self.panics, "unrecovered panics"),
            (self.calls_outside_spans.unwrap_or(0), "calls not shown: they belong to no span"),
            (self.hidden.unwrap_or(0), "calls hidden by a condition"),
            (self.undecided.unwrap_or(0), "calls shown although a condition could not be decided"),
        ];
        for (figure, what) in figures.into_iter().filter(|(figure, _)| *figure > 0) {
            writeln!(out, "  {figure} {what}")?;
        }
        for (reason, count) in &self.undecided_for {
            let mut line = format!("    {count}: ");
            push_printable(&mut line, reason);
            writeln!(out, "{line}")?;
        }
        self.write_times(out)
    }

    /// Writes how long it took, what it cost, how the command ended and what there is to know.
    pub(crate) fn write_times(&self, out: &mut dyn Write) -> io::Result<()> {
        let times: Vec<String> = [
            ("captured for", self.duration_ms),
            ("attached in", self.attach_ms),
            ("detached in", self.detach_ms),
        ]
        .into_iter()
        .filter_map(|(what, ms)| ms.map(|ms| format!("{what} {}", milliseconds(ms))))
        .chain(self.overhead_pct.map(|pct| format!("about {pct:.1}% of a CPU")))
        .collect();
        if !times.is_empty() {
            writeln!(out, "  {}", times.join(", "))?;
        }
        if let Some(trampolines) = &self.trampolines {
            trampolines.write_text(out)?;
        }
        if let Some(status) = self.target_exit {
            writeln!(out, "  the command ended with status {status}")?;
        }
        self.write_reasons(out)
    }

    fn write_reasons(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.refused > 0 {
            writeln!(out, "  not traced:")?;
        }
        for refusal in self.refusals.iter().take(SHOWN_REFUSALS) {
            let mut line = String::new();
            push_printable(&mut line, &refusal.func);
            line.push_str(": ");
            push_printable(&mut line, &refusal.reason);
            writeln!(out, "    {line}")?;
        }
        if let Some(more) = self.refusals.len().checked_sub(SHOWN_REFUSALS).filter(|n| *n > 0) {
            writeln!(out, "    and {more} more (--format json lists all)")?;
        }
        for note in self.zero_hits.iter().chain(&self.notes) {
            let mut line = String::new();
            push_printable(&mut line, note);
            writeln!(out, "  {line}")?;
        }
        Ok(())
    }
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// What is said of records that were begun.
pub(crate) const UNFINISHED: &str = "records were begun by threads that ended with their process";

fn count(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

fn milliseconds(ms: f64) -> String {
    // Saturates; negative and NaN become 0.
    short_duration((ms * 1e6) as u64)
}

/// Why a capture that was installed saw no call; `None` when it saw one.
pub fn zero_hits_reason(summary: &Summary, counters: &Counters) -> Option<String> {
    if counters.entries > 0 {
        return None;
    }
    Some(if summary.functions == 0 && summary.refused > 0 {
        "nothing is traced: every function that matched was refused (see above)".to_owned()
    } else if summary.functions == 0 {
        "nothing is traced: no function matched".to_owned()
    } else if counters.exits > 0 {
        format!(
            "no call began while attached; {} that began before returned",
            count(counters.exits, "call", "calls")
        )
    } else if summary.lost > 0 {
        format!("no call was seen, but {} records were lost", summary.lost)
    } else if summary.functions == 1 {
        "the traced function was never called while attached".to_owned()
    } else {
        format!("none of the {} traced functions was called while attached", summary.functions)
    })
}
