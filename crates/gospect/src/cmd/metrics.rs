//! `gospect metrics`: figures of running Go programs, once, repeated, or served.

mod serve;
mod write;

use crate::args::{MetricsArgs, WatchArgs};
use crate::failure::{Outcome, nothing, usage};
use crate::monitor::{Chosen, Fleet, Wants, rows};
use crate::signals::Signals;
use crate::sink;
use process::FileIdentity;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::time::{Duration, Instant};
use write::Writer;

/// How often signals are looked for while nothing is read.
const POLL: Duration = Duration::from_millis(50);

/// Between two readings when only a duration is given.
const INTERVAL: Duration = Duration::from_secs(1);

/// Reads and shows.
pub fn run(args: &MetricsArgs) -> anyhow::Result<Outcome> {
    let fleet = open(&args.watch)?;
    let wants = Wants { states_up_to: args.watch.states_up_to };
    let signals = Signals::install()?;
    let end = args.duration.map(|span| Instant::now() + span.0);
    if let Some(address) = args.listen {
        let until = serve::Until { signals: &signals, end };
        return serve::serve(address, serve::Source::new(fleet, wants, args.quiet), &until);
    }
    repeat(args, fleet, wants, &signals, end)
}

/// The processes that the command line names.
pub fn open(args: &WatchArgs) -> anyhow::Result<Fleet> {
    let ways = [!args.pids.is_empty(), args.exe.is_some(), args.all];
    match ways.into_iter().filter(|way| *way).count() {
        0 => return Err(usage("no process named: give --pid PID, --exe PATH or --all")),
        1 => {}
        _ => return Err(usage("give one of --pid, --exe and --all")),
    }
    allow_many_files();
    let file = args.exe.as_deref().map(FileIdentity::of).transpose()?;
    Fleet::open(Chosen { pids: args.pids.clone(), file, all: args.all })
}

/// Each process takes two descriptors; of the soft limit, mostly 1024, that is soon too many.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Without it the first thousand descriptors have to do.
    let _ = setrlimit(Resource::Nofile, wanted);
}

fn repeat(
    args: &MetricsArgs,
    mut fleet: Fleet,
    wants: Wants,
    signals: &Signals,
    end: Option<Instant>,
) -> anyhow::Result<Outcome> {
    let once = args.interval.is_none() && args.duration.is_none();
    let interval = args.interval.map_or(INTERVAL, |span| span.0);
    let mut writer = Writer::open(args)?;
    let mut next = Instant::now();
    loop {
        let mut all = Vec::new();
        let started = Instant::now();
        let round = fleet.round(wants, &mut |watched, read| all.push(rows(watched, &read)));
        writer.round(&all, round, started.elapsed())?;
        if once || fleet.is_done() {
            break;
        }
        next += interval;
        let now = Instant::now();
        if next < now {
            // What was missed is not made up for.
            next = now;
        }
        if !wait(next, end, signals) {
            break;
        }
    }
    let read = writer.finish(&fleet)?;
    if read == 0 {
        let what = if args.watch.pids.is_empty() { "no such process runs" } else { "it has ended" };
        return Err(nothing(what));
    }
    Ok(Outcome::Done)
}

/// Waits until `next`; false when the time is up, or a signal came.
fn wait(next: Instant, end: Option<Instant>, signals: &Signals) -> bool {
    loop {
        let now = Instant::now();
        if signals.detach_asked(false) || end.is_some_and(|end| now >= end) {
            return false;
        }
        if now >= next {
            return true;
        }
        let left = end.map_or(next, |end| end.min(next)).saturating_duration_since(now);
        std::thread::sleep(left.min(POLL));
    }
}

/// Says why only what the kernel counts is there.
fn say_restricted(pid: u32, exe: &str, reason: &str) {
    sink::say(format_args!("{pid} {exe}: only what the kernel counts: {reason}"));
}
