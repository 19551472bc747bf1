//! The in-process backend: jumps and trampolines written into the target, a few tens of
//! nanoseconds per hit and no BPF.
//!
//! [`emit`] turns a plan into code and patches and touches no process; the rest of the crate
//! brings them into one, reads the rings and takes everything out again.

pub mod emit;
pub mod layout;
