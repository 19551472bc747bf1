//! What the timeline says.

use probe::shape::Shape;
use probe::value::Value;
use serde::Serialize;
use std::sync::Arc;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// A return instruction.
    Return,
    /// A jump into another function.
    Tail,
    /// A panic unwound it (or ended the process).
    Panic,
    /// runtime.Goexit.
    Goexit,
    /// A system-stack frame left by a switch without returning.
    Switch,
    /// execve replaced the process.
    Exec,
    /// It ended, and nothing says how.
    Lost,
    /// It still ran at detach, at os.Exit, or when the process died.
    Open,
}

/// A place in the source, resolved from a code address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Location {
    /// Function, empty when unknown.
    pub func: String,
    /// Bytes from the function's first instruction.
    pub offset: u64,
    /// Source file, empty when unknown.
    pub file: String,
    /// Line, 0 when unknown.
    pub line: u32,
}

/// Turns addresses of a process into names. Implemented over `binary` by the caller.
pub trait Symbolizer {
    /// The source place of a code address (avma) in `pid`; for a return address pass the
    /// address of the call (return address - 1).
    fn location(&self, pid: u32, address: u64) -> Option<Location>;

    /// The source place of a code address stated by the image (svma).
    fn image_location(&self, address: u64) -> Option<Location>;

    /// Name of the type whose descriptor lies at `address` (avma) in `pid`, as Go prints
    /// it with `%T`, and its kind (`reflect.Kind` number).
    fn type_name(&self, pid: u32, address: u64) -> Option<(String, u8)>;

    /// What the value in an interface of that dynamic type is made of: of a pointer type what
    /// it points to. What it leads to in turn counts as not captured.
    fn held_shape(&self, _pid: u32, _address: u64) -> Option<Arc<Shape>> {
        None
    }
}

/// Values at an entry, which a call's begin and end share.
#[derive(Clone, Default, PartialEq)]
pub struct Args(Option<Arc<Vec<Value>>>);

impl std::fmt::Debug for Args {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

impl From<Vec<Value>> for Args {
    fn from(values: Vec<Value>) -> Self {
        Self((!values.is_empty()).then(|| Arc::new(values)))
    }
}

impl std::ops::Deref for Args {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        self.0.as_ref().map_or(&[], |values| values)
    }
}

/// One call, complete or (in [`Event::Enter`]) just begun.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Unique in the capture, from 1.
    pub id: u64,
    /// Enclosing traced call on the same goroutine.
    pub parent: Option<u64>,
    /// Traced calls open above it on that goroutine.
    pub depth: u32,
    /// Process.
    pub pid: u32,
    /// Thread at entry.
    pub tid: u32,
    /// Goroutine; 0 when unknown.
    pub goid: u64,
    /// Index into `Plan::functions`.
    pub function: u32,
    /// Entry time, nanoseconds on the capture's clock.
    pub start_ns: u64,
    /// Exit time; equals `start_ns` while running.
    pub end_ns: u64,
    /// Time spent in traced calls that it made, as far as they have ended and not as `Lost`.
    pub below_ns: u64,
    /// How it ended; `Open` while running.
    pub end: End,
    /// Whether `end_ns` was measured at this call's own exit. False: inferred, or records
    /// were lost during the call, so that the exit may be that of a later call from the
    /// same place.
    pub end_exact: bool,
    /// Values at entry, one per `PlannedFunction::args`.
    pub args: Args,
    /// Values at the return, one per `PlannedFunction::results`; empty unless it returned.
    pub results: Vec<Value>,
    /// Return address (avma), 0 when unknown.
    pub caller: u64,
    /// Site index of the exit, when it was seen.
    pub exit_site: Option<u32>,
}

/// A panic that was not recovered.
#[derive(Clone, Debug, PartialEq)]
pub struct Panic {
    /// Process.
    pub pid: u32,
    /// Goroutine.
    pub goid: u64,
    /// When it reached the end of the stack, nanoseconds on the capture's clock.
    pub ts_ns: u64,
    /// Type descriptor of the panic value (avma), 0 for nil.
    pub type_word: u64,
    /// The data word of the interface.
    pub data: u64,
    /// Up to 16 bytes at the data word, when they could be read.
    pub head: Vec<u8>,
    /// The text of the string at the data word, when there is a plausible one.
    pub text: Option<Value>,
}

/// What the timeline says, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A call began.
    Enter(Call),
    /// A call ended (by whatever `Call::end` says).
    Leave(Call),
    /// The process ends by an unrecovered panic.
    Panic(Panic),
    /// A panic began; only where it is asked for ([`crate::Options::panics`]).
    Panicking(Panic),
    /// Records were lost on `cpu` between two times.
    Gap {
        /// CPU or ring.
        cpu: u16,
        /// Time of the last record before, 0 if none.
        from_ns: u64,
        /// Time of the first record after.
        to_ns: u64,
        /// How many.
        lost: u32,
    },
    /// A process is gone; its open calls have been reported.
    ProcessExit {
        /// Process.
        pid: u32,
        /// Time, nanoseconds on the capture's clock.
        ts_ns: u64,
    },
}
