//! What Ctrl-C, SIGTERM and SIGHUP ask for.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Signals received since [`Signals::install`].
#[derive(Debug)]
pub struct Signals {
    interrupts: Interrupts,
    terminated: Arc<AtomicBool>,
}

/// How many times Ctrl-C came.
#[derive(Debug)]
pub struct Interrupts {
    /// A byte for each: between two looks two would count as one.
    told: UnixStream,
    count: AtomicU32,
}

impl Interrupts {
    /// From now on they are counted instead of ending the process.
    pub fn install() -> io::Result<Self> {
        let (told, teller) = UnixStream::pair()?;
        told.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGINT, teller)?;
        Ok(Self { told, count: AtomicU32::new(0) })
    }

    /// Those so far.
    pub fn count(&self) -> u32 {
        let mut bytes = [0; 16];
        // Nothing more is there when it fails.
        while let Ok(new @ 1..) = (&self.told).read(&mut bytes) {
            self.count.fetch_add(new as u32, Ordering::Relaxed);
        }
        self.count.load(Ordering::Relaxed)
    }
}

impl Signals {
    /// From now on the signals are noted instead of ending the process.
    pub fn install() -> io::Result<Self> {
        let terminated = Arc::default();
        flag::register(SIGTERM, Arc::clone(&terminated))?;
        // Started with nohup: a hang-up is of no concern.
        if !process::is_ignored(SIGHUP) {
            flag::register(SIGHUP, Arc::clone(&terminated))?;
        }
        Ok(Self { interrupts: Interrupts::install()?, terminated })
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
        self.interrupts.count()
    }

    /// Whether SIGTERM or SIGHUP came: no draining.
    pub fn terminated(&self) -> bool {
        self.terminated.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_interrupt_counts_however_late_they_are_looked_at() {
        let interrupts = Interrupts::install().expect("a socket");
        assert_eq!(interrupts.count(), 0);
        for expected in [20, 40] {
            // The handler has run when this returns.
            (0..20).for_each(|_| signal_hook::low_level::raise(SIGINT).expect("to raise it"));
            assert_eq!(interrupts.count(), expected);
        }
        assert_eq!(interrupts.count(), 40);
    }
}
