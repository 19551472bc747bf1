//! Spans: JSON Lines as they end, trees for people, a timeline.

mod calls;
mod calls_json;
mod held;
mod json;
mod order;
mod perfetto;
#[cfg(test)]
mod tests;
mod text;

pub use calls::{CallForm, CallWriter};
pub use json::write_span_json;
pub use perfetto::SpanTimeline;
pub use text::SpanTrees;
