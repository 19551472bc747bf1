//! Values inside others in JSON: bare, unless something has to be said of them.

use crate::duration::go_duration;
use crate::dynamic::Dynamic;
use crate::value_json::{
    push_bytes, push_float, push_int, push_str, push_string_members, push_uint,
};
use probe::value::{Object, Value, ValueKind};
use std::io::Write;
use timeline::Symbolizer;

/// Whose value it is, and who knows names.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub pid: u32,
    pub symbols: &'a dyn Symbolizer,
}

/// Appends a value inside another one.
pub(crate) fn push_bare(out: &mut Vec<u8>, value: &Value, context: Context<'_>) {
    if let Value::Behind(behind) = value
        && !behind.is_nil()
    {
        return push_bare(out, behind, context);
    }
    let before = out.len();
    out.push(b'{');
    push_parts(out, value, context, true);
    // One member, the value: it stands for itself.
    let is_alone = !needs_members(value);
    if is_alone && out[before..].starts_with(b"{\"value\":") {
        out.drain(before..before + b"{\"value\":".len());
    } else {
        out.push(b'}');
    }
}

/// Whether more than the value itself is to be said.
fn needs_members(value: &Value) -> bool {
    match value {
        Value::String { bytes, len } | Value::Bytes { bytes, len } => *len > bytes.len() as u64,
        Value::List { items, len, .. } => *len > items.len() as u64,
        Value::Struct { omitted, .. } => *omitted > 0,
        Value::Slice { len, .. } => *len > 0,
        Value::Duration(_) | Value::Constant { .. } | Value::Unavailable(_) => true,
        Value::Closure { .. } => true,
        Value::Pointer(address) => *address != 0,
        _ => false,
    }
}

/// Appends the members that carry a value, without braces.
pub(crate) fn push_members(out: &mut Vec<u8>, value: &Value, context: Context<'_>) {
    push_parts(out, value, context, false);
}

/// The same; of lists `inside` another value only what is cut has its length beside it.
fn push_parts(out: &mut Vec<u8>, value: &Value, context: Context<'_>, inside: bool) {
    match value {
        // A pointer to nil is not nil.
        Value::Behind(value) if value.is_nil() => {
            out.extend_from_slice(b"\"value\":{\"*\":");
            push_bare(out, value, context);
            out.push(b'}');
            return;
        }
        Value::Behind(value) => return push_parts(out, value, context, inside),
        Value::Unavailable(reason) => {
            out.extend_from_slice(b"\"unavailable\":");
            return push_str(out, reason);
        }
        Value::Pointer(address) if *address != 0 => {
            _ = write!(out, "\"addr\":\"0x{address:x}\"");
            return;
        }
        Value::String { bytes, len } => return push_string_members(out, bytes, *len, true),
        Value::Bytes { bytes, len } => {
            push_bytes(out, bytes);
            return push_lengths(out, bytes.len(), *len, None, inside);
        }
        _ => {}
    }
    out.extend_from_slice(b"\"value\":");
    match value {
        Value::Bool(value) => _ = write!(out, "{value}"),
        Value::Int(value) => push_int(out, *value),
        Value::Uint(value) => push_uint(out, *value),
        Value::Float(value) => push_float(out, *value, &ValueKind::Float { size: 8 }),
        Value::Float32(value) => push_single(out, *value),
        Value::Complex(re, im) => {
            let part = ValueKind::Float { size: 8 };
            push_list(out, [re, im], |out, number| push_float(out, *number, &part));
        }
        Value::Complex64(re, im) => {
            push_list(out, [re, im], |out, number| push_single(out, *number));
        }
        Value::Duration(ns) => {
            _ = write!(out, "\"{}\",\"ns\":", go_duration(*ns));
            push_int(out, *ns);
        }
        Value::Constant { name, value } => {
            push_int(out, *value);
            out.extend_from_slice(b",\"const\":");
            push_str(out, name);
        }
        Value::Written(text) => push_str(out, text),
        Value::Decimal(text) => push_decimal(out, text),
        Value::List { items, len, cap } => {
            push_list(out, items, |out, item| push_bare(out, item, context));
            push_lengths(out, items.len(), *len, *cap, inside);
        }
        Value::Slice { len, cap, .. } => {
            out.extend_from_slice(b"[]");
            push_lengths(out, 0, (*len).max(0) as u64, Some(*cap), inside);
        }
        Value::Struct { members, omitted } => push_struct(out, members, *omitted, context),
        Value::Map { len, entries } => {
            _ = write!(out, "{{\"len\":{len},\"entries\":");
            push_list(out, entries, |out, (key, value)| {
                push_list(out, [key, value], |out, value| push_bare(out, value, context));
            });
            push_cut(out, entries.len(), *len);
            out.push(b'}');
        }
        Value::Chan { len, cap, closed } => {
            _ = write!(out, "{{\"len\":{len},\"cap\":{cap},\"closed\":{closed}}}");
        }
        Value::Func(code) => push_func(out, *code, context),
        Value::Closure { code, captured } => {
            push_func(out, *code, context);
            out.extend_from_slice(b",\"captured\":");
            push_struct(out, captured, 0, context);
        }
        Value::Interface { type_word, data } => {
            push_interface(out, *type_word, &Object::address(*data), context);
        }
        Value::Holding { type_word, object } => push_interface(out, *type_word, object, context),
        Value::NilInterface | Value::Pointer(_) => out.extend_from_slice(b"null"),
        Value::Behind(_) | Value::Unavailable(_) | Value::String { .. } | Value::Bytes { .. } => {}
    }
}

fn push_func(out: &mut Vec<u8>, code: u64, context: Context<'_>) {
    match context.symbols.location(context.pid, code) {
        Some(place) => push_str(out, &place.func),
        None => push_str(out, &format!("0x{code:x}")),
    }
}

fn push_struct(
    out: &mut Vec<u8>,
    members: &[(std::sync::Arc<str>, Value)],
    omitted: u16,
    context: Context<'_>,
) {
    out.push(b'{');
    for (index, (name, value)) in members.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_str(out, name);
        out.push(b':');
        push_bare(out, value, context);
    }
    out.push(b'}');
    if omitted > 0 {
        _ = write!(out, ",\"cut\":{omitted}");
    }
}

/// Length, capacity and how many elements are not shown; `inside` only where some are not.
fn push_lengths(out: &mut Vec<u8>, shown: usize, len: u64, cap: Option<i64>, inside: bool) {
    if inside && len <= shown as u64 {
        return;
    }
    _ = write!(out, ",\"len\":{len}");
    if let Some(cap) = cap.filter(|_| !inside) {
        _ = write!(out, ",\"cap\":{cap}");
    }
    push_cut(out, shown, len);
}

fn push_cut(out: &mut Vec<u8>, shown: usize, len: u64) {
    let cut = len.saturating_sub(shown as u64);
    if cut > 0 {
        _ = write!(out, ",\"cut\":{cut}");
    }
}

/// `{"dyn":TYPE,"value":…}` and the message of an error.
fn push_interface(out: &mut Vec<u8>, type_word: u64, object: &Object, context: Context<'_>) {
    let Context { pid, symbols } = context;
    let dynamic = Dynamic::of(pid, type_word, object, symbols);
    out.extend_from_slice(b"{\"dyn\":");
    push_str(out, &dynamic.type_name);
    match &*dynamic.value {
        Value::Pointer(address) if *address != 0 => {
            _ = write!(out, ",\"value\":{{\"addr\":\"0x{address:x}\"}}");
        }
        Value::Unavailable(_) => {
            out.extend_from_slice(b",\"value\":");
            push_bare(out, &dynamic.value, context);
        }
        value => {
            out.push(b',');
            push_parts(out, value, context, true);
        }
    }
    if let Some(message) = dynamic.message(pid, symbols) {
        out.extend_from_slice(b",\"error\":");
        push_str(out, &String::from_utf8_lossy(&message.bytes));
        push_cut_of(out, &message.bytes, message.len);
    }
    out.push(b'}');
}

fn push_cut_of(out: &mut Vec<u8>, bytes: &[u8], len: u64) {
    if len > bytes.len() as u64 {
        _ = write!(out, ",\"error_cut\":{}", len - bytes.len() as u64);
    }
}

fn push_list<T>(
    out: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    mut push: impl FnMut(&mut Vec<u8>, T),
) {
    out.push(b'[');
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push(out, item);
    }
    out.push(b']');
}

fn push_single(out: &mut Vec<u8>, value: f32) {
    push_float(out, value.into(), &ValueKind::Float { size: 4 });
}

/// A number where every reader takes it whole, else a string.
fn push_decimal(out: &mut Vec<u8>, text: &str) {
    match text.parse() {
        Ok(number) => push_int(out, number),
        Err(_) => push_str(out, text),
    }
}
