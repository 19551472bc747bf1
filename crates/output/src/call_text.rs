//! Parts of a call as people read them.

use crate::concrete::{concrete_specs, concrete_values};
use crate::json::end_name;
use crate::places::{Places, push_call_site};
use crate::value_text::{push_results, push_values};
use probe::Plan;
use timeline::{Call, End, Symbolizer};

/// Appends `a=1, b=2`, and behind a semicolon what a closure captured.
pub(crate) fn push_arguments(
    text: &mut String,
    plan: &Plan,
    call: &Call,
    symbols: &dyn Symbolizer,
) {
    let all = plan.functions.get(call.function as usize).map_or(&[][..], |function| &function.args);
    let concrete = plan.concrete.get(&call.function).map(|concrete| &concrete.args[..]);
    let specs = concrete_specs(plan.shown_args(call.function, all), concrete, call, symbols);
    let values = plan.shown_args(call.function, &call.args);
    let values = concrete_values(values, concrete, call, symbols);
    push_values(text, &specs, &values, call.pid, symbols);
    let captured = plan.captured(call.function, all);
    if !captured.is_empty() {
        text.push_str("; ");
        let values = plan.captured(call.function, &call.args);
        push_values(text, captured, values, call.pid, symbols);
    }
}

/// Appends ` = 3`, or how else it ended.
pub(crate) fn push_end(text: &mut String, plan: &Plan, call: &Call, symbols: &dyn Symbolizer) {
    if call.end != End::Return {
        text.push(' ');
        text.push_str(end_name(call.end));
        return;
    }
    let Some(function) = plan.functions.get(call.function as usize) else { return };
    let specs = plan.shown_results(call.function, &function.results);
    let concrete = plan.concrete.get(&call.function).map(|concrete| &concrete.results[..]);
    let specs = concrete_specs(specs, concrete, call, symbols);
    let values = plan.shown_results(call.function, &call.results);
    push_results(text, &specs, values, call.pid, symbols);
}

/// `main.add+0x1c main.go:15`: where it was called from.
pub(crate) fn call_site(places: &mut Places, call: &Call, symbols: &dyn Symbolizer) -> String {
    let mut place = String::new();
    match places.caller(call, symbols) {
        Some(caller) => push_call_site(&mut place, &caller),
        None if call.caller != 0 => place = format!("0x{:x}", call.caller),
        None => {}
    }
    place
}
