//! Whether a process can be traced and patched, and if not, who or what forbids it.

use super::relatives;
use crate::Error;
use std::fs;
use std::io::Read as _;
use std::time::Duration;

/// System calls in which a thread waits for the child it made.
const CLONES: [i64; 4] = [libc::SYS_clone, libc::SYS_fork, libc::SYS_vfork, libc::SYS_clone3];

/// Refuses what can be known to go wrong before anything is stopped.
pub(crate) fn check(pid: u32) -> Result<(), Error> {
    if pid == std::process::id() {
        return Err(unsuitable(pid, "it is this process"));
    }
    let mut head = [0u8; 20];
    let opened = fs::File::open(format!("/proc/{pid}/exe"));
    let read = opened.and_then(|mut file| file.read_exact(&mut head));
    if let Err(error) = read {
        return Err(match error.kind() {
            std::io::ErrorKind::NotFound => Error::Gone(pid),
            std::io::ErrorKind::PermissionDenied => why_refused(pid, pid, error),
            _ => Error::io(format!("read the executable of process {pid}"), error),
        });
    }
    // ELFCLASS64, EM_X86_64.
    if head[4] != 2 || head[18] != 62 || head[19] != 0 {
        return Err(unsuitable(pid, "it is not a 64-bit x86 program"));
    }
    check_tracer(pid)?;
    match memory_relative(pid) {
        Some(other) => Err(shared_memory(pid, other)),
        None => Ok(()),
    }
}

fn unsuitable(pid: u32, reason: &str) -> Error {
    Error::Unsuitable { pid, reason: reason.to_owned() }
}

/// Refuses when somebody traces the process already.
fn check_tracer(pid: u32) -> Result<(), Error> {
    match tracer(pid, pid) {
        None => Ok(()),
        Some(tracer) => Err(Error::Permission {
            pid,
            hint: format!("process {tracer} traces it already; end that first"),
        }),
    }
}

/// Another process with the same memory, that stays.
fn memory_relative(pid: u32) -> Option<u32> {
    // A vfork child is gone within milliseconds: look again before saying no.
    for _ in 0..10 {
        relatives::find(pid)?;
        std::thread::sleep(Duration::from_millis(20));
    }
    relatives::find(pid)
}

/// The error for a process that shares its memory with `other`.
pub(crate) fn shared_memory(pid: u32, other: u32) -> Error {
    unsuitable(pid, &format!("process {other} shares its memory and would run patched code unseen"))
}

/// The error for a thread that the kernel does not let us trace.
pub(super) fn why_refused(pid: u32, tid: u32, error: std::io::Error) -> Error {
    if error.raw_os_error() != Some(libc::EPERM) && error.raw_os_error() != Some(libc::EACCES) {
        return Error::io(format!("trace thread {tid} of process {pid}"), error);
    }
    let hint = if let Some(tracer) = tracer(pid, tid) {
        format!("process {tracer} traces it already; end that first")
    } else if let Some(reason) = process::why_inaccessible(pid) {
        reason
    } else if process::Restrictions::now().yama_ptrace_scope == Some(3) {
        "kernel.yama.ptrace_scope is 3, which forbids it to everyone until the next boot".to_owned()
    } else {
        "the kernel or a security module forbids it; run as root outside a container".to_owned()
    };
    Error::Permission { pid, hint }
}

/// The error for a thread that does not stop.
pub(super) fn unstoppable(pid: u32, tid: u32, waited: Duration) -> Error {
    let read = |name| fs::read_to_string(format!("/proc/{pid}/task/{tid}/{name}"));
    let call = read("syscall").unwrap_or_default();
    let number = call.split(' ').next().and_then(|n| n.parse::<i64>().ok());
    let state = if number.is_some_and(|n| CLONES.contains(&n)) {
        "it waits for a child made by vfork".to_owned()
    } else {
        let status = read("status").unwrap_or_default();
        let state = field(&status, "State").unwrap_or("unknown");
        format!("state {state}")
    };
    Error::Unstoppable { pid, tid, millis: waited.as_millis(), state }
}

/// Whether a thread has ended and waits to be collected, as a leader does while others live.
pub(super) fn is_zombie(pid: u32, tid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")) {
        Ok(status) => field(&status, "State").is_some_and(|state| state.starts_with(['Z', 'X'])),
        Err(_) => true,
    }
}

/// Whether a thread never runs code of the program: one of io_uring's or vhost's. The kernel lets
/// nobody trace these (PF_IO_WORKER, PF_USER_WORKER, PF_KTHREAD; include/linux/sched.h).
pub(super) fn is_worker(pid: u32, tid: u32) -> bool {
    const WORKERS: u64 = 0x10 | 0x4000 | 0x20_0000;
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
    // The name may hold spaces and parentheses; state is the third field, flags the ninth.
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let flags = fields.split(' ').nth(6).and_then(|flags| flags.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & WORKERS != 0)
}

/// Whether a seccomp filter watches a thread.
pub(super) fn has_seccomp(pid: u32, tid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status"));
    status.is_ok_and(|status| field(&status, "Seccomp").is_some_and(|mode| mode != "0"))
}

/// The error for a seccomp filter that cannot be suspended.
pub(super) fn seccomp_stays(pid: u32, error: &std::io::Error) -> Error {
    let why = match error.raw_os_error() {
        Some(libc::EINVAL) => "this kernel cannot suspend that (CONFIG_CHECKPOINT_RESTORE)",
        _ if process::Restrictions::now().seccomp.is_some_and(|mode| mode != 0) => {
            "a filter of our own keeps us from suspending that: run outside a container"
        }
        _ => "suspending that needs CAP_SYS_ADMIN: run as root, outside a container",
    };
    let hint = format!("it runs under seccomp, which would see our system calls; {why}");
    Error::Permission { pid, hint }
}

/// Who traces a thread: id and name.
fn tracer(pid: u32, tid: u32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let tracer: u32 = field(&status, "TracerPid")?.parse().ok().filter(|&tracer| tracer != 0)?;
    let name = fs::read_to_string(format!("/proc/{tracer}/comm")).unwrap_or_default();
    Some(format!("{tracer} ({})", name.trim()))
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}
