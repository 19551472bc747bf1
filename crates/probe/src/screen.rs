//! Which calls of a function are shown: conditions over values that are captured for them.

use crate::expression::{Predicate, Term};
use serde::{Deserialize, Serialize};

/// A condition of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Screening {
    /// As the person wrote it.
    pub text: String,
    /// What has to hold.
    pub predicate: Predicate,
}

/// What calls are told apart by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct By {
    /// As the person wrote it.
    pub text: String,
    /// The value; `Err` when the function has none, with the reason.
    pub term: Result<Term, String>,
}

/// What decides about the calls of one function. Hidden values stand before the shown ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Screen {
    /// So many values at entry are read for conditions and not shown.
    pub hidden_args: u16,
    /// So many values at a return likewise.
    pub hidden_results: u16,
    /// What the entry decides.
    pub entry: Option<Screening>,
    /// What the end decides; all of them have to hold.
    pub end: Vec<Screening>,
    /// What statistics are split by.
    pub by: Option<By>,
}

impl Screen {
    /// Whether it decides nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
