//! The value of an unrecovered panic, as far as its record tells.

use probe::value::{Value, ValueKind, ValueSpec};
use timeline::{Panic, Symbolizer};

/// Error types of the standard library that begin with their message
/// (errors/errors.go and fmt/errors.go, unchanged since go1.13 resp. go1.20).
const MESSAGE_FIRST: [&str; 3] = ["*errors.errorString", "*fmt.wrapError", "*fmt.wrapErrors"];

/// What is known of the value.
#[derive(Debug)]
pub(crate) struct Described {
    /// Its dynamic type; `None` for nil and when not known.
    pub type_name: Option<String>,
    /// How the value is to be written.
    pub spec: ValueSpec,
    /// The value; an address where it was not followed.
    pub value: Value,
    /// The message of an error whose type is known to begin with it.
    pub message: Option<(Vec<u8>, u64)>,
}

/// Reads what `panic` carries.
pub(crate) fn describe(panic: &Panic, symbols: &dyn Symbolizer) -> Described {
    let known = (panic.type_word != 0).then(|| symbols.type_name(panic.pid, panic.type_word));
    let (kind, value) = match (&known, &panic.text) {
        (None, Some(Value::Unavailable(reason))) => {
            (ValueKind::Pointer, Value::Unavailable(reason.clone()))
        }
        (None, _) => (ValueKind::Interface, Value::NilInterface),
        (Some(Some((_, kind))), _) => decode(panic, *kind),
        (Some(None), _) => (ValueKind::Pointer, Value::Pointer(panic.data)),
    };
    let type_name = known.map(|known| match known {
        Some((name, _)) => name,
        None => format!("type 0x{:x}", panic.type_word),
    });
    let message = match (&type_name, &panic.text) {
        (Some(name), Some(Value::String { bytes, len }))
            if MESSAGE_FIRST.contains(&name.as_str()) =>
        {
            Some((bytes.clone(), *len))
        }
        _ => None,
    };
    let spec_type = type_name.clone().unwrap_or_default().into();
    Described {
        type_name,
        spec: ValueSpec { name: "".into(), type_name: spec_type, kind },
        value,
        message,
    }
}

/// The value by the number of its kind (`abi.Kind`, internal/abi/type.go).
fn decode(panic: &Panic, kind: u8) -> (ValueKind, Value) {
    let size: u8 = match kind {
        1 | 3 | 8 => 1,
        4 | 9 => 2,
        5 | 10 | 13 => 4,
        2 | 6 | 7 | 11 | 12 | 14 => 8,
        _ => 0,
    };
    let mut word = [0; 8];
    if let Some(bytes) = panic.head.get(..usize::from(size)) {
        word[..bytes.len()].copy_from_slice(bytes);
    } else {
        let unread = Value::Unavailable("memory not readable".into());
        return (ValueKind::Pointer, unread);
    }
    let word = u64::from_le_bytes(word);
    let unused = 64 - 8 * u32::from(size.max(1));
    match kind {
        1 => (ValueKind::Bool, Value::Bool(word != 0)),
        2..=6 => (ValueKind::Int { size }, Value::Int(((word << unused) as i64) >> unused)),
        7..=12 => (ValueKind::Uint { size }, Value::Uint(word)),
        13 => {
            let value = f64::from(f32::from_bits(word as u32));
            (ValueKind::Float { size }, Value::Float(value))
        }
        14 => (ValueKind::Float { size }, Value::Float(f64::from_bits(word))),
        24 => {
            let unread = || Value::Unavailable("memory not readable".into());
            (ValueKind::String, panic.text.clone().unwrap_or_else(unread))
        }
        _ => (ValueKind::Pointer, Value::Pointer(panic.data)),
    }
}
