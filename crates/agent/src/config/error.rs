//! What is wrong with a configuration, and where.

use std::fmt;
use std::ops::Range;
use thiserror::Error;

/// A place in the text, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongPlace {
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

impl WrongPlace {
    pub(super) fn of(text: &str, span: Option<Range<usize>>) -> Self {
        let at = span.map_or(0, |span| span.start).min(text.len());
        let before = text.get(..at).unwrap_or_default();
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        Self {
            line: before.bytes().filter(|&byte| byte == b'\n').count() + 1,
            column: before[start..].chars().count() + 1,
        }
    }
}

impl fmt::Display for WrongPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// What is wrong. It is shown as `LINE:COLUMN: what`, behind the name of the file.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{place}: {what}")]
pub struct ConfigError {
    /// Where.
    pub place: WrongPlace,
    /// What is wrong, and what was expected.
    pub what: String,
}
