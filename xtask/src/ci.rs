//! `ci`: every step is a command one can run alone.

use std::process::Command;

use anyhow::{Context, ensure};

use crate::{root, say, tidy};

/// Steps before `tidy`; all of them need nothing but cargo.
const STEPS: [&[&str]; 4] = [
    &["fmt", "--all", "--check"],
    &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"],
    &["doc", "--workspace", "--no-deps", "--locked"],
    &["test", "--workspace", "--locked", "--no-fail-fast"],
];

/// Runs the steps in order and stops at the first that fails.
pub fn run() -> anyhow::Result<()> {
    tidy::run()?;
    for step in STEPS {
        say(format_args!("$ cargo {}", step.join(" ")));
        let status = Command::new("cargo")
            .args(step)
            .env("RUSTDOCFLAGS", "-D warnings")
            .current_dir(root())
            .status()
            .context("failed to run cargo")?;
        ensure!(status.success(), "cargo {} failed", step.join(" "));
    }
    Ok(())
}
