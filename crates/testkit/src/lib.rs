//! What tests are built from: Go toolchains, fixture programs compiled on demand, a harness
//! around the `gospect` binary, and golden files.
//!
//! Hand in a fixture name, a [`Toolchain`] and a [`Mode`]; get the path of a binary that is
//! compiled once and cached. Nothing here skips: a toolchain that is not there is a failure
//! that says what to run. For tests only, so failures are panics with the whole story.

#![forbid(unsafe_code)]

mod big;
mod client;
mod error;
mod fixture;
mod golden;
mod gospect;
mod mode;
mod normalise;
mod random_program;
mod running;
mod soak;
mod timeline;
mod toolchain;

pub use big::big_binary;
pub use client::prometheus_client;
pub use error::Error;
pub use fixture::{Fixture, cache_dir, source_root};
pub use golden::assert_golden;
pub use gospect::{Gospect, Output};
pub use mode::{Mode, Recipe};
pub use normalise::Mask;
pub use random_program::RandomProgram;
pub use running::{Running, signal_process};
pub use soak::{SOAK, soak_rounds};
pub use timeline::{Slice, Timeline, import_timeline};
pub use toolchain::{REQUIRED, Toolchain, newest, oldest, selected, toolchain, toolchains};
