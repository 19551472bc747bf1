//! Goroutine states of one image on their way from records to output.

mod filter;
mod found;
mod pipeline;
mod session;

pub use filter::Filter;
pub use pipeline::{StatesOptions, StatesPipeline, write_summary};
pub use session::StatesSession;
