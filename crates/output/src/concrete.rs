//! Types of a generic function's values, as its dictionary told them at the call.

use crate::dynamic::Dynamic;
use probe::value::{Value, ValueSpec};
use std::borrow::Cow;
use timeline::{Call, Symbolizer};

/// The specs with the names of concrete types, where `places` says which of the call's values has one.
pub(crate) fn concrete_specs<'a>(
    specs: &'a [ValueSpec],
    places: Option<&[Option<u16>]>,
    call: &Call,
    symbols: &dyn Symbolizer,
) -> Cow<'a, [ValueSpec]> {
    let Some(places) = places else { return Cow::Borrowed(specs) };
    let mut all = specs.to_vec();
    for (spec, place) in all.iter_mut().zip(places) {
        if let Some(Value::Interface { type_word, .. }) =
            place.and_then(|place| call.args.get(usize::from(place)))
            && let Some((name, _)) = symbols.type_name(call.pid, *type_word)
        {
            spec.type_name = name.into();
        }
    }
    Cow::Owned(all)
}

/// The values, those that were captured as interfaces of their concrete types as what these hold.
pub(crate) fn concrete_values<'a>(
    values: &'a [Value],
    places: Option<&[Option<u16>]>,
    call: &Call,
    symbols: &dyn Symbolizer,
) -> Cow<'a, [Value]> {
    let Some(places) = places else { return Cow::Borrowed(values) };
    let mut all = values.to_vec();
    for (value, place) in all.iter_mut().zip(places) {
        if let (Value::Holding { type_word, object }, Some(_)) = (&*value, place) {
            let held = Dynamic::of(call.pid, *type_word, object, symbols).value.into_owned();
            *value = match held {
                nil @ (Value::Pointer(_) | Value::Unavailable(_)) => nil,
                held => Value::Behind(Box::new(held)),
            };
        }
    }
    Cow::Owned(all)
}
