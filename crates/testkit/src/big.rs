//! A program as large as large services are.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::fixture::{build_package, cache_dir};
use crate::mode::Recipe;
use crate::toolchain::Toolchain;

/// Packages generated.
const PACKAGES: usize = 40;
/// Functions in each of them.
const FUNCTIONS: usize = 500;

/// A binary of more than 60 MB with 20,000 functions of its own, called `big/p007.F0123`; it prints the sum of one call of each and ends. Generated and kept.
///
/// # Panics
/// When it cannot be written or built.
#[must_use]
pub fn big_binary(toolchain: &Toolchain) -> PathBuf {
    try_big(toolchain).unwrap_or_else(|error| panic!("{error}"))
}

fn try_big(toolchain: &Toolchain) -> Result<PathBuf, Error> {
    let root = cache_dir().join("big-source");
    write(&root.join("go.mod"), "module big\n\ngo 1.19\n")?;
    let mut main =
        String::from("// Calls every generated function once.\npackage main\n\nimport (\n");
    for package in 0..PACKAGES {
        let _ = writeln!(main, "\t\"big/p{package:03}\"");
        write(&root.join(format!("p{package:03}/p.go")), &package_source(package))?;
    }
    main.push_str(")\n\nfunc main() {\n\tsum := 0\n");
    for package in 0..PACKAGES {
        let _ = writeln!(main, "\tsum += p{package:03}.All(sum)");
    }
    main.push_str("\tprintln(sum)\n}\n");
    write(&root.join("main.go"), &main)?;
    let recipe = Recipe::new("exe").arg("-ldflags=-compressdwarf=false");
    build_package(&root, ".", "big_binary", std::slice::from_ref(&root), toolchain, &recipe)
}

/// One package: functions with a switch each, so that code, line tables and DWARF grow.
fn package_source(package: usize) -> String {
    let mut text = format!("package p{package:03}\n\nimport \"strconv\"\n");
    for number in 0..FUNCTIONS {
        let _ =
            writeln!(text, "\n//go:noinline\nfunc F{number:04}(a, b int, s string) (sum int) {{");
        for step in 0..8 {
            let _ = writeln!(
                text,
                "\tif v{step} := a*{number} + b; v{step}%{} == {step} {{\n\t\tsum += v{step} + len(strconv.Itoa(v{step})+s)\n\t}} else {{\n\t\tsum -= len(s) ^ v{step}\n\t}}",
                step + 3
            );
        }
        text.push_str("\treturn sum\n}\n");
    }
    text.push_str("\n// All calls each function.\nfunc All(x int) (sum int) {\n");
    for number in 0..FUNCTIONS {
        let _ = writeln!(text, "\tsum += F{number:04}(x, {number}, \"s\")");
    }
    text.push_str("\treturn sum\n}\n");
    text
}

/// Writes a file unless it holds that text already (its time is left alone then).
fn write(path: &Path, text: &str) -> Result<(), Error> {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(Error::io("make", dir))?;
    }
    let fresh = path.with_extension(format!("new{}", std::process::id()));
    fs::write(&fresh, text).map_err(Error::io("write", &fresh))?;
    fs::rename(&fresh, path).map_err(Error::io("rename", &fresh))
}
