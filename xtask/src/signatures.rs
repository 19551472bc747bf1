//! Derives the table of the standard library's signatures from the toolchains' sources.

use crate::{root, say};
use anyhow::{Context as _, bail, ensure};
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::process::Command;
use testkit::{REQUIRED, Toolchain, toolchain};

/// Lists the functions of the toolchain that runs it, from the top of the repository.
const PROGRAM: &str = "xtask/go/signatures/main.go";

/// The table, from the top of the repository.
const TABLE: &str = "crates/binary/data/signatures.tsv.deflate";

#[derive(clap::Args)]
pub struct Args {
    /// Write nothing; fail when the committed table is out of date.
    #[arg(long)]
    check: bool,
}

/// Lists, merges, and writes or compares.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut listings = Vec::new();
    for version in REQUIRED {
        let toolchain = toolchain(version);
        listings.push((toolchain.version.clone(), listing(&toolchain)?));
        say(format_args!(
            "go{}: {} functions",
            toolchain.version,
            listings.last().map_or(0, |l| l.1.lines().count())
        ));
    }
    let table = merged(&listings)?;
    let path = root().join(TABLE);
    if args.check {
        let committed = std::fs::read(&path).with_context(|| TABLE.to_owned())?;
        let mut text = String::new();
        DeflateDecoder::new(&committed[..]).read_to_string(&mut text)?;
        if text != table {
            bail!("{TABLE} is out of date: run `cargo xtask signatures`");
        }
    } else {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(table.as_bytes())?;
        std::fs::write(&path, encoder.finish()?).with_context(|| TABLE.to_owned())?;
    }
    say(format_args!("{TABLE}: {} rows, {} releases", table.lines().count() - 1, listings.len()));
    Ok(())
}

/// What the program prints when the toolchain runs it, type-checking its own sources.
fn listing(toolchain: &Toolchain) -> anyhow::Result<String> {
    let bin = toolchain.go.parent().context("a go command in no directory")?;
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new(&toolchain.go)
        .args(["run", PROGRAM])
        .current_dir(root())
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("GOROOT", toolchain.goroot())
        .env("GOTOOLCHAIN", "local")
        .env("GO111MODULE", "off")
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "")
        .output()
        .with_context(|| toolchain.go.display().to_string())?;
    ensure!(
        output.status.success(),
        "go{}: {}",
        toolchain.version,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// One row for each signature that a symbol has, with a mask of the releases.
fn merged(listings: &[(String, String)]) -> anyhow::Result<String> {
    let mut rows: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for (bit, (_, listing)) in listings.iter().enumerate() {
        for line in listing.lines() {
            let (symbol, signature) = line.split_once('\t').context("a line without a tab")?;
            *rows.entry((symbol, signature)).or_default() |= 1 << bit;
        }
    }
    let versions: Vec<String> =
        listings.iter().map(|(version, _)| format!("go{version}")).collect();
    let mut text = format!("#{}\n", versions.join("\t"));
    for ((symbol, signature), mask) in rows {
        writeln!(text, "{symbol}\t{mask:x}\t{signature}")?;
    }
    Ok(text)
}
