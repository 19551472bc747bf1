//! `gospect goroutines`: what every goroutine does now.

mod grouping;
mod listing;

use crate::args::{GoroutinesArgs, GoroutinesFormat};
use crate::clock;
use crate::failure::{Outcome, nothing, usage};
use crate::sink;
use crate::target::Target;
use address::{Bias, ReadMemory};
use anyhow::Context as _;
use binary::layout::RuntimeLayouts;
use grouping::Groups;
use inspect::{Options, Registers, Shown, Snapshot, State, Walked};
use listing::{Lister, Names};
use output::GoroutineSummary;
use process::Process;
use std::io::Write;

/// Shows the goroutines.
pub fn run(args: &GoroutinesArgs) -> anyhow::Result<Outcome> {
    check(args)?;
    match (&args.core, args.pid) {
        (Some(core), _) => of_core(args, core),
        (None, Some(pid)) => of_process(args, pid),
        (None, None) => Err(usage("no process named: give --pid PID or --core FILE")),
    }
}

fn check(args: &GoroutinesArgs) -> anyhow::Result<()> {
    if args.group.is_some() && args.format == GoroutinesFormat::Go {
        return Err(usage("--format go has no form for groups"));
    }
    if let Some(state) = &args.state
        && !State::NAMES.contains(&state.to_lowercase().as_str())
    {
        return Err(usage(format!("no state `{state}`; there are {}", State::NAMES.join(", "))));
    }
    if args.core.is_some() && args.pid.is_some() {
        return Err(usage("give --pid PID or --core FILE, not both"));
    }
    Ok(())
}

fn of_process(args: &GoroutinesArgs, pid: u32) -> anyhow::Result<Outcome> {
    if args.binary.is_some() {
        return Err(usage("with --pid the executable is known: leave BIN out"));
    }
    let process = Process::open(pid)?;
    let target = Target::of_process(&process, args.debug_file.as_deref())?;
    let memory = process.memory()?;
    let bias = process.bias(target.executable.image().base())?;
    let view = View { target: &target, memory: &memory, bias, registers: None, pid: Some(pid) };
    let outcome = show(args, &view)?;
    // A process that ended in between leaves half of a list.
    if outcome.unreadable > 0 && !process.is_alive() {
        anyhow::bail!("process {pid} ended while it was read");
    }
    finish(outcome)
}

fn of_core(args: &GoroutinesArgs, path: &std::path::Path) -> anyhow::Result<Outcome> {
    let dump = crate::core_dump::CoreDump::open(path)?;
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => dump.executable_path().with_context(|| {
            format!("{} does not say which executable it is of: give BIN", path.display())
        })?,
    };
    let target = Target::of_path(&binary, args.debug_file.as_deref())?;
    let bias = dump.bias(&target.executable)?;
    dump.check(&target.executable, &binary, bias)?;
    if dump.missing() > 0 {
        let dump_path = path.display();
        sink::say(format_args!("{dump_path} was cut: {} bytes are missing", dump.missing()));
    }
    let memory = dump.memory(&target.executable, bias);
    let threads = dump.goroutine_registers(&target, &memory)?;
    let registers = |m| threads.of(m);
    let view =
        View { target: &target, memory: &memory, bias, registers: Some(&registers), pid: None };
    finish(show(args, &view)?)
}

fn finish(walked: Counted) -> anyhow::Result<Outcome> {
    if walked.shown == 0 {
        return Err(nothing(format!("none of {} goroutines is in that state", walked.all)));
    }
    Ok(Outcome::Done)
}

/// What was counted.
struct Counted {
    all: u64,
    shown: u64,
    unreadable: u64,
}

/// What goroutines are read from.
struct View<'a> {
    target: &'a Target,
    memory: &'a dyn ReadMemory,
    bias: Bias,
    registers: Option<&'a dyn Fn(address::Avma) -> Option<Registers>>,
    pid: Option<u32>,
}

fn show(args: &GoroutinesArgs, view: &View<'_>) -> anyhow::Result<Counted> {
    let executable = &view.target.executable;
    // The layouts of plain releases are known; debug information takes memory to read.
    let debug = if needs_debug(executable.go_version()) || args.debug_file.is_some() {
        view.target.debug_info()?
    } else {
        None
    };
    let layouts = RuntimeLayouts::new(executable.go_version(), debug.as_ref());
    let context = || view.target.shown.display().to_string();
    let snapshot =
        Snapshot::open(executable, &layouts, view.memory, view.bias).with_context(context)?;
    let snapshot = match view.registers {
        Some(registers) => snapshot.with_registers(registers),
        None => snapshot,
    };
    let mut out = sink::open(args.output.as_deref())?;
    let lister = Lister {
        functions: if args.system { Shown::All } else { Shown::User },
        now_ns: view.pid.map(|_| clock::monotonic_ns()),
        stacks: !args.no_stacks,
    };
    let mut printer =
        Printer { args, groups: args.group.map(Groups::new), shown: 0, out: &mut out };
    let mut result = Ok(());
    let walked = snapshot.walk(Options { stacks: !args.no_stacks }, &mut |goroutine| {
        if result.is_ok() && printer.wants(&goroutine) {
            result = printer.print(&lister.listed(&goroutine));
        }
    })?;
    result?;
    let shown = printer.finish(&summary(view, &snapshot, walked))?;
    out.flush()?;
    Ok(Counted { all: walked.goroutines, shown, unreadable: walked.unreadable })
}

fn needs_debug(version: &binary::GoVersion) -> bool {
    RuntimeLayouts::new(version, None).field("runtime.g", "startpc").is_err()
}

fn summary(view: &View<'_>, snapshot: &Snapshot<'_>, walked: Walked) -> GoroutineSummary {
    let found = snapshot.list().candidate();
    GoroutineSummary {
        pid: view.pid,
        go_version: view.target.executable.go_version().to_string(),
        goroutines: walked.goroutines,
        shown: 0,
        torn: walked.torn,
        unreadable: walked.unreadable,
        found_by: found.provenance.to_string(),
    }
}

/// Writes goroutines as they come, or their groups at the end.
struct Printer<'a> {
    args: &'a GoroutinesArgs,
    groups: Option<Groups>,
    shown: u64,
    out: &'a mut dyn Write,
}

impl Printer<'_> {
    fn wants(&self, goroutine: &inspect::Goroutine) -> bool {
        let name = goroutine.state.name();
        let state = self.args.state.as_ref().is_none_or(|state| name.eq_ignore_ascii_case(state));
        // As in the runtime, its own goroutines are not in its form.
        let hidden = self.args.format == GoroutinesFormat::Go && !self.args.system;
        state && !(hidden && goroutine.system)
    }

    fn print(&mut self, listed: &output::ListedGoroutine) -> std::io::Result<()> {
        self.shown += 1;
        if let Some(groups) = &mut self.groups {
            groups.add(listed);
            return Ok(());
        }
        match self.args.format {
            GoroutinesFormat::Text => listed.write_text(self.out),
            GoroutinesFormat::Json => listed.write_json(self.out),
            GoroutinesFormat::Go => listed.write_go(self.out, &Names { system: self.args.system }),
        }
    }

    fn finish(self, summary: &GoroutineSummary) -> std::io::Result<u64> {
        let summary = GoroutineSummary { shown: self.shown, ..summary.clone() };
        for group in self.groups.map(Groups::into_sorted).unwrap_or_default() {
            match self.args.format {
                GoroutinesFormat::Json => group.write_json(self.out)?,
                GoroutinesFormat::Text | GoroutinesFormat::Go => group.write_text(self.out)?,
            }
        }
        match self.args.format {
            GoroutinesFormat::Text => summary.write_text(self.out)?,
            GoroutinesFormat::Json => summary.write_json(self.out)?,
            GoroutinesFormat::Go => {}
        }
        Ok(self.shown)
    }
}
