//! The values of a call by what they mean.

use crate::catalog::{Field, Role, SENSORS, Sensor};
use crate::header;
use probe::value::{Value, ValueSpec};
use probe::{Plan, PlannedFunction};
use std::borrow::Cow;
use timeline::Call;

/// What `probe` says of a value that a nil pointer leads to.
const NIL: &str = "nil pointer on the way";

/// A watched function of a plan: what its values mean, in their order.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) role: Role,
    args: Vec<Option<Field>>,
    results: Vec<Option<Field>>,
    /// Headers that were asked for: place among the arguments, name.
    headers: Vec<(usize, String)>,
}

/// The functions of `plan` that sensors watch, by index.
pub(crate) fn watched(plan: &Plan) -> Vec<Option<Watched>> {
    let functions = plan.functions.iter().map(|function| {
        let sensor = SENSORS.iter().find(|sensor| sensor.function == function.name)?;
        function.traced.then(|| Watched::new(function, sensor))
    });
    functions.collect()
}

fn meaning(specs: &[ValueSpec], reads: &[(Field, String)]) -> Vec<Option<Field>> {
    let field = |spec: &ValueSpec| reads.iter().find(|(_, text)| **text == *spec.name);
    specs.iter().map(|spec| field(spec).map(|(field, _)| *field)).collect()
}

/// What a call says.
#[derive(Clone, Copy)]
pub(crate) struct Values<'a> {
    fields: &'a [Option<Field>],
    values: &'a [Value],
    headers: &'a [(usize, String)],
}

impl Watched {
    fn new(function: &PlannedFunction, sensor: &Sensor) -> Self {
        let args = meaning(&function.args, &sensor.at_entry());
        let asked = args.iter().enumerate().filter(|(_, field)| field.is_none());
        let name = |at: usize| header::of_expression(&function.args.get(at)?.name);
        let headers = asked.filter_map(|(at, _)| Some((at, name(at)?.to_owned()))).collect();
        let results = meaning(&function.results, &sensor.at_return());
        Self { role: sensor.role, args, results, headers }
    }

    pub(crate) fn at_entry<'a>(&'a self, call: &'a Call) -> Values<'a> {
        Values { fields: &self.args, values: &call.args, headers: &self.headers }
    }

    pub(crate) fn at_return<'a>(&'a self, call: &'a Call) -> Values<'a> {
        Values { fields: &self.results, values: &call.results, headers: &[] }
    }
}

impl<'a> Values<'a> {
    /// The first value of that meaning that is there; else the reason why none is.
    pub(crate) fn get(&self, field: Field) -> Result<&'a Value, &'a str> {
        let mut reason = "not read";
        for (_, value) in self.fields.iter().zip(self.values).filter(|(f, _)| **f == Some(field)) {
            match value {
                Value::Unavailable(why) => reason = why,
                value => return Ok(value),
            }
        }
        Err(reason)
    }

    pub(crate) fn int(&self, field: Field) -> Result<i64, &'a str> {
        match self.get(field)? {
            Value::Int(number) | Value::Constant { value: number, .. } => Ok(*number),
            Value::Uint(number) => i64::try_from(*number).map_err(|_| "too large"),
            _ => Err("no number"),
        }
    }

    /// A truth.
    pub(crate) fn truth(&self, field: Field) -> Result<bool, &'a str> {
        match self.get(field)? {
            Value::Bool(truth) => Ok(*truth),
            _ => Err("no truth"),
        }
    }

    /// Bytes of a text, and how many it has in the process.
    pub(crate) fn bytes(&self, field: Field) -> Result<(&'a [u8], u64), &'a str> {
        match self.get(field)? {
            Value::String { bytes, len } => Ok((bytes, *len)),
            _ => Err("no text"),
        }
    }

    /// A text. What was not captured of it is told by an ellipsis.
    pub(crate) fn text(&self, field: Field) -> Result<Cow<'a, str>, &'a str> {
        shown(self.get(field)?)
    }

    /// An address that is not nil.
    pub(crate) fn address(&self, field: Field) -> Option<u64> {
        match self.get(field) {
            Ok(Value::Pointer(address)) => Some(*address).filter(|address| *address != 0),
            _ => None,
        }
    }

    /// All addresses of that meaning.
    pub(crate) fn addresses(&self, field: Field) -> impl Iterator<Item = u64> {
        let of_it = self.fields.iter().zip(self.values).filter(move |(f, _)| **f == Some(field));
        of_it.filter_map(|(_, value)| match value {
            Value::Pointer(address) if *address != 0 => Some(*address),
            _ => None,
        })
    }

    /// Whether the pointers on the way to a value lead to it: else one is nil.
    pub(crate) fn is_there(&self, field: Field) -> Result<bool, &'a str> {
        match self.get(field) {
            Ok(_) => Ok(true),
            Err(NIL) => Ok(false),
            Err(reason) => Err(reason),
        }
    }

    /// Descriptor of the type that an interface holds; `Ok(None)` for nil.
    pub(crate) fn dynamic_type(&self, field: Field) -> Result<Option<u64>, &'a str> {
        match self.get(field)? {
            Value::NilInterface => Ok(None),
            Value::Interface { type_word, .. } | Value::Holding { type_word, .. } => {
                Ok(Some(*type_word))
            }
            _ => Err("no interface"),
        }
    }

    /// The value that a client adds to a header first, if its name is that one, in any case.
    pub(crate) fn added(&self, name: &[u8]) -> Option<&'a [u8]> {
        let (added, _) = self.bytes(Field::AddedName).ok()?;
        let (value, len) = self.bytes(Field::AddedValue).ok()?;
        (added.eq_ignore_ascii_case(name) && len == value.len() as u64).then_some(value)
    }

    /// The headers that were asked for, by name: their values, none where there is no such header.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&'a str, Result<Vec<String>, &'a str>)> {
        let (headers, values) = (self.headers, self.values);
        let of_value = |value: &'a Value| match value {
            Value::List { items, len, .. } => {
                let owned = |item| shown(item).map(Cow::into_owned);
                let mut texts = items.iter().map(owned).collect::<Result<Vec<_>, _>>()?;
                if *len > items.len() as u64 {
                    texts.push("…".to_owned());
                }
                Ok(texts)
            }
            Value::Unavailable(reason) if reason == NIL => Ok(Vec::new()),
            Value::Unavailable(reason) => Err(&**reason),
            _ => Err("no list"),
        };
        headers.iter().filter_map(move |(at, name)| Some((&**name, of_value(values.get(*at)?))))
    }

    /// The first value of the header that names a trace; `Err` when the headers could not be read.
    pub(crate) fn traceparent(&self) -> Result<Option<&'a [u8]>, &'a str> {
        match self.get(Field::TraceParent) {
            Ok(Value::List { items, .. }) => match items.first() {
                Some(Value::String { bytes, .. }) => Ok(Some(bytes)),
                Some(_) => Err("its value was not read"),
                None => Ok(None),
            },
            Ok(_) => Err("no list"),
            Err(NIL) => Ok(None),
            Err(reason) => Err(reason),
        }
    }
}

/// A text, with an ellipsis behind what was captured of it where there was more.
fn shown(value: &Value) -> Result<Cow<'_, str>, &str> {
    match value {
        Value::String { bytes, len } if *len > bytes.len() as u64 => {
            Ok(format!("{}…", String::from_utf8_lossy(of_whole_characters(bytes))).into())
        }
        Value::String { bytes, .. } => Ok(String::from_utf8_lossy(bytes)),
        Value::Unavailable(reason) => Err(reason),
        _ => Err("no text"),
    }
}

/// What was captured of a text, without the begin of a character that was cut through.
fn of_whole_characters(bytes: &[u8]) -> &[u8] {
    let is_first = |byte: &u8| byte & 0xc0 != 0x80;
    let Some(last) = bytes.iter().rposition(is_first) else { return bytes };
    let len = match bytes[last] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    };
    if bytes.len() - last < len { &bytes[..last] } else { bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_ends_with_a_whole_character() {
        let told = |bytes: &[u8], len| {
            let value = Value::String { bytes: bytes.into(), len };
            shown(&value).unwrap().into_owned()
        };
        assert_eq!(told("aä".as_bytes(), 3), "aä");
        assert_eq!(told("aä".as_bytes(), 4), "aä…");
        for captured in 3..7 {
            assert_eq!(told(&"aü😀".as_bytes()[..captured], 7), "aü…");
        }
        assert_eq!(told(b"a\xc3", 9), "a…");
        // No text at all.
        assert_eq!(told(b"a\xff", 9), "a\u{fffd}…");
        assert_eq!(told(b"a\xc3", 2), "a\u{fffd}");
        assert_eq!(told(b"", 1), "…");
        assert_eq!(told(b"\x80\x80", 9), "\u{fffd}\u{fffd}…");
    }
}
