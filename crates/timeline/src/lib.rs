//! Records to meaning: calls, panics, losses. Pure: records and a plan in, events out;
//! clocks come from outside; memory is bounded.
//!
//! Hand every record to [`Timeline::push`] in an order that is right for each goroutine;
//! take the events. Every [`Event::Enter`] gets exactly one [`Event::Leave`] by
//! [`Timeline::finish`]. Records are untrusted: whatever they hold, nothing panics and
//! nothing grows past [`Limits`].
#![forbid(unsafe_code)]

mod counters;
mod durations;
pub mod event;
mod filter;
mod hash;
mod ledger;
mod loss;
mod out;
mod pairing;
mod screening;
mod sites;
mod stack;
mod stat;
pub mod states;
mod table;
mod witness;

pub use counters::Counters;
pub use event::{Args, Call, End, Event, Location, Panic, Symbolizer};
pub use filter::{Filter, FilterOptions};
pub use hash::KeyHash;
pub use pairing::{Limits, Options, Timeline};
pub use screening::{Screened, decides};
pub use stat::{EndCounts, FunctionStat, Stats};
