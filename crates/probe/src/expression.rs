//! Expressions over the values of a function, as a Go programmer writes them:
//! `main.handle(req.Method, len(req.Header), items[0].Name) -> (code, err)`, and conditions over
//! them: `len(s) > 100 && user.ID != 0`.
//!
//! [`Request::parse`] and [`Condition::parse`] know no executable; [`resolve`] finds the names in one
//! function by its debug information and gives what the compiler of fetch programs takes. The grammar
//! is in `docs/expressions.md`.

mod access;
mod compare;
mod declaration;
mod lexer;
mod parse;
mod predicate;
mod reject;
mod request;
mod resolve;
mod scope;
mod show;
mod wants;

pub use declaration::{Declaration, Declarations};
pub use predicate::{Comparison, Facts, Predicate, Term, Verdict};
pub(crate) use reject::{Values as HitValues, rejection};
pub use request::{Params, Request, RequestError};
pub use resolve::{Failure, resolve};
pub use scope::{Moment, Scope};
pub use wants::Wants;

use thiserror::Error;

/// How deep parentheses, `len(…)`, `*`, `&` and `!` nest.
pub const MAX_NESTING: usize = 32;

/// Characters of one expression.
pub const MAX_LENGTH: usize = 1 << 16;

/// A text that is no expression, or one that means nothing in a function.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExpressionError {
    /// The text breaks the grammar.
    #[error("column {column}: expected {expected}, found {found}")]
    Syntax {
        /// Where, 1-based, in characters.
        column: usize,
        /// What may stand there.
        expected: String,
        /// What stands there.
        found: String,
    },
    /// It has no meaning for the function's values.
    #[error("column {column}: {message}")]
    Meaning {
        /// Where, 1-based, in characters.
        column: usize,
        /// What is wrong, and what there is instead.
        message: String,
    },
}

impl ExpressionError {
    /// Where, 1-based, in characters.
    pub fn column(&self) -> usize {
        match self {
            Self::Syntax { column, .. } | Self::Meaning { column, .. } => *column,
        }
    }

    pub(crate) fn meaning(column: usize, message: impl Into<String>) -> Self {
        Self::Meaning { column, message: message.into() }
    }
}

/// One value: where to start, and the way from there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Where it begins, 1-based, in characters.
    pub column: usize,
    /// What it starts from.
    pub start: Start,
    /// The steps, in the order they are taken.
    pub steps: Vec<Step>,
}

/// What an operand starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// A parameter, result, captured variable, package or package variable.
    Name(String),
    /// `$goid`: the goroutine's id.
    Goid,
    /// `$duration`: how long the call took.
    Duration,
}

/// One step of an operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Where it stands, 1-based, in characters.
    pub column: usize,
    /// What it does.
    pub kind: StepKind,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// `.name`; through pointers, and of embedded structs too.
    Field(String),
    /// `.(type)` of an interface.
    Assert(String),
    /// `[n]`.
    Index(u64),
    /// `["text"]` of a map.
    Key(String),
    /// `len(…)` around it.
    Len,
    /// `cap(…)` around it.
    Cap,
    /// `&` before it.
    Address,
    /// `*` before it.
    Deref,
}

/// A constant in a condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// An integer between the least `int64` and the greatest `uint64`.
    Int(i128),
    /// A number with a fraction or an exponent.
    Float(f64),
    /// The bytes of a string.
    Text(Vec<u8>),
    /// `true`, `false`.
    Bool(bool),
    /// `nil`.
    Nil,
    /// `10ms`, `1m30s`: nanoseconds.
    Duration(i64),
}

/// A side of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub enum Side {
    /// A value of the call.
    Operand(Operand),
    /// A constant.
    Literal {
        /// Where it stands, 1-based, in characters.
        column: usize,
        /// The constant.
        literal: Literal,
    },
}

/// What has to hold for a call to be shown.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// A boolean.
    Is(Side),
    /// A comparison.
    Compare {
        /// Where its operator stands, 1-based, in characters.
        column: usize,
        /// The operator.
        comparison: Comparison,
        /// Left of it.
        left: Side,
        /// Right of it.
        right: Side,
    },
    /// `!`.
    Not(Box<Condition>),
    /// `&&`.
    All(Vec<Condition>),
    /// `||`.
    Any(Vec<Condition>),
}

impl Condition {
    /// Parses a condition.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        parse::condition(text, false)
    }

    /// Parses a condition on the duration, which is meant where the left side of a comparison is
    /// missing: `> 10ms && < 1s`.
    pub fn parse_duration(text: &str) -> Result<Self, ExpressionError> {
        parse::condition(text, true)
    }
}

impl Operand {
    /// Parses one value.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        parse::operand(text)
    }
}

#[cfg(test)]
mod tests;
