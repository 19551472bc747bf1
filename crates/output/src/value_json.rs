//! Values in JSON: `{"name","type","value"}` and its variants (see `cli.md`, V).

use crate::nested_json::{Context, push_members};
use crate::printable::without_half_char;
use crate::value_text::float_text;
use probe::value::{Value, ValueKind, ValueSpec};
use std::io::Write;
use timeline::Symbolizer;

/// Largest magnitude up to which every integer is exact in a double.
const MAX_EXACT: u64 = 1 << 53;

/// Appends a JSON string.
pub(crate) fn push_str(out: &mut Vec<u8>, text: &str) {
    // Writing a &str to a Vec cannot fail.
    _ = serde_json::to_writer(out, text);
}

/// Appends `[V,…]`.
pub(crate) fn push_values(
    out: &mut Vec<u8>,
    specs: &[ValueSpec],
    values: &[Value],
    pid: u32,
    symbols: &dyn Symbolizer,
) {
    out.push(b'[');
    for (i, (spec, value)) in specs.iter().zip(values).enumerate() {
        out.extend_from_slice(if i > 0 { b",{\"name\":" } else { b"{\"name\":" });
        push_str(out, &spec.name);
        out.extend_from_slice(b",\"type\":");
        push_str(out, &spec.type_name);
        out.push(b',');
        push_body(out, spec, value, pid, symbols);
        out.push(b'}');
    }
    out.push(b']');
}

/// Appends the members that carry the value, without braces.
pub(crate) fn push_body(
    out: &mut Vec<u8>,
    spec: &ValueSpec,
    value: &Value,
    pid: u32,
    symbols: &dyn Symbolizer,
) {
    match value {
        Value::Int(ns) if &*spec.type_name == "time.Duration" => {
            push_members(out, &Value::Duration(*ns), Context { pid, symbols });
        }
        // What its type alone tells.
        Value::Float(value) => {
            out.extend_from_slice(b"\"value\":");
            push_float(out, *value, spec.kind.checked());
        }
        Value::Complex(re, im) if *spec.kind.checked() == (ValueKind::Complex { size: 8 }) => {
            let value = Value::Complex64(*re as f32, *im as f32);
            push_members(out, &value, Context { pid, symbols });
        }
        Value::String { bytes, len } => push_string(out, bytes, *len),
        value => push_members(out, value, Context { pid, symbols }),
    }
}

pub(crate) fn push_int(out: &mut Vec<u8>, value: i64) {
    let quote = if value.unsigned_abs() > MAX_EXACT { "\"" } else { "" };
    _ = write!(out, "{quote}{value}{quote}");
}

pub(crate) fn push_uint(out: &mut Vec<u8>, value: u64) {
    let quote = if value > MAX_EXACT { "\"" } else { "" };
    _ = write!(out, "{quote}{value}{quote}");
}

pub(crate) fn push_float(out: &mut Vec<u8>, value: f64, kind: &ValueKind) {
    let quote = if value.is_finite() { "" } else { "\"" };
    _ = write!(out, "{quote}{}{quote}", float_text(value, kind));
}

/// Appends `"value"` or `"bytes_hex"`, and `"cut"`: how many bytes are missing.
pub(crate) fn push_string(out: &mut Vec<u8>, bytes: &[u8], len: u64) {
    push_string_members(out, bytes, len, false);
}

/// As [`push_string`]; `inside` another value with the length beside the cut.
pub(crate) fn push_string_members(out: &mut Vec<u8>, bytes: &[u8], len: u64, inside: bool) {
    let cut = len > bytes.len() as u64;
    let shown = if cut { without_half_char(bytes) } else { bytes };
    match std::str::from_utf8(shown) {
        Ok(text) => {
            out.extend_from_slice(b"\"value\":");
            push_str(out, text);
        }
        Err(_) => push_hex(out, shown),
    }
    if cut && inside {
        _ = write!(out, ",\"len\":{len}");
    }
    if cut {
        _ = write!(out, ",\"cut\":{}", len - shown.len() as u64);
    }
}

fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(b"\"bytes_hex\":\"");
    for byte in bytes {
        _ = write!(out, "{byte:02x}");
    }
    out.push(b'"');
}

/// Appends a byte slice: text where it is some.
pub(crate) fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let is_shown = |c: char| !c.is_control() || matches!(c, '\n' | '\t' | '\r');
    match std::str::from_utf8(bytes) {
        Ok(text) if text.chars().all(is_shown) => {
            out.extend_from_slice(b"\"value\":");
            push_str(out, text);
        }
        _ => push_hex(out, bytes),
    }
}
