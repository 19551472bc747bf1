//! Goroutines in the form of Go's own tracebacks, which other tools read
//! (`goroutineheader`, `traceback2` and `printcreatedby1` in runtime/traceback.go).
//!
//! Arguments are not known: `(...)` stands for them, as Go prints for inlined functions.

use crate::goroutine::{GoroutineFrame, ListedGoroutine};
use crate::printable::push_printable;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Frames shown from each end of a long stack (`tracebackInnerFrames`, Go 1.21).
const END_FRAMES: usize = 50;

/// Waits that only something in the same synctest bubble can end, of those whose name does not
/// say so (`isIdleInSynctest`, runtime/runtime2.go, Go 1.25 to 1.27).
const DURABLE: [&str; 8] = [
    "chan receive (nil chan)",
    "chan send (nil chan)",
    "select (no cases)",
    "sleep",
    "sync.Cond.Wait",
    "coroutine",
    "synctest.Run",
    "synctest.Wait",
];

/// Nanoseconds of a minute.
const MINUTE: u64 = 60_000_000_000;

impl ListedGoroutine {
    /// Writes it as Go does, a blank line after it. `name` shortens a function's name and
    /// says whether a creator of that name is shown.
    pub fn write_go(&self, out: &mut dyn Write, name: &dyn GoNames) -> io::Result<()> {
        let mut text = String::new();
        self.push_header(&mut text);
        if self.torn {
            text.push_str("\tgoroutine moved while it was read; stack unavailable\n");
        } else if self.state == "running" && self.stack.is_empty() {
            text.push_str("\tgoroutine running on other thread; stack unavailable\n");
        }
        self.push_frames(&mut text, name);
        if let Some(site) = self.created_by.as_ref().filter(|site| name.is_shown(&site.func)) {
            text.push_str("created by ");
            push_printable(&mut text, &name.shown_name(&site.func));
            if let Some(parent) = self.parent_goid {
                _ = write!(text, " in goroutine {parent}");
            }
            text.push_str("\n\t");
            push_printable(&mut text, &site.file);
            _ = writeln!(text, ":{} +0x{:x}", site.line, site.offset);
        }
        text.push('\n');
        out.write_all(text.as_bytes())
    }

    /// Both ends of a long stack; only the inner one when it was not followed to its end.
    fn push_frames(&self, text: &mut String, name: &dyn GoNames) {
        let count = self.stack.len();
        let is_long = count > 2 * END_FRAMES;
        let inner = self.stack.iter().take(if is_long { END_FRAMES } else { count });
        inner.for_each(|frame| push_frame(text, frame, name));
        if self.stack_is_cut {
            text.push_str("...additional frames elided...\n");
        } else if is_long {
            _ = writeln!(text, "...{} frames elided...", count - 2 * END_FRAMES);
            let outer = self.stack.iter().skip(count - END_FRAMES);
            outer.for_each(|frame| push_frame(text, frame, name));
        }
    }

    fn push_header(&self, text: &mut String) {
        _ = write!(text, "goroutine {} [", self.goid);
        push_printable(text, self.reason.as_deref().unwrap_or(self.state));
        if self.state == "leaked" {
            text.push_str(" (leaked)");
        }
        let reason = self.reason.as_deref().unwrap_or_default();
        if self.bubble.is_some() && self.state == "waiting" && DURABLE.contains(&reason) {
            text.push_str(" (durable)");
        }
        let minutes = self.waited_ns.unwrap_or_default() / MINUTE;
        if minutes >= 1 {
            _ = write!(text, ", {minutes} minutes");
        }
        if self.locked {
            text.push_str(", locked to thread");
        }
        if let Some(bubble) = self.bubble {
            _ = write!(text, ", synctest bubble {bubble}");
        }
        text.push_str("]:\n");
    }
}

/// How Go prints functions.
pub trait GoNames {
    /// The name without type arguments.
    fn shown_name<'a>(&self, func: &'a str) -> Cow<'a, str>;

    /// Whether a creator of that name is printed.
    fn is_shown(&self, func: &str) -> bool;
}

fn push_frame(text: &mut String, frame: &GoroutineFrame, name: &dyn GoNames) {
    push_printable(text, &name.shown_name(&frame.func));
    text.push_str("(...)\n\t");
    push_printable(text, &frame.file);
    _ = write!(text, ":{}", frame.line);
    if !frame.inlined && frame.offset > 0 {
        _ = write!(text, " +0x{:x}", frame.offset);
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goroutine::GoroutineSite;
    use std::collections::BTreeMap;

    struct Plain;

    impl GoNames for Plain {
        fn shown_name<'a>(&self, func: &'a str) -> Cow<'a, str> {
            Cow::Borrowed(func)
        }

        fn is_shown(&self, _: &str) -> bool {
            true
        }
    }

    fn goroutine(frames: u32) -> ListedGoroutine {
        let frame = |line| GoroutineFrame {
            func: "main.f".into(),
            file: "/src/main.go".into(),
            line,
            inlined: line == 1,
            offset: 0x1d,
        };
        let (func, file) = ("main.main".into(), "/src/main.go".into());
        ListedGoroutine {
            goid: 7,
            state: "waiting",
            reason: Some("chan receive".into()),
            parent_goid: Some(1),
            created_by: Some(GoroutineSite { func, file, line: 9, offset: 0x25 }),
            start: None,
            labels: BTreeMap::new(),
            labels_unavailable: None,
            locked: true,
            bubble: None,
            system: false,
            torn: false,
            waited_ns: Some(3 * MINUTE + 1),
            stack: (1..=frames).map(frame).collect(),
            stack_is_cut: false,
            stack_unavailable: None,
        }
    }

    #[test]
    fn the_form_is_the_runtimes() {
        let mut out = Vec::new();
        goroutine(2).write_go(&mut out, &Plain).unwrap();
        let expected = "goroutine 7 [chan receive, 3 minutes, locked to thread]:\n\
            main.f(...)\n\t/src/main.go:1\nmain.f(...)\n\t/src/main.go:2 +0x1d\n\
            created by main.main in goroutine 1\n\t/src/main.go:9 +0x25\n\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn long_stacks_keep_both_ends() {
        let mut out = Vec::new();
        goroutine(103).write_go(&mut out, &Plain).unwrap();
        let text = String::from_utf8(out).unwrap();
        let places: Vec<&str> = text.lines().filter(|l| !l.starts_with("main.f")).collect();
        assert_eq!(places[50], "\t/src/main.go:50 +0x1d");
        assert_eq!(places[51], "...3 frames elided...");
        assert_eq!(places[52], "\t/src/main.go:54 +0x1d");
        assert_eq!(places.len(), 1 + 100 + 1 + 2 + 1);
    }

    #[test]
    fn of_a_stack_without_its_end_the_inner_part_is_shown() {
        let mut out = Vec::new();
        let cut = ListedGoroutine { stack_is_cut: true, ..goroutine(103) };
        cut.write_go(&mut out, &Plain).unwrap();
        let text = String::from_utf8(out).unwrap();
        let places: Vec<&str> = text.lines().filter(|l| !l.starts_with("main.f")).collect();
        assert_eq!(places[50..52], ["\t/src/main.go:50 +0x1d", "...additional frames elided..."]);
        assert_eq!(places.len(), 1 + 50 + 1 + 2 + 1);
    }
}
