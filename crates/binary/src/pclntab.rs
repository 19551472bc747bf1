//! The pc-line table (pclntab): where it is, what its header says, and how its streams
//! are decoded. Layout: `cmd/link/internal/ld/pcln.go` and `runtime/symtab.go`.

mod format;
mod header;
mod table;
mod values;

pub(crate) use format::Format;
pub(crate) use header::{Header, Locate};
pub(crate) use table::{Record, Table};
