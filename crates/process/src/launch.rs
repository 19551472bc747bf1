//! The parent's side of a held start.

use crate::error::Error;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use thiserror::Error;

/// Bytes of an error report at the most.
const REPORT_LIMIT: u64 = 4096;

/// The released child could not become the program.
#[derive(Debug, Error)]
#[error("failed to start `{program}`: {reason}")]
pub struct ExecError {
    /// As it was named.
    pub program: String,
    /// Why.
    pub reason: String,
    /// The error number of execve, 0 when the failure came before it.
    pub errno: i32,
}

/// A child that has its pid and waits to become the program.
///
/// It is not tied to us: when we die before releasing it, it exits; afterwards it runs on.
#[derive(Debug)]
pub struct Held {
    child: Child,
    program: String,
    release: Option<OwnedFd>,
    report: Option<OwnedFd>,
}

/// Starts `self_exe hidden_arg …`, whose hidden subcommand has to call [`crate::held_exec`] with
/// the arguments that follow. `argv` is the program and its arguments; standard streams are ours.
/// `user` is the name of the user to run the program as.
///
/// Errors: [`Error::Program`] when `argv` is empty, [`Error::NoUser`], [`Error::Spawn`].
pub fn spawn_held(
    self_exe: &Path,
    hidden_arg: &str,
    argv: &[OsString],
    user: Option<&str>,
) -> Result<Held, Error> {
    let program = argv.first().ok_or_else(|| Error::Program {
        program: String::new(),
        reason: "no program named".to_owned(),
    })?;
    if let Some(user) = user {
        crate::User::find(user)?;
    }
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|e| Error::Spawn(e.into()));
    let (release_read, release) = pipe()?;
    let (report, report_write) = pipe()?;
    for fd in [&release_read, &report_write] {
        fcntl_setfd(fd, FdFlags::empty()).map_err(|e| Error::Spawn(e.into()))?;
    }
    let child = Command::new(self_exe)
        .arg(hidden_arg)
        .arg(release_read.as_raw_fd().to_string())
        .arg(report_write.as_raw_fd().to_string())
        .arg(user.unwrap_or_default())
        .args(argv)
        .spawn()
        .map_err(Error::Spawn)?;
    Ok(Held {
        child,
        program: program.to_string_lossy().into_owned(),
        release: Some(release),
        report: Some(report),
    })
}

impl Held {
    /// Its process id, which the program keeps.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets the child become the program and waits until it has, or has failed to.
    pub fn release(&mut self) -> Result<(), ExecError> {
        let failed =
            |reason: String, errno| ExecError { program: self.program.clone(), reason, errno };
        let Some((release, report)) = self.release.take().zip(self.report.take()) else {
            return Ok(());
        };
        File::from(release)
            .write_all(&[1])
            .map_err(|e| failed(format!("the waiting child is gone ({e})"), 0))?;
        let mut bytes = Vec::new();
        File::from(report)
            .take(REPORT_LIMIT)
            .read_to_end(&mut bytes)
            .map_err(|e| failed(e.to_string(), 0))?;
        // The pipe closes at execve: silence is success.
        let Some((errno, text)) = bytes.split_first_chunk() else { return Ok(()) };
        let errno = i32::from_le_bytes(*errno);
        let text = String::from_utf8_lossy(text).into_owned();
        let reason = match errno {
            libc::ENOENT => "no such file, or its interpreter is missing".to_owned(),
            libc::EACCES => "not executable, or no permission".to_owned(),
            libc::ENOEXEC => "not an executable format".to_owned(),
            _ => text,
        };
        let error = failed(reason, errno);
        // It exits by itself after the report; collect it.
        let _ = self.child.wait();
        Err(error)
    }

    /// The exit status, if it has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.release.take().is_some() {
            // Never released: it exits because its pipe closed.
            let _ = self.child.wait();
        }
    }
}
