//! Spans: JSON Lines as they end, and trees for people.

mod calls;
mod calls_json;
mod json;
mod order;
mod text;

pub use calls::{CallForm, CallWriter};
pub use json::write_span_json;
pub use text::SpanTrees;
