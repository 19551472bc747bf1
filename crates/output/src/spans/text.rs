//! Trees of spans for people, each when all of it has ended.
//!
//! ```text
//! TIME            GOID   DURATION   SPAN
//! 21:06:01.001123 g18    100.161ms  GET /buy/{id} 200 /buy/7
//! 21:06:01.001140 g18     40.100ms    > GET 200 http://127.0.0.1:8081/stock
//! 21:06:01.002000 g21     39.100ms      GET /stock 200 /stock
//! ```
//! `>` marks who asks. What ended without being seen to end has `~` before its duration.

use super::json::trace_id;
use crate::clock::Clock;
use crate::duration::short_duration;
use crate::printable::push_printable;
use crate::text::TextOptions;
use anstyle::{AnsiColor, Style};
use sensors::{Attribute, Span, SpanKind, SpanTime, Status};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

/// Spans held of one tree; those of a longer one are written piece by piece.
const HELD: usize = 1000;
/// Levels that are indented.
const MAX_INDENT: usize = 40;

const DIM: Style = Style::new().dimmed();
const BAD: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Red)));

/// Writes spans as trees.
#[derive(Debug)]
pub struct SpanTrees {
    clock: Clock,
    options: TextOptions,
    held: BTreeMap<u64, Vec<Span>>,
}

impl SpanTrees {
    /// A writer.
    pub fn new(clock: Clock, options: TextOptions) -> Self {
        Self { clock, options, held: BTreeMap::new() }
    }

    /// Takes a span that ended; writes its tree when nothing of it is open any more.
    pub fn span(&mut self, span: Span, out: &mut dyn Write) -> io::Result<()> {
        let (tree, is_last) = (span.tree, span.open_in_tree == 0);
        let spans = self.held.entry(tree).or_default();
        spans.push(span);
        if !is_last && spans.len() < HELD {
            return Ok(());
        }
        let spans = self.held.remove(&tree).unwrap_or_default();
        self.write(&spans, out)
    }

    /// Writes what is held.
    pub fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        for (_, spans) in std::mem::take(&mut self.held) {
            self.write(&spans, out)?;
        }
        Ok(())
    }

    fn write(&self, spans: &[Span], out: &mut dyn Write) -> io::Result<()> {
        let places: HashMap<u64, usize> =
            spans.iter().enumerate().map(|(place, span)| (span.context.span, place)).collect();
        let mut children: HashMap<Option<usize>, Vec<usize>> = HashMap::new();
        for (place, span) in spans.iter().enumerate() {
            // Headers may name anything; by this order there is no way around in a circle.
            let is_before = |parent: &usize| {
                let order = |span: &Span| (span.start_ns, span.context.span);
                order(&spans[*parent]) < order(span)
            };
            let parent = span.parent.and_then(|id| places.get(&id).copied()).filter(is_before);
            children.entry(parent).or_default().push(place);
        }
        for places in children.values_mut() {
            places.sort_by_key(|place| (spans[*place].start_ns, std::cmp::Reverse(*place)));
        }
        let mut stack: Vec<(usize, usize)> = Vec::new();
        let mut push = |stack: &mut Vec<(usize, usize)>, parent, level| {
            let below = children.remove(&parent).unwrap_or_default();
            stack.extend(below.into_iter().rev().map(|place| (place, level)));
        };
        push(&mut stack, None, 0);
        while let Some((place, level)) = stack.pop() {
            self.line(&spans[place], level, out)?;
            push(&mut stack, Some(place), level + 1);
        }
        Ok(())
    }

    fn line(&self, span: &Span, level: usize, out: &mut dyn Write) -> io::Result<()> {
        let time = self.clock.time_of_day(span.start_ns);
        let goid = match self.options.pids {
            true => format!("{} g{}", span.pid, span.goid),
            false => format!("g{}", span.goid),
        };
        let mut duration = short_duration(span.end_ns.saturating_sub(span.start_ns));
        if !span.is_finished {
            duration.insert(0, '~');
        }
        let indent = "  ".repeat(level.min(MAX_INDENT));
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
        let error = match get("error.type") {
            Some((_, Attribute::Text(error))) if error.parse::<u16>().is_err() => error.as_str(),
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
        let plain = |style: Style| if self.options.color { style } else { Style::new() };
        let (bad, dim) = (plain(style), plain(DIM));
        write!(out, "{time} {goid:<6} {duration:>10}  {indent}{mark}{bad}{text}{bad:#}")?;
        if level == 0 {
            write!(out, "  {dim}trace={}{dim:#}", trace_id(span.context.trace))?;
        }
        if let Some(time) = &span.time {
            write!(out, "  {dim}{}{dim:#}", spent(time))?;
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

#[cfg(test)]
mod tests {
    use super::super::write_span_json;
    use super::*;
    use sensors::{Link, SpanContext, SpanEvent, Witness};

    fn span(id: u64, parent: Option<u64>, start_us: u64) -> Span {
        Span {
            name: "GET /a/{id}".to_owned(),
            kind: SpanKind::Server,
            context: SpanContext { trace: 0xabc, span: id },
            parent,
            sampled_by_parent: None,
            parent_by: parent.map(|_| Witness::Frame),
            links: Vec::new(),
            pid: 7,
            goid: 10 + id,
            start_ns: start_us * 1000,
            end_ns: 100_000_000,
            is_finished: true,
            status: Status::Unset,
            attributes: vec![
                ("http.response.status_code", Attribute::Int(200)),
                ("url.path", Attribute::Text("/a/\x1b7".to_owned())),
            ],
            unavailable: Vec::new(),
            events: Vec::new(),
            tree: 1,
            time: None,
            open_in_tree: 1,
        }
    }

    fn client(id: u64, parent: Option<u64>, start_us: u64) -> Span {
        let url = ("url.full", Attribute::Text("http://b/".to_owned()));
        let failed = ("error.type", Attribute::Text("*net.OpError".to_owned()));
        Span {
            name: "GET".to_owned(),
            kind: SpanKind::Client,
            status: Status::Error,
            is_finished: false,
            attributes: vec![failed, url],
            ..span(id, parent, start_us)
        }
    }

    #[test]
    fn a_tree_is_written_when_all_of_it_has_ended() {
        let mut trees = SpanTrees::new(Clock::default(), TextOptions::default());
        let mut out = Vec::new();
        // In the order of their ends; the remote parent of the first is not among them.
        for span in [span(3, Some(2), 30), client(2, Some(1), 20), client(4, Some(1), 10)] {
            trees.span(span, &mut out).unwrap();
            assert!(out.is_empty());
        }
        trees.span(Span { open_in_tree: 0, ..span(1, Some(99), 5) }, &mut out).unwrap();
        trees.span(Span { tree: 5, ..client(5, None, 50) }, &mut out).unwrap();
        let expected = "\
00:00:00.000005 g11      99.995ms  GET /a/{id} 200 /a/\\x1b7  trace=00000000000000000000000000000abc
00:00:00.000010 g14     ~99.990ms    > GET http://b/ error=*net.OpError
00:00:00.000020 g12     ~99.980ms    > GET http://b/ error=*net.OpError
00:00:00.000030 g13      99.970ms      GET /a/{id} 200 /a/\\x1b7
";
        assert_eq!(String::from_utf8(std::mem::take(&mut out)).unwrap(), expected);
        trees.finish(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap().lines().count(), 1);
    }

    #[test]
    fn a_span_is_one_line_of_json() {
        let context = SpanContext { trace: 1, span: 2 };
        let attributes = vec![("exception.type", Attribute::Text("*main.E".to_owned()))];
        let span = Span {
            links: vec![Link { context, by: Witness::Goroutine }],
            unavailable: vec![("http.route", "not read".to_owned())],
            events: vec![SpanEvent { name: "exception", ts_ns: 9_000, attributes }],
            ..span(3, Some(2), 5)
        };
        let mut out = Vec::new();
        let clock = Clock { unix_offset_ns: 1_000_000, utc_offset_s: 0 };
        write_span_json(&span, &clock, &mut out).unwrap();
        let expected = concat!(
            r#"{"type":"span","name":"GET /a/{id}","kind":"server","#,
            r#""trace_id":"00000000000000000000000000000abc","span_id":"0000000000000003","#,
            r#""parent_span_id":"0000000000000002","parent_by":"frame","#,
            r#""links":[{"trace_id":"00000000000000000000000000000001","span_id":"0000000000000002","#,
            r#""by":"goroutine"}],"pid":7,"goid":13,"start_ns":1005000,"duration_ns":99995000,"#,
            r#""finished":true,"status":"unset","attributes":{"http.response.status_code":200,"#,
            r#""url.path":"/a/\u001b7"},"unavailable":{"http.route":"not read"},"#,
            r#""events":[{"name":"exception","ts_ns":1009000,"#,
            r#""attributes":{"exception.type":"*main.E"}}]}"#,
            "\n"
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
