//! The way to the agent: where it listens, whether it is to be trusted, and waiting for it, not for
//! long.

use crate::error::{Because as _, Stop};
use crate::sys::{self, EAGAIN, EINTR, Fd, Three};
use core::ffi::CStr;
use handover::{Failed, FromAgent, FromProgram, Why};

/// How long a program waits, all in all, nanoseconds: what it loses to the scheduler comes on top.
const PATIENCE: u64 = 900_000_000;

/// Longest time between two tries to connect, when many programs start at once, milliseconds.
const PAUSE: u32 = 5;

/// Longest path of a socket, with the zero behind it (`sockaddr_un`).
const MAX_PATH: usize = 108;

const DIRECTORY: u32 = 0o040_000;
const KIND: u32 = 0o170_000;
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Whom the kernel shows who has no number in our user namespace, as it is set unless somebody changes it.
const OVERFLOW: u32 = 65534;

/// What `/proc/self/uid_map` has where everybody has one: 0, 0, and how many there are.
const EVERYBODY: [&[u8]; 3] = [b"0", b"0", b"4294967295"];

/// A path of a socket and of the directory that it is in.
pub(crate) struct Place {
    path: [u8; MAX_PATH],
    len: usize,
    directory: [u8; MAX_PATH],
}

impl Place {
    /// `None` for a path that is not absolute or too long.
    pub(crate) fn of(path: &[u8]) -> Option<Self> {
        let slash = path.iter().rposition(|&byte| byte == b'/')?;
        if path.first() != Some(&b'/') || path.len() >= MAX_PATH || slash + 1 == path.len() {
            return None;
        }
        let mut place = Self { path: [0; MAX_PATH], len: path.len(), directory: [0; MAX_PATH] };
        place.path.get_mut(..path.len())?.copy_from_slice(path);
        let directory = path.get(..slash.max(1))?;
        place.directory.get_mut(..directory.len())?.copy_from_slice(directory);
        Some(place)
    }

    /// `struct sockaddr_un`.
    fn address(&self) -> ([u8; MAX_PATH + 2], usize) {
        let mut address = [0; MAX_PATH + 2];
        let (family, path) = address.split_at_mut(2);
        family.copy_from_slice(&1u16.to_le_bytes());
        path.copy_from_slice(&self.path);
        (address, 2 + self.len + 1)
    }
}

/// Whom a program takes code from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trust {
    /// The user that it runs as.
    pub user: u32,
    /// Whether it has more rights than who started it: then only root.
    pub is_secure: bool,
}

impl Trust {
    fn accepts(self, user: u32) -> bool {
        user == 0 || (user == self.user && !self.is_secure)
    }

    /// Whether nobody else can put another socket there.
    fn accepts_directory(self, stat: &sys::Stat) -> bool {
        let is_closed = stat.mode & WRITABLE_BY_OTHERS == 0;
        stat.mode & KIND == DIRECTORY && is_closed && self.accepts(stat.uid)
    }
}

/// Whether all users have a number in our user namespace.
fn has_everybody() -> bool {
    let mut text = [0; 128];
    let read = sys::open(c"/proc/self/uid_map").and_then(|file| sys::read(&file, &mut text));
    read.is_ok_and(|len| maps_everybody(text.get(..len).unwrap_or_default()))
}

fn maps_everybody(text: &[u8]) -> bool {
    let words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.eq(EVERYBODY)
}

/// The connection.
pub(crate) struct Agent {
    socket: Fd,
    deadline: u64,
}

impl Agent {
    /// Connects. Without an agent this is one system call.
    pub(crate) fn connect(place: &Place, is_secure: bool) -> Result<Self, Stop> {
        let silent = |_| Stop::Silent;
        let directory = CStr::from_bytes_until_nul(&place.directory).map_err(|_| Stop::Silent)?;
        let directory = sys::stat(directory).map_err(silent)?;
        let user = sys::user();
        // Who is nobody here shares that number with everybody who has none.
        let is_shared = user == OVERFLOW && !has_everybody();
        let trust = Trust { user, is_secure: is_secure || is_shared };
        if !trust.accepts_directory(&directory) {
            return Err(Stop::Silent);
        }
        let deadline = sys::now().saturating_add(PATIENCE);
        let socket = sys::packet_socket().map_err(silent)?;
        let (address, len) = place.address();
        let address = address.get(..len).unwrap_or_default();
        loop {
            match sys::connect(&socket, address) {
                Ok(()) => break,
                // Its queue is full.
                Err(EAGAIN | EINTR) if sys::now() < deadline => {
                    let _ = sys::poll(None, 0, PAUSE);
                }
                Err(_) => return Err(Stop::Silent),
            }
        }
        let user = sys::peer_user(&socket).map_err(silent)?;
        if !trust.accepts(user) {
            return Err(Stop::Silent);
        }
        Ok(Self { socket, deadline })
    }

    /// Sends the first packet.
    pub(crate) fn hello(&self, packet: &[u8], executable: &Fd) -> Result<(), Stop> {
        sys::send(&self.socket, packet, Some(executable)).map_err(|_| Stop::Silent)
    }

    /// Says that everything is in place.
    pub(crate) fn done(&self, patches: u32, pages: u32) -> Result<(), Stop> {
        self.say(FromProgram::Done { patches, pages }).ok_or(Stop::Silent)
    }

    /// Says that nothing is. Whether that arrives does not matter.
    pub(crate) fn failed(&self, failed: Failed) {
        let _ = self.say(FromProgram::Failed(failed));
    }

    fn say(&self, message: FromProgram<'_>) -> Option<()> {
        let mut buffer = [0; 32];
        let len = message.write(&mut buffer)?;
        sys::send(&self.socket, buffer.get(..len)?, None).ok()
    }

    /// The next word, with what came with it.
    pub(crate) fn listen(&self) -> Result<(FromAgent, Three), Stop> {
        let mut buffer = [0; 256];
        loop {
            let left = self.deadline.saturating_sub(sys::now()) / 1_000_000;
            match sys::poll(Some(&self.socket), sys::POLL_IN, left as u32) {
                Ok(true) => {}
                Err(EINTR) => continue,
                Ok(false) | Err(_) => return None.because(Why::Time),
            }
            match sys::receive(&self.socket, &mut buffer) {
                Ok((len, fds)) => {
                    let packet = buffer.get(..len).unwrap_or_default();
                    let message = FromAgent::read(packet).ok_or(Stop::Silent)?;
                    return Ok((message, fds));
                }
                Err(EAGAIN | EINTR) if left > 0 => {}
                Err(_) => return Err(Stop::Silent),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_absolute_and_fits_an_address() {
        let place = Place::of(b"/run/gospect/agent.sock").unwrap();
        let directory = CStr::from_bytes_until_nul(&place.directory).unwrap();
        assert_eq!(directory, c"/run/gospect");
        let (address, len) = place.address();
        assert_eq!(&address[..len], b"\x01\0/run/gospect/agent.sock\0");
        let root = Place::of(b"/agent.sock").unwrap();
        assert_eq!(CStr::from_bytes_until_nul(&root.directory), Ok(c"/"));
        for wrong in [&b""[..], b"agent.sock", b"run/agent.sock", b"/run/", &[b'/'; 200]] {
            assert!(Place::of(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn a_namespace_of_some_users_is_told_from_that_of_all() {
        assert!(maps_everybody(b"         0          0 4294967295\n"));
        for some in [&b""[..], b"0 1000 1\n", b"0 0 65536\n", b"0 0 4294967295\n1 1 1\n"] {
            assert!(!maps_everybody(some), "{some:?}");
        }
    }

    #[test]
    fn code_is_taken_from_root_and_from_oneself() {
        let stat = |uid, mode| sys::Stat { uid, mode, ..sys::Stat::default() };
        let own = Trust { user: 1000, is_secure: false };
        assert!(own.accepts(0) && own.accepts(1000) && !own.accepts(1001));
        let raised = Trust { is_secure: true, ..own };
        assert!(raised.accepts(0) && !raised.accepts(1000));
        assert!(own.accepts_directory(&stat(0, 0o040_755)));
        assert!(own.accepts_directory(&stat(1000, 0o040_700)));
        for wrong in [
            stat(1001, 0o040_755),
            stat(0, 0o040_775),
            stat(0, 0o041_777),
            stat(0, 0o100_755),
            stat(0, 0o120_755),
        ] {
            assert!(!own.accepts_directory(&wrong), "{wrong:?}");
        }
        assert!(!raised.accepts_directory(&stat(1000, 0o040_700)));
    }
}
