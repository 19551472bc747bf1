//! Why goroutines cannot be read.

use binary::layout::LayoutError;
use thiserror::Error;

/// Why there is no snapshot.
#[derive(Debug, Error)]
pub enum Error {
    /// Where the fields of the runtime's structs are is not known.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The executable's facts cannot be had.
    #[error(transparent)]
    Binary(#[from] binary::Error),
    /// Neither a symbol nor code says where a global variable is.
    #[error(
        "cannot tell where {0} is: the executable has no symbols, and the functions that use it \
         are not as known; use a build with symbols"
    )]
    NoGlobal(&'static str),
    /// Memory at the candidates for a global variable is not what it must be.
    #[error(
        "what is at {0} in memory is no list of goroutines: the process may have just begun, or \
         the executable is not the one that runs"
    )]
    NotConfirmed(&'static str),
}
