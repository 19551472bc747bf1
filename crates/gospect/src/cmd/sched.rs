//! `gospect sched`: every state change of every goroutine.

mod ending;
mod engine;
mod plan;
mod summary;

use crate::args::{Backend, SchedArgs};
use crate::cmd::trace::{install, who::Who};
use crate::failure::{Outcome, usage};
use crate::sink;
use crate::states::{Filter, StatesOptions};

/// Watches as asked.
pub fn run(mut args: SchedArgs) -> anyhow::Result<Outcome> {
    if args.command.is_none() && std::env::args_os().any(|arg| arg == "--") {
        return Err(usage("nothing after `--`: name the command to start"));
    }
    let (command, binary) = (args.command.take(), args.binary.take());
    let is_named = command.is_some() || args.capture.exe.is_some() || !args.capture.pids.is_empty();
    if let Some(binary) = binary.as_ref().filter(|_| is_named) {
        let binary = binary.display();
        return Err(usage(format!("`{binary}` is one too many: a process is named already")));
    }
    let who = Who::named(&args.capture, command, || binary, args.tell.quiet)?;
    if args.capture.backend == Backend::Trampoline && matches!(who, Who::Exe(_)) {
        return Err(usage(
            "the trampoline backend takes processes that run (--pid) or are started (`-- CMD`); \
             use --backend uprobe with --exe",
        ));
    }
    let options = StatesOptions {
        format: args.format,
        events: args.events,
        by: args.by,
        color: sink::is_colored(args.tell.color, args.tell.output.as_deref()),
        filter: Filter::of(&args)?,
        keep_names: args.capture.record.is_some(),
        ..StatesOptions::default()
    };
    let forced = install::forced_options()?;
    let path = args.tell.output.as_deref();
    for input in args.capture.record.as_deref().into_iter().chain(who.path()) {
        sink::keep_apart(path, input)?;
    }
    if let Some(exe) = who.path() {
        sink::keep_apart(args.capture.record.as_deref(), exe)?;
    }
    let out = match who {
        Who::Launch { .. } => sink::open_shared(path)?,
        _ => sink::open(path)?,
    };
    engine::Engine::new(&args, who, options, forced, out).run()
}
