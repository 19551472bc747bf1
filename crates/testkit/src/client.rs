//! A program with the Prometheus Go client in it.

use std::path::{Path, PathBuf};

use crate::fixture::build_package;
use crate::mode::Recipe;
use crate::toolchain::Toolchain;

/// The module with its source: the one fixture that others' modules belong to.
fn source_root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/client");
    root.canonicalize().unwrap_or(root)
}

/// `fixtures/client`, which serves what the client's default collectors tell of it. The first build
/// takes the client from the module proxy.
///
/// # Panics
/// When it does not build; the message holds what the compiler said.
#[must_use]
pub fn prometheus_client(toolchain: &Toolchain) -> PathBuf {
    let root = source_root();
    let sources = ["go.mod", "go.sum", "main.go"].map(|name| root.join(name));
    // Fixtures are built without a network otherwise; empty is what is configured.
    let proxy = std::env::var("GOPROXY").unwrap_or_default();
    let recipe = Recipe::new("exe").env("GOPROXY", &proxy);
    build_package(&root, ".", "client", &sources, toolchain, &recipe)
        .unwrap_or_else(|error| panic!("{error}"))
}
