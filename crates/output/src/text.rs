//! Text for people: calls indented per goroutine.
//!
//! ```text
//! TIME            GOID  DURATION   CALL                                      PLACE
//! 21:06:01.001123 g18              main.add(a=1, b=2) {                      main.main+0x2f main.go:10
//! 21:06:01.001140 g18  100.161ms     main.add1(a=1, b=2) = 3                 main.add+0x1c main.go:15
//! 21:06:01.101301 g18  100.178ms   } = 3                                     main.go:21
//! ```
//! A call without traced calls inside is one line, with its entry's time and call site.
//! `~` marks a time that was inferred, not measured.

use crate::call_text::{call_site, push_arguments, push_end};
use crate::clock::Clock;
use crate::duration::short_duration;
use crate::panic_value::describe;
use crate::places::{Places, push_file_line};
use crate::printable::{push_printable, width};
use crate::value_text::{push_string, push_value};
use anstyle::{AnsiColor, Style};
use probe::Plan;
use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};
use std::sync::Arc;
use timeline::{Call, End, Event, Panic, Symbolizer};

/// An entry line waits this long for its call to end, nanoseconds.
const HOLD_NS: u64 = 100_000_000;
/// Column of the place, counted from the call's.
pub(crate) const PLACE_COLUMN: usize = 42;
/// Levels that are indented; deeper ones carry their depth as a number.
const MAX_INDENT: u32 = 40;

const CALL: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const BAD: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Red)));

/// How text is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextOptions {
    /// Whether escape sequences for colour are written.
    pub color: bool,
    /// Whether the pid stands before the goid: for captures of several processes.
    pub pids: bool,
}

/// Writes events as text.
#[derive(Debug)]
pub struct Text {
    plan: Arc<Plan>,
    clock: Clock,
    options: TextOptions,
    places: Places,
    /// Calls whose entry line waits, by id.
    held: HashMap<u64, Call>,
    /// (start, id) of those.
    waiting: BTreeSet<(u64, u64)>,
    /// Calls whose entry line stands and whose closing line does not, by id.
    begun: HashMap<u64, Call>,
}

/// One line, before layout.
struct Line<'a> {
    ts_ns: u64,
    pid: u32,
    goid: u64,
    duration: Option<String>,
    depth: u32,
    style: Style,
    call: &'a str,
    place: &'a str,
}

impl Text {
    /// A writer for events of `plan`.
    pub fn new(plan: Arc<Plan>, clock: Clock, options: TextOptions) -> Self {
        Self {
            plan,
            clock,
            options,
            places: Places::default(),
            held: HashMap::new(),
            waiting: BTreeSet::new(),
            begun: HashMap::new(),
        }
    }

    /// Writes what `event` says, or holds it back.
    pub fn event(
        &mut self,
        event: &Event,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match event {
            Event::Enter(call) => self.enter(call, symbols, out),
            Event::Leave(call) => self.leave(call, symbols, out),
            Event::Panic(panic) => self.panic(panic, symbols, out),
            Event::Panicking(_) => Ok(()),
            Event::Gap { cpu, from_ns, to_ns, lost } => {
                let since = match from_ns {
                    0 => "the beginning".to_owned(),
                    _ => self.clock.time_of_day(*from_ns),
                };
                let call = format!("!! {lost} records lost on cpu {cpu} since {since}");
                self.note(*to_ns, 0, 0, &call, out)
            }
            Event::ProcessExit { pid, .. } => {
                self.places.forget(*pid);
                Ok(())
            }
        }
    }

    /// Writes the entry lines that by `now_ns` (the capture's clock) have waited long enough.
    pub fn tick(
        &mut self,
        now_ns: u64,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        while let Some(&(start, id)) = self.waiting.first() {
            if now_ns.saturating_sub(start) < HOLD_NS {
                break;
            }
            self.begin(id, symbols, out)?;
        }
        Ok(())
    }

    /// Closes what still stands open, after the last event: calls a filter's limit left.
    pub fn finish(&mut self, now_ns: u64, out: &mut dyn Write) -> io::Result<()> {
        self.held.clear();
        self.waiting.clear();
        let mut left: Vec<Call> = self.begun.drain().map(|(_, call)| call).collect();
        left.sort_unstable_by_key(|call| (call.pid, call.goid, std::cmp::Reverse(call.depth)));
        for mut call in left {
            call.end_ns = now_ns.max(call.start_ns);
            self.line(&closing(&call, "} open", ""), out)?;
        }
        Ok(())
    }

    fn enter(
        &mut self,
        call: &Call,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if let Some(parent) = call.parent {
            self.begin(parent, symbols, out)?;
        }
        self.waiting.insert((call.start_ns, call.id));
        self.held.insert(call.id, call.clone());
        Ok(())
    }

    /// Writes a held entry line.
    fn begin(&mut self, id: u64, symbols: &dyn Symbolizer, out: &mut dyn Write) -> io::Result<()> {
        let Some(call) = self.held.remove(&id) else { return Ok(()) };
        self.waiting.remove(&(call.start_ns, id));
        let mut text = self.head(&call, symbols);
        text.push_str(" {");
        let place = self.call_site(&call, symbols);
        let written = self.line(&opening(&call, None, CALL, &text, &place), out);
        self.begun.insert(id, call);
        written
    }

    fn leave(
        &mut self,
        call: &Call,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let leaf = self.held.remove(&call.id).is_some();
        let mut text = if leaf {
            self.waiting.remove(&(call.start_ns, call.id));
            self.head(call, symbols)
        } else {
            self.begun.remove(&call.id);
            "}".to_owned()
        };
        push_end(&mut text, &self.plan, call, symbols);
        if leaf {
            let place = self.call_site(call, symbols);
            let style = if call.end == End::Return { CALL } else { BAD };
            self.line(&opening(call, Some(duration(call)), style, &text, &place), out)?;
        } else {
            let plan = Arc::clone(&self.plan);
            let mut place = String::new();
            if let Some(exit) = self.places.exit(call, &plan, symbols) {
                push_file_line(&mut place, &exit);
            }
            self.line(&closing(call, &text, &place), out)?;
        }
        if call.end == End::Exec {
            self.places.forget(call.pid);
        }
        Ok(())
    }

    /// `main.add(a=1, b=2)`.
    fn head(&self, call: &Call, symbols: &dyn Symbolizer) -> String {
        let mut text = String::new();
        let Some(function) = self.plan.functions.get(call.function as usize) else {
            return text;
        };
        push_printable(&mut text, &function.name);
        text.push('(');
        push_arguments(&mut text, &self.plan, call, symbols);
        text.push(')');
        text
    }

    fn call_site(&mut self, call: &Call, symbols: &dyn Symbolizer) -> String {
        call_site(&mut self.places, call, symbols)
    }

    fn panic(
        &mut self,
        panic: &Panic,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let described = describe(panic, symbols);
        let mut text = "!! panic: ".to_owned();
        push_printable(&mut text, described.type_name.as_deref().unwrap_or_default());
        let parens = if described.type_name.is_some() { ["(", ")"] } else { ["", ""] };
        text.push_str(parens[0]);
        push_value(&mut text, &described.spec, &described.value, panic.pid, symbols);
        text.push_str(parens[1]);
        if let Some((bytes, len)) = &described.message {
            text.push(' ');
            push_string(&mut text, bytes, *len);
        }
        text.push_str(", not recovered");
        self.note(panic.ts_ns, panic.pid, panic.goid, &text, out)
    }

    fn note(
        &self,
        ts_ns: u64,
        pid: u32,
        goid: u64,
        call: &str,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let place = "";
        let line = Line { ts_ns, pid, goid, duration: None, depth: 0, style: BAD, call, place };
        self.line(&line, out)
    }

    fn line(&self, line: &Line<'_>, out: &mut dyn Write) -> io::Result<()> {
        let who = match (line.pid, line.goid) {
            (0, 0) => "-".to_owned(),
            (pid, goid) if self.options.pids => format!("{pid}/g{goid}"),
            (_, goid) => format!("g{goid}"),
        };
        let mut text = self.clock.time_of_day(line.ts_ns);
        let duration = line.duration.as_deref().unwrap_or_default();
        text.push_str(&format!(" {who:<3} {duration:>10} "));
        let mut indent = "  ".repeat(line.depth.min(MAX_INDENT) as usize);
        if line.depth > MAX_INDENT {
            indent.push_str(&format!("[{}] ", line.depth));
        }
        text.push_str(&indent);
        self.styled(&mut text, line.style, line.call);
        if !line.place.is_empty() {
            let used = width(&indent) + width(line.call);
            let gap = PLACE_COLUMN.saturating_sub(used).max(2);
            text.push_str(&" ".repeat(gap));
            self.styled(&mut text, DIM, line.place);
        }
        text.push('\n');
        out.write_all(text.as_bytes())
    }

    fn styled(&self, text: &mut String, style: Style, part: &str) {
        if self.options.color {
            text.push_str(&format!("{style}{part}{style:#}"));
        } else {
            text.push_str(part);
        }
    }
}

fn duration(call: &Call) -> String {
    let mark = if call.end_exact { "" } else { "~" };
    format!("{mark}{}", short_duration(call.end_ns.saturating_sub(call.start_ns)))
}

fn opening<'a>(
    call: &Call,
    duration: Option<String>,
    style: Style,
    text: &'a str,
    place: &'a str,
) -> Line<'a> {
    let (ts_ns, pid, goid, depth) = (call.start_ns, call.pid, call.goid, call.depth);
    Line { ts_ns, pid, goid, duration, depth, style, call: text, place }
}

fn closing<'a>(call: &Call, text: &'a str, place: &'a str) -> Line<'a> {
    let style = if call.end == End::Return { Style::new() } else { BAD };
    let (ts_ns, pid, goid, depth) = (call.end_ns, call.pid, call.goid, call.depth);
    Line { ts_ns, pid, goid, duration: Some(duration(call)), depth, style, call: text, place }
}
