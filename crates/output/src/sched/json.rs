//! JSON Lines of goroutines: changes, whole lives, gaps, sums.

use super::names::{Origins, PlaceJson};
use crate::clock::Clock;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use timeline::Symbolizer;
use timeline::states::{Change, Event, Lifetime, Reasons, SiteSum, Tally, Times, Unknown};

#[derive(Serialize)]
struct ChangeJson<'a> {
    r#type: &'static str,
    ts_ns: i64,
    pid: u32,
    tid: u32,
    goid: u64,
    from: &'static str,
    to: &'static str,
    reason: Option<&'a str>,
    /// Time in `from`.
    held_ns: u64,
    /// The goroutine that changed it.
    by: Option<u64>,
}

#[derive(Serialize)]
struct TimesJson {
    running_ns: u64,
    runnable_ns: u64,
    waiting_ns: BTreeMap<Arc<str>, u64>,
    syscall_ns: u64,
    other_ns: u64,
    unknown_ns: u64,
}

impl TimesJson {
    fn of(times: &Times, reasons: &Reasons) -> Self {
        let mut waiting_ns: BTreeMap<Arc<str>, u64> = BTreeMap::new();
        for (number, ns) in &times.waiting {
            let name = reasons.name(*number).unwrap_or_else(|| Arc::from("unknown"));
            let sum = waiting_ns.entry(name).or_default();
            *sum = sum.saturating_add(*ns);
        }
        Self {
            running_ns: times.running_ns,
            runnable_ns: times.runnable_ns,
            waiting_ns,
            syscall_ns: times.syscall_ns,
            other_ns: times.other_ns,
            unknown_ns: times.unknown_ns,
        }
    }
}

#[derive(Serialize)]
struct LifetimeJson<'a> {
    r#type: &'static str,
    pid: u32,
    goid: u64,
    parent_goid: Option<u64>,
    created_by: Option<PlaceJson<'a>>,
    start: Option<&'a str>,
    born_ns: Option<i64>,
    ended_ns: Option<i64>,
    from_ns: i64,
    to_ns: i64,
    state: &'static str,
    reason: Option<&'a str>,
    changes: u64,
    #[serde(flatten)]
    times: TimesJson,
}

#[derive(Serialize)]
struct GapJson {
    r#type: &'static str,
    cpu: u16,
    from_ns: Option<i64>,
    to_ns: i64,
    lost: u32,
}

#[derive(Serialize)]
struct SiteJson<'a> {
    r#type: &'static str,
    pid: u32,
    created_by: Option<PlaceJson<'a>>,
    start: Option<&'a str>,
    made: u64,
    ended: u64,
    live: u64,
    #[serde(flatten)]
    times: TimesJson,
}

/// A stay that a loss cut.
#[derive(Serialize)]
struct UnknownJson {
    r#type: &'static str,
    pid: u32,
    goid: u64,
    was: &'static str,
    from_ns: i64,
    to_ns: i64,
}

#[derive(Serialize)]
struct ReasonJson<'a> {
    r#type: &'static str,
    reason: &'a str,
    count: u64,
    open: u64,
    total_ns: u64,
    max_ns: u64,
}

/// Writes what was seen as JSON Lines.
#[derive(Debug)]
pub struct StatesJson {
    clock: Clock,
    changes: bool,
    origins: Origins,
}

impl StatesJson {
    /// A writer of whole lives, and of every change when `changes` says so.
    pub fn new(clock: Clock, changes: bool) -> Self {
        Self { clock, changes, origins: Origins::default() }
    }

    /// Writes what `event` says.
    pub fn event(
        &mut self,
        event: &Event,
        reasons: &Reasons,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match event {
            Event::Change(change) if self.changes => self.change(change, out),
            Event::Unknown(unknown) if self.changes => self.unknown(unknown, out),
            Event::Change(_) | Event::Unknown(_) => Ok(()),
            Event::Lifetime(lifetime) => self.lifetime(lifetime, reasons, symbols, out),
            Event::Gap { cpu, from_ns, to_ns, lost } => {
                let unix = |ns: u64| self.clock.unix_ns(ns);
                let from_ns = (*from_ns != 0).then(|| unix(*from_ns));
                let to_ns = unix(*to_ns);
                line(&GapJson { r#type: "gap", cpu: *cpu, from_ns, to_ns, lost: *lost }, out)
            }
            Event::ProcessExit { pid, .. } => {
                self.origins.forget(*pid);
                Ok(())
            }
        }
    }

    fn change(&self, change: &Change, out: &mut dyn Write) -> io::Result<()> {
        let json = ChangeJson {
            r#type: "state",
            ts_ns: self.clock.unix_ns(change.ts_ns),
            pid: change.who.pid,
            tid: change.tid,
            goid: change.who.goid,
            from: change.from.name(),
            to: change.to.name(),
            reason: change.reason.as_deref(),
            held_ns: change.ts_ns.saturating_sub(change.since_ns),
            by: change.by,
        };
        line(&json, out)
    }

    fn unknown(&self, unknown: &Unknown, out: &mut dyn Write) -> io::Result<()> {
        let json = UnknownJson {
            r#type: "unknown",
            pid: unknown.who.pid,
            goid: unknown.who.goid,
            was: unknown.state.name(),
            from_ns: self.clock.unix_ns(unknown.from_ns),
            to_ns: self.clock.unix_ns(unknown.to_ns),
        };
        line(&json, out)
    }

    fn lifetime(
        &mut self,
        lifetime: &Lifetime,
        reasons: &Reasons,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let pid = lifetime.who.pid;
        let created_by = self.origins.created_by(pid, &lifetime.origin, symbols);
        let start = self.origins.start(pid, &lifetime.origin, symbols);
        let unix = |ns: u64| self.clock.unix_ns(ns);
        let json = LifetimeJson {
            r#type: "goroutine",
            pid,
            goid: lifetime.who.goid,
            parent_goid: Some(lifetime.origin.parent).filter(|&parent| parent != 0),
            created_by: created_by.as_deref().map(PlaceJson::of),
            start: start.as_deref().map(|place| place.func.as_str()),
            born_ns: lifetime.born_ns.map(unix),
            ended_ns: lifetime.ended_ns.map(unix),
            from_ns: unix(lifetime.from_ns),
            to_ns: unix(lifetime.to_ns),
            state: lifetime.state.name(),
            reason: lifetime.reason.as_deref(),
            changes: lifetime.changes,
            times: TimesJson::of(&lifetime.times, reasons),
        };
        line(&json, out)
    }

    /// Writes a line per statement that made goroutines.
    pub fn sites(
        &mut self,
        tally: &Tally,
        reasons: &Reasons,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        for (pid, sum) in tally.sites() {
            let SiteSum { made, ended, live, origin, times } = sum;
            let created_by = self.origins.created_by(pid, origin, symbols);
            let start = self.origins.start(pid, origin, symbols);
            let json = SiteJson {
                r#type: "site",
                pid,
                created_by: created_by.as_deref().map(PlaceJson::of),
                start: start.as_deref().map(|place| place.func.as_str()),
                made: *made,
                ended: *ended,
                live: *live,
                times: TimesJson::of(times, reasons),
            };
            line(&json, out)?;
        }
        Ok(())
    }

    /// Writes a line per wait reason.
    pub fn reasons(&self, tally: &Tally, reasons: &Reasons, out: &mut dyn Write) -> io::Result<()> {
        for (number, sum) in tally.waits() {
            let name = reasons.name(number).unwrap_or_else(|| Arc::from("unknown"));
            let json = ReasonJson {
                r#type: "reason",
                reason: &name,
                count: sum.count,
                open: sum.open,
                total_ns: sum.total_ns,
                max_ns: sum.max_ns,
            };
            line(&json, out)?;
        }
        Ok(())
    }
}

fn line(json: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let mut line = serde_json::to_vec(json)?;
    line.push(b'\n');
    out.write_all(&line)
}
