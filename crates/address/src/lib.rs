//! Addresses have types, and bytes are read through two narrow traits.
//!
//! Three numbers name the same instruction: its address in a running process
//! ([`Avma`], actual virtual memory address), its address as the executable
//! states it ([`Svma`], stated virtual memory address) and its place in the file
//! ([`FileOffset`], what uprobes take). On a static, non-PIE executable the first two
//! are equal, so mixing them passes on simple binaries and fails on PIE: hence
//! one newtype each and no arithmetic between them without a bias.
#![forbid(unsafe_code)]

mod read;
mod space;

pub use read::{MemoryError, Part, ReadAt, ReadMemory};
pub use space::{Avma, Bias, FileOffset, Svma};
