//! Which processes begin to run a program, told by the kernel as it happens: the process connector
//! (`drivers/connector/cn_proc.c`, `include/uapi/linux/cn_proc.h`).

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::{CONNECTOR, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
    sockopt,
};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// `CN_IDX_PROC` and `CN_VAL_PROC`, and the group.
const PROC: u32 = 1;
/// `NLMSG_DONE`.
const DONE: u16 = 3;
/// `PROC_CN_MCAST_LISTEN`.
const LISTEN: u32 = 1;
/// `PROC_EVENT_EXEC`.
const EXEC: u32 = 2;
/// Bytes of `struct nlmsghdr`, and of it with `struct cn_msg`.
const HEADER: usize = 16;
const HEADERS: usize = HEADER + 20;
/// How long the kernel may take to say yes.
const ANSWER: Duration = Duration::from_millis(500);
/// Bytes that wait in the socket at the most: some thousands of events.
const BUFFER: usize = 1 << 20;
/// Messages taken at a time.
const AT_ONCE: usize = 4096;

/// Tells of programs that begin.
#[derive(Debug)]
pub struct ExecEvents {
    socket: OwnedFd,
}

/// What was told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Execs {
    /// Processes (thread groups) that began to run a program, by the kernel's own ids.
    pub pids: BTreeSet<u32>,
    /// Some were not told of: all processes have to be looked at.
    pub overflowed: bool,
}

impl ExecEvents {
    /// Begins to listen. The kernel tells only the superuser of the initial namespaces.
    ///
    /// # Errors
    /// That it does not, or has no such connector.
    pub fn listen() -> io::Result<Self> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            Some(CONNECTOR),
        )?;
        // Without a larger one events are lost earlier, and told to be.
        _ = sockopt::set_socket_recv_buffer_size(&socket, BUFFER);
        bind(&socket, &SocketAddrNetlink::new(0, PROC))?;
        // To this wish the kernel says yes; what it is narrowed to has no room for an answer.
        send(&socket, &wish(false), SendFlags::empty())?;
        let events = Self { socket };
        events.answer()?;
        if filters() {
            send(&events.socket, &wish(true), SendFlags::empty())?;
        }
        Ok(events)
    }

    /// Waits for the kernel's yes.
    fn answer(&self) -> io::Result<()> {
        let until = Instant::now() + ANSWER;
        let mut buffer = [0; 4096];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).ok();
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            if left.is_zero() || !matches!(poll(&mut fds, timeout.as_ref()), Ok(1)) {
                let told = "the kernel does not answer (not in its initial namespaces)";
                return Err(io::Error::new(io::ErrorKind::TimedOut, told));
            }
            let (length, _) = recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT)?;
            match events(buffer.get(..length).unwrap_or_default()).next() {
                Some(Told::Answer(0)) => return Ok(()),
                Some(Told::Answer(error)) => {
                    return Err(io::Error::from_raw_os_error(i32::try_from(error).unwrap_or(1)));
                }
                _ => {}
            }
        }
    }

    /// What was told since; does not wait.
    pub fn take(&self) -> Execs {
        let mut execs = Execs::default();
        let mut buffer = [0; 4096];
        for _ in 0..AT_ONCE {
            match recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((length, _)) => {
                    for told in events(buffer.get(..length).unwrap_or_default()) {
                        if let Told::Exec(pid) = told {
                            execs.pids.insert(pid);
                        }
                    }
                }
                Err(Errno::NOBUFS) => execs.overflowed = true,
                Err(_) => break,
            }
        }
        execs
    }
}

impl AsFd for ExecEvents {
    /// Readable when there is something to be taken.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Told {
    /// To the wish to listen: an error number, or 0.
    Answer(u32),
    Exec(u32),
    Other,
}

/// Whether the kernel sends only what is asked for (Linux 6.6); older ones take no such wish.
fn filters() -> bool {
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy();
    let mut parts = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (6, 6)
}

/// The message that asks for events.
fn wish(filtered: bool) -> Vec<u8> {
    let wanted = [LISTEN, EXEC];
    let wanted = if filtered { &wanted[..] } else { &wanted[..1] };
    let length = wanted.len() * 4;
    let mut bytes = Vec::with_capacity(HEADERS + length);
    bytes.extend(u32::try_from(HEADERS + length).unwrap_or(0).to_ne_bytes());
    bytes.extend(DONE.to_ne_bytes());
    bytes.extend([0; 2]);
    bytes.extend([0; 8]);
    bytes.extend([PROC, PROC, 0, 0].iter().flat_map(|word| word.to_ne_bytes()));
    bytes.extend(u16::try_from(length).unwrap_or(0).to_ne_bytes());
    bytes.extend([0; 2]);
    bytes.extend(wanted.iter().flat_map(|word| word.to_ne_bytes()));
    bytes
}

/// The events in what was received.
fn events(mut bytes: &[u8]) -> impl Iterator<Item = Told> {
    std::iter::from_fn(move || {
        let length = usize::try_from(word(bytes, 0)?).ok()?;
        let message = bytes.get(..length).filter(|message| message.len() >= HEADER)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(told(message).unwrap_or(Told::Other))
    })
}

fn told(message: &[u8]) -> Option<Told> {
    if word(message, HEADER)? != PROC || word(message, HEADER + 4)? != PROC {
        return None;
    }
    // `struct proc_event`: what, cpu, timestamp_ns, and what belongs to it.
    let event = message.get(HEADERS..)?;
    match word(event, 0)? {
        0 => Some(Told::Answer(word(event, 16)?)),
        EXEC => Some(Told::Exec(word(event, 20)?)),
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(what: u32, data: [u32; 2]) -> Vec<u8> {
        let mut bytes = wish(false);
        bytes.truncate(HEADERS);
        let event = [what, 0, 0, 0, data[0], data[1]];
        bytes.extend(event.iter().flat_map(|word| word.to_ne_bytes()));
        let length = u32::try_from(bytes.len()).unwrap();
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes
    }

    #[test]
    fn messages_are_understood_and_others_passed_over() {
        let all = [message(0, [1, 0]), message(EXEC, [12, 11]), message(1, [5, 5])].concat();
        let found: Vec<_> = events(&all).collect();
        assert_eq!(found, [Told::Answer(1), Told::Exec(11), Told::Other]);
        // Cut, or with an impossible length: nothing more, and no end without it.
        for cut in 0..all.len() {
            assert!(events(&all[..cut]).count() <= 3);
        }
        for length in [0_u32, 3, 15, u32::MAX] {
            let mut wrong = all.clone();
            wrong[..4].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(events(&wrong).count(), 0, "{length}");
        }
    }
}
