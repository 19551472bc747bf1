//! A program with the Prometheus Go client in it.

use std::path::PathBuf;

use crate::fixture::Fixture;
use crate::mode::Recipe;
use crate::toolchain::Toolchain;

/// `fixtures/client`, which serves what the client's default collectors tell of it. The first build
/// takes the client from the module proxy.
///
/// # Panics
/// When it does not build; the message holds what the compiler said.
#[must_use]
pub fn prometheus_client(toolchain: &Toolchain) -> PathBuf {
    Fixture::module("client", toolchain, &Recipe::new("exe"))
}
