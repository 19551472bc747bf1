//! Conditions over captured values: what a plan holds, and what it means for one call.

use crate::value::Value;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;

/// How two sides are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<", Comparison::Less),
    ("<=", Comparison::LessOrEqual),
    (">", Comparison::Greater),
    (">=", Comparison::GreaterOrEqual),
];

impl Comparison {
    /// By its operator.
    pub fn by_sign(sign: &str) -> Option<Self> {
        COMPARISONS.iter().find(|(known, _)| *known == sign).map(|(_, comparison)| *comparison)
    }

    /// Whether it asks for more than being the same.
    pub fn is_of_order(self) -> bool {
        !matches!(self, Self::Equal | Self::NotEqual)
    }

    /// `None` is how a NaN compares.
    fn holds(self, ordering: Option<Ordering>) -> bool {
        match self {
            Self::Equal => ordering == Some(Ordering::Equal),
            Self::NotEqual => ordering != Some(Ordering::Equal),
            Self::Less => ordering == Some(Ordering::Less),
            Self::LessOrEqual => matches!(ordering, Some(Ordering::Less | Ordering::Equal)),
            Self::Greater => ordering == Some(Ordering::Greater),
            Self::GreaterOrEqual => matches!(ordering, Some(Ordering::Greater | Ordering::Equal)),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = COMPARISONS.iter().find(|(_, comparison)| comparison == self);
        f.write_str(sign.map_or("", |(sign, _)| *sign))
    }
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Term {
    /// A value at entry, by its place among all of them.
    Arg(u16),
    /// A value at the return, by its place among all of them.
    Result(u16),
    /// The goroutine's id.
    Goid,
    /// How long the call took, nanoseconds.
    Duration,
    /// A negative integer or one that fits.
    Int(i64),
    /// A larger one.
    Uint(u64),
    /// A number with a fraction.
    Float(f64),
    /// A string.
    Text(Vec<u8>),
    /// A boolean.
    Bool(bool),
    /// The nil of any type.
    Nil,
}

/// A condition whose values are known by their places.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Predicate {
    /// A boolean.
    Is(Term),
    /// A comparison of two sides that have been found to be comparable.
    Compare(Comparison, Term, Term),
    /// Not.
    Not(Box<Predicate>),
    /// And.
    All(Vec<Predicate>),
    /// Or.
    Any(Vec<Predicate>),
}

/// What a condition came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// A value that decides it is unknown, for this reason.
    Unknown(&'a str),
}

/// The call that a condition is about.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts<'a> {
    /// All values at entry.
    pub args: &'a [Value],
    /// All values at the return; empty unless it returned.
    pub results: &'a [Value],
    /// The goroutine's id; 0 when unknown.
    pub goid: u64,
    /// How long it took, nanoseconds, once that is known.
    pub duration_ns: Option<u64>,
}

/// A side's value, of the kinds that are compared.
enum Known<'a> {
    Int(i128),
    Float(f64),
    Text {
        bytes: &'a [u8],
        len: u64,
    },
    Bool(bool),
    /// Whether it is nil is whether it is 0.
    Word(u64),
}

impl Predicate {
    /// What the condition comes to. Unknown values decide as little as they must: `unknown && false`
    /// is false.
    pub fn verdict<'a>(&'a self, facts: &Facts<'a>) -> Verdict<'a> {
        match self {
            Self::Is(term) => match facts.know(term) {
                Ok(Known::Bool(value)) => of(value),
                Ok(_) => Verdict::Unknown("no boolean"),
                Err(reason) => Verdict::Unknown(reason),
            },
            Self::Compare(comparison, left, right) => match (facts.know(left), facts.know(right)) {
                (Ok(left), Ok(right)) => compare(*comparison, &left, &right),
                (Err(reason), _) | (_, Err(reason)) => Verdict::Unknown(reason),
            },
            Self::Not(inner) => match inner.verdict(facts) {
                Verdict::True => Verdict::False,
                Verdict::False => Verdict::True,
                unknown @ Verdict::Unknown(_) => unknown,
            },
            Self::All(all) => decide(all, facts, Verdict::False, Verdict::True),
            Self::Any(any) => decide(any, facts, Verdict::True, Verdict::False),
        }
    }
}

/// The first that is `decisive` decides; else the first unknown one; else it is `otherwise`.
fn decide<'a>(
    parts: &'a [Predicate],
    facts: &Facts<'a>,
    decisive: Verdict<'a>,
    otherwise: Verdict<'a>,
) -> Verdict<'a> {
    let mut result = otherwise;
    for part in parts {
        match part.verdict(facts) {
            verdict if verdict == decisive => return decisive,
            unknown @ Verdict::Unknown(_) if result == otherwise => result = unknown,
            _ => {}
        }
    }
    result
}

fn of(holds: bool) -> Verdict<'static> {
    if holds { Verdict::True } else { Verdict::False }
}

impl<'a> Facts<'a> {
    fn know(&self, term: &'a Term) -> Result<Known<'a>, &'a str> {
        let value = match term {
            Term::Arg(index) => self.args.get(usize::from(*index)).ok_or("not captured")?,
            Term::Result(index) => {
                self.results.get(usize::from(*index)).ok_or("the call did not return")?
            }
            Term::Goid if self.goid == 0 => return Err("goroutine not known"),
            Term::Goid => return Ok(Known::Int(self.goid.into())),
            Term::Duration => {
                let ns = self.duration_ns.ok_or("when the call ended is not known")?;
                return Ok(Known::Int(ns.into()));
            }
            Term::Int(n) => return Ok(Known::Int((*n).into())),
            Term::Uint(n) => return Ok(Known::Int((*n).into())),
            Term::Float(n) => return Ok(Known::Float(*n)),
            Term::Text(bytes) => return Ok(Known::Text { bytes, len: bytes.len() as u64 }),
            Term::Bool(value) => return Ok(Known::Bool(*value)),
            Term::Nil => return Ok(Known::Word(0)),
        };
        Ok(match value {
            Value::Bool(value) => Known::Bool(*value),
            Value::Int(n) => Known::Int((*n).into()),
            Value::Uint(n) => Known::Int((*n).into()),
            Value::Float(n) => Known::Float(*n),
            Value::String { bytes, len } => Known::Text { bytes, len: *len },
            Value::Pointer(address) => Known::Word(*address),
            Value::Unavailable(reason) => return Err(reason),
            _ => return Err("of a kind that is not compared"),
        })
    }
}

fn compare<'a>(comparison: Comparison, left: &Known<'_>, right: &Known<'_>) -> Verdict<'a> {
    let ordering = match (left, right) {
        (Known::Int(left), Known::Int(right)) => Some(left.cmp(right)),
        (Known::Float(left), Known::Float(right)) => left.partial_cmp(right),
        (Known::Int(left), Known::Float(right)) => (*left as f64).partial_cmp(right),
        (Known::Float(left), Known::Int(right)) => left.partial_cmp(&(*right as f64)),
        (Known::Bool(left), Known::Bool(right)) => Some(left.cmp(right)),
        (Known::Word(left), Known::Word(right)) => Some(left.cmp(right)),
        (Known::Text { bytes, len }, Known::Text { bytes: other, len: other_len }) => {
            if !comparison.is_of_order() && len != other_len {
                return of(comparison == Comparison::NotEqual);
            }
            match text_order((bytes, *len), (other, *other_len)) {
                Some(ordering) => Some(ordering),
                None => return Verdict::Unknown("string cut before it decides"),
            }
        }
        _ => return Verdict::Unknown("of kinds that are not compared"),
    };
    of(comparison.holds(ordering))
}

/// The order of two strings of which the beginnings are known; `None` when those do not decide.
fn text_order(left: (&[u8], u64), right: (&[u8], u64)) -> Option<Ordering> {
    let common = left.0.len().min(right.0.len());
    let (a, b) = (left.0.get(..common)?, right.0.get(..common)?);
    let is_whole = |(bytes, len): (&[u8], u64)| bytes.len() as u64 >= len;
    match a.cmp(b) {
        Ordering::Equal => {
            // Where one ends, the lengths decide.
            let ends = |side: (&[u8], u64)| side.0.len() == common && is_whole(side);
            (ends(left) || ends(right)).then(|| left.1.cmp(&right.1))
        }
        order => Some(order),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &str, len: u64) -> Value {
        Value::String { bytes: bytes.as_bytes().to_vec(), len }
    }

    fn verdict(predicate: &Predicate, args: &[Value]) -> String {
        let facts = Facts { args, goid: 7, ..Facts::default() };
        match predicate.verdict(&facts) {
            Verdict::True => "true".to_owned(),
            Verdict::False => "false".to_owned(),
            Verdict::Unknown(reason) => format!("unknown: {reason}"),
        }
    }

    #[test]
    fn sides_compare_as_in_go() {
        use Comparison::{Equal, Greater, Less, NotEqual};
        let big = Term::Uint(u64::MAX);
        let abc = || Term::Text(b"abc".to_vec());
        for (value, comparison, right, expected) in [
            (Value::Int(-1), Less, Term::Int(0), "true"),
            (Value::Uint(u64::MAX), Equal, big.clone(), "true"),
            (Value::Int(-1), Equal, big, "false"),
            (Value::Float(f64::NAN), Equal, Term::Float(1.0), "false"),
            (Value::Float(f64::NAN), NotEqual, Term::Float(1.0), "true"),
            (Value::Float(0.5), Greater, Term::Int(0), "true"),
            (Value::Pointer(0), Equal, Term::Nil, "true"),
            (Value::Pointer(8), NotEqual, Term::Nil, "true"),
            (text("abc", 3), Equal, abc(), "true"),
            (text("abcd", 9), Equal, abc(), "false"),
            (text("ab", 2), Less, abc(), "true"),
            (text("abd", 900), Greater, abc(), "true"),
            (text("abc", 4), Greater, abc(), "true"),
            (text("ab", 9), Less, abc(), "unknown: string cut before it decides"),
            (text("ab", 3), Equal, abc(), "unknown: string cut before it decides"),
            (text("ab", 9), Equal, abc(), "false"),
            (Value::Unavailable("nil".into()), Equal, Term::Int(0), "unknown: nil"),
            (Value::Uint(7), Equal, Term::Goid, "true"),
        ] {
            let predicate = Predicate::Compare(comparison, Term::Arg(0), right);
            assert_eq!(verdict(&predicate, &[value]), expected, "{predicate:?}");
        }
    }

    #[test]
    fn what_is_unknown_decides_nothing() {
        let unknown = || Predicate::Is(Term::Arg(0));
        let constant = |value| Predicate::Is(Term::Bool(value));
        let args = [Value::Unavailable("gone".into())];
        for (predicate, expected) in [
            (Predicate::All(vec![unknown(), constant(false)]), "false"),
            (Predicate::All(vec![unknown(), constant(true)]), "unknown: gone"),
            (Predicate::Any(vec![unknown(), constant(true)]), "true"),
            (Predicate::Any(vec![constant(false), unknown()]), "unknown: gone"),
            (Predicate::Not(Box::new(unknown())), "unknown: gone"),
            (Predicate::Not(Box::new(constant(true))), "false"),
            (Predicate::Is(Term::Result(0)), "unknown: the call did not return"),
            (
                Predicate::Compare(Comparison::Greater, Term::Duration, Term::Int(1)),
                "unknown: when the call ended is not known",
            ),
        ] {
            assert_eq!(verdict(&predicate, &args), expected, "{predicate:?}");
        }
    }
}
