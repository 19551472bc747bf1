//! The agent: finds processes, has them watched as their services want it, and tells what comes of it.
//!
//! What is decided stands in the crate `agent`; here it is done. One thread (`supervisor`) holds all captures; one
//! plans executables (`planner`), one reads metrics (`monitor`), one answers over HTTP (`serve`), and those of
//! `otlp` send. What they share is the `board`.

mod board;
mod config_file;
mod discovery;
mod door;
mod export;
mod launching;
mod loaded;
mod monitor;
mod planner;
mod prepared;
mod report;
mod serve;
mod shares;
mod signals;
mod supervisor;
mod target;

pub use loaded::Loaded;
pub use supervisor::Supervisor;
