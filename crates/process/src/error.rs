//! What goes wrong with other processes.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why something about a process or file is not known.
#[derive(Debug, Error)]
pub enum Error {
    /// No process has this id.
    #[error("no process {0}")]
    NoProcess(u32),
    /// The process exited, or its id means another one by now.
    #[error("process {0} exited")]
    Gone(u32),
    /// The kernel refused, with what a person can do.
    #[error("no permission to {what}: {reason}")]
    Permission {
        /// What was tried.
        what: String,
        /// Why it was refused, as far as it can be told.
        reason: String,
    },
    /// The process has no mapping of its executable's start.
    #[error(
        "process {0} does not map the start of its executable (remapped text, or a kernel thread)"
    )]
    NotMapped(u32),
    /// The process runs no file.
    #[error("process {0} has no executable: it is a kernel thread, or it is ending")]
    NoExecutable(u32),
    /// A file could not be opened or read.
    #[error("failed to read `{path}`")]
    File {
        /// Which.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A line of `/proc` is not in the form known.
    #[error("failed to understand `{path}`: {reason}")]
    Format {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A program to start was not found, or is not executable.
    #[error("failed to start `{program}`: {reason}")]
    Program {
        /// As it was named.
        program: String,
        /// Why.
        reason: String,
    },
    /// No such user.
    #[error("no user `{0}` in /etc/passwd")]
    NoUser(String),
    /// A child could not be made.
    #[error("failed to start a child process")]
    Spawn(#[source] io::Error),
}

impl Error {
    pub(crate) fn file(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::File { path: path.into(), source }
    }

    /// For a failure to read `path` below `/proc/PID`: the process may be gone or out of reach.
    pub(crate) fn of_process(pid: u32, path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::Permission {
                what: format!("read `{}`", path.display()),
                reason: crate::why_inaccessible(pid)
                    .unwrap_or_else(|| "run as root or as the process's user".to_owned()),
            },
            io::ErrorKind::NotFound if !PathBuf::from(format!("/proc/{pid}")).exists() => {
                Self::NoProcess(pid)
            }
            io::ErrorKind::NotFound if path.ends_with("exe") => Self::NoExecutable(pid),
            _ if source.raw_os_error() == Some(libc::ESRCH) => Self::Gone(pid),
            _ => Self::File { path, source },
        }
    }
}
