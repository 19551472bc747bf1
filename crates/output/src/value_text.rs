//! Values as people read them.

use crate::duration::go_duration;
use crate::nested_json::Context;
use crate::nested_text::push_nested;
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
    match value {
        Value::Int(ns) if &*spec.type_name == "time.Duration" => out.push_str(&go_duration(*ns)),
        // What its type alone tells.
        Value::Float(value) => out.push_str(&float_text(*value, spec.kind.checked())),
        Value::Complex(re, im) => push_complex(out, *re, *im, &half_of(spec.kind.checked())),
        Value::Slice { len, cap, .. } => {
            push_printable(out, &spec.type_name);
            _ = write!(out, "(len={len}, cap={cap})");
        }
        value => push_nested(out, value, Context { pid, symbols }),
    }
}

/// Appends a complex number whose parts are of a kind.
pub(crate) fn push_complex(out: &mut String, re: f64, im: f64, part: &ValueKind) {
    let im = float_text(im, part);
    let sign = if im.starts_with(['+', '-']) { "" } else { "+" };
    _ = write!(out, "({}{sign}{im}i)", float_text(re, part));
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
