//! Memory of a target, also its code, to be written.

use crate::Error;
use address::{Avma, MemoryError, ReadMemory};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

/// `/proc/PID/mem`. It stays with the address space it was opened on: after an execve it
/// reads and writes nothing.
#[derive(Debug)]
pub(crate) struct TargetMemory {
    pid: u32,
    file: File,
}

impl TargetMemory {
    /// Opens the memory of `pid`, through any thread that still has it.
    pub(crate) fn open(pid: u32) -> Result<Self, Error> {
        let own = PathBuf::from(format!("/proc/{pid}/mem"));
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
        let paths = threads.filter_map(|entry| Some(entry.ok()?.path().join("mem")));
        let mut first_error = None;
        for path in std::iter::once(own).chain(paths) {
            match OpenOptions::new().read(true).write(true).open(&path) {
                Ok(file) => return Ok(Self { pid, file }),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        let error = first_error.unwrap_or_else(|| std::io::ErrorKind::NotFound.into());
        Err(match error.kind() {
            std::io::ErrorKind::NotFound => Error::Gone(pid),
            std::io::ErrorKind::PermissionDenied => Error::Permission {
                pid,
                hint: process::why_inaccessible(pid)
                    .unwrap_or_else(|| "run as root or as the process's user".to_owned()),
            },
            _ => Error::io(format!("open the memory of process {pid}"), error),
        })
    }

    /// Writes `bytes` with one system call, over write protection. Within a page it happens whole
    /// or not at all.
    pub(crate) fn write(&self, address: Avma, bytes: &[u8]) -> Result<(), Error> {
        match self.file.write_at(bytes, address.0) {
            Ok(written) if written == bytes.len() => Ok(()),
            Ok(0) if !self.is_current() => Err(self.gone()),
            Ok(_) => Err(self.write_failed(address, std::io::ErrorKind::WriteZero.into())),
            Err(error) => Err(self.write_failed(address, error)),
        }
    }

    fn write_failed(&self, address: Avma, error: std::io::Error) -> Error {
        let hint = match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM | libc::EIO) => {
                " (the kernel may forbid it: proc_mem.force_override)"
            }
            _ => "",
        };
        Error::io(format!("write to process {} at 0x{:x}{hint}", self.pid, address.0), error)
    }

    /// Whether the address space still has a process: false after its end or an execve.
    pub(crate) fn is_current(&self) -> bool {
        // An address that nobody maps gives EIO while the space is in use, and 0 bytes afterwards.
        !matches!(self.file.read_at(&mut [0], 0), Ok(0))
    }

    /// The error for a process that has this address space no more.
    pub(crate) fn gone(&self) -> Error {
        // A process that has ended shows no executable.
        match std::fs::read_link(format!("/proc/{}/exe", self.pid)) {
            Ok(_) => Error::Replaced(self.pid),
            Err(_) => Error::Gone(self.pid),
        }
    }

    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }
}

impl ReadMemory for TargetMemory {
    fn read_memory(&self, address: Avma, buf: &mut [u8]) -> Result<(), MemoryError> {
        self.file.read_exact_at(buf, address.0).map_err(|_| MemoryError(address))
    }
}
