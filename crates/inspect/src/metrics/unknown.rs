//! Why a figure is not known.

use std::sync::Arc;
use thiserror::Error;

/// A figure, or why it is not known.
pub type Value<T> = Result<T, Unknown>;

/// Why a figure is not known. Cheap to clone; the same reason stands at every figure that
/// depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum Unknown {
    /// The runtime of this Go version does not keep it.
    #[error("this Go version does not keep it")]
    NotInVersion,
    /// It was not asked for.
    #[error("not asked for")]
    NotAsked,
    /// Neither a symbol nor code says where the global variable is.
    #[error("cannot tell where {0} is: no symbol, and the functions that use it are not as known")]
    NoGlobal(&'static str),
    /// What lies at the candidates for the global variable is not what it must be.
    #[error("what is at {0} in memory is not what it must be")]
    NotConfirmed(&'static str),
    /// Where a field of the runtime's structs is, is not known for this build; the text is
    /// [`binary::layout::LayoutError`]'s.
    #[error("{0}")]
    NoLayout(Arc<str>),
    /// The memory could not be read.
    #[error("the memory of {0} cannot be read")]
    Unreadable(&'static str),
    /// It changed each time it was read.
    #[error("{0} changed each time it was read")]
    Torn(&'static str),
    /// What was read cannot be: the memory of the process is damaged, or it is not the
    /// executable that was looked at.
    #[error("what was read of {0} cannot be")]
    Implausible(&'static str),
}
