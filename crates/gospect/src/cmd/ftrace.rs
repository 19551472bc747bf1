//! `gospect ftrace`: go-ftrace's command line on `gospect trace`'s machinery.

use crate::args::{Cli, Command, FtraceArgs};
use crate::failure::Outcome;
use clap::Parser as _;

/// Translates the arguments and traces every process that runs the binary.
pub fn run(args: FtraceArgs) -> anyhow::Result<Outcome> {
    let Some((binary, rules)) = args.binary_and_rules.split_first() else {
        return Err(crate::failure::usage("no executable named"));
    };
    let mut line = vec!["gospect".to_owned(), "trace".to_owned(), format!("--exe={binary}")];
    line.extend(args.functions.iter().map(|pattern| format!("--uprobe-wildcards={pattern}")));
    line.push(format!("--exclude-vendor={}", args.exclude_vendor));
    line.extend(args.drilldown.iter().map(|name| format!("--drilldown={name}")));
    if args.debug {
        line.push("--verbose".to_owned());
    }
    line.extend(rules.iter().cloned());
    match Cli::try_parse_from(line)?.command {
        Command::Trace(args) => super::trace::run(*args),
        _ => unreachable!("the line above names `trace`"),
    }
}
