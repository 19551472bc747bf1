//! Spans: JSON Lines as they end, and trees for people.

mod json;
mod text;

pub use json::write_span_json;
pub use text::SpanTrees;
