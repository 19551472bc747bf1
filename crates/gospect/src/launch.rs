//! Starting a command so that it is traced from its first instruction.

use process::Held;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// First argument of the process that waits to become the command. Not part of the
/// command line: it is looked at before that is parsed.
const HELD_EXEC: &str = "__held-exec";

/// Starts a child that waits; it becomes `argv` when released.
pub fn hold(program: &Path, argv: &[OsString], user: Option<&str>) -> anyhow::Result<Held> {
    // What was looked up in PATH is what runs, whatever PATH says at that time.
    let mut argv = argv.to_vec();
    if let Some(name) = argv.first_mut() {
        *name = program.as_os_str().to_owned();
    }
    Ok(process::spawn_held(Path::new("/proc/self/exe"), HELD_EXEC, &argv, user)?)
}

/// Runs as the waiting child when the arguments say so; `None` otherwise.
pub fn held_exec(mut args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if args.nth(1)? != HELD_EXEC {
        return None;
    }
    Some(ExitCode::from(process::held_exec(args).clamp(0, 255) as u8))
}
