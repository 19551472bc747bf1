//! A timeline that <https://ui.perfetto.dev> opens: Chrome's JSON trace format, which Perfetto
//! reads. One track per goroutine with its states, one per thread with the goroutines that ran on
//! it, and arrows from who woke a goroutine to its new state.

use super::names::Origins;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use timeline::Symbolizer;
use timeline::states::{Change, Event, Kind, Lifetime, State, Who};

/// Added to a pid to make the group of its threads: goroutines have the pid's own. No pid is as
/// large (2^22 at the most), and Perfetto keeps 32 bits.
const THREADS: u64 = 1 << 30;

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
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
}

#[derive(Serialize)]
struct Name<'a> {
    name: &'static str,
    ph: &'static str,
    pid: u64,
    tid: u64,
    args: BTreeMap<&'static str, &'a str>,
}

/// Writes the trace as events come; [`Perfetto::finish`] makes it whole. A trace that is cut
/// before that opens too.
#[derive(Debug, Default)]
pub struct Perfetto {
    origins: Origins,
    began: bool,
    begin_ns: Option<u64>,
    /// Threads that a goroutine runs on: since when.
    running: HashMap<(u32, u32), (u64, u64)>,
    named: HashMap<(u64, u64), ()>,
    arrows: u64,
}

impl Perfetto {
    /// Writes what `event` says.
    pub fn event(
        &mut self,
        event: &Event,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match event {
            Event::Change(change) => self.change(change, symbols, out),
            Event::Lifetime(lifetime) => self.last_stay(lifetime, symbols, out),
            Event::Gap { cpu, from_ns, to_ns, lost } => {
                let text = format!("{lost} records lost on cpu {cpu}");
                let from_ns = if *from_ns == 0 { *to_ns } else { *from_ns };
                let slice = Slice {
                    name: &text,
                    cat: "loss",
                    ph: "X",
                    ts: self.micros(from_ns),
                    dur: between(from_ns, *to_ns),
                    pid: 0,
                    tid: u64::from(*cpu),
                    args: BTreeMap::new(),
                };
                self.put(&slice, out)
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

    /// Ends the trace.
    pub fn finish(&mut self, now_ns: u64, out: &mut dyn Write) -> io::Result<()> {
        for (pid, tid) in self.running.keys().copied().collect::<Vec<_>>() {
            self.leave_thread(pid, tid, now_ns, out)?;
        }
        if !self.began {
            out.write_all(b"[")?;
        }
        out.write_all(b"\n]\n")
    }

    fn change(
        &mut self,
        change: &Change,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let Change { ts_ns, who, tid, from, to, since_ns, .. } = *change;
        self.begin_ns.get_or_insert(since_ns.min(ts_ns));
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
        if from == State::RUNNING {
            self.leave_thread(who.pid, tid, ts_ns, out)?;
        }
        if to == State::RUNNING {
            self.leave_thread(who.pid, tid, ts_ns, out)?;
            if self.running.len() < MAX_TRACKS {
                self.running.insert((who.pid, tid), (who.goid, ts_ns));
            }
        }
        if let Some(by) = change.by {
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
        let slice = Slice {
            name: state.name(),
            cat: "goroutine",
            ph: "X",
            ts: self.micros(from_ns),
            dur: between(from_ns, to_ns),
            pid: u64::from(who.pid),
            tid: who.goid,
            args,
        };
        self.put(&slice, out)
    }

    /// What a goroutine was in when it was seen last.
    fn last_stay(
        &mut self,
        lifetime: &Lifetime,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if !lifetime.state.is_alive() {
            return Ok(());
        }
        let who = lifetime.who;
        let text = self.origins.text(who.pid, &lifetime.origin, symbols);
        self.name(u64::from(who.pid), who.goid, &format!("g{} {text}", who.goid), out)?;
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
        let Some((goid, since_ns)) = self.running.remove(&(pid, tid)) else { return Ok(()) };
        let group = u64::from(pid) + THREADS;
        self.name(group, u64::from(tid), &format!("thread {tid}"), out)?;
        let slice = Slice {
            name: &format!("g{goid}"),
            cat: "thread",
            ph: "X",
            ts: self.micros(since_ns),
            dur: between(since_ns, ts_ns),
            pid: group,
            tid: u64::from(tid),
            args: BTreeMap::new(),
        };
        self.put(&slice, out)
    }

    fn arrow(
        &mut self,
        name: &'static str,
        who: Who,
        by: u64,
        ts_ns: u64,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        self.arrows += 1;
        let arrow = |ph, tid, bp| Arrow {
            name,
            cat: "wake",
            ph,
            ts: self.micros(ts_ns),
            pid: u64::from(who.pid),
            tid,
            id: self.arrows,
            bp,
        };
        let (start, end) = (arrow("s", by, None), arrow("f", who.goid, Some("e")));
        self.put(&start, out)?;
        self.put(&end, out)
    }

    fn name_goroutine(
        &mut self,
        change: &Change,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let (pid, goid) = (u64::from(change.who.pid), change.who.goid);
        if self.named.contains_key(&(pid, goid)) || change.origin.gopc == 0 {
            return Ok(());
        }
        let text = self.origins.text(change.who.pid, &change.origin, symbols);
        self.name(pid, goid, &format!("g{goid} {text}"), out)
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
            self.put(&Name { name: "process_name", ph: "M", pid, tid: 0, args }, out)?;
        }
        let args = BTreeMap::from([("name", text)]);
        self.put(&Name { name: "thread_name", ph: "M", pid, tid, args }, out)
    }

    /// Microseconds since the first event: the format's unit, with room for nanoseconds.
    fn micros(&self, ns: u64) -> f64 {
        let begin_ns = self.begin_ns.unwrap_or(ns);
        (i128::from(ns) - i128::from(begin_ns)) as f64 / 1e3
    }

    fn put(&mut self, event: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(if self.began { b",\n" } else { b"[\n" })?;
        self.began = true;
        Ok(serde_json::to_writer(out, event)?)
    }
}

fn between(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e3
}
