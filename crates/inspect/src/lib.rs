//! Live structures of the Go runtime, read over an injected [`address::ReadMemory`]: a
//! process that runs on meanwhile, or a core dump.
//!
//! Hand in an executable's facts, a memory and the bias between them; get goroutines with
//! their state, origin, labels and stack. Nothing is stopped, so everything read may be
//! torn: what moved while it was read is read again or marked, never shown wrong. Memory of
//! the target is untrusted: no length in it is believed, every loop is bounded.
#![forbid(unsafe_code)]

mod created_by;
mod descriptor;
mod error;
mod frames;
mod goroutine;
mod labels;
mod list;
pub mod metrics;
mod reasons;
mod snapshot;
mod stack;
mod state;
mod system;

pub use created_by::Place;
pub use error::Error;
pub use frames::{Frame, Shown, is_shown, shown_name};
pub use goroutine::{Goroutine, Raw, Stack, StackEnd};
pub use labels::{Labels, LabelsEnd};
pub use list::AllGoroutines;
pub use reasons::WaitReasons;
pub use snapshot::{Options, Snapshot, Walked};
pub use stack::Registers;
pub use state::State;
