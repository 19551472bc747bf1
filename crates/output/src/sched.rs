//! What goroutines did: a stream of changes, a summary, a timeline.

mod json;
mod names;
mod perfetto;
mod summary;
mod table;
mod text;

pub use json::StatesJson;
pub use names::Origins;
pub(crate) use names::PlaceJson;
pub use perfetto::{Arrows, Perfetto};
pub use summary::{StatesPart, StatesSummary, nothing_changed};
pub use table::{GoroutineRows, write_goroutine_table, write_reason_table, write_site_table};
pub use text::{StatesHead, StatesText};
