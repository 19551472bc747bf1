//! Who is told what a timeline finds: a list of events, or statistics alone, for which no
//! event has to be made.

use crate::event::{Args, Call, End, Event};
use crate::stack::Frame;
use probe::value::Value;

/// How a call ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub end: End,
    /// When; not before it began.
    pub ns: u64,
    pub exit: Option<Exit>,
}

/// What is known of an exit that was seen.
#[derive(Debug)]
pub(crate) struct Exit {
    pub site: u32,
    pub results: Vec<Value>,
    /// No record was lost during the call: the exit is certainly its own.
    pub certain: bool,
}

/// See the module.
pub(crate) trait Out {
    /// Whether arguments and results are wanted.
    const VALUES: bool;

    /// A call begins.
    fn enter(&mut self, frame: &Frame);

    /// A call ended.
    fn leave(&mut self, frame: Frame, ended: Ended);

    /// Anything else.
    fn say(&mut self, event: Event);
}

impl Out for Vec<Event> {
    const VALUES: bool = true;

    fn enter(&mut self, frame: &Frame) {
        let call = call(frame, frame.args.clone());
        self.push(Event::Enter(call));
    }

    fn leave(&mut self, mut frame: Frame, ended: Ended) {
        let args = std::mem::take(&mut frame.args);
        let mut call = call(&frame, args);
        call.end_ns = ended.ns;
        call.end = ended.end;
        if let Some(exit) = ended.exit {
            call.end_exact = exit.certain;
            call.exit_site = Some(exit.site);
            call.results = exit.results;
        }
        self.push(Event::Leave(call));
    }

    fn say(&mut self, event: Event) {
        self.push(event);
    }
}

/// A call that is still open.
fn call(frame: &Frame, args: Args) -> Call {
    Call {
        id: frame.id,
        parent: (frame.parent != 0).then_some(frame.parent),
        depth: frame.level,
        pid: frame.pid,
        tid: frame.tid,
        goid: frame.goid,
        function: frame.function,
        start_ns: frame.start_ns,
        end_ns: frame.start_ns,
        below_ns: frame.below_ns,
        end: End::Open,
        end_exact: false,
        args,
        results: Vec::new(),
        caller: frame.caller,
        exit_site: None,
    }
}
