//! What the watched runtime functions say, read from their records.

use crate::event::Panic;
use probe::Witness;
use probe::value::Value;
use wire::{FieldStatus, Fields, Record};

/// Longer strings at a panic value's data word are not strings.
const MAX_TEXT: u32 = 1 << 30;

/// Fields a witness record carries before those of its arguments.
pub(crate) const fn field_count(witness: Witness) -> usize {
    match witness {
        Witness::Panic => 4,
        Witness::Recovery => 3,
        Witness::GoroutineDeath => 1,
        Witness::Goexit | Witness::FatalPanic => 0,
    }
}

/// The value a `runtime.gopanic` record carries.
pub(crate) fn panic_value(record: &Record<'_>, fields: &mut Fields<'_>) -> Panic {
    let type_word = fields.next().and_then(|field| field.as_u64());
    let data = fields.next().and_then(|field| field.as_u64());
    let head = fields
        .next()
        .filter(|field| field.status == FieldStatus::Ok)
        .map(|field| field.data.get(..16).unwrap_or(field.data).to_vec())
        .unwrap_or_default();
    let text = fields
        .next()
        .filter(|field| field.status == FieldStatus::Ok && field.original <= MAX_TEXT)
        .map(|field| Value::String { bytes: field.data.to_vec(), len: field.original.into() });
    let unread = type_word
        .is_none()
        .then(|| Value::Unavailable("the panic value could not be read at runtime.gopanic".into()));
    Panic {
        pid: record.pid,
        goid: record.goid,
        ts_ns: record.ts_ns,
        type_word: type_word.unwrap_or(0),
        data: data.unwrap_or(0),
        head,
        text: unread.or(text),
    }
}

/// An unrecovered panic whose start was not seen.
pub(crate) fn unseen_panic(record: &Record<'_>) -> Panic {
    Panic {
        pid: record.pid,
        goid: record.goid,
        ts_ns: record.ts_ns,
        type_word: 0,
        data: 0,
        head: Vec::new(),
        text: Some(Value::Unavailable("the start of the panic was not seen".into())),
    }
}

/// The goroutine a `runtime.recovery` record speaks of and the depth of the frame that
/// recovers (it lies less deep; everything deeper is gone).
pub(crate) fn recovery(fields: &mut Fields<'_>) -> Option<(u64, u64)> {
    let goid = fields.next()?.as_u64()?;
    let hi = fields.next()?.as_u64()?;
    let sp = fields.next()?.as_u64()?;
    Some((goid, hi.checked_sub(sp)?))
}

/// The goroutine a death record speaks of.
pub(crate) fn dead_goid(fields: &mut Fields<'_>) -> Option<u64> {
    fields.next()?.as_u64()
}
