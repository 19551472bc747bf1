//! The boundary to the backends: install a plan, yield records, count losses, remove it.
//!
//! Small and symmetric: no method that only one backend can honour. A backend
//! prints nothing, chooses no function and knows no Go structure beyond the plan.

mod merged;

pub use merged::Merged;

use probe::Plan;
use std::collections::BTreeSet;
use std::time::Duration;
use thiserror::Error;

/// Which processes an installation covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// These processes (thread group ids) only.
    Pids(Vec<u32>),
    /// Every process that runs the file, now or later.
    EveryProcess,
}

/// What to install and where.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// A path that opens the image's inode from here: the file, `/proc/PID/exe`, `/proc/self/fd/N`
    /// or a path below `/proc/PID/root`.
    pub path: std::path::PathBuf,
    /// Which processes.
    pub scope: Scope,
    /// Ring size in bytes; rounded to what the backend needs.
    pub ring_bytes: usize,
}

impl Request<'_> {
    /// The file by the name that people know it by.
    pub fn name(&self) -> String {
        let known = &self.plan.image.path;
        if known.is_empty() { self.path.display().to_string() } else { known.clone() }
    }
}

/// Counters since the installation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records that reached a ring.
    pub produced: u64,
    /// Records that did not, whatever the cause: ring full, scratch busy, hits the kernel skipped.
    pub lost: u64,
    /// Records that threads had begun to write when they ended with their process, or it became
    /// another program: whether what they were about had happened nobody can say, and nothing
    /// followed from it. Some that lie side by side count as one.
    pub unfinished: u64,
    /// Hits of processes outside the scope, dropped without a record.
    pub foreign: u64,
    /// Hits that the condition of their site rejected: neither a record nor a loss.
    pub rejected: u64,
}

/// Why a backend cannot do its work here.
#[derive(Debug, Error)]
pub enum Error {
    /// A kernel feature is missing.
    #[error("{feature} needs {needs}; this system has {have}")]
    Unsupported {
        /// The feature.
        feature: &'static str,
        /// Minimum, e.g. `Linux 6.6`.
        needs: String,
        /// What is there, and how it was probed.
        have: String,
    },
    /// The kernel said no.
    #[error("no permission to {what}: {hint}")]
    Permission {
        /// What was refused.
        what: String,
        /// What to do about it.
        hint: String,
    },
    /// The process went away.
    #[error("process {0} exited")]
    ProcessGone(u32),
    /// A site cannot be probed.
    #[error("failed to probe 0x{offset:x} in the file: {reason}")]
    Site {
        /// File offset of the site.
        offset: u64,
        /// Why.
        reason: String,
    },
    /// Anything else, with its cause.
    #[error("failed to {what}")]
    Failed {
        /// What was tried.
        what: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Code in the processes of a capture, all of them together, and what putting it there and taking it
/// out has cost them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeEffects {
    /// Bytes of code and tables mapped, whole pages.
    pub code_bytes: u64,
    /// Functions that lead there.
    pub functions: u64,
    /// Pages of text that were written: private to a process from then on, after the removal too.
    pub private_pages: u64,
    /// How often all threads of a process stood.
    pub stops: u64,
    /// The longest of these times.
    pub longest_stop: Duration,
}

/// An installed plan.
pub trait Capture {
    /// Name for the summary: `uprobe` or `trampoline`.
    fn backend(&self) -> &'static str;

    /// Waits up to `timeout` for records and hands each one's wire form to `sink`, in an
    /// order that is right for every goroutine. Returns the number handed over.
    fn poll(&mut self, timeout: Duration, sink: &mut dyn FnMut(&[u8])) -> Result<usize, Error>;

    /// From now on records may gather for that long before they are looked at, as long as they fill little of
    /// their rings: each look costs the machine some ten microseconds, and the target what it had in the caches. For plans of
    /// which little comes at once. A capture that does not rest has nothing to do.
    fn rest_up_to(&mut self, _longest: Duration) {}

    /// Counters so far.
    fn counters(&self) -> Result<Counters, Error>;

    /// Removes everything from the targets. Records already produced stay readable with
    /// [`Capture::poll`]. Idempotent.
    fn detach(&mut self) -> Result<(), Error>;

    /// Takes some sites out of the targets, or puts such ones back; the others go on undisturbed. `sites` are all
    /// those of some functions, by their numbers in the plan. What was under way in these functions is not seen to
    /// end.
    ///
    /// False when this cannot be done here, at all or now: some of these sites may be in and others out then, and
    /// the way left is to detach and to install anew. So it is for a backend that has no better one.
    fn set_watched(&mut self, sites: &BTreeSet<u32>, watched: bool) -> Result<bool, Error> {
        let _ = (sites, watched);
        Ok(false)
    }

    /// What was done to the processes by a backend that writes code into them; complete after
    /// [`Capture::detach`].
    fn code_effects(&self) -> Option<CodeEffects> {
        None
    }
}
