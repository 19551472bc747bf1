//! Names of wait reasons.

pub use binary::globals::WaitReasons;
