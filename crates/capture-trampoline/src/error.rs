//! Why the in-process backend cannot do its work on a target.

use std::io;
use thiserror::Error;

/// What goes wrong between us and a target. The target is untouched, or as it was before,
/// unless the message says otherwise.
#[derive(Debug, Error)]
pub enum Error {
    /// The kernel does not let us trace the process.
    #[error("no permission to trace process {pid}: {hint}")]
    Permission {
        /// The target.
        pid: u32,
        /// Who or what forbids it, and what to do.
        hint: String,
    },
    /// The process ended.
    #[error("process {0} exited")]
    Gone(u32),
    /// The process became another program by execve.
    #[error("process {0} replaced its program by execve")]
    Replaced(u32),
    /// The target is of a kind this backend does not handle.
    #[error("process {pid} cannot be patched: {reason}")]
    Unsuitable {
        /// The target.
        pid: u32,
        /// Why, and what to do.
        reason: String,
    },
    /// A thread did not stop in time.
    #[error(
        "thread {tid} of process {pid} did not stop within {millis} ms ({state}): \
         try again, or use --backend uprobe"
    )]
    Unstoppable {
        /// The target.
        pid: u32,
        /// The thread.
        tid: u32,
        /// How long was waited.
        millis: u128,
        /// What the kernel says it does, e.g. a vfork.
        state: String,
    },
    /// A system call made in the target's name failed.
    #[error("{call} in process {pid} failed: {error}{hint}")]
    RemoteCall {
        /// The target.
        pid: u32,
        /// The call's name.
        call: &'static str,
        /// What it returned; the whole cause, so no source besides.
        error: io::Error,
        /// What to do, with its own punctuation; may be empty.
        hint: &'static str,
    },
    /// No free address range lies near enough to the code.
    #[error(
        "process {pid} has no {need} free bytes within 2 GiB of its code: use --backend uprobe, \
         or a smaller --ring"
    )]
    NoRoom {
        /// The target.
        pid: u32,
        /// Bytes wanted.
        need: u64,
    },
    /// The target's text is not what its file says.
    #[error(
        "the code of process {pid} at 0x{address:x} differs from its file: \
         a debugger or another tracer is at work there"
    )]
    ForeignCode {
        /// The target.
        pid: u32,
        /// Where (avma).
        address: u64,
    },
    /// Faults do not reach the Go runtime first.
    #[error("process {pid} has a signal handler of its own for faults")]
    ForeignHandler {
        /// The target.
        pid: u32,
    },
    /// An installation failed, and what it had done could not be undone.
    #[error("process {pid} keeps what was put into it so far: run `gospect detach -p {pid}`")]
    Left {
        /// The target, which runs on.
        pid: u32,
        /// Why it failed.
        #[source]
        source: Box<Error>,
    },
    /// Anything else the kernel refused.
    #[error("failed to {what}")]
    Io {
        /// What was tried.
        what: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Something about a process could not be read.
    #[error(transparent)]
    Process(#[from] process::Error),
}

impl Error {
    pub(crate) fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Io { what: what.into(), source: source.into() }
    }
}

impl From<Error> for capture::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Permission { pid, hint } => {
                Self::Permission { what: format!("trace process {pid}"), hint }
            }
            Error::Process(process::Error::Permission { what, reason }) => {
                Self::Permission { what, hint: reason }
            }
            Error::Gone(pid) | Error::Process(process::Error::Gone(pid)) => Self::ProcessGone(pid),
            Error::Process(process::Error::NoProcess(pid)) => Self::ProcessGone(pid),
            _ => Self::Failed {
                what: "put trampolines into the target".to_owned(),
                source: Box::new(error),
            },
        }
    }
}
