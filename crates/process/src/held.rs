//! The child's side of a held start: wait for the word, then become the program.

use crate::user::User;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Gid, Uid};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Exit code of a child that could not become the program; shells use it for the same.
pub const HELD_FAILED: i32 = 127;

/// What the hidden subcommand of the binary runs. `arguments` are those after the hidden
/// argument, as [`crate::spawn_held`] composed them: two descriptors, a user or nothing, the
/// program and its arguments.
///
/// Waits for one byte on the first descriptor; when its writer is gone instead, there is nothing to
/// start and the return value is 0. Does not return when the program starts; else reports the
/// error over the second descriptor and gives the code to exit with.
pub fn held_exec(mut arguments: impl Iterator<Item = OsString>) -> i32 {
    let (Some(release), Some(error)) = (pipe_end(arguments.next()), pipe_end(arguments.next()))
    else {
        return HELD_FAILED;
    };
    let (Some(user), Some(program)) = (arguments.next(), arguments.next()) else {
        return HELD_FAILED;
    };
    let mut word = [0];
    match File::from(release).read(&mut word) {
        Ok(1) => {}
        _ => return 0,
    }
    let failure = become_program(&user, program, arguments);
    let code = failure.raw_os_error().unwrap_or(0);
    let mut report = code.to_le_bytes().to_vec();
    report.extend_from_slice(failure.to_string().as_bytes());
    // When the parent is gone, nobody is there to hear it.
    let _ = File::from(error).write_all(&report);
    HELD_FAILED
}

/// Gives the reason why it came back.
fn become_program(
    user: &OsString,
    program: OsString,
    arguments: impl Iterator<Item = OsString>,
) -> io::Error {
    let mut command = Command::new(program);
    command.args(arguments);
    if !user.is_empty() {
        let user = match User::find(&user.to_string_lossy()) {
            Ok(user) => user,
            Err(error) => return io::Error::other(error.to_string()),
        };
        if let Err(error) = switch_to(&user) {
            return io::Error::other(format!("failed to become user {}: {error}", user.name));
        }
        command.env("HOME", &user.home).env("USER", &user.name).env("LOGNAME", &user.name);
    }
    command.exec()
}

/// Groups first: after the user is changed they can not be any more. The process has one
/// thread, so the thread's ids are the process's.
fn switch_to(user: &User) -> io::Result<()> {
    let groups: Vec<_> = user.groups.iter().map(|&gid| Gid::from_raw(gid)).collect();
    rustix::thread::set_thread_groups(&groups)?;
    let gid = Gid::from_raw(user.gid);
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    let uid = Uid::from_raw(user.uid);
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

/// Takes over an inherited descriptor, and keeps it from the program.
fn pipe_end(number: Option<OsString>) -> Option<OwnedFd> {
    let fd: RawFd = number?.to_str()?.parse().ok().filter(|&fd| fd > 2)?;
    // SAFETY: asks for flags only; any number may be asked.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return None;
    }
    // SAFETY: it is open, beyond the standard streams, and by the contract of the hidden
    // argument it was made for this process alone, which has opened nothing with it yet.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    fcntl_setfd(&fd, FdFlags::CLOEXEC).ok()?;
    Some(fd)
}
