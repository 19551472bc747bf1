//! A timeline of requests that <https://ui.perfetto.dev> opens: one track per goroutine with its spans and their calls
//! in one another, and arrows to what a span has on other goroutines and in other processes.

use super::held::Trees;
use super::json::{span_id, trace_id};
use super::order::{Item, in_order};
use crate::json::end_name;
use crate::trace_event::{Arrow, PerfettoFile, Slice, Tracks, track};
use probe::Plan;
use sensors::{Name, Span, SpanCall, SpanCalls, SpanGoroutine, Witness};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};
use std::sync::Arc;

/// Where tracks begin that are for what does not fit on its goroutine's: a stream goes on behind the call that
/// began it.
const BESIDE: u64 = 1 << 31;

/// How many such tracks there are for all.
const MOST_BESIDE: u64 = 1 << 16;

/// Which goroutine of which process.
type Key = (u32, u64);

/// Writes spans as slices of a timeline, each tree when all of it has ended.
#[derive(Debug)]
pub struct SpanTimeline {
    plan: Arc<Plan>,
    file: PerfettoFile,
    tracks: Tracks,
    held: Trees,
    /// Until when tracks are taken, by goroutine, nanoseconds on the capture's clock.
    taken: HashMap<Key, u64>,
    beside: u64,
}

/// What becomes a slice.
struct Piece<'a> {
    key: Key,
    name: String,
    cat: &'static str,
    from_ns: u64,
    to_ns: u64,
    args: BTreeMap<Name, String>,
    /// The goroutine that an arrow comes from, and when.
    from: Option<(Key, u64)>,
    /// What is known of its goroutine.
    goroutine: Option<&'a str>,
}

impl SpanTimeline {
    /// A timeline of spans with calls of `plan`, added to `file`.
    pub fn new(plan: Arc<Plan>, file: PerfettoFile) -> Self {
        let (tracks, held, taken) = Default::default();
        Self { plan, file, tracks, held, taken, beside: 0 }
    }

    /// Tells of the first thing that is seen: the file begins there, `ts_ns` being of the capture's clock.
    pub fn begins(&self, ts_ns: u64) {
        self.file.begin_ns(ts_ns);
    }

    /// Takes a span that ended; writes its tree when nothing of it is open any more.
    pub fn span(&mut self, span: Span, out: &mut dyn Write) -> io::Result<()> {
        match self.held.take(span) {
            Some(spans) => self.write(&spans, out),
            None => Ok(()),
        }
    }

    /// Writes what is held. The file is to be closed yet.
    pub fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let held = std::mem::take(&mut self.held);
        held.into_all().try_for_each(|spans| self.write(&spans, out))
    }

    fn write(&mut self, spans: &[Span], out: &mut dyn Write) -> io::Result<()> {
        let mut pieces = self.pieces(spans);
        // Of what begins at one time the outer one stands first, as it does so far.
        pieces.sort_by_key(|piece| piece.from_ns);
        let mut open: HashMap<Key, Vec<u64>> = HashMap::new();
        let mut taken: HashMap<Key, u64> = HashMap::new();
        for piece in &pieces {
            let ends = open.entry(piece.key).or_default();
            while ends.last().is_some_and(|end| *end <= piece.from_ns) {
                ends.pop();
            }
            let is_before = self.taken.get(&piece.key).is_some_and(|end| *end > piece.from_ns);
            let fits = !is_before && ends.last().is_none_or(|end| *end >= piece.to_ns);
            let tid = if fits { track(piece.key.1) } else { self.next_beside() };
            if fits {
                ends.push(piece.to_ns);
                let end = taken.entry(piece.key).or_default();
                *end = piece.to_ns.max(*end);
            }
            self.put(piece, tid, out)?;
        }
        self.taken.extend(taken);
        Ok(())
    }

    fn next_beside(&mut self) -> u64 {
        self.beside = (self.beside + 1) % MOST_BESIDE;
        BESIDE + self.beside
    }

    /// The slices of a tree, each behind what it is in.
    fn pieces<'a>(&self, spans: &'a [Span]) -> Vec<Piece<'a>> {
        let places: HashMap<u64, &Span> =
            spans.iter().map(|span| (span.context.span, span)).collect();
        let mut begun: HashSet<(usize, u64)> = HashSet::new();
        let piece = |(item, _): (Item, usize)| match item {
            Item::Span(place) => {
                let span = &spans[place];
                let parent = span.parent.and_then(|parent| places.get(&parent).copied());
                Some(of_span(span, parent))
            }
            Item::Call(place, at) => {
                let span = &spans[place];
                let calls = span.calls.as_deref()?;
                let call = calls.calls.get(at)?;
                let made = calls.goroutines.iter().find(|made| made.goid == call.goid);
                // From who made the goroutine to what it does first.
                let made = made.filter(|_| begun.insert((place, call.goid)));
                let from =
                    made.map(|made| ((span.pid, made.parent_goid), made_at(span, calls, made)));
                Some(self.of_call(span, call, made.zip(from)))
            }
            Item::Goroutine(..) => None,
        };
        in_order(spans).into_iter().filter_map(piece).collect()
    }

    fn of_call<'a>(
        &self,
        span: &Span,
        call: &SpanCall,
        made: Option<(&'a SpanGoroutine, (Key, u64))>,
    ) -> Piece<'a> {
        let function = self.plan.functions.get(call.function as usize);
        let texts = [
            ("args", call.entry.values.as_str()),
            ("caller", &call.entry.place),
            ("end", end_name(call.end)),
            ("results", call.exit.values.trim_start_matches(" = ")),
        ];
        let args = texts.into_iter().filter(|(_, text)| !text.is_empty());
        Piece {
            key: (span.pid, call.goid),
            name: function.map_or_else(|| "?".to_owned(), |function| function.name.clone()),
            cat: "call",
            from_ns: call.start_ns,
            to_ns: call.end_ns,
            args: args.map(|(name, text)| (name.into(), text.to_owned())).collect(),
            from: made.map(|(_, from)| from),
            goroutine: made.map(|(made, _)| made.text.as_str()),
        }
    }

    fn put(&mut self, piece: &Piece<'_>, tid: u64, out: &mut dyn Write) -> io::Result<()> {
        let Piece { key: (pid, goid), name, cat, from_ns, to_ns, .. } = piece;
        let pid = u64::from(*pid);
        let about = piece.goroutine.map_or(String::new(), |text| format!(" {text}"));
        let beside = if tid == track(*goid) { "" } else { " beside" };
        self.tracks.name(&self.file, (pid, tid), &format!("g{goid}{about}{beside}"), out)?;
        if let Some(from) = piece.from {
            self.arrow(from, (pid, tid), *from_ns, name, out)?;
        }
        let (ts, dur) = self.file.span(*from_ns, *to_ns);
        let args = piece.args.clone();
        self.file.put(&Slice { name, cat, ph: "X", ts, dur, pid, tid, args }, out)
    }

    /// An arrow to what is written next. It begins in a slice of its own: Perfetto would take the last one that
    /// began, whether or not it is over.
    fn arrow(
        &mut self,
        ((from_pid, goid), from_ns): (Key, u64),
        (pid, tid): (u64, u64),
        to_ns: u64,
        name: &str,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let (from_pid, from_tid) = (u64::from(from_pid), track(goid));
        self.tracks.name(&self.file, (from_pid, from_tid), &format!("g{goid}"), out)?;
        let (ts, dur) = self.file.span(from_ns, from_ns);
        let name = format!("to {name}");
        let begin = Slice {
            name: &name,
            cat: "begin",
            ph: "X",
            ts,
            dur,
            pid: from_pid,
            tid: from_tid,
            args: BTreeMap::new(),
        };
        self.file.put(&begin, out)?;
        let id = self.file.next_arrow();
        let arrow = |ph, ts, pid, tid| Arrow { name: "makes", cat: "span", ph, ts, pid, tid, id };
        self.file.put(&arrow("s", ts, from_pid, from_tid), out)?;
        self.file.put(&arrow("f", self.file.micros(to_ns), pid, tid), out)
    }
}

/// When a goroutine was made, for the begin of its arrow.
fn made_at(span: &Span, calls: &SpanCalls, made: &SpanGoroutine) -> u64 {
    let at = made.call.and_then(|id| calls.calls.binary_search_by_key(&id, |call| call.id).ok());
    let call = at.and_then(|at| calls.calls.get(at)).map(|it| (it.goid, it.start_ns, it.end_ns));
    let (goid, start_ns, end_ns) = call.unwrap_or((span.goid, span.start_ns, span.end_ns));
    if goid == made.parent_goid { before_end(made.made_ns, start_ns, end_ns) } else { made.made_ns }
}

/// A moment in a slice, and before its end: Perfetto has what begins at the end of a slice behind it, and a time
/// stamp counter may stand still for ten nanoseconds.
fn before_end(at_ns: u64, start_ns: u64, end_ns: u64) -> u64 {
    at_ns.min(end_ns.saturating_sub(1).max(start_ns))
}

fn of_span<'a>(span: &Span, parent: Option<&Span>) -> Piece<'a> {
    let mut args: BTreeMap<Name, String> =
        span.attributes.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
    let own = [
        ("kind", span.kind.name().to_owned()),
        ("status", span.status.name().to_owned()),
        ("trace_id", trace_id(span.context.trace)),
        ("span_id", span_id(span.context.span)),
    ];
    let parent_id = span.parent.map(|parent| ("parent_span_id", span_id(parent)));
    let by = span.parent_by.map(|by| ("parent_by", Witness::name(by).to_owned()));
    let own = own.into_iter().chain(parent_id).chain(by);
    args.extend(own.map(|(name, text)| (name.into(), text)));
    let key = (span.pid, span.goid);
    let elsewhere = parent.filter(|parent| (parent.pid, parent.goid) != key);
    let from = elsewhere.map(|parent| {
        // It may have given up before.
        ((parent.pid, parent.goid), before_end(span.start_ns, parent.start_ns, parent.end_ns))
    });
    Piece {
        key,
        name: span.name.clone(),
        cat: "span",
        from_ns: span.start_ns,
        to_ns: span.end_ns,
        args,
        from,
        goroutine: None,
    }
}
