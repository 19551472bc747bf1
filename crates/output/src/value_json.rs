//! Values in JSON: `{"name","type","value"}` and its variants (see `cli.md`, V).

use crate::duration::go_duration;
use crate::printable::without_half_char;
use crate::value_text::{float_text, half_of};
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
    let written = match value {
        Value::Bool(value) => write!(out, "\"value\":{value}"),
        Value::Int(ns) if &*spec.type_name == "time.Duration" => {
            write!(out, "\"value\":\"{}\",\"ns\":", go_duration(*ns)).map(|()| push_int(out, *ns))
        }
        Value::Int(value) => {
            out.extend_from_slice(b"\"value\":");
            push_int(out, *value);
            Ok(())
        }
        Value::Uint(value) => {
            out.extend_from_slice(b"\"value\":");
            push_uint(out, *value);
            Ok(())
        }
        Value::Float(value) => {
            out.extend_from_slice(b"\"value\":");
            push_float(out, *value, spec.kind.checked());
            Ok(())
        }
        Value::Complex(re, im) => {
            let half = half_of(spec.kind.checked());
            out.extend_from_slice(b"\"value\":[");
            push_float(out, *re, &half);
            out.push(b',');
            push_float(out, *im, &half);
            out.push(b']');
            Ok(())
        }
        Value::String { bytes, len } => {
            push_string(out, bytes, *len);
            Ok(())
        }
        Value::Pointer(0) | Value::NilInterface => write!(out, "\"value\":null"),
        Value::Pointer(address) => write!(out, "\"addr\":\"0x{address:x}\""),
        Value::Slice { len, cap, .. } => {
            let cut = if *len > 0 { format!(",\"cut\":{len}") } else { String::new() };
            write!(out, "\"value\":[],\"len\":{len},\"cap\":{cap}{cut}")
        }
        Value::Interface { type_word, data } => {
            out.extend_from_slice(b"\"value\":{\"dyn\":");
            match symbols.type_name(pid, *type_word) {
                Some((name, _)) => push_str(out, &name),
                None => push_str(out, &format!("type 0x{type_word:x}")),
            }
            write!(out, ",\"value\":{{\"addr\":\"0x{data:x}\"}}}}")
        }
        Value::Unavailable(reason) => {
            out.extend_from_slice(b"\"unavailable\":");
            push_str(out, reason);
            Ok(())
        }
    };
    debug_assert!(written.is_ok(), "a Vec takes everything");
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
    let cut = len > bytes.len() as u64;
    let shown = if cut { without_half_char(bytes) } else { bytes };
    match std::str::from_utf8(shown) {
        Ok(text) => {
            out.extend_from_slice(b"\"value\":");
            push_str(out, text);
        }
        Err(_) => {
            out.extend_from_slice(b"\"bytes_hex\":\"");
            for byte in shown {
                _ = write!(out, "{byte:02x}");
            }
            out.push(b'"');
        }
    }
    if cut {
        _ = write!(out, ",\"cut\":{}", len - shown.len() as u64);
    }
}
