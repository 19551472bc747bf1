//! Spans.

use crate::calls::SpanCalls;
use crate::time::SpanTime;
use std::borrow::Cow;
use std::fmt;

/// Which span of which trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanContext {
    /// Trace, not 0.
    pub trace: u128,
    /// Span, not 0.
    pub span: u64,
}

/// Which side of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Who answers.
    Server,
    /// Who asks.
    Client,
}

impl SpanKind {
    /// As OpenTelemetry calls it, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }
}

/// What says that a span belongs to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Witness {
    /// The header `traceparent` of the request.
    TraceParent,
    /// The other one is open on the same goroutine.
    Frame,
    /// The request's context comes from the other one's.
    Context,
    /// It is of the rows that the other one, a query, gave.
    Rows,
    /// The goroutine was made, by itself or by those that made it, while the other one was open there.
    Goroutine,
}

impl Witness {
    /// As it stands in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TraceParent => "traceparent",
            Self::Frame => "frame",
            Self::Context => "context",
            Self::Rows => "rows",
            Self::Goroutine => "goroutine",
        }
    }
}

/// A span that this one has to do with, without being its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Which.
    pub context: SpanContext,
    /// What says so.
    pub by: Witness,
}

/// How a request went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// Nothing went wrong.
    #[default]
    Unset,
    /// It failed: the attribute `error.type` says how.
    Error,
}

impl Status {
    /// As OpenTelemetry calls it, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unset => "unset",
            Self::Error => "error",
        }
    }
}

/// Name of an attribute.
pub type Name = Cow<'static, str>;

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// A text.
    Text(Cow<'static, str>),
    /// Several texts.
    Texts(Vec<String>),
    /// A number.
    Int(i64),
    /// Yes or no.
    Bool(bool),
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Texts(texts) => f.write_str(&texts.join(", ")),
            Self::Int(number) => number.fmt(f),
            Self::Bool(yes) => yes.fmt(f),
        }
    }
}

/// Something that happened within a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanEvent {
    /// What.
    pub name: &'static str,
    /// When, nanoseconds on the capture's clock.
    pub ts_ns: u64,
    /// Attributes in the order of their names.
    pub attributes: Vec<(Name, Attribute)>,
}

/// A request, answered or made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Name by the conventions.
    pub name: String,
    /// Which side.
    pub kind: SpanKind,
    /// Its trace and its own id.
    pub context: SpanContext,
    /// Its parent in the same trace.
    pub parent: Option<u64>,
    /// What says so.
    pub parent_by: Option<Witness>,
    /// What the `traceparent` that its trace came with says of sampling, where it came with one.
    pub sampled_by_parent: Option<bool>,
    /// Other spans that it has to do with.
    pub links: Vec<Link>,
    /// Process.
    pub pid: u32,
    /// Goroutine.
    pub goid: u64,
    /// Begin, nanoseconds on the capture's clock.
    pub start_ns: u64,
    /// End, likewise.
    pub end_ns: u64,
    /// Whether it was seen to end. Else the capture ended before, or records were lost.
    pub is_finished: bool,
    /// How it went.
    pub status: Status,
    /// Attributes in the order of their names.
    pub attributes: Vec<(Name, Attribute)>,
    /// Attributes that it should have and has not, with the reason.
    pub unavailable: Vec<(Name, String)>,
    /// In the order of time.
    pub events: Vec<SpanEvent>,
    /// What its goroutine spent the time on, where states are watched.
    pub time: Option<SpanTime>,
    /// What was called within it, where functions were asked for.
    pub calls: Option<Box<SpanCalls>>,
    /// Id of the outermost span around it that was seen: those with one tree are shown together.
    pub tree: u64,
    /// Spans of this tree that are still open.
    pub open_in_tree: usize,
}
