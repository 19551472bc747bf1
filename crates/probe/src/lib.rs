//! Which functions, where, and what to read: patterns, sites, fetch programs,
//! refusals. Facts in, [`Plan`] out; no kernel, no process.
#![forbid(unsafe_code)]

pub mod compile;
pub mod expression;
pub mod golden;
pub mod handover;
pub mod interpret;
pub mod limits;
pub mod nearest;
pub mod package;
pub mod pattern;
pub mod plan;
pub mod planner;
#[cfg(any(test, feature = "random-programs"))]
pub mod random_programs;
pub mod rule;
pub mod screen;
pub mod selection;
pub mod shape;
pub mod states;
pub mod type_path;
pub mod value;

#[cfg(test)]
mod test_image;

pub use limits::Limits;
pub use plan::{
    ConcreteTypes, Guard, ImageId, Plan, PlannedFunction, Program, Refusal, RefusalReason,
    RuntimeLayout, Site, Witness,
};
