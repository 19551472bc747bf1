//! The ptrace requests this crate makes, as safe functions.
//!
//! rustix has no ptrace, and nix's lacks what is needed here (waits that name a cloned thread and
//! never block, signal masks); eight requests of libc are the smaller dependency.

use std::io;

/// General registers of a thread, as `PTRACE_GETREGS` has them.
pub(crate) type Registers = libc::user_regs_struct;

/// Option: syscall stops are told from a SIGTRAP. Without it a tracer that dies in one kills the target.
const SYSGOOD: usize = libc::PTRACE_O_TRACESYSGOOD as usize;
/// Option: stop at execve.
const EXEC: usize = libc::PTRACE_O_TRACEEXEC as usize;
/// Option: seccomp filters do not apply to the thread while it is traced.
const SUSPEND_SECCOMP: usize = libc::PTRACE_O_SUSPEND_SECCOMP as usize;

/// What a wait for a thread found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// Nothing new.
    Running,
    /// `PTRACE_EVENT_STOP` after an interrupt.
    Interrupted,
    /// The thread takes part in a group stop (SIGSTOP and the like).
    GroupStop,
    /// At the entry or exit of a system call.
    Syscall,
    /// After a successful execve.
    Exec,
    /// A signal is about to be delivered.
    Signal(i32),
    /// The thread is gone.
    Gone,
}

/// One request whose address and data are plain words.
fn request(request: libc::c_uint, tid: u32, address: usize, data: usize) -> io::Result<()> {
    let address: *mut libc::c_void = std::ptr::without_provenance_mut(address);
    let data: *mut libc::c_void = std::ptr::without_provenance_mut(data);
    // SAFETY: the requests that come through here take integers or nothing: the kernel reads and
    // writes no memory of ours.
    let code = unsafe { libc::ptrace(request, tid as libc::pid_t, address, data) };
    if code == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Starts to trace without stopping. The tracer's death ends it: no option that kills the target.
pub(crate) fn seize(tid: u32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, tid, 0, SYSGOOD | EXEC)
}

/// Lifts seccomp for a stopped thread as long as it is traced; needs CAP_SYS_ADMIN.
pub(crate) fn suspend_seccomp(tid: u32) -> io::Result<()> {
    request(libc::PTRACE_SETOPTIONS, tid, 0, SYSGOOD | EXEC | SUSPEND_SECCOMP)
}

/// Asks a thread to stop; its system call is interrupted and restarted.
pub(crate) fn interrupt(tid: u32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0)
}

/// Lets a stopped thread run, delivering `signal` unless it is 0.
pub(crate) fn resume(tid: u32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, 0, signal as usize)
}

/// Leaves a thread in its group stop, but lets SIGCONT end it.
pub(crate) fn listen(tid: u32) -> io::Result<()> {
    request(libc::PTRACE_LISTEN, tid, 0, 0)
}

/// Lets a stopped thread run to the next entry or exit of a system call.
pub(crate) fn resume_to_syscall(tid: u32) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL, tid, 0, 0)
}

/// Stops tracing a stopped thread, delivering `signal` unless it is 0.
pub(crate) fn detach(tid: u32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, 0, signal as usize)
}

/// The registers of a stopped thread.
pub(crate) fn registers(tid: u32) -> io::Result<Registers> {
    let mut registers = std::mem::MaybeUninit::<Registers>::zeroed();
    let no_address: *mut libc::c_void = std::ptr::null_mut();
    // SAFETY: the kernel writes one `user_regs_struct`, for which there is room.
    let code = unsafe {
        libc::ptrace(libc::PTRACE_GETREGS, tid as libc::pid_t, no_address, registers.as_mut_ptr())
    };
    if code == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the request succeeded, and any bits are valid integers.
    Ok(unsafe { registers.assume_init() })
}

/// Sets the registers of a stopped thread.
pub(crate) fn set_registers(tid: u32, registers: &Registers) -> io::Result<()> {
    let no_address: *mut libc::c_void = std::ptr::null_mut();
    // SAFETY: the kernel reads one `user_regs_struct` from a live reference.
    let code = unsafe {
        libc::ptrace(
            libc::PTRACE_SETREGS,
            tid as libc::pid_t,
            no_address,
            std::ptr::from_ref(registers),
        )
    };
    if code == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The blocked signals of a stopped thread, one bit each.
pub(crate) fn signal_mask(tid: u32) -> io::Result<u64> {
    const GETSIGMASK: libc::c_uint = 0x420a;
    let mut mask = 0u64;
    let size: *mut libc::c_void = std::ptr::without_provenance_mut(size_of::<u64>());
    // SAFETY: the kernel writes the 8 bytes that the size announces, to a live variable.
    let code = unsafe { libc::ptrace(GETSIGMASK, tid as libc::pid_t, size, &raw mut mask) };
    if code == -1 { Err(io::Error::last_os_error()) } else { Ok(mask) }
}

/// What happened to a traced thread; never blocks. The end of a thread is collected when
/// `collect` says so: that of a leader may be our caller's child, whose exit status is not ours.
pub(crate) fn wait(tid: u32, collect: bool) -> io::Result<Waited> {
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    let ends = if collect { libc::WEXITED } else { 0 };
    let options = libc::WSTOPPED | libc::__WALL | libc::WNOHANG | ends;
    // SAFETY: the kernel writes one siginfo, for which there is room.
    let code = unsafe { libc::waitid(libc::P_PID, tid, info.as_mut_ptr(), options) };
    if code == -1 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ECHILD) => Ok(Waited::Gone),
            Some(libc::EINTR) => Ok(Waited::Running),
            _ => Err(error),
        };
    }
    // SAFETY: zeroed, and filled in by the kernel: plain integers either way; the fields of a
    // SIGCHLD are those that waitid sets.
    let (pid, kind, status) = unsafe {
        let info = info.assume_init();
        (info.si_pid(), info.si_code, info.si_status())
    };
    Ok(match kind {
        _ if pid == 0 => Waited::Running,
        libc::CLD_TRAPPED | libc::CLD_STOPPED => decode(status),
        _ => Waited::Gone,
    })
}

fn decode(status: i32) -> Waited {
    let signal = status & 0xff;
    match status >> 8 {
        libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => Waited::Interrupted,
        libc::PTRACE_EVENT_STOP => Waited::GroupStop,
        libc::PTRACE_EVENT_EXEC => Waited::Exec,
        _ if signal == libc::SIGTRAP | 0x80 => Waited::Syscall,
        _ => Waited::Signal(signal),
    }
}

/// Whether two processes share their memory. ENOSYS on kernels without CONFIG_KCMP.
pub(crate) fn same_memory(pid: u32, other: u32) -> io::Result<bool> {
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: kcmp takes integers only.
    let code = unsafe { libc::syscall(libc::SYS_kcmp, pid, other, KCMP_VM, 0, 0) };
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(code == 0) }
}
