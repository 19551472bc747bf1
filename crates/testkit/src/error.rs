//! What can go wrong before a test begins.

use std::path::PathBuf;

/// Why a toolchain or a fixture is not there.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A Go version the tests need is not installed.
    #[error("go {version} is not installed at {path}: run `make setup`")]
    NoToolchain {
        /// Version asked for.
        version: String,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// There is no such fixture.
    #[error("no fixture {name} in {root}")]
    NoFixture {
        /// Name asked for.
        name: String,
        /// Directory of the fixtures.
        root: PathBuf,
    },
    /// `go build` failed.
    #[error("failed to build fixture {name} with go {version} as {label}:\n{stderr}")]
    Build {
        /// Fixture.
        name: String,
        /// Go version.
        version: String,
        /// Recipe.
        label: String,
        /// What the compiler said.
        stderr: String,
    },
    /// A file or a process could not be handled.
    #[error("failed to {action} {path}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
}

impl Error {
    /// Wraps an I/O error; made to be used with `map_err`.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}
