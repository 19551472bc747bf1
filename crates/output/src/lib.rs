//! Every form of output: text for people, JSON Lines for programs, tables, the summary.
//!
//! Hand events of the timeline to a writer ([`Text`], [`Json`]) with the plan they belong
//! to, a symbolizer and a `&mut dyn Write`. No process is read here and no clock; an
//! error is always the writer's (a closed pipe is the caller's to judge).
#![forbid(unsafe_code)]

mod call_json;
mod call_text;
mod clock;
mod concrete;
mod duration;
mod dynamic;
mod function_listing;
mod goroutine;
mod goroutine_go;
mod info;
mod json;
mod metrics;
mod nested_json;
mod nested_text;
mod panic_value;
mod places;
mod printable;
mod sched;
mod spans;
mod stat;
mod stat_by;
mod summary;
mod symbols;
mod text;
mod trace_event;
mod type_listing;
mod value_json;
mod value_text;

pub use clock::Clock;
pub use duration::{go_duration, short_duration};
pub use function_listing::{InlinedAt, ListedFunction, ListedValue, Traceable};
pub use goroutine::{
    GoroutineFrame, GoroutineGroup, GoroutineSite, GoroutineSummary, ListedGoroutine,
};
pub use goroutine_go::GoNames;
pub use info::{BuildFacts, DwarfFacts, Fact, FunctionCounts, Info, ModuleInfo};
pub use json::Json;
pub use metrics::{
    CONTENT_TYPE, MetricsSummary, ProcessMetrics, process_labels, short_bytes, write_exposition,
    write_figures, write_metrics_json, write_metrics_text,
};
pub use printable::printable;
pub use sched::{
    Arrows, GoroutineRows, Origins, Perfetto, StatesHead, StatesJson, StatesPart, StatesSummary,
    StatesText, nothing_changed, write_goroutine_table, write_reason_table, write_site_table,
};
pub use spans::{CallForm, CallWriter, SpanTimeline, SpanTrees, write_span_json};
pub use stat::{write_stat_json, write_stat_table};
pub use stat_by::StatBy;
pub use summary::{RefusedFunction, SpanCounts, Summary, Trampolines, zero_hits_reason};
pub use symbols::SymbolTable;
pub use text::{Text, TextOptions};
pub use trace_event::PerfettoFile;
pub use type_listing::{ListedField, ListedHole, ListedStep, ListedType, ListedTypeName};
