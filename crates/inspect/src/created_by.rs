//! Where a goroutine was started.

use std::sync::Arc;

/// A place in the source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Function whose code holds the `go` statement, its symbol name.
    pub func: Arc<str>,
    /// Source file.
    pub file: Arc<str>,
    /// Source line; of the inlined function when the statement was inlined.
    pub line: u32,
    /// Bytes from the function's entry to the return address of the statement's call.
    pub offset: u64,
}
