//! `gospect trace`: the function graph.

pub(super) mod backend;
mod choice;
mod end;
mod engine;
mod fallback;
pub(crate) mod install;
mod progress;
mod summary;
pub(super) mod who;

use crate::args::{Backend, TraceArgs};
use crate::failure::{Outcome, usage};
use crate::sink;

/// What sensors and `--functions` name.
pub(crate) fn spans_selection(
    choice: &crate::args::SpanChoice,
) -> anyhow::Result<probe::selection::Selection> {
    Ok(crate::spans::selection(choice, choice::within_spans(choice)?))
}

/// Traces as asked.
pub fn run(mut args: TraceArgs) -> anyhow::Result<Outcome> {
    if args.command.is_none() && std::env::args_os().any(|arg| arg == "--") {
        return Err(usage("nothing after `--`: name the command to start"));
    }
    let who = who::Who::resolve(&mut args)?;
    let selection = match &args.spans {
        Some(choice) => spans_selection(choice)?,
        None => choice::selection(&args)?,
    };
    if args.capture.backend == Backend::Trampoline && matches!(who, who::Who::Exe(_)) {
        return Err(usage(
            "the trampoline backend takes processes that run (--pid) or are started (`-- CMD`); \
             use --backend uprobe with --exe",
        ));
    }
    let forced = install::forced_options()?;
    let path = args.show.tell.output.as_deref();
    for input in args.capture.record.as_deref().into_iter().chain(who.path()) {
        sink::keep_apart(path, input)?;
    }
    if let Some(exe) = who.path() {
        sink::keep_apart(args.capture.record.as_deref(), exe)?;
    }
    let out = match who {
        who::Who::Launch { .. } => sink::open_shared(path)?,
        _ => sink::open(path)?,
    };
    engine::Engine::new(&args, who, &selection, forced, out)?.run()
}
