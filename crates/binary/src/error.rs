//! What can be wrong with a file.

use std::io;
use thiserror::Error;

/// Why a fact cannot be had from an image.
#[derive(Debug, Error)]
pub enum Error {
    /// The first bytes are not ELF's.
    #[error("not an ELF file")]
    NotElf,
    /// ELF for a machine, class or byte order that is not supported.
    #[error("not a 64-bit x86-64 executable ({0})")]
    WrongMachine(String),
    /// ELF, but nothing of Go in it.
    #[error("not a Go executable ({0})")]
    NotGo(String),
    /// Go, but of a kind that is not supported.
    #[error("not an ordinary Go executable: {0}")]
    UnsupportedKind(String),
    /// The file ends before something that its headers announce.
    #[error("truncated file: {what} at offset 0x{offset:x} needs {size} bytes")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// File offset in bytes.
        offset: u64,
        /// Bytes needed.
        size: u64,
    },
    /// A structure contradicts itself.
    #[error("corrupt {what}: {detail}")]
    Corrupt {
        /// Which structure.
        what: &'static str,
        /// How.
        detail: String,
    },
    /// The image lacks a thing that the question needs.
    #[error("the executable has no {0}")]
    Missing(String),
    /// An address is not backed by the file.
    #[error("address 0x{address:x} is not in the file")]
    Unmapped {
        /// Stated virtual memory address.
        address: u64,
    },
    /// Reading failed.
    #[error("failed to read {what}")]
    Io {
        /// What was being read.
        what: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// A [`Error::Corrupt`].
    pub fn corrupt(what: &'static str, detail: impl Into<String>) -> Self {
        Self::Corrupt { what, detail: detail.into() }
    }
}
