//! Go programs made from a seed: functions with signatures of all kinds, called with values
//! of all kinds, that log what they were given and what they gave.

mod function;
mod types;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::fixture::{build_package, cache_dir};
use crate::mode::Mode;
use crate::toolchain::Toolchain;
use types::Types;

/// What all of them share: values from a seed, and the log.
const SUPPORT: &str = include_str!("random_program/support.go");

/// Function names begin with this, which nothing else has in it.
const PREFIX: &str = "zf";

/// A program, made of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomProgram {
    /// Same seed, same program.
    pub seed: u64,
    /// Functions in it.
    pub functions: u32,
}

impl RandomProgram {
    /// A pattern that its functions match, methods too, and no other function does.
    pub const PATTERN: &'static str = "main.*zf*";

    /// The program, compiled; from the cache where it was before.
    ///
    /// It takes `-seed` for the values and `-n` for the number of calls, and writes JSON lines: for each call, in
    /// order, `truth` with `func`, `args` and `results`.
    ///
    /// # Panics
    /// When it does not build; the message holds what the compiler said.
    #[must_use]
    pub fn build(self, toolchain: &Toolchain, mode: Mode) -> PathBuf {
        self.try_build(toolchain, mode).unwrap_or_else(|error| panic!("{error}"))
    }

    fn try_build(self, toolchain: &Toolchain, mode: Mode) -> Result<PathBuf, Error> {
        let name = format!("random-{}-{}", self.seed, self.functions);
        let root = cache_dir().join("random").join(&name);
        let package = root.join("random");
        fs::create_dir_all(&package).map_err(Error::io("make", &package))?;
        put(&root.join("go.mod"), "module gospect.test/random\n\ngo 1.19\n")?;
        put(&package.join("support.go"), SUPPORT)?;
        put(&package.join("main.go"), &self.source())?;
        let sources = [root.join("go.mod"), package];
        build_package(&root, "./random", &name, &sources, toolchain, &mode.recipe())
    }

    /// The part that hangs on the seed.
    #[must_use]
    pub fn source(self) -> String {
        let mut random = Random::new(self.seed);
        let types = Types::new(&mut random);
        let mut functions = String::new();
        for number in 0..self.functions {
            functions += &function::declare(number, &types, &mut random);
        }
        let mut source = "package main\n\nimport (\n\t\"fmt\"\n\t\"unsafe\"\n)\n\nvar _ fmt.Stringer\nvar _ unsafe.Pointer\n\n".to_owned();
        source += types.declarations();
        source += &types.dynamics();
        source += "var all = []func(*source){";
        for number in 0..self.functions {
            _ = write!(source, "call{number}, ");
        }
        source + "}\n" + &functions
    }
}

/// Writes a file unless it says so already: builds that run meanwhile read it.
fn put(path: &Path, text: &str) -> Result<(), Error> {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    let fresh = path.with_extension(format!("{}.new", std::process::id()));
    fs::write(&fresh, text).map_err(Error::io("write", &fresh))?;
    fs::rename(&fresh, path).map_err(Error::io("rename", &fresh))
}

/// Numbers that are the same on every run: splitmix64 (Steele, Lea and Flood).
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// True in one of `n` cases.
    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_program_and_another_seed_another() {
        let source = |seed| RandomProgram { seed, functions: 20 }.source();
        assert_eq!(source(1), source(1));
        assert_ne!(source(1), source(2));
        assert_eq!(source(3).matches("//go:noinline\nfunc").count(), 20);
    }
}
