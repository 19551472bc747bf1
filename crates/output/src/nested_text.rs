//! Values inside others as people read them.

use crate::duration::go_duration;
use crate::dynamic::Dynamic;
use crate::nested_json::Context;
use crate::printable::{push_printable, push_quoted};
use crate::value_text::{float_text, push_complex, push_string};
use probe::value::{Object, Value, ValueKind};
use std::fmt::Write;

/// Appends a value that is part of another one, or a whole one that has parts.
pub(crate) fn push_nested(out: &mut String, value: &Value, context: Context<'_>) {
    match value {
        Value::Bool(value) => _ = write!(out, "{value}"),
        Value::Int(value) => _ = write!(out, "{value}"),
        Value::Uint(value) => _ = write!(out, "{value}"),
        Value::Float(value) => out.push_str(&float_text(*value, &ValueKind::Float { size: 8 })),
        Value::Float32(value) => {
            out.push_str(&float_text((*value).into(), &ValueKind::Float { size: 4 }));
        }
        Value::Complex(re, im) => push_complex(out, *re, *im, &ValueKind::Float { size: 8 }),
        Value::Complex64(re, im) => {
            push_complex(out, (*re).into(), (*im).into(), &ValueKind::Float { size: 4 });
        }
        Value::Duration(ns) => out.push_str(&go_duration(*ns)),
        Value::Constant { name, value } => {
            push_printable(out, name);
            _ = write!(out, "({value})");
        }
        Value::Written(text) | Value::Decimal(text) => push_printable(out, text),
        Value::String { bytes, len } => push_string(out, bytes, *len),
        Value::Bytes { bytes, len } => push_byte_slice(out, bytes, *len),
        Value::Pointer(0) | Value::NilInterface => out.push_str("nil"),
        Value::Pointer(address) => _ = write!(out, "0x{address:x}"),
        Value::Behind(value) => {
            if matches!(**value, Value::Struct { .. } | Value::List { .. }) || value.is_nil() {
                out.push('&');
            }
            push_nested(out, value, context);
        }
        Value::List { items, len, .. } => {
            let cut = len.saturating_sub(items.len() as u64);
            push_list(out, "[", items, cut, "]", |out, item| push_nested(out, item, context));
        }
        Value::Slice { len, cap, .. } => _ = write!(out, "[…](len={len}, cap={cap})"),
        Value::Struct { members, omitted } => {
            push_list(out, "{", members, (*omitted).into(), "}", |out, (name, value)| {
                push_printable(out, name);
                out.push_str(": ");
                push_nested(out, value, context);
            });
        }
        Value::Map { len, entries } => {
            let cut = len.saturating_sub(entries.len() as u64);
            push_list(out, "map[", entries, cut, "]", |out, (key, value)| {
                push_nested(out, key, context);
                out.push_str(": ");
                push_nested(out, value, context);
            });
        }
        Value::Chan { len, cap, closed } => {
            let closed = if *closed { ", closed" } else { "" };
            _ = write!(out, "chan(len={len}, cap={cap}{closed})");
        }
        Value::Func(code) => push_func(out, *code, context),
        Value::Closure { code, captured } => {
            push_func(out, *code, context);
            push_list(out, "{", captured, 0, "}", |out, (name, value)| {
                push_printable(out, name);
                out.push_str(": ");
                push_nested(out, value, context);
            });
        }
        Value::Interface { type_word, data } => {
            push_interface(out, *type_word, &Object::address(*data), context);
        }
        Value::Holding { type_word, object } => push_interface(out, *type_word, object, context),
        Value::Unavailable(reason) => {
            out.push('<');
            push_printable(out, reason);
            out.push('>');
        }
    }
}

fn push_func(out: &mut String, code: u64, context: Context<'_>) {
    match context.symbols.location(context.pid, code) {
        Some(place) => push_printable(out, &place.func),
        None => _ = write!(out, "func 0x{code:x}"),
    }
}

/// `*main.T{…}`, `int(7)`, `*errors.errorString("no such door")`.
fn push_interface(out: &mut String, type_word: u64, object: &Object, context: Context<'_>) {
    let Context { pid, symbols } = context;
    let dynamic = Dynamic::of(pid, type_word, object, symbols);
    push_printable(out, &dynamic.type_name);
    if let Some(message) = dynamic.message(pid, symbols) {
        out.push('(');
        message.push_to(out);
        out.push(')');
    } else if matches!(*dynamic.value, Value::Struct { .. }) {
        push_nested(out, &dynamic.value, context);
    } else {
        out.push('(');
        push_nested(out, &dynamic.value, context);
        out.push(')');
    }
}

/// Text where it is some, else hexadecimal.
fn push_byte_slice(out: &mut String, bytes: &[u8], len: u64) {
    let is_text = bytes.utf8_chunks().all(|chunk| {
        chunk.valid().chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t' | '\r'))
    }) && crate::printable::is_nearly_utf8(bytes);
    if is_text {
        push_quoted(out, crate::printable::without_half_char(bytes));
    } else {
        out.push_str("0x");
        for byte in bytes {
            _ = write!(out, "{byte:02x}");
        }
    }
    let cut = len.saturating_sub(bytes.len() as u64);
    if cut > 0 {
        _ = write!(out, "…+{cut}");
    }
}

fn push_list<T>(
    out: &mut String,
    open: &str,
    items: &[T],
    cut: u64,
    close: &str,
    mut push: impl FnMut(&mut String, &T),
) {
    out.push_str(open);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        push(out, item);
    }
    if cut > 0 {
        let comma = if items.is_empty() { "" } else { ", " };
        _ = write!(out, "{comma}…+{cut}");
    }
    out.push_str(close);
}
