//! How a fixture is compiled.

use std::fmt;
use std::str::FromStr;

/// The ways of building that every feature has to work with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Static executable at a fixed address, no cgo.
    Exe,
    /// Position independent, linked by Go's own linker, no cgo.
    Pie,
    /// Position independent, linked by the system's linker.
    PieExternal,
    /// With cgo, fixed address.
    Cgo,
    /// With cgo, position independent.
    CgoPie,
    /// No symbol table, no DWARF.
    Stripped,
    /// No symbol table, no DWARF, position independent.
    StrippedPie,
    /// No source paths of the machine.
    Trimpath,
    /// No optimisation, no inlining.
    NoOpt,
    /// The same, position independent.
    NoOptPie,
    /// The same, with cgo.
    NoOptCgo,
    /// GOAMD64=v3: AVX2 and BMI instructions.
    V3,
    /// The race detector (with cgo).
    Race,
}

impl Mode {
    /// Every mode, in the order of the matrix.
    pub const ALL: [Self; 11] = [
        Self::Exe,
        Self::Pie,
        Self::PieExternal,
        Self::Cgo,
        Self::CgoPie,
        Self::Stripped,
        Self::StrippedPie,
        Self::Trimpath,
        Self::NoOpt,
        Self::V3,
        Self::Race,
    ];

    /// What suites about values have to work with: they need DWARF.
    pub const WITH_VALUES: [Self; 8] = [
        Self::Exe,
        Self::Pie,
        Self::PieExternal,
        Self::Cgo,
        Self::CgoPie,
        Self::NoOpt,
        Self::NoOptPie,
        Self::NoOptCgo,
    ];

    /// Name in file names, in the matrix and in `GOSPECT_TEST_MODE`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Exe => "exe",
            Self::Pie => "pie",
            Self::PieExternal => "pie-external",
            Self::Cgo => "cgo",
            Self::CgoPie => "cgo-pie",
            Self::Stripped => "stripped",
            Self::StrippedPie => "stripped-pie",
            Self::Trimpath => "trimpath",
            Self::NoOpt => "noopt",
            Self::NoOptPie => "noopt-pie",
            Self::NoOptCgo => "noopt-cgo",
            Self::V3 => "v3",
            Self::Race => "race",
        }
    }

    /// The mode the caller asked for with `GOSPECT_TEST_MODE`, else [`Mode::Exe`].
    ///
    /// # Panics
    /// When the variable names no mode.
    #[must_use]
    pub fn selected() -> Self {
        match std::env::var("GOSPECT_TEST_MODE") {
            Ok(label) => label.parse().unwrap_or_else(|message: String| panic!("{message}")),
            Err(_) => Self::Exe,
        }
    }

    /// Whether the binary carries DWARF.
    #[must_use]
    pub fn has_dwarf(self) -> bool {
        !matches!(self, Self::Stripped | Self::StrippedPie)
    }

    /// What to hand to `go build`.
    #[must_use]
    pub fn recipe(self) -> Recipe {
        let recipe = Recipe::new(self.label());
        match self {
            Self::Exe => recipe,
            Self::Pie => recipe.arg("-buildmode=pie"),
            Self::PieExternal => {
                recipe.cgo().arg("-buildmode=pie").arg("-ldflags=-linkmode=external")
            }
            Self::Cgo => recipe.cgo().arg("-buildmode=exe"),
            Self::CgoPie => recipe.cgo().arg("-buildmode=pie"),
            Self::Stripped => recipe.arg("-ldflags=-s -w"),
            Self::StrippedPie => recipe.arg("-buildmode=pie").arg("-ldflags=-s -w"),
            Self::Trimpath => recipe.arg("-trimpath"),
            Self::NoOpt => recipe.arg("-gcflags=all=-N -l"),
            Self::NoOptPie => recipe.arg("-buildmode=pie").arg("-gcflags=all=-N -l"),
            Self::NoOptCgo => recipe.cgo().arg("-gcflags=all=-N -l"),
            Self::V3 => recipe.env("GOAMD64", "v3"),
            Self::Race => recipe.cgo().arg("-race"),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(label: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .chain(Self::WITH_VALUES)
            .find(|mode| mode.label() == label)
            .ok_or_else(|| format!("no build mode {label}"))
    }
}

/// One way of calling `go build`; [`Mode`] names the usual ones, tests of odd inputs
/// (other architectures, shared objects, plugins) make their own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recipe {
    /// Short name, part of the file name.
    pub label: String,
    /// Environment besides the common one.
    pub env: Vec<(String, String)>,
    /// Arguments of `go build`.
    pub args: Vec<String>,
    /// Whether an `import "C"` is added to the package, so that a program that needs no cgo
    /// becomes a cgo program.
    pub import_c: bool,
}

impl Recipe {
    /// A plain static build under the name `label`.
    #[must_use]
    pub fn new(label: &str) -> Self {
        Self { label: label.to_owned(), env: Vec::new(), args: Vec::new(), import_c: false }
    }

    /// Adds an argument of `go build`.
    #[must_use]
    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    /// Sets an environment variable of the build.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Makes it a cgo program.
    #[must_use]
    pub fn cgo(mut self) -> Self {
        self.import_c = true;
        self
    }
}
