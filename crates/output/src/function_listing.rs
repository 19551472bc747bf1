//! What `gospect funcs` says about a function.

use crate::printable::{push_printable, width};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Columns of the place; longer ones push their line to the right.
const PLACE_WIDTH: usize = 24;

/// A parameter or result.
#[derive(Clone, Debug, Serialize)]
pub struct ListedValue {
    /// Name as in the source; `~r0` for unnamed ones.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub ty: String,
    /// Where it is at the first instruction or at a return: `ax`, `bx+cx`, `stack+8`, `none`.
    pub loc: Option<String>,
    /// Why that is not known, or why what is there need not be what was passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
}

/// A place where the function is inlined.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct InlinedAt {
    /// The function that calls it.
    pub func: String,
    /// File of the call.
    pub file: String,
    /// Line of the call.
    pub line: u32,
}

/// Whether a backend can trace the function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Traceable {
    /// Whether it can.
    pub ok: bool,
    /// Why not.
    pub reason: Option<String>,
}

impl Traceable {
    /// It can.
    pub fn yes() -> Self {
        Self { ok: true, reason: None }
    }

    /// It cannot, and why.
    pub fn no(reason: impl Into<String>) -> Self {
        Self { ok: false, reason: Some(reason.into()) }
    }
}

/// A function.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename = "func")]
pub struct ListedFunction {
    /// Symbol name.
    pub name: String,
    /// Source file.
    pub file: Option<String>,
    /// Line of the `func` keyword, as well as the executable knows it.
    pub line: Option<u32>,
    /// Address of the first instruction in the image; none when it exists only inlined.
    pub addr: Option<u64>,
    /// Bytes of its code, padding left out.
    pub size: u64,
    /// Receiver, then parameters.
    pub params: Vec<ListedValue>,
    /// Results.
    pub results: Vec<ListedValue>,
    /// Why parameters and results are not known; they are empty then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature_unavailable: Option<String>,
    /// Where they are known from, if not from debug information.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature_from: Option<&'static str>,
    /// Where calls of it were inlined, each place once.
    pub inlined_at: Vec<InlinedAt>,
    /// Whether kernel uprobes can trace it.
    pub uprobe: Traceable,
    /// Whether code in the process can.
    pub trampoline: Traceable,
    /// Offset in the file of the instruction at which a call is seen to begin.
    pub entry: Option<u64>,
    /// Offsets in the file of the instructions that leave it: returns and tail jumps.
    pub exits: Vec<u64>,
    /// Functions it calls directly, each once; only when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callees: Option<Vec<String>>,
}

impl ListedFunction {
    /// Writes one `{"type":"func"}` line.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        out.write_all(&line)
    }

    /// The head of the columns that [`Self::write_text`] writes.
    pub fn write_head(out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{:>12} {:>7}  {:<PLACE_WIDTH$}  FUNCTION", "ADDRESS", "SIZE", "PLACE")
    }

    /// Writes a line for people, and one more for each callee.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let address = self.addr.map_or_else(|| "inlined".to_owned(), |addr| format!("0x{addr:x}"));
        let mut line = format!("{address:>12} {:>7}  ", self.size);
        let start = line.len();
        push_printable(&mut line, &self.place());
        let used = width(line.get(start..).unwrap_or_default());
        line.extend(std::iter::repeat_n(' ', PLACE_WIDTH.saturating_sub(used) + 2));
        push_printable(&mut line, &self.name);
        match &self.signature_unavailable {
            Some(_) => line.push_str("(?)"),
            None => push_signature(&mut line, &self.params, &self.results),
        }
        if let (Some(_), Some(reason)) = (self.addr, &self.uprobe.reason) {
            _ = write!(line, "  [not traceable: {reason}]");
        }
        match self.inlined_at.len() {
            0 => {}
            1 => line.push_str("  [inlined at 1 place]"),
            count => _ = write!(line, "  [inlined at {count} places]"),
        }
        line.push('\n');
        for callee in self.callees.iter().flatten() {
            line.push_str("             calls ");
            push_printable(&mut line, callee);
            line.push('\n');
        }
        out.write_all(line.as_bytes())
    }

    /// `file.go:12`, without the directory.
    fn place(&self) -> String {
        let Some(file) = &self.file else { return "?".to_owned() };
        let file = file.rsplit('/').next().unwrap_or(file);
        self.line.map_or_else(|| file.to_owned(), |line| format!("{file}:{line}"))
    }
}

/// `(a int @ax, b string @bx+cx) (int @ax, err error @bx+cx)`.
fn push_signature(line: &mut String, params: &[ListedValue], results: &[ListedValue]) {
    line.push('(');
    push_values(line, params);
    line.push(')');
    match results {
        [] => {}
        [only] if is_unnamed(only) => {
            line.push(' ');
            push_values(line, results);
        }
        _ => {
            line.push_str(" (");
            push_values(line, results);
            line.push(')');
        }
    }
}

fn push_values(line: &mut String, values: &[ListedValue]) {
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            line.push_str(", ");
        }
        if !is_unnamed(value) {
            push_printable(line, &value.name);
            line.push(' ');
        }
        push_printable(line, &value.ty);
        line.push_str(" @");
        line.push_str(value.loc.as_deref().unwrap_or("?"));
    }
}

/// Names that the compiler made up: `~r0`, `~p1`.
fn is_unnamed(value: &ListedValue) -> bool {
    value.name.starts_with('~')
}
