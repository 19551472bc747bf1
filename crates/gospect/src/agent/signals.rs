//! What signals ask an agent for.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Signals received.
pub struct Signals {
    hang_up: Arc<AtomicBool>,
    terminated: Arc<AtomicBool>,
    interrupts: Arc<AtomicUsize>,
    /// Ctrl-C that ends the agent: the first one is for a command that was started.
    needed: usize,
}

impl Signals {
    /// From now on they are noted.
    pub fn install(launched: bool) -> io::Result<Self> {
        let signals = Self {
            hang_up: Arc::default(),
            terminated: Arc::default(),
            interrupts: Arc::default(),
            needed: 1 + usize::from(launched),
        };
        signal_hook::flag::register(SIGHUP, Arc::clone(&signals.hang_up))?;
        signal_hook::flag::register(SIGTERM, Arc::clone(&signals.terminated))?;
        let interrupts = Arc::clone(&signals.interrupts);
        let mut pending = signal_hook::iterator::Signals::new([SIGINT])?;
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for _ in pending.forever() {
                interrupts.fetch_add(1, Ordering::Relaxed);
            }
        })?;
        Ok(signals)
    }

    /// Whether the agent is to end.
    pub fn ends(&self) -> bool {
        self.terminated.load(Ordering::Relaxed)
            || self.interrupts.load(Ordering::Relaxed) >= self.needed
    }

    /// Whether the configuration is to be read again; asks for it once.
    pub fn reloads(&self) -> bool {
        self.hang_up.swap(false, Ordering::Relaxed)
    }
}
