//! Where programs with the preloaded library ask to be watched.
//!
//! The supervisor knows this much of it: who waits, and what comes of an answer. A plan is made where there is none
//! yet; whoever waits longer than [`PATIENCE`] is sent away and gets what an attach can do.

use binary::Executable;
use capture::Capture;
use probe::Plan;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long a program may be kept waiting for its plan; it waits a second at the most.
pub const PATIENCE: Duration = Duration::from_millis(700);

/// A program that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Knock {
    /// Its process.
    pub pid: u32,
    /// Which of its questions.
    pub number: u64,
}

/// What it is to carry.
#[allow(dead_code, reason = "read by what stands behind the socket")]
pub struct Offer<'a> {
    /// Which sites.
    pub plan: &'a Plan,
    /// Its executable.
    pub executable: &'a Arc<Executable>,
    /// A path that opens it from here.
    pub path: &'a Path,
}

/// Takes questions and gives answers, without waiting for anything.
pub trait Door {
    /// Who came since the last look.
    fn knocks(&mut self) -> Vec<Knock>;

    /// Gives it what it is to carry; from then on its records are read.
    fn open(&mut self, knock: Knock, offer: &Offer<'_>) -> anyhow::Result<Box<dyn Capture>>;

    /// Sends it away with a reason.
    fn refuse(&mut self, knock: Knock, reason: &str);
}
