//! Tasks of the repository: `cargo run -p xtask -- TASK`.

mod bench;
mod ci;
mod delve;
mod matrix;
mod offsets;
mod signatures;
mod soak;
mod tidy;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Tasks of the repository")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// What tracing costs, both backends in one run; results in bench/latest.json.
    Bench(bench::Args),
    /// Formatting, lints, documentation, tidy and all tests: what has to pass.
    Ci,
    /// What neither rustfmt nor clippy looks at: file lengths, forbidden code, crate borders.
    Tidy,
    /// Run the core suite for every Go version and build mode; results in docs/matrix.json.
    Matrix(matrix::Args),
    /// The tests that attack the safety protocol, a thousand rounds each; needs root and an hour.
    Soak(soak::Args),
    /// Values beside those that delve reads, which has to be installed; results in docs/delve.json.
    Delve(delve::Args),
    /// Derive the table of runtime struct layouts from the toolchains.
    Offsets(offsets::Args),
    /// Derive the table of the standard library's signatures from the toolchains.
    Signatures(signatures::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().task {
        Task::Bench(args) => bench::run(&args),
        Task::Ci => ci::run(),
        Task::Tidy => tidy::run(),
        Task::Matrix(args) => matrix::run(&args),
        Task::Soak(args) => soak::run(&args),
        Task::Delve(args) => delve::run(&args),
        Task::Offsets(args) => offsets::run(&args),
        Task::Signatures(args) => signatures::run(&args),
    }
}

/// The top of the repository.
fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// One line for the person who runs a task.
#[expect(clippy::print_stdout, reason = "a task's output")]
fn say(line: impl std::fmt::Display) {
    println!("{line}");
}
