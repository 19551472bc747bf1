//! Spans and metrics to a collector by OTLP: over gRPC, or over HTTP as protobuf or JSON.
//!
//! [`Settings`] is what is given and what the OTEL_* variables say; [`Exporter`] takes spans and sends
//! them from a thread of its own, in batches, and again after growing pauses where the protocol allows. Its
//! queue is bounded; what does not fit, what a sampler leaves out and what can not be delivered is
//! counted in [`Exported`]. The messages and the gRPC client are those of `opentelemetry-proto` and
//! `tonic`; TLS is by `rustls`, and names are looked up by `hickory-resolver`, since a static program has no
//! other way.
#![forbid(unsafe_code)]

mod batching;
mod connector;
mod delivery;
mod error;
mod exporter;
mod line;
mod metrics;
mod metrics_exporter;
mod request;
mod sampler;
mod send;
mod settings;
mod variables;

pub use batching::Batching;
pub use error::Error;
pub use exporter::{Exported, Exporter, Origin};
pub use metrics::Measured;
pub use metrics_exporter::MetricsExporter;
pub use sampler::{RootSampler, Sampler};
pub use settings::{Protocol, Settings};
pub use variables::Signal;
