//! What Ctrl-C, SIGTERM and SIGHUP ask for.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Signals received since [`Signals::install`].
#[derive(Debug)]
pub struct Signals {
    interrupts: Arc<AtomicUsize>,
    terminate: Arc<AtomicBool>,
}

impl Signals {
    /// From now on the signals are counted instead of ending the process.
    pub fn install() -> std::io::Result<Self> {
        let interrupts = Arc::new(AtomicUsize::new(0));
        let terminate = Arc::new(AtomicBool::new(false));
        let count = Arc::clone(&interrupts);
        // SAFETY: the handler only adds to an atomic, which is async-signal-safe.
        unsafe {
            signal_hook::low_level::register(SIGINT, move || {
                count.fetch_add(1, Ordering::Relaxed);
            })?;
        }
        flag::register(SIGTERM, Arc::clone(&terminate))?;
        flag::register(SIGHUP, Arc::clone(&terminate))?;
        Ok(Self { interrupts, terminate })
    }

    /// Whether the capture is to end. With a launched command the first Ctrl-C is the
    /// command's (the terminal sends it to both), the second one is ours.
    pub fn detach_asked(&self, launched: bool) -> bool {
        let needed = if launched { 2 } else { 1 };
        self.terminated() || self.interrupts.load(Ordering::Relaxed) >= needed
    }

    /// Whether SIGTERM or SIGHUP came: no draining.
    pub fn terminated(&self) -> bool {
        self.terminate.load(Ordering::Relaxed)
    }
}
