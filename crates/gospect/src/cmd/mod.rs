//! One module a subcommand: arguments in, outcome out.

pub mod agent;
pub mod completions;
pub mod detach;
pub mod doctor;
pub mod ftrace;
pub mod funcs;
pub mod goroutines;
pub mod info;
pub mod man;
pub mod metrics;
pub mod report;
pub mod sched;
pub mod spans;
pub mod top;
pub mod trace;
pub mod types;
