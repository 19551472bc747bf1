//! The calls of a span in JSON: objects in one another.

use crate::clock::Clock;
use crate::json::end_name;
use crate::value_json::push_str;
use probe::Plan;
use sensors::{Span, SpanCall, SpanCalls};
use std::io::Write as _;

/// Levels of calls in one another: readers of JSON have limits. What is deeper stands beside the last, with its
/// own `parent` and `depth`.
const MAX_LEVELS: usize = 32;

/// Appends the members `calls`, `calls_cut`, `goroutines` and `in_call`, each behind a comma.
pub(super) fn push_calls(
    line: &mut Vec<u8>,
    span: &Span,
    calls: &SpanCalls,
    plan: &Plan,
    clock: &Clock,
) {
    line.extend_from_slice(b",\"calls\":[");
    let mut open: Vec<u64> = Vec::new();
    let mut is_first = true;
    for (at, level) in in_order(&calls.calls) {
        let call = &calls.calls[at];
        // Those of this level and below are over.
        while open.len() > level {
            line.extend_from_slice(b"]}");
            open.pop();
            is_first = false;
        }
        if !is_first {
            line.push(b',');
        }
        push_call(line, span, call, plan, clock);
        line.extend_from_slice(b",\"calls\":[");
        open.push(call.id);
        is_first = true;
    }
    open.iter().for_each(|_| line.extend_from_slice(b"]}"));
    // A Vec takes everything.
    _ = write!(line, "],\"calls_cut\":{},\"goroutines\":[", calls.cut);
    for (at, goroutine) in calls.goroutines.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let (goid, parent) = (goroutine.goid, goroutine.parent_goid);
        let (made, call) = (clock.unix_ns(goroutine.made_ns), or_null(goroutine.call));
        _ = write!(line, "{comma}{{\"goid\":{goid},\"parent_goid\":{parent},\"in_call\":{call}");
        _ = write!(line, ",\"made_ns\":{made},{}}}", goroutine.text);
    }
    _ = write!(line, "],\"in_call\":{}", or_null(calls.within));
}

fn or_null(id: Option<u64>) -> String {
    id.map_or("null".to_owned(), |id| id.to_string())
}

fn push_call(line: &mut Vec<u8>, span: &Span, call: &SpanCall, plan: &Plan, clock: &Clock) {
    let (start, duration) = (clock.unix_ns(call.start_ns), call.end_ns - call.start_ns);
    _ = write!(line, "{{\"type\":\"call\",\"pid\":{},\"tid\":{}", span.pid, call.tid);
    _ = write!(line, ",\"goid\":{},\"id\":{}", call.goid, call.id);
    _ = write!(line, ",\"parent\":{},\"depth\":{}", or_null(call.parent), call.depth);
    line.extend_from_slice(b",\"func\":");
    let function = plan.functions.get(call.function as usize);
    push_str(line, function.map_or("", |function| &function.name));
    _ = write!(line, ",\"start_ns\":{start},\"duration_ns\":{duration}");
    _ = write!(line, ",\"exit\":\"{}\",\"end_exact\":{},", end_name(call.end), call.end_exact);
    let is_over = !call.exit.values.is_empty();
    let results = if is_over { &call.exit.values } else { "\"results\":[]" };
    let ret = if is_over { &call.exit.place } else { "\"ret\":null" };
    let (args, caller) = (&call.entry.values, &call.entry.place);
    _ = write!(line, "{args},{results},{caller},{ret}");
}

/// Places of the calls with their levels, each behind the one that it is in.
fn in_order(calls: &[SpanCall]) -> Vec<(usize, usize)> {
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); calls.len()];
    let mut roots = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        let find = |id| calls[..at].binary_search_by_key(&id, |call: &SpanCall| call.id).ok();
        match call.parent.and_then(find) {
            Some(parent) => below[parent].push(at),
            None => roots.push(at),
        }
    }
    let mut lines = Vec::new();
    let mut stack: Vec<(usize, usize)> = roots.into_iter().rev().map(|at| (at, 0)).collect();
    while let Some((at, level)) = stack.pop() {
        lines.push((at, level));
        let next = (level + 1).min(MAX_LEVELS - 1);
        stack.extend(below[at].iter().rev().map(|at| (*at, next)));
    }
    lines
}
