//! The uprobe backend: one BPF program on every site of a plan, through
//! `uprobe.multi` links (Linux 6.6 and newer) or a perf event per site (5.17 and newer).
//!
//! Hand in a [`capture::Request`] and [`Options`]; get records in the form `wire`
//! describes. A hit costs the target 0.6 to 1 microsecond where the kernel emulates the
//! probed instruction, 9 to 16 where it single-steps it: [`calibrate`] tells. Nothing is
//! written into the target except the breakpoints the kernel manages, and it takes
//! them out when the tracer goes away, however it goes.
//!
//! Not offered: return probes of the kernel, which break programs that move their stacks.

mod attach;
mod calibrate;
mod error;
mod features;
mod foreign;
mod install;
mod kernel;
mod object;
mod options;
mod order;
mod ring;

pub use attach::SkippedSite;
pub use calibrate::{SiteCost, calibrate};
pub use features::{Features, Outcome, probe_features};
pub use foreign::{ForeignUprobe, foreign_uprobes};
pub use install::{UprobeCapture, only_process};
pub use kernel::KernelVersion;
pub use options::Options;

/// Name of this backend.
pub const NAME: &str = "uprobe";
