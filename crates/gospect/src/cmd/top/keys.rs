//! What is typed, and whether there is still a terminal to type at.

use ratatui::crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Events that wait to be looked at; whoever types faster waits.
const WAITING: usize = 256;

/// Reads the terminal in a thread of its own: what crossterm reads from a terminal that has been
/// hung up never comes back, so nobody may wait for it.
pub struct Keys {
    events: Receiver<io::Result<Event>>,
}

impl Keys {
    /// Begins to read. The thread ends with the process.
    pub fn read() -> io::Result<Self> {
        let (send, events) = sync_channel(WAITING);
        std::thread::Builder::new().name("keys".to_owned()).spawn(move || {
            loop {
                let event = event::read();
                let failed = event.is_err();
                if send.send(event).is_err() || failed {
                    return;
                }
            }
        })?;
        Ok(Self { events })
    }

    /// The next event, if one comes within `limit`.
    ///
    /// Errors: the terminal could not be read.
    pub fn next(&self, limit: Duration) -> io::Result<Option<Event>> {
        match self.events.recv_timeout(limit) {
            Ok(event) => event.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Whether the terminal at standard input has been hung up.
pub fn is_hung_up() -> bool {
    let stdin = io::stdin();
    let mut input = [PollFd::new(&stdin, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut input, Some(&now)).is_ok()
        && input[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}
