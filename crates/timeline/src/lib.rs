//! Records to meaning: calls, panics, losses. Pure: records, a plan and a symbolizer in,
//! events out; clocks come from outside; memory is bounded.
#![forbid(unsafe_code)]

pub mod event;

pub use event::{Call, End, Event, Location, Symbolizer};
