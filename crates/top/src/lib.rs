//! The live view of processes: state, keys in, frames out.
//!
//! Hand observations to [`App::observe`], keys to [`App::key`], and let [`App::draw`] draw to a
//! frame of ratatui. No terminal, clock or process is touched here; times come from outside.
//! Colours are the terminal's own sixteen and only of text, so that they suit dark and light
//! themes; what they say is said by words or attributes as well.
#![forbid(unsafe_code)]

mod amount;
mod app;
mod columns;
mod detail;
mod groups;
mod help;
mod key;
mod observation;
mod palette;
mod row;
mod safe;
mod table;
mod trend;

pub use app::{App, View};
pub use columns::Sort;
pub use groups::{Group, GroupBy};
pub use key::{Asked, Key};
pub use observation::{Go, Observation, States};
pub use palette::Palette;
