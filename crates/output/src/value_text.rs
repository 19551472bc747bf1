//! Values as people read them.

use crate::duration::go_duration;
use crate::printable::{push_printable, push_quoted, without_half_char};
use probe::value::{Value, ValueKind, ValueSpec};
use std::fmt::Write;
use timeline::Symbolizer;

/// Appends `name=value, name=value`; names the compiler made up are left out.
pub(crate) fn push_values(
    out: &mut String,
    specs: &[ValueSpec],
    values: &[Value],
    pid: u32,
    symbols: &dyn Symbolizer,
) {
    for (i, (spec, value)) in specs.iter().zip(values).enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        if !spec.name.is_empty() && !spec.name.starts_with('~') {
            push_printable(out, &spec.name);
            out.push('=');
        }
        push_value(out, spec, value, pid, symbols);
    }
}

/// Appends ` = 3` or ` = (3, err=nil)`; nothing when there are no results.
pub(crate) fn push_results(
    out: &mut String,
    specs: &[ValueSpec],
    values: &[Value],
    pid: u32,
    symbols: &dyn Symbolizer,
) {
    match (specs, values) {
        ([], _) | (_, []) => {}
        ([spec], [value]) => {
            out.push_str(" = ");
            push_value(out, spec, value, pid, symbols);
        }
        _ => {
            out.push_str(" = (");
            push_values(out, specs, values, pid, symbols);
            out.push(')');
        }
    }
}

pub(crate) fn push_value(
    out: &mut String,
    spec: &ValueSpec,
    value: &Value,
    pid: u32,
    symbols: &dyn Symbolizer,
) {
    let written = match value {
        Value::Bool(value) => write!(out, "{value}"),
        Value::Int(ns) if &*spec.type_name == "time.Duration" => {
            write!(out, "{}", go_duration(*ns))
        }
        Value::Int(value) => write!(out, "{value}"),
        Value::Uint(value) => write!(out, "{value}"),
        Value::Float(value) => write!(out, "{}", float_text(*value, spec.kind.checked())),
        Value::Complex(re, im) => {
            let half = half_of(spec.kind.checked());
            let im = float_text(*im, &half);
            let sign = if im.starts_with(['+', '-']) { "" } else { "+" };
            write!(out, "({}{sign}{im}i)", float_text(*re, &half))
        }
        Value::String { bytes, len } => {
            push_string(out, bytes, *len);
            Ok(())
        }
        Value::Pointer(0) | Value::NilInterface => write!(out, "nil"),
        Value::Pointer(address) => write!(out, "0x{address:x}"),
        Value::Slice { len, cap, .. } => {
            push_printable(out, &spec.type_name);
            write!(out, "(len={len}, cap={cap})")
        }
        Value::Interface { type_word, data } => {
            match symbols.type_name(pid, *type_word) {
                Some((name, _)) => push_printable(out, &name),
                None => _ = write!(out, "type 0x{type_word:x}"),
            }
            write!(out, "(0x{data:x})")
        }
        Value::Unavailable(reason) => {
            out.push('<');
            push_printable(out, reason);
            write!(out, ">")
        }
    };
    debug_assert!(written.is_ok(), "a String takes everything");
}

/// Appends a quoted string and how many bytes of it are missing.
pub(crate) fn push_string(out: &mut String, bytes: &[u8], len: u64) {
    let cut = len > bytes.len() as u64;
    let shown = if cut { without_half_char(bytes) } else { bytes };
    push_quoted(out, shown);
    if cut {
        out.push_str(&format!("…+{}", len - shown.len() as u64));
    }
}

/// Kind of the parts of a complex number.
pub(crate) fn half_of(kind: &ValueKind) -> ValueKind {
    let size = if matches!(kind, ValueKind::Complex { size: 8 }) { 4 } else { 8 };
    ValueKind::Float { size }
}

/// Shortest text that gives the same number back; as Go prints infinities.
pub(crate) fn float_text(value: f64, kind: &ValueKind) -> String {
    match value {
        _ if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        _ if matches!(kind, ValueKind::Float { size: 4 }) => number_text(value as f32),
        _ => number_text(value),
    }
}

fn number_text<T: serde::Serialize>(value: T) -> String {
    serde_json::to_string(&value).unwrap_or_default()
}
