//! `gospect man DIR`: one page for the program and one for each subcommand.

use crate::args::Cli;
use crate::failure::Outcome;
use anyhow::Context as _;
use clap::CommandFactory as _;
use std::path::Path;

/// Writes the pages to `dir`, which is made when it is not there.
pub fn run(dir: &Path) -> anyhow::Result<Outcome> {
    std::fs::create_dir_all(dir)
        .with_context(|| format!("failed to make the directory {}", dir.display()))?;
    let mut root = Cli::command();
    root.build();
    write_page(dir, root.clone(), "gospect")?;
    for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = format!("gospect-{}", command.get_name());
        write_page(dir, command.clone().name(name.clone()), &name)?;
    }
    Ok(Outcome::Done)
}

fn write_page(dir: &Path, command: clap::Command, name: &str) -> anyhow::Result<()> {
    let path = dir.join(format!("{name}.1"));
    let mut page = Vec::new();
    clap_mangen::Man::new(command).title(name.to_uppercase()).render(&mut page)?;
    std::fs::write(&path, page).with_context(|| format!("failed to write {}", path.display()))
}
