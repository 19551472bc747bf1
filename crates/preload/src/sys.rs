//! System calls, without libc.

use core::arch::asm;
use core::ffi::CStr;

/// What the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub u32);

/// Not now.
pub(crate) const EAGAIN: Errno = Errno(11);
/// A signal came.
pub(crate) const EINTR: Errno = Errno(4);

/// Numbers of `asm/unistd_64.h`.
mod number {
    pub(super) const READ: usize = 0;
    pub(super) const CLOSE: usize = 3;
    pub(super) const FSTAT: usize = 5;
    pub(super) const POLL: usize = 7;
    pub(super) const MMAP: usize = 9;
    pub(super) const MPROTECT: usize = 10;
    pub(super) const MUNMAP: usize = 11;
    pub(super) const MADVISE: usize = 28;
    pub(super) const GETPID: usize = 39;
    pub(super) const SOCKET: usize = 41;
    pub(super) const CONNECT: usize = 42;
    pub(super) const SENDMSG: usize = 46;
    pub(super) const RECVMSG: usize = 47;
    pub(super) const GETSOCKOPT: usize = 55;
    pub(super) const FCNTL: usize = 72;
    pub(super) const GETEUID: usize = 107;
    pub(super) const CLOCK_GETTIME: usize = 228;
    pub(super) const OPENAT: usize = 257;
    pub(super) const NEWFSTATAT: usize = 262;
}

const AT_FDCWD: usize = -100isize as usize;
const O_CLOEXEC: usize = 0o2_000_000;

/// `PROT_READ`, `PROT_WRITE`, `PROT_EXEC`.
pub(crate) const READ: usize = 1;
pub(crate) const WRITE: usize = 2;
pub(crate) const EXEC: usize = 4;
/// `MAP_*`.
pub(crate) const SHARED: usize = 1;
pub(crate) const PRIVATE: usize = 2;
pub(crate) const FIXED: usize = 0x10;
pub(crate) const ANONYMOUS: usize = 0x20;
pub(crate) const NOREPLACE: usize = 0x10_0000;
/// `MADV_*`.
pub(crate) const DONT_DUMP: usize = 16;
pub(crate) const WIPE_ON_FORK: usize = 18;
/// `POLLIN`.
pub(crate) const POLL_IN: i16 = 1;

/// Any system call.
///
/// # Safety
/// As the call is: memory that it reads or writes must be there.
unsafe fn call(number: usize, arguments: [usize; 6]) -> Result<usize, Errno> {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: the calling convention of x86-64's system calls; what the call does is the caller's affair.
    unsafe {
        asm!(
            "syscall",
            inout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    match result {
        -4095..=-1 => Err(Errno(result.unsigned_abs() as u32)),
        _ => Ok(result as usize),
    }
}

/// An open descriptor, closed when dropped.
#[derive(Debug)]
pub(crate) struct Fd(i32);

impl Fd {
    /// One that nobody else closes.
    pub(crate) fn own(number: i32) -> Self {
        Self(number)
    }

    pub(crate) fn number(&self) -> i32 {
        self.0
    }

    fn raw(&self) -> usize {
        self.0 as usize
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: touches no memory, and the descriptor is ours.
        let _ = unsafe { call(number::CLOSE, [self.raw(), 0, 0, 0, 0, 0]) };
    }
}

/// Opens a file to read it.
pub(crate) fn open(path: &CStr) -> Result<Fd, Errno> {
    let arguments = [AT_FDCWD, path.as_ptr() as usize, O_CLOEXEC, 0, 0, 0];
    // SAFETY: the path ends with a zero.
    let fd = unsafe { call(number::OPENAT, arguments)? };
    Ok(Fd(fd as i32))
}

/// Reads into `buffer`.
pub(crate) fn read(fd: &Fd, buffer: &mut [u8]) -> Result<usize, Errno> {
    let arguments = [fd.raw(), buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0];
    // SAFETY: the buffer has that many bytes.
    unsafe { call(number::READ, arguments) }
}

/// What `stat` tells, as far as it is wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stat {
    /// Hard links.
    pub links: u64,
    /// `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Bytes.
    pub size: u64,
}

impl Stat {
    /// `struct stat` of `asm/stat.h`.
    fn of(words: &[u64; 18]) -> Self {
        let [_, _, links, mode, _, _, size, ..] = *words;
        Self { links, mode: mode as u32, uid: (mode >> 32) as u32, size }
    }
}

/// Looks at a path, the last part of which may be no link.
pub(crate) fn stat(path: &CStr) -> Result<Stat, Errno> {
    const NO_FOLLOW: usize = 0x100;
    let mut words = [0u64; 18];
    let (path, into) = (path.as_ptr() as usize, words.as_mut_ptr() as usize);
    // SAFETY: the path ends with a zero, and a struct stat has 144 bytes.
    unsafe { call(number::NEWFSTATAT, [AT_FDCWD, path, into, NO_FOLLOW, 0, 0])? };
    Ok(Stat::of(&words))
}

/// Looks at an open file.
pub(crate) fn fstat(fd: &Fd) -> Result<Stat, Errno> {
    let mut words = [0u64; 18];
    // SAFETY: a struct stat has 144 bytes.
    unsafe { call(number::FSTAT, [fd.raw(), words.as_mut_ptr() as usize, 0, 0, 0, 0])? };
    Ok(Stat::of(&words))
}

/// The seals of a memfd.
pub(crate) fn seals(fd: &Fd) -> Result<usize, Errno> {
    const F_GET_SEALS: usize = 1034;
    // SAFETY: touches no memory.
    unsafe { call(number::FCNTL, [fd.raw(), F_GET_SEALS, 0, 0, 0, 0]) }
}

/// Effective user.
pub(crate) fn user() -> u32 {
    // SAFETY: touches no memory.
    unsafe { call(number::GETEUID, [0; 6]) }.map_or(u32::MAX, |uid| uid as u32)
}

/// Own process id.
pub(crate) fn pid() -> u32 {
    // SAFETY: touches no memory.
    unsafe { call(number::GETPID, [0; 6]) }.map_or(0, |pid| pid as u32)
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub(crate) fn now() -> u64 {
    let mut time = [0u64; 2];
    // SAFETY: a struct timespec has 16 bytes.
    let _ = unsafe { call(number::CLOCK_GETTIME, [1, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    let [seconds, nanoseconds] = time;
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds)
}

/// A socket for packets that neither blocks nor outlives an execve.
pub(crate) fn packet_socket() -> Result<Fd, Errno> {
    const UNIX: usize = 1;
    const SEQPACKET_NONBLOCK_CLOEXEC: usize = 5 | 0o4_000 | 0o2_000_000;
    // SAFETY: touches no memory.
    let fd = unsafe { call(number::SOCKET, [UNIX, SEQPACKET_NONBLOCK_CLOEXEC, 0, 0, 0, 0])? };
    Ok(Fd(fd as i32))
}

/// Connects to an address of `AF_UNIX`.
pub(crate) fn connect(fd: &Fd, address: &[u8]) -> Result<(), Errno> {
    let arguments = [fd.raw(), address.as_ptr() as usize, address.len(), 0, 0, 0];
    // SAFETY: the address has that many bytes.
    unsafe { call(number::CONNECT, arguments) }.map(|_| ())
}

/// Who listens at the other end: user id.
pub(crate) fn peer_user(fd: &Fd) -> Result<u32, Errno> {
    const SOL_SOCKET: usize = 1;
    const SO_PEERCRED: usize = 17;
    let mut credentials = [u32::MAX; 3];
    let mut len = 12u32;
    let (into, size) = (credentials.as_mut_ptr() as usize, &raw mut len as usize);
    // SAFETY: a struct ucred has 12 bytes, and the length says so.
    unsafe { call(number::GETSOCKOPT, [fd.raw(), SOL_SOCKET, SO_PEERCRED, into, size, 0])? };
    let [_, user, _] = credentials;
    Ok(user)
}

/// Waits until one of `events` comes or milliseconds have passed; whether it came.
pub(crate) fn poll(fd: Option<&Fd>, events: i16, milliseconds: u32) -> Result<bool, Errno> {
    // struct pollfd: a descriptor, then two words of 16 bits.
    let mut one = [fd.map_or(-1, Fd::number), i32::from(events)];
    let arguments = [one.as_mut_ptr() as usize, 1, milliseconds as usize, 0, 0, 0];
    // SAFETY: one struct pollfd of 8 bytes.
    unsafe { call(number::POLL, arguments) }.map(|count| count > 0)
}

#[repr(C)]
struct Message {
    name: usize,
    name_len: usize,
    parts: *mut [usize; 2],
    part_count: usize,
    control: *mut u64,
    control_len: usize,
    flags: usize,
}

/// Room for a control message with up to four descriptors, in words.
const CONTROL: usize = 4;
/// Bytes of a struct cmsghdr.
const CONTROL_HEADER: usize = 16;
/// SOL_SOCKET and SCM_RIGHTS, as the second word of a struct cmsghdr.
const RIGHTS: u64 = 1 | 1 << 32;

/// Sends a packet, with a descriptor if there is one to send.
pub(crate) fn send(fd: &Fd, packet: &[u8], with: Option<&Fd>) -> Result<(), Errno> {
    const NO_SIGNAL: usize = 0x4000;
    let mut part = [packet.as_ptr() as usize, packet.len()];
    let length = CONTROL_HEADER + 4;
    let number = with.map_or(0, |fd| u64::from(fd.number() as u32));
    let mut control = [length as u64, RIGHTS, number, 0];
    let message = Message {
        name: 0,
        name_len: 0,
        parts: &raw mut part,
        part_count: 1,
        control: control.as_mut_ptr(),
        control_len: if with.is_some() { length } else { 0 },
        flags: 0,
    };
    let arguments = [fd.raw(), &raw const message as usize, NO_SIGNAL, 0, 0, 0];
    // SAFETY: the message leads to memory of these lengths, which the kernel only reads.
    unsafe { call(number::SENDMSG, arguments) }.map(|_| ())
}

/// Descriptors that came with a packet.
pub(crate) type Three = [Option<Fd>; 3];

/// Receives a packet of up to `buffer`'s length, and up to three descriptors; gives its length, which is 0
/// when the other side has hung up or sent too much.
pub(crate) fn receive(fd: &Fd, buffer: &mut [u8]) -> Result<(usize, Three), Errno> {
    const CMSG_CLOEXEC: usize = 0x4000_0000;
    /// MSG_TRUNC and MSG_CTRUNC.
    const CUT: usize = 0x20 | 0x8;
    let mut part = [buffer.as_mut_ptr() as usize, buffer.len()];
    let mut control = [0u64; CONTROL];
    let mut message = Message {
        name: 0,
        name_len: 0,
        parts: &raw mut part,
        part_count: 1,
        control: control.as_mut_ptr(),
        // No room for a fourth.
        control_len: CONTROL_HEADER + 12,
        flags: 0,
    };
    let arguments = [fd.raw(), &raw mut message as usize, CMSG_CLOEXEC, 0, 0, 0];
    // SAFETY: the message leads to memory of these lengths, which the kernel fills in.
    let length = unsafe { call(number::RECVMSG, arguments)? };
    let mut fds: Three = [None, None, None];
    let [size, kind, first, second] = control;
    if message.control_len >= CONTROL_HEADER && kind == RIGHTS {
        let count = (size as usize).saturating_sub(CONTROL_HEADER) / 4;
        let numbers = [first as i32, (first >> 32) as i32, second as i32];
        for (place, number) in fds.iter_mut().zip(numbers).take(count) {
            *place = Some(Fd::own(number));
        }
    }
    let is_cut = message.flags as u32 as usize & CUT != 0;
    Ok((if is_cut { 0 } else { length }, fds))
}

/// Maps memory, of a file or none.
///
/// # Safety
/// With [`FIXED`] nobody may rely on what was there.
pub(crate) unsafe fn map(
    at: u64,
    len: u64,
    protection: usize,
    flags: usize,
    file: Option<(&Fd, u64)>,
) -> Result<u64, Errno> {
    let (fd, offset) = file.map_or((usize::MAX, 0), |(fd, offset)| (fd.raw(), offset as usize));
    let arguments = [at as usize, len as usize, protection, flags, fd, offset];
    // SAFETY: as the caller says.
    unsafe { call(number::MMAP, arguments) }.map(|start| start as u64)
}

/// Unmaps memory.
///
/// # Safety
/// Nobody may use it any more.
pub(crate) unsafe fn unmap(at: u64, len: u64) -> Result<(), Errno> {
    // SAFETY: as the caller says.
    unsafe { call(number::MUNMAP, [at as usize, len as usize, 0, 0, 0, 0]) }.map(|_| ())
}

/// Changes what memory may be used for.
///
/// # Safety
/// Nobody may use it otherwise meanwhile.
pub(crate) unsafe fn protect(at: u64, len: u64, protection: usize) -> Result<(), Errno> {
    let arguments = [at as usize, len as usize, protection, 0, 0, 0];
    // SAFETY: as the caller says.
    unsafe { call(number::MPROTECT, arguments) }.map(|_| ())
}

/// [`DONT_DUMP`] or [`WIPE_ON_FORK`], which change nothing in this process.
pub(crate) fn advise(at: u64, len: u64, advice: usize) -> Result<(), Errno> {
    // SAFETY: neither advice changes memory here.
    unsafe { call(number::MADVISE, [at as usize, len as usize, advice, 0, 0, 0]) }.map(|_| ())
}
