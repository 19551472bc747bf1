//! Spans: JSON Lines as they end, trees for people, and what OTLP sends.

mod json;
mod otlp;
mod text;

pub use json::write_span_json;
pub use otlp::{Resource, otlp_request};
pub use text::SpanTrees;
