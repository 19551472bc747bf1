//! Which processes: attach, every process of a file, or a command to start.

use crate::args::{CaptureArgs, TraceArgs};
use crate::failure::usage;
use crate::sink;
use crate::target::Target;
use process::Process;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// When a process has surely initialized the standard library's packages. FIPS builds check their own
/// code then (crypto/internal/fips140/check, Go 1.24 and later), and end when it was changed.
const SETTLED: Duration = Duration::from_secs(30);

/// The processes to trace.
#[derive(Debug)]
pub enum Who {
    /// Running processes.
    Attach(Vec<Process>),
    /// Every process that runs a file.
    Exe(PathBuf),
    /// A command to start.
    Launch {
        /// The file that is executed.
        program: PathBuf,
        /// The command as typed.
        argv: Vec<OsString>,
    },
}

impl Who {
    /// What the command line names. Takes the executable out of the rules when it stands there.
    pub fn resolve(args: &mut TraceArgs) -> anyhow::Result<Self> {
        let command = args.command.take();
        let rules = &mut args.rules;
        let first = || (!rules.is_empty()).then(|| PathBuf::from(rules.remove(0)));
        Self::named(&args.capture, command, first, args.show.tell.quiet)
    }

    /// The same for any command: `first` is the positional that may be the executable.
    pub fn named(
        capture: &CaptureArgs,
        command: Option<Vec<OsString>>,
        first: impl FnOnce() -> Option<PathBuf>,
        quiet: bool,
    ) -> anyhow::Result<Self> {
        let named = usize::from(!capture.pids.is_empty())
            + usize::from(capture.exe.is_some())
            + usize::from(command.is_some());
        if named > 1 {
            return Err(usage("choose one of --pid, --exe and `-- CMD`"));
        }
        if capture.user.is_some() && command.is_none() {
            return Err(usage("--user needs a command to start: `-- CMD`"));
        }
        if let Some(argv) = command {
            let Some(name) = argv.first() else {
                return Err(usage("nothing after `--`: name the command to start"));
            };
            let program = process::find_program(name, std::env::var_os("PATH").as_deref())?;
            return Ok(Self::Launch { program, argv });
        }
        if !capture.pids.is_empty() {
            let mut pids = capture.pids.clone();
            pids.sort_unstable();
            pids.dedup();
            let opened: Result<Vec<Process>, _> = pids.into_iter().map(Process::open).collect();
            return Ok(Self::Attach(opened?));
        }
        if let Some(exe) = capture.exe.clone() {
            return Ok(Self::Exe(exe));
        }
        let Some(exe) = first() else {
            return Err(usage("no process named: give --pid PID, --exe PATH or `-- CMD`"));
        };
        if !exe.exists() {
            return Err(usage(format!(
                "no process named, and there is no executable `{}`: give --pid PID, --exe PATH or \
                 `-- CMD`",
                exe.display()
            )));
        }
        if !quiet {
            hint_to_launch(&exe)?;
        }
        Ok(Self::Exe(exe))
    }

    /// The file that is named, if it is a file that names the processes.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Attach(_) => None,
            Self::Exe(path) | Self::Launch { program: path, .. } => Some(path),
        }
    }

    /// The executables, each with the processes to attach to.
    pub fn targets(&self, debug_file: Option<&Path>) -> anyhow::Result<Vec<(Target, Vec<u32>)>> {
        match self {
            Self::Attach(processes) => Target::of_processes(processes, debug_file),
            Self::Exe(path) | Self::Launch { program: path, .. } => {
                Ok(vec![(Target::of_path(path, debug_file)?, Vec::new())])
            }
        }
    }

    /// Whether processes may be traced before their packages are initialized: from their first
    /// instruction on, or since they have only just begun.
    pub fn sees_start(&self) -> bool {
        match self {
            Self::Attach(processes) => {
                processes.iter().any(|process| process.age().is_none_or(|age| age < SETTLED))
            }
            Self::Exe(_) | Self::Launch { .. } => true,
        }
    }
}

fn hint_to_launch(exe: &Path) -> anyhow::Result<()> {
    let identity = process::FileIdentity::of(exe)?;
    if process::find_by_exe(identity).is_empty() {
        let exe = exe.display();
        sink::say(format!(
            "nothing runs {exe} yet: waiting for it (`gospect trace … -- {exe}` starts it)"
        ));
    }
    Ok(())
}
