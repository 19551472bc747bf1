//! A timeline that <https://ui.perfetto.dev> opens: one track per goroutine with its states, one per thread with the
//! goroutines that ran on it, and arrows from who woke a goroutine to its new state.

use super::names::Origins;
use crate::trace_event::{Arrow, MAX_TRACKS, PerfettoFile, Slice, THREADS, Tracks, track};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use timeline::Symbolizer;
use timeline::states::{Change, Event, Kind, Lifetime, State, Unknown, Who};

/// How long before the first change the file begins: what was there already has a slice to begin
/// an arrow in.
const LEAD_NS: u64 = 1000;

/// Name of slices during which records were lost.
const UNKNOWN: &str = "unknown";

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
    tracks: Tracks,
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
        let (origins, running, tracks) = Default::default();
        Self { file, origins, arrows, running, gaps: 0, tracks }
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
        args.extend(reason.map(|reason| ("reason".into(), reason.to_owned())));
        args.extend(origin.map(|origin| ("goroutine".into(), origin.to_owned())));
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
        args.insert("was".into(), state.name().to_owned());
        args.insert("goroutine".into(), self.origins.text(who.pid, &origin, symbols));
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
        self.tracks.name(&self.file, (u64::from(who.pid), track(who.goid)), &name, out)?;
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
        let track_name = format!("thread {tid}");
        self.tracks.name(&self.file, (group, u64::from(tid)), &track_name, out)?;
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
        let id = self.file.next_arrow();
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
        if self.tracks.is_named(pid, track(goid)) || change.origin.gopc == 0 {
            return Ok(());
        }
        let text = self.origins.text(change.who.pid, &change.origin, symbols);
        self.tracks.name(&self.file, (pid, track(goid)), &format!("g{goid} {text}"), out)
    }
}
