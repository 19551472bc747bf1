//! What `gospect types` says about a type.

use crate::printable::{push_printable, width};
use serde::Serialize;
use std::io::{self, Write};

/// Bytes of a cache line.
const CACHE_LINE: u64 = 64;

/// A field.
#[derive(Clone, Debug, Serialize)]
pub struct ListedField {
    /// Name; the type's for an embedded one.
    pub name: String,
    /// Place in the struct, bytes.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Its type.
    #[serde(rename = "type")]
    pub ty: String,
    /// Whether it is embedded.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub embedded: bool,
    /// Bytes before it that belong to no field.
    #[serde(skip_serializing_if = "is_zero")]
    pub hole_before: u64,
}

/// Bytes that belong to no field.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ListedHole {
    /// Place in the struct, bytes.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// A field on the way to the type.
#[derive(Clone, Debug, Serialize)]
pub struct ListedStep {
    /// The struct that holds it.
    #[serde(rename = "in")]
    pub of: String,
    /// Its name.
    pub field: String,
    /// Its place in that struct, bytes.
    pub offset: u64,
    /// Its type.
    #[serde(rename = "type")]
    pub ty: String,
    /// Whether a pointer to the struct is loaded first.
    pub through_pointer: bool,
}

/// A type.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename = "type")]
pub struct ListedType {
    /// Its name.
    pub name: String,
    /// What it is made of: `struct`, `int`, `slice` …
    pub kind: String,
    /// Bytes.
    pub size: u64,
    /// Alignment in bytes.
    pub align: u64,
    /// What it points to or holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elem: Option<String>,
    /// Elements of an array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub len: Option<u64>,
    /// Fields of a struct by offset.
    pub fields: Vec<ListedField>,
    /// Bytes that belong to no field, by offset; the padding at the end too.
    pub holes: Vec<ListedHole>,
    /// Cache lines that a value takes which starts at one.
    pub cache_lines: u64,
    /// The fields that lead here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<ListedStep>,
}

/// A type in a list of names.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename = "type_name")]
pub struct ListedTypeName {
    /// Its name.
    pub name: String,
    /// What it is made of.
    pub kind: String,
    /// Bytes.
    pub size: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands in a reference")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl ListedTypeName {
    /// Writes one `{"type":"type_name"}` line.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        write_line(self, out)
    }

    /// Writes a line for people.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut line = format!("{:>8}  {:<14}  ", self.size, self.kind);
        push_printable(&mut line, &self.name);
        line.push('\n');
        out.write_all(line.as_bytes())
    }
}

impl ListedType {
    /// Writes one `{"type":"type"}` line.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        write_line(self, out)
    }

    /// Writes it for people: the way to it, its size, and a line for each field, hole and
    /// cache line.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut text = String::new();
        for step in &self.path {
            let arrow = if step.through_pointer { "->" } else { "." };
            push_printable(&mut text, &format!("{}{arrow}{}", step.of, step.field));
            push_printable(&mut text, &format!("  offset {}, {}", step.offset, step.ty));
            text.push('\n');
        }
        push_printable(&mut text, &self.title());
        text.push('\n');
        if self.kind == "struct" {
            self.push_fields(&mut text);
            self.push_total(&mut text);
        }
        out.write_all(text.as_bytes())
    }

    fn title(&self) -> String {
        let of = match (&self.elem, self.len) {
            (Some(elem), Some(len)) => format!(" of {len} {elem}"),
            (Some(elem), None) if self.kind == "pointer" => format!(" to {elem}"),
            (Some(elem), None) => format!(" of {elem}"),
            _ => String::new(),
        };
        format!("{}: {}{of}, {} bytes, align {}", self.name, self.kind, self.size, self.align)
    }

    fn push_fields(&self, text: &mut String) {
        let columns = self.fields.iter().map(|field| width(&field.ty)).max().unwrap_or(0);
        let columns = columns.clamp("TYPE".len(), 40);
        text.push_str(&format!("{:>8} {:>7}  {:<columns$}  NAME\n", "OFFSET", "SIZE", "TYPE"));
        let mut line = 0;
        for field in &self.fields {
            if field.hole_before > 0 {
                push_hole(text, field.offset - field.hole_before, field.hole_before);
            }
            // A line for each boundary that was passed would drown the fields after an array.
            let starts = field.offset / CACHE_LINE;
            if starts > line {
                line = starts;
                text.push_str(&format!(
                    "{:>8}          -- cache line {line} --\n",
                    line * CACHE_LINE
                ));
            }
            text.push_str(&format!("{:>8} {:>7}  ", field.offset, field.size));
            push_printable(text, &field.ty);
            let padding = columns.saturating_sub(width(&field.ty)) + 2;
            text.extend(std::iter::repeat_n(' ', padding));
            push_printable(text, &field.name);
            text.push_str(if field.embedded { "  (embedded)\n" } else { "\n" });
        }
        let last = self.fields.iter().map(|field| field.offset + field.size).max().unwrap_or(0);
        if self.size > last {
            push_hole(text, last, self.size - last);
        }
    }

    fn push_total(&self, text: &mut String) {
        let lost: u64 = self.holes.iter().map(|hole| hole.size).sum();
        let count = |number: u64, one: &str| {
            format!("{number} {one}{}", if number == 1 { "" } else { "s" })
        };
        text.push_str(&format!(
            "total {}, {}, {}",
            count(self.size, "byte"),
            count(self.fields.len() as u64, "field"),
            count(self.cache_lines, "cache line"),
        ));
        if !self.holes.is_empty() {
            let holes = count(self.holes.len() as u64, "hole");
            text.push_str(&format!(", {holes} with {}", count(lost, "byte")));
        }
        text.push('\n');
    }
}

fn push_hole(text: &mut String, offset: u64, size: u64) {
    text.push_str(&format!("{offset:>8} {size:>7}  -- hole --\n"));
}

fn write_line(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    out.write_all(&line)
}
