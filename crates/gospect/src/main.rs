//! The command line and the wiring: which file or process, which crates in which
//! order, and the exit code. All printing happens here.

mod agent;
mod args;
mod clock;
mod cmd;
mod core_dump;
mod duration;
mod ends;
mod explain;
mod facts;
mod failure;
mod http;
mod http_get;
mod launch;
mod monitor;
mod pipeline;
mod recording;
mod session;
mod signals;
mod sink;
mod spans;
mod states;
mod symbols;
mod target;
mod tariff;

use args::{Cli, Command};
use clap::Parser as _;
use failure::Outcome;
use std::io::Write as _;
use std::process::ExitCode;

fn run(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Info(args) => cmd::info::run(&args),
        Command::Funcs(args) => cmd::funcs::run(&args),
        Command::Types(args) => cmd::types::run(&args),
        Command::Trace(args) => cmd::trace::run(*args),
        Command::Agent(args) => cmd::agent::run(args),
        Command::Ftrace(args) => cmd::ftrace::run(*args),
        Command::Sched(args) => cmd::sched::run(*args),
        Command::Spans(args) => cmd::spans::run(*args),
        Command::Report(args) => cmd::report::run(&args),
        Command::Goroutines(args) => cmd::goroutines::run(&args),
        Command::Metrics(args) => cmd::metrics::run(&args),
        Command::Top(args) => cmd::top::run(&args),
        Command::Detach(args) => cmd::detach::run(&args),
        Command::Doctor(args) => cmd::doctor::run(&args),
        Command::Completions { shell } => cmd::completions::run(shell),
        Command::Man { dir } => cmd::man::run(&dir),
    }
}

fn main() -> ExitCode {
    if let Some(code) = launch::held_exec(std::env::args_os()) {
        return code;
    }
    match run(Cli::parse().command) {
        Ok(outcome) => outcome.into(),
        Err(error) => {
            let (code, message) = failure::verdict(&error);
            if let Some(message) = message {
                // Nothing is left to do when stderr is gone too.
                let _ = writeln!(std::io::stderr(), "{message}");
            }
            code
        }
    }
}
