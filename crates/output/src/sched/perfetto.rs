//! A timeline that <https://ui.perfetto.dev> opens: Chrome's JSON trace format, which Perfetto
//! reads. One track per goroutine with its states, one per thread with the goroutines that ran on
//! it, and arrows from who woke a goroutine to its new state.
//!
//! What Perfetto's importer (src/trace_processor/importers/json, common/flow_tracker.cc) asks for: times that are
//! not negative; ids of 32 bits; slices of a track that lie in each other or apart; the begin of
//! an arrow in a slice of its track, and its end, without a binding point, before the slice that
//! it leads to, in the file as in time.

use super::names::Origins;
use serde::Serialize;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::rc::Rc;
use timeline::Symbolizer;
use timeline::states::{Change, Event, Kind, Lifetime, State, Unknown, Who};

/// Added to a pid to make the group of its threads: goroutines have the pid's own. No pid is as
/// large (2^22 at the most), and Perfetto keeps 32 bits.
const THREADS: u64 = 1 << 30;

/// How long before the first change the file begins: what was there already has a slice to begin
/// an arrow in.
const LEAD_NS: u64 = 1000;

/// Name of slices during which records were lost.
const UNKNOWN: &str = "unknown";

/// Tracks that are named.
const MAX_TRACKS: usize = 1 << 20;

#[derive(Serialize)]
struct Slice<'a> {
    name: &'a str,
    cat: &'static str,
    ph: &'static str,
    ts: f64,
    dur: f64,
    pid: u64,
    tid: u64,
    args: BTreeMap<&'static str, String>,
}

#[derive(Serialize)]
struct Arrow {
    name: &'static str,
    cat: &'static str,
    ph: &'static str,
    ts: f64,
    pid: u64,
    tid: u64,
    id: u64,
}

#[derive(Serialize)]
struct Name<'a> {
    name: &'static str,
    ph: &'static str,
    pid: u64,
    tid: u64,
    args: BTreeMap<&'static str, &'a str>,
}

/// The file, which the traces of several executables share.
#[derive(Clone, Debug, Default)]
pub struct PerfettoFile(Rc<FileState>);

#[derive(Debug, Default)]
struct FileState {
    began: Cell<bool>,
    begin_ns: Cell<Option<u64>>,
    arrows: Cell<u64>,
}

impl PerfettoFile {
    /// Makes it whole. A file that is cut before that opens too.
    pub fn close(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(if self.0.began.get() { b"\n]\n" } else { b"[\n]\n" })
    }

    fn put(&self, event: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(if self.0.began.replace(true) { b",\n" } else { b"[\n" })?;
        Ok(serde_json::to_writer(out, event)?)
    }

    /// The file's begin, which is `ns` if nothing is in it so far.
    fn begin_ns(&self, ns: u64) -> u64 {
        let begin_ns = self.0.begin_ns.get().unwrap_or(ns);
        self.0.begin_ns.set(Some(begin_ns));
        begin_ns
    }

    /// Time in the file, in the format's unit, with room for nanoseconds; 0 for what was before.
    fn micros(&self, ns: u64) -> f64 {
        ns.saturating_sub(self.begin_ns(ns)) as f64 / 1e3
    }

    /// When a span begins in the file, and how long it is.
    fn span(&self, from_ns: u64, to_ns: u64) -> (f64, f64) {
        let from_ns = from_ns.max(self.begin_ns(from_ns));
        (self.micros(from_ns), to_ns.saturating_sub(from_ns) as f64 / 1e3)
    }
}

/// Writes the trace as events come; [`Perfetto::finish`] adds what is not over.
#[derive(Debug)]
pub struct Perfetto {
    file: PerfettoFile,
    origins: Origins,
    arrows: Arrows,
    /// What runs on threads.
    running: HashMap<(u32, u32), OnThread>,
    /// Losses so far.
    gaps: u64,
    named: HashMap<(u64, u64), ()>,
}

/// A goroutine on a thread.
#[derive(Clone, Copy, Debug)]
struct OnThread {
    goid: u64,
    since_ns: u64,
    /// Losses that were known when it began.
    gaps: u64,
}

/// Between which goroutines arrows are drawn. One that begins where nothing is shown would be
/// drawn from elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Arrows {
    /// All.
    #[default]
    All,
    /// These.
    Among(Vec<u64>),
    /// None.
    None,
}

impl Arrows {
    fn from(&self, goid: u64) -> bool {
        match self {
            Self::All => true,
            Self::Among(goids) => goids.contains(&goid),
            Self::None => false,
        }
    }
}

impl Perfetto {
    /// A trace that is added to `file`.
    pub fn new(file: PerfettoFile, arrows: Arrows) -> Self {
        let (origins, running, named) = Default::default();
        Self { file, origins, arrows, running, gaps: 0, named }
    }

    /// Writes what `event` says.
    pub fn event(
        &mut self,
        event: &Event,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match event {
            Event::Change(change) => self.change(change, symbols, out),
            Event::Unknown(unknown) => self.unknown(unknown, symbols, out),
            Event::Lifetime(lifetime) => self.last_stay(lifetime, symbols, out),
            Event::Gap { cpu, from_ns, to_ns, lost } => {
                self.gaps += 1;
                let text = format!("{lost} records lost on cpu {cpu}");
                let from_ns = if *from_ns == 0 { *to_ns } else { *from_ns };
                let (ts, dur) = self.file.span(from_ns, *to_ns);
                let slice = Slice {
                    name: &text,
                    cat: "loss",
                    ph: "X",
                    ts,
                    dur,
                    pid: 0,
                    tid: u64::from(*cpu),
                    args: BTreeMap::new(),
                };
                self.file.put(&slice, out)
            }
            Event::ProcessExit { pid, ts_ns } => {
                let ran = self.running.keys().filter(|(owner, _)| owner == pid);
                for (pid, tid) in ran.copied().collect::<Vec<_>>() {
                    self.leave_thread(pid, tid, *ts_ns, out)?;
                }
                self.origins.forget(*pid);
                Ok(())
            }
        }
    }

    /// Ends what runs at `now_ns`. The file is to be closed yet.
    pub fn finish(&mut self, now_ns: u64, out: &mut dyn Write) -> io::Result<()> {
        let mut ran: Vec<_> = self.running.keys().copied().collect();
        ran.sort_unstable();
        ran.into_iter().try_for_each(|(pid, tid)| self.leave_thread(pid, tid, now_ns, out))
    }

    fn change(
        &mut self,
        change: &Change,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let Change { ts_ns, who, tid, from, to, since_ns, .. } = *change;
        self.file.begin_ns(since_ns.min(ts_ns).saturating_sub(LEAD_NS));
        self.name_goroutine(change, symbols, out)?;
        if from.is_alive() {
            let reason = change.reason.as_ref().filter(|_| from.kind() == Kind::Waiting);
            let origin = self.origins.text(who.pid, &change.origin, symbols);
            self.stay(
                who,
                from,
                [reason.map(|reason| &**reason), Some(&origin)],
                (since_ns, ts_ns),
                out,
            )?;
        }
        let is_on = self.running.get(&(who.pid, tid)).is_some_and(|on| on.goid == who.goid);
        if from == State::RUNNING && is_on {
            self.leave_thread(who.pid, tid, ts_ns, out)?;
        }
        if to == State::RUNNING {
            self.leave_thread(who.pid, tid, ts_ns, out)?;
            if self.running.len() < MAX_TRACKS {
                let on = OnThread { goid: who.goid, since_ns: ts_ns, gaps: self.gaps };
                self.running.insert((who.pid, tid), on);
            }
        }
        let by = change.by.filter(|&by| change.by_is_followed && self.arrows.from(by));
        if let Some(by) = by {
            let name = if from.is_alive() { "wakes" } else { "starts" };
            self.arrow(name, who, by, ts_ns, out)?;
        }
        Ok(())
    }

    /// One stay in a state, on the goroutine's track.
    fn stay(
        &mut self,
        who: Who,
        state: State,
        [reason, origin]: [Option<&str>; 2],
        (from_ns, to_ns): (u64, u64),
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut args = BTreeMap::new();
        args.extend(reason.map(|reason| ("reason", reason.to_owned())));
        args.extend(origin.map(|origin| ("goroutine", origin.to_owned())));
        let (ts, dur) = self.file.span(from_ns, to_ns);
        let (pid, tid) = (u64::from(who.pid), track(who.goid));
        let slice =
            Slice { name: state.name(), cat: "goroutine", ph: "X", ts, dur, pid, tid, args };
        self.file.put(&slice, out)
    }

    /// What nobody knows. Whatever an arrow leads to or comes from has a slice, so that none is drawn
    /// from or to another one.
    fn unknown(
        &mut self,
        unknown: &Unknown,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let Unknown { who, state, from_ns, to_ns, origin } = *unknown;
        self.file.begin_ns(from_ns.saturating_sub(LEAD_NS));
        let mut args = BTreeMap::new();
        args.insert("was", state.name().to_owned());
        args.insert("goroutine", self.origins.text(who.pid, &origin, symbols));
        let (ts, dur) = self.file.span(from_ns, to_ns);
        let (pid, tid) = (u64::from(who.pid), track(who.goid));
        let slice = Slice { name: UNKNOWN, cat: "goroutine", ph: "X", ts, dur, pid, tid, args };
        self.file.put(&slice, out)
    }

    /// What a goroutine was in when it was seen last, and its name, if it has none yet.
    fn last_stay(
        &mut self,
        lifetime: &Lifetime,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let who = lifetime.who;
        let text = self.origins.text(who.pid, &lifetime.origin, symbols);
        let name = format!("g{} {text}", who.goid);
        self.name(u64::from(who.pid), track(who.goid), &name, out)?;
        if !lifetime.state.is_alive() {
            return Ok(());
        }
        let since_ns = lifetime.since_ns;
        let about = [lifetime.reason.as_deref(), Some(&*text)];
        self.stay(who, lifetime.state, about, (since_ns, lifetime.to_ns), out)
    }

    /// The goroutine that ran on a thread leaves it.
    fn leave_thread(
        &mut self,
        pid: u32,
        tid: u32,
        ts_ns: u64,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let Some(on) = self.running.remove(&(pid, tid)) else { return Ok(()) };
        // Another one may have run there since.
        let name = if on.gaps == self.gaps { format!("g{}", on.goid) } else { UNKNOWN.to_owned() };
        let group = u64::from(pid) + THREADS;
        self.name(group, u64::from(tid), &format!("thread {tid}"), out)?;
        let (ts, dur) = self.file.span(on.since_ns, ts_ns);
        let slice = Slice {
            name: &name,
            cat: "thread",
            ph: "X",
            ts,
            dur,
            pid: group,
            tid: u64::from(tid),
            args: BTreeMap::new(),
        };
        self.file.put(&slice, out)
    }

    fn arrow(
        &mut self,
        name: &'static str,
        who: Who,
        by: u64,
        ts_ns: u64,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let id = self.file.0.arrows.get() + 1;
        self.file.0.arrows.set(id);
        let (ts, pid) = (self.file.micros(ts_ns), u64::from(who.pid));
        let arrow = |ph, goid| Arrow { name, cat: "wake", ph, ts, pid, tid: track(goid), id };
        self.file.put(&arrow("s", by), out)?;
        self.file.put(&arrow("f", who.goid), out)
    }

    fn name_goroutine(
        &mut self,
        change: &Change,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let (pid, goid) = (u64::from(change.who.pid), change.who.goid);
        if self.named.contains_key(&(pid, track(goid))) || change.origin.gopc == 0 {
            return Ok(());
        }
        let text = self.origins.text(change.who.pid, &change.origin, symbols);
        self.name(pid, track(goid), &format!("g{goid} {text}"), out)
    }

    /// Names a track once, and its group with it.
    fn name(&mut self, pid: u64, tid: u64, text: &str, out: &mut dyn Write) -> io::Result<()> {
        if self.named.len() >= MAX_TRACKS || self.named.insert((pid, tid), ()).is_some() {
            return Ok(());
        }
        if self.named.insert((pid, u64::MAX), ()).is_none() {
            let group = match pid.checked_sub(THREADS) {
                Some(pid) => format!("threads of process {pid}"),
                None => format!("goroutines of process {pid}"),
            };
            let args = BTreeMap::from([("name", group.as_str())]);
            self.file.put(&Name { name: "process_name", ph: "M", pid, tid: 0, args }, out)?;
        }
        let args = BTreeMap::from([("name", text)]);
        self.file.put(&Name { name: "thread_name", ph: "M", pid, tid, args }, out)
    }
}

/// The number of a goroutine's track: what fits of its id.
fn track(goid: u64) -> u64 {
    goid & u64::from(u32::MAX)
}
