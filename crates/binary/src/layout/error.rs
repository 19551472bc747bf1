//! Why a layout cannot be had.

use thiserror::Error;

/// Why the place of a field, or the size of a struct, is not known.
#[derive(Debug, Error)]
pub enum LayoutError {
    /// The struct of this executable has no such field.
    #[error("{structure} of {version} has no field {field}")]
    NoField {
        /// The struct.
        structure: String,
        /// The field asked for.
        field: String,
        /// The executable's Go version.
        version: String,
    },
    /// There is no such struct in this version.
    #[error("{version} has no struct {structure}")]
    NoStruct {
        /// The struct asked for.
        structure: String,
        /// The executable's Go version.
        version: String,
    },
    /// Neither debug info nor the table can tell.
    #[error(
        "the layout of {structure} in {version} is not known ({why}): use a build with debug \
         info, or name its debug file"
    )]
    UnknownBuild {
        /// The struct asked for.
        structure: String,
        /// The executable's Go version.
        version: String,
        /// What makes it unknown.
        why: &'static str,
    },
    /// A patch release moved it, and the executable is of an older one.
    #[error(
        "{structure} of {version} is not known from {inserted} on, which {release} or an \
         earlier patch release inserted: use a build with debug info"
    )]
    Moved {
        /// The struct.
        structure: String,
        /// The field that was inserted.
        inserted: String,
        /// The first release known to have it.
        release: String,
        /// The executable's Go version.
        version: String,
    },
    /// The debug info could not be read.
    #[error(transparent)]
    Binary(#[from] crate::Error),
}
