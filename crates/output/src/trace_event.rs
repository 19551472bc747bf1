//! Chrome's JSON trace format, which <https://ui.perfetto.dev> reads.
//!
//! What Perfetto's importer (src/trace_processor/importers/json, common/flow_tracker.cc) asks for: times that are
//! not negative; ids of 32 bits; slices of a track that lie in each other or apart; the begin of
//! an arrow in a slice of its track, and its end, without a binding point, before the slice that
//! it leads to, in the file as in time.

use serde::Serialize;
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};
use std::rc::Rc;

/// Added to a pid to make the group of its threads: goroutines have the pid's own. No pid is as
/// large (2^22 at the most), and Perfetto keeps 32 bits.
pub(crate) const THREADS: u64 = 1 << 30;

/// Tracks that are named.
pub(crate) const MAX_TRACKS: usize = 1 << 20;

/// Something that lasts.
#[derive(Serialize)]
pub(crate) struct Slice<'a> {
    pub(crate) name: &'a str,
    pub(crate) cat: &'static str,
    pub(crate) ph: &'static str,
    pub(crate) ts: f64,
    pub(crate) dur: f64,
    pub(crate) pid: u64,
    pub(crate) tid: u64,
    pub(crate) args: BTreeMap<Cow<'static, str>, String>,
}

/// One end of an arrow: `s` or `f`.
#[derive(Serialize)]
pub(crate) struct Arrow {
    pub(crate) name: &'static str,
    pub(crate) cat: &'static str,
    pub(crate) ph: &'static str,
    pub(crate) ts: f64,
    pub(crate) pid: u64,
    pub(crate) tid: u64,
    pub(crate) id: u64,
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

    pub(crate) fn put(&self, event: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(if self.0.began.replace(true) { b",\n" } else { b"[\n" })?;
        Ok(serde_json::to_writer(out, event)?)
    }

    /// A number for an arrow that no other has.
    pub(crate) fn next_arrow(&self) -> u64 {
        let id = self.0.arrows.get() + 1;
        self.0.arrows.set(id);
        id
    }

    /// The file's begin, which is `ns` if nothing is in it so far.
    pub(crate) fn begin_ns(&self, ns: u64) -> u64 {
        let begin_ns = self.0.begin_ns.get().unwrap_or(ns);
        self.0.begin_ns.set(Some(begin_ns));
        begin_ns
    }

    /// Time in the file, in the format's unit, with room for nanoseconds; 0 for what was before.
    pub(crate) fn micros(&self, ns: u64) -> f64 {
        ns.saturating_sub(self.begin_ns(ns)) as f64 / 1e3
    }

    /// When a span begins in the file, and how long it is.
    pub(crate) fn span(&self, from_ns: u64, to_ns: u64) -> (f64, f64) {
        let from_ns = from_ns.max(self.begin_ns(from_ns));
        (self.micros(from_ns), to_ns.saturating_sub(from_ns) as f64 / 1e3)
    }
}

/// Which tracks have names.
#[derive(Debug, Default)]
pub(crate) struct Tracks(HashSet<(u64, u64)>);

impl Tracks {
    pub(crate) fn is_named(&self, pid: u64, tid: u64) -> bool {
        self.0.contains(&(pid, tid))
    }

    /// Names a track once, and its group with it.
    pub(crate) fn name(
        &mut self,
        file: &PerfettoFile,
        (pid, tid): (u64, u64),
        text: &str,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if self.0.len() >= MAX_TRACKS || !self.0.insert((pid, tid)) {
            return Ok(());
        }
        if self.0.insert((pid, u64::MAX)) {
            let group = match pid.checked_sub(THREADS) {
                Some(pid) => format!("threads of process {pid}"),
                None => format!("goroutines of process {pid}"),
            };
            let args = BTreeMap::from([("name", group.as_str())]);
            file.put(&Name { name: "process_name", ph: "M", pid, tid: 0, args }, out)?;
        }
        let args = BTreeMap::from([("name", text)]);
        file.put(&Name { name: "thread_name", ph: "M", pid, tid, args }, out)
    }
}

/// The number of a goroutine's track: what fits of its id.
pub(crate) fn track(goid: u64) -> u64 {
    goid & u64::from(u32::MAX)
}
