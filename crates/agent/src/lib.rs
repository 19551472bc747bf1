//! What an agent decides, without doing any of it: what its configuration says ([`Config`]), which
//! service a process belongs to ([`Candidate`], [`Match`]), what is still watched when that costs too much
//! ([`Budget`]), what requests come to as metrics ([`Requests`]), and what its state is ([`status`]).
//!
//! Hand in text, facts about processes, spans and times; get plain data. No process, no file, no clock and no
//! environment is read here, and memory is bounded.
#![forbid(unsafe_code)]

mod budget;
mod candidate;
mod config;
mod glob;
pub mod page;
mod requests;
pub mod status;
mod window;

pub use budget::{Budget, Change, Limits, percent};
pub use candidate::{Candidate, Container, command_of, container_of};
pub use config::{
    Agent, Backend, Config, ConfigError, Export, Match, Sampling, Service, Way, WrongPlace,
};
pub use glob::Glob;
pub use requests::{BOUNDS, Requests, Row, RowKind};
pub use window::{Rates, Window};
