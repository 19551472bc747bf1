//! The in-process backend: jumps and trampolines written into the target, a few tens of
//! nanoseconds per hit and no BPF.
//!
//! [`emit`] turns a plan into code and patches and touches no process; the rest of the crate
//! brings them into one, reads the rings and takes everything out again.

mod calibrate;
mod capture;
mod clock;
pub mod emit;
mod error;
mod host;
mod install;
mod launch;
pub mod layout;
mod memory;
mod offsets;
pub mod payload;
pub mod preload;
mod prepare;
mod ptrace;
mod reader;
mod rings;
mod slice;
mod step;
mod view;

pub use crate::clock::why_unusable;
pub use calibrate::{HitCost, calibrate};
pub use capture::{Options, TrampolineCapture, carrier, check, remove_leftovers};
pub use error::Error;
pub use install::{Removal, Report, has_leftovers, is_carrier};
pub use prepare::refusals;
#[doc(hidden)]
pub use step::set_step_hook;

/// What the names of all mappings that we make in a process begin with, as
/// `/proc/PID/maps` shows them behind `/memfd:`.
pub const MAPPING_NAME: &str = "gospect-";

/// The function that carries a jump of ours in every process where faults can be recovered from.
/// It is never traced by this backend, and no other may put a breakpoint there meanwhile.
pub const HOOKED: &str = "runtime.sigtrampgo";
