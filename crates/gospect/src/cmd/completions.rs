//! `gospect completions SHELL`.

use crate::args::Cli;
use crate::failure::Outcome;
use crate::sink;
use clap::CommandFactory as _;

/// Prints the script for `shell`.
pub fn run(shell: clap_complete::Shell) -> anyhow::Result<Outcome> {
    // Into memory first: the generator panics on a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "gospect", &mut script);
    let mut out = sink::open(None)?;
    out.write_all(&script)?;
    out.flush()?;
    Ok(Outcome::Done)
}
