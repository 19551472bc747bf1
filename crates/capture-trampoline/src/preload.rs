//! Code for programs that ask for it: those that were started with `libgospect_preload.so`.
//!
//! [`Server`] listens where the library looks ([`handover`]), asks an [`Agent`] what a program is to
//! get, and hands over code, rings and patches; the program puts them in by itself. What comes of it is
//! a [`TrampolineCapture`] like any other. Nobody traces anybody and nobody
//! needs privileges, so whoever connects may be anyone and say anything: everything is bounded, and what is
//! decided is decided by the file that the kernel says is run.

mod cache;
mod conversation;
mod peer;
mod planned;
mod program;
mod server;

pub use planned::{Planned, is_same_build};
pub use program::Program;
pub use server::{Counts, Options, Server};

use crate::TrampolineCapture;
use std::sync::Arc;

/// A program with the code in it, which it has switched on.
pub struct Injected {
    /// Who.
    pub program: Program,
    /// What it got.
    pub planned: Arc<Planned>,
    /// Its records. When it is detached or dropped the code is taken out where that may be done
    /// (ptrace); elsewhere it stays and drops, until the program ends.
    pub capture: TrampolineCapture,
}

/// Whoever decides. Called by several threads; a program waits meanwhile, for less than a second.
pub trait Agent: Send + Sync {
    /// What `program` is to get; `None` for nothing. What takes long to plan is better given to its next
    /// start.
    fn decide(&self, program: &Program) -> Option<Arc<Planned>>;

    /// A program has it.
    fn injected(&self, injected: Injected);

    /// A program that was to get something goes on without, for this reason.
    fn failed(&self, program: &Program, reason: &str);
}
