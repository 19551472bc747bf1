//! Derives the table of runtime struct layouts from the toolchains.

use crate::{root, say};
use anyhow::{Context as _, bail, ensure};
use binary::layout::{self, DerivedStruct, RuntimeLayouts};
use binary::{DebugInfo, GoVersion, Image};
use std::path::Path;
use std::sync::Arc;
use testkit::{Fixture, Mode, REQUIRED, Toolchain, toolchain, toolchains};

/// The program whose debug info is read: net/http brings in all that the table has.
const PROGRAM: &str = "httpserver";

/// The table, from the top of the repository.
const TABLE: &str = "crates/binary/data/layouts.tsv";

/// Mismatches printed.
const MAX_LISTED: usize = 20;

#[derive(clap::Args)]
pub struct Args {
    /// Write nothing; fail when the committed table or the file of names is out of date.
    #[arg(long)]
    check: bool,
}

/// A release's name (`go1.27.3`) and its structs.
type Release = (String, Vec<DerivedStruct>);

/// Builds, derives, and writes or compares.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut releases = Vec::new();
    for version in REQUIRED {
        releases.push(derive(&toolchain(version))?);
    }
    let wrong_names = layout::check_names(&releases);
    ensure!(wrong_names.is_empty(), "data/layouts.names: {}", wrong_names.join("; "));
    let table = layout::render_table(&releases);
    let path = root().join(TABLE);
    if args.check {
        let committed = std::fs::read_to_string(&path).with_context(|| TABLE.to_owned())?;
        compare(&committed, &table)?;
        others_agree()?;
    } else {
        std::fs::write(&path, &table).with_context(|| TABLE.to_owned())?;
    }
    say(format_args!("{TABLE}: {} rows, {} releases", table.lines().count() - 3, releases.len()));
    Ok(())
}

fn derive(toolchain: &Toolchain) -> anyhow::Result<Release> {
    let binary = Fixture::build(PROGRAM, toolchain, Mode::Exe);
    let debug = open(&binary).with_context(|| binary.display().to_string())?;
    let structs = layout::derive_structs(&debug)?;
    ensure!(!structs.is_empty(), "{}: no runtime structs", binary.display());
    Ok((format!("go{}", toolchain.version), structs))
}

fn open(path: &Path) -> anyhow::Result<DebugInfo> {
    let image = Image::open(Arc::new(std::fs::read(path)?))?;
    DebugInfo::open(&image)?.context("no debug info")
}

fn compare(committed: &str, derived: &str) -> anyhow::Result<()> {
    let mut differ: Vec<&str> =
        derived.lines().filter(|row| !committed.lines().any(|known| known == *row)).collect();
    differ.extend(committed.lines().filter(|row| !derived.lines().any(|new| new == *row)));
    if differ.is_empty() && committed == derived {
        return Ok(());
    }
    for row in differ.iter().take(MAX_LISTED) {
        say(row);
    }
    bail!("{TABLE} is out of date in {} rows: run `cargo xtask offsets`", differ.len());
}

/// Toolchains that have no column of their own must agree with the column that their
/// binaries would be given.
fn others_agree() -> anyhow::Result<()> {
    let others = toolchains()
        .into_iter()
        .filter(|found| REQUIRED.iter().all(|version| toolchain(version).version != found.version));
    for other in others {
        let (release, structs) = derive(&other)?;
        let version = GoVersion::parse(&release);
        let layouts = RuntimeLayouts::new(&version, None);
        let mut wrong = Vec::new();
        for structure in &structs {
            for field in &structure.fields {
                match layouts.field(structure.name, &field.path) {
                    Ok(at) if (at.offset, at.size) == (field.offset, field.size) => {}
                    Ok(_) => wrong.push(format!("{}.{}", structure.name, field.path)),
                    // Refusing is right for what is not known.
                    Err(_) => {}
                }
            }
        }
        ensure!(wrong.is_empty(), "the table is wrong for {release}: {}", wrong.join(", "));
        say(format_args!("{release} agrees with the table"));
    }
    Ok(())
}
