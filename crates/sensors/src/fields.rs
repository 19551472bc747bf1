//! The values of a call by what they mean.

use crate::catalog::{Field, Role, SENSORS};
use probe::Plan;
use probe::value::{Value, ValueSpec};
use timeline::Call;

/// What `probe` says of a value that a nil pointer leads to.
const NIL: &str = "nil pointer on the way";

/// A watched function of a plan: what its values mean, in their order.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) role: Role,
    args: Vec<Option<Field>>,
    results: Vec<Option<Field>>,
}

/// The functions of `plan` that sensors watch, by index.
pub(crate) fn watched(plan: &Plan) -> Vec<Option<Watched>> {
    let meaning = |specs: &[ValueSpec], reads: &[(Field, String)]| {
        let field = |spec: &ValueSpec| reads.iter().find(|(_, text)| **text == *spec.name);
        specs.iter().map(|spec| field(spec).map(|(field, _)| *field)).collect()
    };
    let functions = plan.functions.iter().map(|function| {
        let sensor = SENSORS.iter().find(|sensor| sensor.function == function.name)?;
        function.traced.then(|| Watched {
            role: sensor.role,
            args: meaning(&function.args, &sensor.at_entry()),
            results: meaning(&function.results, &sensor.at_return()),
        })
    });
    functions.collect()
}

/// What a call says.
#[derive(Clone, Copy)]
pub(crate) struct Values<'a> {
    fields: &'a [Option<Field>],
    values: &'a [Value],
}

impl Watched {
    pub(crate) fn at_entry<'a>(&'a self, call: &'a Call) -> Values<'a> {
        Values { fields: &self.args, values: &call.args }
    }

    pub(crate) fn at_return<'a>(&'a self, call: &'a Call) -> Values<'a> {
        Values { fields: &self.results, values: &call.results }
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
    pub(crate) fn text(&self, field: Field) -> Result<String, &'a str> {
        let (bytes, len) = self.bytes(field)?;
        let mut text = String::from_utf8_lossy(bytes).into_owned();
        if len > bytes.len() as u64 {
            text.push('…');
        }
        Ok(text)
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
