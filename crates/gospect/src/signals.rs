//! What Ctrl-C, SIGTERM and SIGHUP ask for.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals as Pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Signals received since [`Signals::install`].
#[derive(Debug)]
pub struct Signals {
    seen: Arc<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    interrupts: AtomicU32,
    terminated: AtomicBool,
}

impl Signals {
    /// From now on the signals are counted instead of ending the process.
    ///
    /// A thread takes each one in as it comes: between two looks of the capture's loop two
    /// Ctrl-C would count as one.
    pub fn install() -> io::Result<Self> {
        // Started with nohup: a hang-up is of no concern.
        let hang_up = Some(SIGHUP).filter(|&signal| !process::is_ignored(signal));
        let mut pending = Pending::new([SIGINT, SIGTERM].into_iter().chain(hang_up))?;
        let seen = Arc::new(Seen::default());
        let counting = Arc::clone(&seen);
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in pending.forever() {
                match signal {
                    SIGINT => {
                        counting.interrupts.fetch_add(1, Ordering::Relaxed);
                    }
                    _ => counting.terminated.store(true, Ordering::Relaxed),
                }
            }
        })?;
        Ok(Self { seen })
    }

    /// Whether the capture is to end. With a launched command the first Ctrl-C is the
    /// command's (the terminal sends it to both), the second one is ours.
    pub fn detach_asked(&self, launched: bool) -> bool {
        self.terminated() || self.interrupts() >= self.needed(launched)
    }

    /// How many Ctrl-C end a capture.
    pub fn needed(&self, launched: bool) -> u32 {
        if launched { 2 } else { 1 }
    }

    /// How many times Ctrl-C came.
    pub fn interrupts(&self) -> u32 {
        self.seen.interrupts.load(Ordering::Relaxed)
    }

    /// Whether SIGTERM or SIGHUP came: no draining.
    pub fn terminated(&self) -> bool {
        self.seen.terminated.load(Ordering::Relaxed)
    }
}
