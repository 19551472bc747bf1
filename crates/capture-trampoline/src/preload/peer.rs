//! Who is at the other end.

use super::program::Program;
use crate::Error;
use process::{FileSource, Process};
use rustix::fs::fstatfs;
use std::fs::File;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::Arc;

/// `FUSE_SUPER_MAGIC`: whoever has mounted such a file system can make a reader wait for ever.
const FUSE: i64 = 0x6573_5546;

/// Who has connected, by the kernel's word: the process that called `connect`, which may have handed the socket on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credentials {
    /// In our pid namespace, 0 for a process that this does not see.
    pid: u32,
    /// Effective user.
    pub(super) uid: u32,
    /// Effective group.
    gid: u32,
}

impl Credentials {
    /// Asks the kernel. By hand: rustix's type has no room for an id of 0.
    pub(super) fn of(socket: &OwnedFd) -> Result<Self, Error> {
        let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the option's value is this structure, and the length says so.
        let code = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut found).cast(),
                &raw mut len,
            )
        };
        if code != 0 {
            return Err(Error::io("ask who has connected", std::io::Error::last_os_error()));
        }
        Ok(Self { pid: found.pid.unsigned_abs(), uid: found.uid, gid: found.gid })
    }
}

/// Who has connected, held so that another process with its number is noticed.
pub(super) struct Peer {
    process: Process,
    uid: u32,
    gid: u32,
}

impl Peer {
    /// Looks at who has connected. Refuses who is gone, and who lies in a pid namespace that we do not see.
    pub(super) fn of(socket: &OwnedFd, who: Credentials) -> Result<Self, Error> {
        let Credentials { pid, uid, gid } = who;
        let process = Process::open(pid)?;
        // A number may have gone from one process to another since. Kernels before 6.5 cannot tell.
        if let Some(held) = peer_pidfd(socket)
            && pid_of(&held) != Some(pid)
        {
            return Err(Error::Gone(pid));
        }
        Ok(Self { process, uid, gid })
    }

    /// The program with the file that it says it runs.
    pub(super) fn program(self, executable: OwnedFd) -> Result<Program, Error> {
        let pid = self.process.pid();
        let unsuitable = |reason: &str| Error::Unsuitable { pid, reason: reason.to_owned() };
        let kind = fstatfs(&executable).map_err(|e| Error::io("look at the executable", e))?;
        if kind.f_type == FUSE && self.uid != 0 && self.uid != rustix::process::geteuid().as_raw() {
            return Err(unsuitable("its executable is on a file system of a user's own (FUSE)"));
        }
        let source = FileSource::of_file(File::from(executable))
            .map_err(|e| Error::io("look at the executable", e))?;
        // Where we may not look the file's own bytes decide alone, which harms nobody but who lies.
        if self.process.exe_identity().is_ok_and(|own| own != source.identity()) {
            return Err(unsuitable("it does not run the file that it has sent"));
        }
        let stamp = source.stamp().ok_or_else(|| unsuitable("its executable cannot be read"))?;
        let (process, uid, gid) = (self.process, self.uid, self.gid);
        Ok(Program { process, uid, gid, executable: Arc::new(source), stamp })
    }
}

/// A pidfd of the process that connected (Linux 6.5).
fn peer_pidfd(socket: &OwnedFd) -> Option<OwnedFd> {
    /// `asm-generic/socket.h`.
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut fd: libc::c_int = -1;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option's value is an int, for which there is room, and the length says so.
    let code = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut len,
        )
    };
    // SAFETY: a descriptor that the kernel has just made for us.
    (code == 0 && fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The process that a pidfd is of; `None` for one that has ended.
fn pid_of(pidfd: &OwnedFd) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    line.trim().parse().ok()
}
