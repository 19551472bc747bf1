//! What `gospect goroutines` says about a goroutine.

use crate::printable::{push_printable, push_quoted, width};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;

/// Columns of the function; longer ones push their place to the right.
const FUNC_WIDTH: usize = 56;

/// A place in the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GoroutineSite {
    /// Function.
    pub func: Arc<str>,
    /// Source file.
    pub file: Arc<str>,
    /// Source line.
    pub line: u32,
    /// Bytes from the function's entry to the return address; for Go's own form.
    #[serde(skip)]
    pub offset: u64,
}

/// One function on a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GoroutineFrame {
    /// Function, its symbol name.
    pub func: Arc<str>,
    /// Source file.
    pub file: Arc<str>,
    /// Source line.
    pub line: u32,
    /// Whether it is inlined into the next one.
    pub inlined: bool,
    /// As in [`GoroutineSite::offset`].
    #[serde(skip)]
    pub offset: u64,
}

/// One goroutine.
#[derive(Clone, Debug, Serialize)]
pub struct ListedGoroutine {
    /// Its id.
    pub goid: u64,
    /// `waiting`, `running`, ...
    pub state: &'static str,
    /// What it waits for.
    pub reason: Option<Arc<str>>,
    /// The goroutine that started it.
    pub parent_goid: Option<u64>,
    /// The statement that started it.
    pub created_by: Option<GoroutineSite>,
    /// The function it began with.
    pub start: Option<Arc<str>>,
    /// pprof labels.
    pub labels: BTreeMap<String, String>,
    /// Why labels are not there, or not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels_unavailable: Option<String>,
    /// Whether it is wired to its thread.
    pub locked: bool,
    /// Number of its synctest bubble.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bubble: Option<u64>,
    /// Whether it is the runtime's own.
    pub system: bool,
    /// Whether it moved each time it was read.
    pub torn: bool,
    /// How long it has waited at least, nanoseconds; found by garbage collections, so mostly
    /// not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_ns: Option<u64>,
    /// Innermost first.
    pub stack: Vec<GoroutineFrame>,
    /// Whether the stack lacks its outer end.
    #[serde(skip)]
    pub stack_is_cut: bool,
    /// Why the stack is not there, or not to its end, or doubtful.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack_unavailable: Option<String>,
}

/// A JSON line: what it is, then what it says.
#[derive(Serialize)]
struct Tagged<'a, T> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    value: &'a T,
}

fn write_line(kind: &'static str, value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let mut line = serde_json::to_vec(&Tagged { kind, value })?;
    line.push(b'\n');
    out.write_all(&line)
}

impl ListedGoroutine {
    /// Writes one `{"type":"goroutine"}` line.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        write_line("goroutine", self, out)
    }

    /// Writes it for people, a blank line after it.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut text = format!("g{} {}", self.goid, self.state);
        if let Some(reason) = &self.reason {
            text.push_str(": ");
            push_printable(&mut text, reason);
        }
        for (is, word) in
            [(self.locked, "locked to thread"), (self.system, "system"), (self.torn, "torn")]
        {
            if is {
                _ = write!(text, ", {word}");
            }
        }
        if let Some(bubble) = self.bubble {
            _ = write!(text, ", synctest bubble {bubble}");
        }
        if let Some(waited) = self.waited_ns {
            text.push_str(", for at least ");
            text.push_str(&crate::short_duration(waited));
        }
        push_labels(&mut text, &self.labels);
        if let Some(reason) = &self.labels_unavailable {
            _ = write!(text, " [labels: {reason}]");
        }
        text.push('\n');
        self.push_stack(&mut text, "  ");
        text.push('\n');
        out.write_all(text.as_bytes())
    }

    fn push_stack(&self, text: &mut String, indent: &str) {
        for frame in &self.stack {
            let name = if frame.inlined { " (inlined)" } else { "" };
            push_place(text, indent, &frame.func, name, &frame.file, frame.line);
        }
        if let Some(reason) = &self.stack_unavailable {
            _ = writeln!(text, "{indent}[stack: {reason}]");
        }
        if let Some(site) = &self.created_by {
            let parent = self.parent_goid.map_or(String::new(), |goid| format!(" in g{goid}"));
            let indent = format!("{indent}created by ");
            push_place(text, &indent, &site.func, &parent, &site.file, site.line);
        }
    }
}

fn push_labels(text: &mut String, labels: &BTreeMap<String, String>) {
    for (index, (key, value)) in labels.iter().enumerate() {
        text.push_str(if index == 0 { " {" } else { ", " });
        push_quoted(text, key.as_bytes());
        text.push_str(": ");
        push_quoted(text, value.as_bytes());
    }
    if !labels.is_empty() {
        text.push('}');
    }
}

fn push_place(text: &mut String, indent: &str, func: &str, note: &str, file: &str, line: u32) {
    let start = text.len();
    text.push_str(indent);
    push_printable(text, func);
    text.push_str(note);
    let used = width(text.get(start..).unwrap_or_default());
    text.extend(std::iter::repeat_n(' ', FUNC_WIDTH.saturating_sub(used) + 2));
    push_printable(text, file);
    _ = writeln!(text, ":{line}");
}

/// Goroutines that are alike.
#[derive(Clone, Debug, Serialize)]
pub struct GoroutineGroup {
    /// What they have in common.
    pub key: String,
    /// How many they are.
    pub count: u64,
    /// One of them.
    pub sample: ListedGoroutine,
}

impl GoroutineGroup {
    /// Writes one `{"type":"group"}` line.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        write_line("group", self, out)
    }

    /// Writes it for people, a blank line after it.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut text = format!("{:>8}  ", self.count);
        push_printable(&mut text, &self.key);
        _ = writeln!(text, "  (for example g{})", self.sample.goid);
        self.sample.push_stack(&mut text, "            ");
        text.push('\n');
        out.write_all(text.as_bytes())
    }
}

/// What a snapshot met.
#[derive(Clone, Debug, Serialize)]
pub struct GoroutineSummary {
    /// The process; none for a core dump.
    pub pid: Option<u32>,
    /// Its Go version.
    pub go_version: String,
    /// Goroutines found, also those not shown.
    pub goroutines: u64,
    /// Of these, shown ones.
    pub shown: u64,
    /// Of all, torn ones.
    pub torn: u64,
    /// Descriptors whose memory could not be read.
    pub unreadable: u64,
    /// What says where the list of goroutines is.
    pub found_by: String,
}

impl GoroutineSummary {
    /// Writes one `{"type":"summary"}` line.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        write_line("summary", self, out)
    }

    /// Writes a line for people.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let plural = if self.goroutines == 1 { "" } else { "s" };
        let mut text = format!("{} goroutine{plural}", self.goroutines);
        if self.shown != self.goroutines {
            _ = write!(text, ", {} shown", self.shown);
        }
        for (count, word) in [(self.torn, "torn"), (self.unreadable, "unreadable")] {
            if count > 0 {
                _ = write!(text, ", {count} {word}");
            }
        }
        writeln!(out, "{text}")
    }
}
