//! `soak`: the tests that attack the safety protocol of the trampolines, in release builds and for
//! as long as asked. In the ordinary suite each takes seconds.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, ensure};
use testkit::SOAK;

use crate::{root, say};

/// Packages and tests that ask [`testkit::soak_rounds`].
const TESTS: [(&str, &str); 3] = [
    ("gospect", "trampoline_cycles"),
    ("gospect", "trampoline_foreign"),
    ("capture-trampoline", "root_survive"),
];

#[derive(clap::Args)]
pub struct Args {
    /// Rounds of each test.
    #[arg(long, default_value_t = 1000)]
    rounds: u32,
    /// Only tests whose name contains this.
    name: Option<String>,
}

/// Runs the tests one after the other and stops at the first that fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let wanted = |name: &str| args.name.as_deref().is_none_or(|part| name.contains(part));
    for (package, test) in TESTS.into_iter().filter(|(_, test)| wanted(test)) {
        let start = Instant::now();
        let status = Command::new("cargo")
            .args(["test", "--release", "--locked", "-p", package, "--test", test])
            .args(["--", "--test-threads=1"])
            .env(SOAK, args.rounds.to_string())
            .current_dir(root())
            .status()
            .context("failed to run cargo")?;
        ensure!(status.success(), "{test} failed");
        say(format_args!("{test}: {} rounds, {} s", args.rounds, start.elapsed().as_secs()));
    }
    Ok(())
}
