//! What signals ask an agent for.

use crate::signals::Interrupts;
use signal_hook::consts::{SIGHUP, SIGTERM};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Signals received.
pub struct Signals {
    hang_up: Arc<AtomicBool>,
    terminated: Arc<AtomicBool>,
    interrupts: Interrupts,
    /// Ctrl-C that ends the agent: the first one is for a command that was started.
    needed: u32,
}

impl Signals {
    /// From now on they are noted.
    pub fn install(launched: bool) -> io::Result<Self> {
        let signals = Self {
            hang_up: Arc::default(),
            terminated: Arc::default(),
            interrupts: Interrupts::install()?,
            needed: 1 + u32::from(launched),
        };
        signal_hook::flag::register(SIGHUP, Arc::clone(&signals.hang_up))?;
        signal_hook::flag::register(SIGTERM, Arc::clone(&signals.terminated))?;
        Ok(signals)
    }

    /// Whether the agent is to end.
    pub fn ends(&self) -> bool {
        self.terminated.load(Ordering::Relaxed) || self.interrupts.count() >= self.needed
    }

    /// Whether the configuration is to be read again; asks for it once.
    pub fn reloads(&self) -> bool {
        self.hang_up.swap(false, Ordering::Relaxed)
    }
}
