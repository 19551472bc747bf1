//! What addresses mean: functions, places, stack depths; each found once.

use address::{Avma, Bias, Svma};
use binary::{Executable, flag};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// Addresses kept; a program has far fewer call sites on its stacks.
const MAX_KEPT: usize = 1 << 18;

/// Functions that were not called by the frame below, which stopped between two instructions
/// (`isInjectedCall`, runtime/traceback.go).
const INJECTED: [&str; 3] = ["runtime.sigpanic", "runtime.asyncPreempt", "runtime.debugCallV2"];

/// Panics that a wrapper itself raised: it is shown then (`elideWrapperCalling`).
const PANICS: [&str; 3] = ["runtime.gopanic", "runtime.sigpanic", "runtime.panicwrap"];

/// Always shown: that finalizers or cleanups run has no other sign (Go 1.25; older ones have
/// another name and hide it).
const RUNNERS: [&str; 2] = ["runtime.runFinalizers", "runtime.runCleanups"];

/// Writes SP, but the stack it leaves can be followed.
const CGO_CALLBACK: &str = "runtime.cgocallback";

/// One function on a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Symbol name.
    pub func: Arc<str>,
    /// Source file.
    pub file: Arc<str>,
    /// Source line.
    pub line: u32,
    /// Whether it is inlined into the next frame's function.
    pub inlined: bool,
    /// Whether the compiler made it.
    pub is_wrapper: bool,
    /// Bytes from the function's entry to the return address; of the whole function for
    /// inlined ones.
    pub offset: u64,
}

/// What is at a code address.
#[derive(Debug)]
pub(crate) struct Code {
    /// Innermost inlined function first; never empty.
    pub(crate) frames: Vec<Frame>,
    /// The function itself.
    pub(crate) func: Arc<str>,
    /// Bytes that SP was lowered by since the function's entry.
    pub(crate) sp_delta: Option<u64>,
    /// Nothing called it.
    pub(crate) is_top: bool,
    /// It writes SP in ways that the table does not tell.
    pub(crate) writes_sp: bool,
    /// Its "caller" was interrupted.
    pub(crate) is_injected: bool,
}

/// An address, and whether it is that of an instruction about to run.
type At = (u64, bool);

/// Code addresses of one process.
pub(crate) struct Codes<'a> {
    executable: &'a Executable,
    bias: Bias,
    kept: RefCell<HashMap<At, Option<Arc<Code>>>>,
    names: RefCell<HashMap<String, Arc<str>>>,
}

impl<'a> Codes<'a> {
    pub(crate) fn new(executable: &'a Executable, bias: Bias) -> Self {
        Self { executable, bias, kept: RefCell::default(), names: RefCell::default() }
    }

    /// What is at a return address (`exact` false) or at the instruction that runs next.
    pub(crate) fn at(&self, address: Avma, exact: bool) -> Option<Arc<Code>> {
        let key = (address.0, exact);
        if let Some(found) = self.kept.borrow().get(&key) {
            return found.clone();
        }
        let found = self.look_up(self.bias.to_svma(address), exact).map(Arc::new);
        let mut kept = self.kept.borrow_mut();
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(key, found.clone());
        found
    }

    fn look_up(&self, pc: Svma, exact: bool) -> Option<Code> {
        let table = self.executable.functions().ok()?;
        let function = table.find(pc)?;
        // A goroutine that never ran has its function's entry for a return address.
        let call = if exact || pc == function.entry { pc } else { Svma(pc.0 - 1) };
        let offset = pc.since(function.entry).unwrap_or_default();
        let frames = self.executable.symbolize(call);
        if frames.is_empty() {
            return None;
        }
        let frames = frames.into_iter().map(|frame| Frame {
            func: self.shared(frame.func),
            file: self.shared(frame.file),
            line: frame.line,
            inlined: frame.inlined,
            is_wrapper: frame.is_wrapper,
            offset,
        });
        Some(Code {
            frames: frames.collect(),
            sp_delta: table.sp_delta(&function, pc).and_then(|delta| u64::try_from(delta).ok()),
            is_top: function.flags & flag::TOP_FRAME != 0,
            writes_sp: function.flags & flag::SP_WRITE != 0 && function.name != CGO_CALLBACK,
            is_injected: INJECTED.contains(&function.name.as_str()),
            func: self.shared(function.name),
        })
    }

    /// Names repeat; each is kept once.
    fn shared(&self, text: String) -> Arc<str> {
        let mut names = self.names.borrow_mut();
        if let Some(found) = names.get(&text) {
            return Arc::clone(found);
        }
        let shared: Arc<str> = Arc::from(text.as_str());
        if names.len() < MAX_KEPT {
            names.insert(text, Arc::clone(&shared));
        }
        shared
    }
}

/// Which frames of a stack are shown (`showframe` and `showfuncinfo`, runtime/traceback.go).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// What Go shows: no wrappers, no functions of the runtime but its exported ones.
    User,
    /// All, as with GOTRACEBACK=system.
    All,
}

impl Shown {
    /// The frames of `all`, innermost first, that are shown.
    pub fn of<'f>(self, all: impl Iterator<Item = &'f Frame>) -> Vec<&'f Frame> {
        if self == Self::All {
            return all.collect();
        }
        let mut callee = "";
        let mut shown = Vec::new();
        for frame in all {
            let elided = frame.is_wrapper && !PANICS.contains(&callee);
            callee = &frame.func;
            if !elided && is_shown(&frame.func, shown.is_empty()) {
                shown.push(frame);
            }
        }
        shown
    }
}

/// Whether Go shows a function of that name in a traceback.
pub fn is_shown(func: &str, innermost: bool) -> bool {
    if RUNNERS.contains(&func) || (func == "runtime.gopanic" && !innermost) {
        return true;
    }
    let local = func.strip_prefix("runtime.");
    func.contains('.') && local.is_none_or(is_exported)
}

/// Exported functions, and exported methods of exported types (`isExportedRuntime`).
fn is_exported(local: &str) -> bool {
    let upper = |text: &str| text.starts_with(|c: char| c.is_ascii_uppercase());
    let (receiver, name) = local.rsplit_once('.').unwrap_or(("", local));
    let bare = receiver.strip_prefix("(*").and_then(|r| r.strip_suffix(')')).unwrap_or(receiver);
    upper(name) && (bare.is_empty() || upper(bare))
}

/// The name as Go's tracebacks print it: type arguments become `[...]`
/// (`printFuncName`, runtime/traceback.go).
pub fn shown_name(func: &str) -> Cow<'_, str> {
    if func == "runtime.gopanic" {
        return Cow::Borrowed("panic");
    }
    match (func.find('['), func.rfind(']')) {
        (Some(open), Some(close)) if open < close => {
            let before = func.get(..open).unwrap_or_default();
            let after = func.get(close..).unwrap_or_default();
            Cow::Owned(format!("{before}[...{after}"))
        }
        _ => Cow::Borrowed(func),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_as_go_shows_them() {
        assert_eq!(
            shown_name("main.Map[go.shape.int,go.shape.string].func1"),
            "main.Map[...].func1"
        );
        assert_eq!(shown_name("main.Map[...]"), "main.Map[...]");
        assert_eq!(shown_name("runtime.gopanic"), "panic");
        for (func, shown) in [
            ("runtime.gopark", false),
            ("runtime.Gosched", true),
            ("runtime.(*Frames).Next", true),
            ("runtime.(*mcache).Next", false),
            ("runtime.runfinq", false),
            ("runtime.runFinalizers", true),
            ("internal/poll.runtime_pollWait", true),
            ("gogo", false),
        ] {
            assert_eq!(is_shown(func, true), shown, "{func}");
        }
        assert!(is_shown("runtime.gopanic", false) && !is_shown("runtime.gopanic", true));
    }
}
