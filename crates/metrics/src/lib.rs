//! The registry of metrics: what each figure is called, what kind and unit it has, and where it
//! comes from.
//!
//! Hand in what was read of a process as a [`Reading`]; [`samples`] gives its figures, in
//! the order of [`all`]. Each [`Metric`] has the name, type and help text of the Prometheus
//! Go client where that has it, and beside it the name of OpenTelemetry's conventions for the
//! Go runtime and for processes where these have it. Nothing is read and nothing is written here.
#![forbid(unsafe_code)]

mod figure;
mod histogram;
mod metric;
mod number;
mod points;
mod reading;
mod registry;
mod sample;

pub use figure::{Figure, FigurePoint, Tag, Tags, figures};
pub use histogram::Histogram;
pub use metric::{Instrument, Kind, Metric, Otel, Unit};
pub use number::Number;
pub use points::Points;
pub use reading::Reading;
pub use registry::{all, samples};
pub use sample::{Line, Sample, Summary, Value};
