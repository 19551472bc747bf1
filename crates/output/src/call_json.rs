//! Parts of a call in JSON, as members without braces.

use crate::concrete::{concrete_specs, concrete_values};
use crate::places::Place;
use crate::value_json::{push_str, push_values};
use probe::Plan;
use std::io::Write as _;
use timeline::{Call, Symbolizer};

/// Appends the arguments, and the variables that a closure captured.
pub(crate) fn push_arguments(
    line: &mut Vec<u8>,
    plan: &Plan,
    call: &Call,
    symbols: &dyn Symbolizer,
) {
    let all = plan.functions.get(call.function as usize).map_or(&[][..], |function| &function.args);
    let concrete = plan.concrete.get(&call.function).map(|concrete| &concrete.args[..]);
    let args = concrete_specs(plan.shown_args(call.function, all), concrete, call, symbols);
    let values = plan.shown_args(call.function, &call.args);
    let values = concrete_values(values, concrete, call, symbols);
    line.extend_from_slice(b"\"args\":");
    push_values(line, &args, &values, call.pid, symbols);
    let captured = plan.captured(call.function, all);
    if !captured.is_empty() {
        line.extend_from_slice(b",\"captured\":");
        let values = plan.captured(call.function, &call.args);
        push_values(line, captured, values, call.pid, symbols);
    }
}

/// Appends the results.
pub(crate) fn push_results(line: &mut Vec<u8>, plan: &Plan, call: &Call, symbols: &dyn Symbolizer) {
    let all =
        plan.functions.get(call.function as usize).map_or(&[][..], |function| &function.results);
    let concrete = plan.concrete.get(&call.function).map(|concrete| &concrete.results[..]);
    let results = concrete_specs(plan.shown_results(call.function, all), concrete, call, symbols);
    let values = plan.shown_results(call.function, &call.results);
    line.extend_from_slice(b"\"results\":");
    push_values(line, &results, values, call.pid, symbols);
}

/// Appends where it was called from.
pub(crate) fn push_caller(line: &mut Vec<u8>, place: &Place, address: u64) {
    line.extend_from_slice(b"\"caller\":");
    match place {
        Some(place) => {
            line.extend_from_slice(b"{\"func\":");
            push_str(line, &place.func);
            _ = write!(line, ",\"offset\":{},\"file\":", place.offset);
            push_str(line, &place.file);
            _ = write!(line, ",\"line\":{}}}", place.line);
        }
        None if address == 0 => line.extend_from_slice(b"null"),
        None => {
            line.extend_from_slice(b"{\"func\":null,\"offset\":null,\"file\":null,\"line\":null");
            _ = write!(line, ",\"addr\":\"0x{address:x}\"}}");
        }
    }
}

/// Appends where it returned.
pub(crate) fn push_ret(line: &mut Vec<u8>, place: &Place) {
    line.extend_from_slice(b"\"ret\":");
    match place {
        Some(place) => {
            line.extend_from_slice(b"{\"file\":");
            push_str(line, &place.file);
            _ = write!(line, ",\"line\":{}}}", place.line);
        }
        None => line.extend_from_slice(b"null"),
    }
}
