//! What the linker embedded about the build (`runtime/debug.BuildInfo`).

use std::fmt;

/// A Go release: `go1.27.3`, `go1.25.5 X:greenteagc`, `go1.24.5-microsoft`, `devel go1.28-abc`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoVersion {
    /// 1.
    pub major: u32,
    /// 27 in `go1.27.3`.
    pub minor: u32,
    /// 3 in `go1.27.3`; 0 when absent.
    pub patch: u32,
    /// What follows the number (`rc1`, `X:greenteagc`, `-microsoft`), trimmed; empty for a plain release.
    pub rest: String,
    /// Whether it is a development build (`devel ...`).
    pub devel: bool,
    /// As it stands in the file.
    pub text: String,
}

impl fmt::Display for GoVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A module of the build.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Module path.
    pub path: String,
    /// Version (`(devel)` for the main module of a plain build).
    pub version: String,
    /// Checksum; empty when there is none.
    pub sum: String,
    /// The module that replaces it.
    pub replace: Option<Box<Module>>,
}

/// The embedded build info.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildInfo {
    /// The Go version.
    pub go_version: GoVersion,
    /// Package path of `main`.
    pub path: String,
    /// The main module.
    pub main: Module,
    /// Dependencies, in file order.
    pub dependencies: Vec<Module>,
    /// Build settings (`-buildmode`, `CGO_ENABLED`, `GOAMD64`, `vcs.revision` ...), in file order.
    pub settings: Vec<(String, String)>,
}

impl BuildInfo {
    /// The value of a build setting.
    pub fn setting(&self, key: &str) -> Option<&str> {
        self.settings.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}
