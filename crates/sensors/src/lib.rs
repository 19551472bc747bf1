//! What to watch in a Go program to see its requests, and how what is seen becomes spans.
//!
//! A sensor is data ([`SENSORS`]): a function, what its calls mean, and the expressions that are read
//! there. [`selection`] makes a plan's selection of them; [`SpanBuilder`] takes the timeline's events
//! (and which goroutine made which) and gives [`Span`]s with the names and attributes of
//! OpenTelemetry's semantic conventions. No clock and no process is read here; memory is bounded.
#![forbid(unsafe_code)]

mod builder;
mod calls;
mod catalog;
mod database;
mod diagnosis;
mod evidence;
mod fields;
mod goroutine;
mod group;
mod header;
mod http;
mod ids;
mod library;
mod mask;
mod rpc;
mod selection;
mod signatures;
mod span;
mod time;
mod trace_context;
mod url;

pub use builder::{SpanBuilder, SpanOptions};
pub use calls::{CALLS_OF_SPAN, CallText, CallTexts, Made, SpanCall, SpanCalls, SpanGoroutine};
pub use catalog::{Field, Read, Role, SENSORS, Sensor};
pub use diagnosis::{Diagnosis, Finding, diagnose};
pub use group::{GROUPS, group_of, sensor_of};
pub use header::{HeaderName, HeaderNameError};
pub use library::is_of_library;
pub use selection::{SensorOptions, has_calls, is_sensed, selection};
pub use span::{Attribute, Link, Name, Span, SpanContext, SpanEvent, SpanKind, Status, Witness};
pub use time::SpanTime;
