//! What Ctrl-C, SIGTERM and SIGHUP ask for.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals as Pending;

/// Signals received since [`Signals::install`].
#[derive(Debug)]
pub struct Signals {
    pending: Pending,
    interrupts: u32,
    terminated: bool,
}

impl Signals {
    /// From now on the signals are counted instead of ending the process.
    pub fn install() -> std::io::Result<Self> {
        let pending = Pending::new([SIGINT, SIGTERM, SIGHUP])?;
        Ok(Self { pending, interrupts: 0, terminated: false })
    }

    /// Takes in what came since the last look.
    pub fn look(&mut self) {
        for signal in self.pending.pending() {
            match signal {
                SIGINT => self.interrupts += 1,
                _ => self.terminated = true,
            }
        }
    }

    /// Whether the capture is to end. With a launched command the first Ctrl-C is the
    /// command's (the terminal sends it to both), the second one is ours.
    pub fn detach_asked(&self, launched: bool) -> bool {
        self.terminated || self.interrupts >= if launched { 2 } else { 1 }
    }

    /// Whether SIGTERM or SIGHUP came: no draining.
    pub fn terminated(&self) -> bool {
        self.terminated
    }
}
