//! Trees of spans for people, each when all of it has ended.
//!
//! ```text
//! TIME            GOID   DURATION   SPAN
//! 21:06:01.001123 g18    100.161ms  GET /buy/{id} 200 /buy/7
//! 21:06:01.001140 g18     40.100ms    > GET 200 http://127.0.0.1:8081/stock
//! 21:06:01.002000 g21     39.100ms      GET /stock 200 /stock
//! ```
//! `>` marks who asks. What ended without being seen to end has `~` before its duration.

use super::held::Trees;
use super::json::trace_id;
use super::order::{Item, in_order};
use crate::clock::Clock;
use crate::duration::short_duration;
use crate::printable::{push_printable, width};
use crate::text::{PLACE_COLUMN, TextOptions};
use anstyle::{AnsiColor, Style};
use probe::Plan;
use sensors::{Attribute, Span, SpanKind, SpanTime, Status};
use std::io::{self, Write};
use std::sync::Arc;
use timeline::End;

/// Levels that are indented.
const MAX_INDENT: usize = 40;

const DIM: Style = Style::new().dimmed();
const BAD: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Red)));

/// What a line begins with.
struct Begin<'a> {
    ts_ns: u64,
    pid: u32,
    goid: u64,
    duration: &'a str,
    level: usize,
}

/// Writes spans as trees.
#[derive(Debug)]
pub struct SpanTrees {
    plan: Arc<Plan>,
    clock: Clock,
    options: TextOptions,
    held: Trees,
}

impl SpanTrees {
    /// A writer of spans with calls of `plan`.
    pub fn new(plan: Arc<Plan>, clock: Clock, options: TextOptions) -> Self {
        Self { plan, clock, options, held: Trees::default() }
    }

    /// Takes a span that ended; writes its tree when nothing of it is open any more.
    pub fn span(&mut self, span: Span, out: &mut dyn Write) -> io::Result<()> {
        match self.held.take(span) {
            Some(spans) => self.write(&spans, out),
            None => Ok(()),
        }
    }

    /// Writes what is held.
    pub fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        std::mem::take(&mut self.held).into_all().try_for_each(|spans| self.write(&spans, out))
    }

    fn write(&self, spans: &[Span], out: &mut dyn Write) -> io::Result<()> {
        for (item, level) in in_order(spans) {
            match item {
                Item::Span(place) => self.line(&spans[place], level, out)?,
                Item::Call(place, at) => self.call(&spans[place], at, level, out)?,
                Item::Goroutine(place, at) => self.goroutine(&spans[place], at, level, out)?,
            }
        }
        Ok(())
    }

    /// Time, who, duration and indentation, which every line begins with.
    fn begin(&self, line: Begin<'_>, out: &mut dyn Write) -> io::Result<()> {
        let time = self.clock.time_of_day(line.ts_ns);
        let goid = match self.options.pids {
            true => format!("{} g{}", line.pid, line.goid),
            false => format!("g{}", line.goid),
        };
        let indent = "  ".repeat(line.level.min(MAX_INDENT));
        write!(out, "{time} {goid:<6} {:>10}  {indent}", line.duration)
    }

    fn call(&self, span: &Span, at: usize, level: usize, out: &mut dyn Write) -> io::Result<()> {
        let call = span.calls.as_ref().and_then(|calls| calls.calls.get(at));
        let Some(call) = call else { return Ok(()) };
        let mut duration = short_duration(call.end_ns.saturating_sub(call.start_ns));
        if !call.end_exact {
            duration.insert(0, '~');
        }
        let function = self.plan.functions.get(call.function as usize);
        let mut text = String::new();
        push_printable(&mut text, function.map_or("", |function| &function.name));
        let end = if call.exit.values.is_empty() && call.end == End::Open { " open" } else { "" };
        text.push_str(&format!("({}){}{end}", call.entry.values, call.exit.values));
        let (pid, goid, ts_ns) = (span.pid, call.goid, call.start_ns);
        self.begin(Begin { ts_ns, pid, goid, duration: &duration, level }, out)?;
        let is_bad = !matches!(call.end, End::Return | End::Tail | End::Open);
        let (bad, dim) = (self.style(if is_bad { BAD } else { Style::new() }), self.style(DIM));
        write!(out, "{bad}{text}{bad:#}")?;
        if !call.entry.place.is_empty() {
            let used = 2 * level.min(MAX_INDENT) + width(&text);
            let gap = " ".repeat(PLACE_COLUMN.saturating_sub(used).max(2));
            write!(out, "{gap}{dim}{}{dim:#}", call.entry.place)?;
        }
        writeln!(out)
    }

    fn goroutine(
        &self,
        span: &Span,
        at: usize,
        level: usize,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let goroutine = span.calls.as_ref().and_then(|calls| calls.goroutines.get(at));
        let Some(goroutine) = goroutine else { return Ok(()) };
        let (pid, goid, ts_ns) = (span.pid, goroutine.goid, goroutine.made_ns);
        self.begin(Begin { ts_ns, pid, goid, duration: "", level }, out)?;
        let dim = self.style(DIM);
        writeln!(out, "{dim}go {}{dim:#}", goroutine.text)
    }

    fn style(&self, style: Style) -> Style {
        if self.options.color { style } else { Style::new() }
    }

    fn line(&self, span: &Span, level: usize, out: &mut dyn Write) -> io::Result<()> {
        let mut duration = short_duration(span.end_ns.saturating_sub(span.start_ns));
        if !span.is_finished {
            duration.insert(0, '~');
        }
        let mark = if span.kind == SpanKind::Client { "> " } else { "" };
        let mut text = String::new();
        push_printable(&mut text, &span.name);
        let get = |wanted: &str| span.attributes.iter().find(|(name, _)| *name == wanted);
        for name in ["http.response.status_code", "url.path", "url.full"] {
            if let Some((_, value)) = get(name) {
                text.push(' ');
                push_printable(&mut text, &value.to_string());
            }
        }
        if let Some((_, query)) = get("url.query") {
            text.push('?');
            push_printable(&mut text, &query.to_string());
        }
        match get("db.response.returned_rows") {
            Some((_, Attribute::Int(1))) => text.push_str(" 1 row"),
            Some((_, rows)) => text.push_str(&format!(" {rows} rows")),
            None => {}
        }
        let error = match get("error.type") {
            Some((_, Attribute::Text(error))) if error.parse::<u16>().is_err() => &**error,
            _ => "",
        };
        if !error.is_empty() {
            text.push_str(" error=");
            push_printable(&mut text, error);
        }
        if get("gospect.http.hijacked").is_some() {
            text.push_str(" hijacked");
        }
        let style = if span.status == Status::Error { BAD } else { Style::new() };
        let (bad, dim) = (self.style(style), self.style(DIM));
        let (pid, goid, ts_ns) = (span.pid, span.goid, span.start_ns);
        self.begin(Begin { ts_ns, pid, goid, duration: &duration, level }, out)?;
        write!(out, "{mark}{bad}{text}{bad:#}")?;
        if level == 0 {
            write!(out, "  {dim}trace={}{dim:#}", trace_id(span.context.trace))?;
        }
        if let Some(time) = &span.time {
            write!(out, "  {dim}{}{dim:#}", spent(time))?;
        }
        if let Some(cut) = span.calls.as_ref().map(|calls| calls.cut).filter(|cut| *cut > 0) {
            write!(out, "  {dim}{cut} more calls{dim:#}")?;
        }
        writeln!(out)
    }
}

/// What time went to, without what took none.
fn spent(time: &SpanTime) -> String {
    let parts = [
        ("running", time.running_ns),
        ("runnable", time.runnable_ns),
        ("syscall", time.syscall_ns),
        ("other", time.other_ns),
        ("unknown", time.unknown_ns),
    ];
    let waiting = time.waiting.iter().map(|(reason, ns)| (&**reason, *ns));
    let parts = parts.into_iter().chain(waiting).filter(|(_, ns)| *ns > 0);
    let parts: Vec<String> =
        parts.map(|(what, ns)| format!("{what} {}", short_duration(ns))).collect();
    format!("[{}]", parts.join(", "))
}
