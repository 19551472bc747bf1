//! How a process ended that is not our child.

use procfs::FromRead as _;
use procfs::process::Stat;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

/// `struct pidfd_info` as of Linux 6.15, its first 64 bytes (include/uapi/linux/pidfd.h).
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroupid: u64,
    /// pid, tgid, ppid, and the four pairs of user and group ids.
    ids: [u32; 11],
    exit_code: i32,
}

/// `PIDFD_GET_INFO`: `_IOWR(0xff, 11, struct pidfd_info)` of 64 bytes.
const PIDFD_GET_INFO: libc::c_ulong = 0xc040_ff0b;

/// `PIDFD_INFO_EXIT`: asks for the exit code, and says that there is one.
const PIDFD_INFO_EXIT: u64 = 1 << 3;

/// The status of an ended process. While its parent has not waited for it `/proc` has it (for
/// those who may look into the process); afterwards the pidfd, since Linux 6.15. `None` when
/// it still runs or neither says.
pub(crate) fn exit_status(pid: u32, pidfd: BorrowedFd<'_>) -> Option<ExitStatus> {
    // Of the pidfd first: when it says nothing, the process was not yet waited for just now.
    of_pidfd(pidfd).or_else(|| of_zombie(pid)).or_else(|| of_pidfd(pidfd))
}

fn of_zombie(pid: u32) -> Option<ExitStatus> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = Stat::from_read(text.as_slice()).ok()?;
    // The kernel shows 0 to those it would not tell.
    let code = stat.exit_code.filter(|_| stat.state == 'Z')?;
    Some(ExitStatus::from_raw(code))
}

fn of_pidfd(pidfd: BorrowedFd<'_>) -> Option<ExitStatus> {
    let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, ..PidfdInfo::default() };
    // SAFETY: the number encodes the 64 bytes that the kernel reads and writes, which is the
    // size of `info`; it lives over the call.
    let result = unsafe { libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_INFO, &raw mut info) };
    let known = result == 0 && info.mask & PIDFD_INFO_EXIT != 0;
    known.then(|| ExitStatus::from_raw(info.exit_code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Process;
    use std::process::Command;
    use std::time::Duration;

    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn the_layout_is_the_kernels() {
        assert_eq!(size_of::<PidfdInfo>(), 64);
        assert_eq!(std::mem::offset_of!(PidfdInfo, exit_code), 60);
    }

    #[test]
    fn an_end_is_told_before_the_parent_waits() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::open(child.id()).unwrap();
        assert_eq!(process.exit_status(), None);
        child.kill().unwrap();
        assert!(process.wait_exit(LIMIT));
        assert_eq!(process.exit_status().and_then(|status| status.signal()), Some(9));
        child.wait().unwrap();
        // Afterwards it depends on the kernel, but is never another status.
        assert!(process.exit_status().is_none_or(|status| status.signal() == Some(9)));
    }
}
