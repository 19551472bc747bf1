//! Which functions, where, and what to read: patterns, sites, fetch programs,
//! refusals. Facts in, [`Plan`] out; no kernel, no process.
#![forbid(unsafe_code)]

pub mod interpret;
pub mod nearest;
pub mod package;
pub mod pattern;
pub mod plan;
pub mod rule;
pub mod value;

pub use plan::{
    ImageId, Plan, PlannedFunction, Program, Refusal, RefusalReason, RuntimeLayout, Site, Witness,
};
