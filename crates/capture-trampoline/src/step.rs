//! The moments at which a tracer may die, for tests that make it die there.

use std::sync::OnceLock;

static HOOK: OnceLock<fn(&'static str)> = OnceLock::new();

/// Calls `hook` at each step from now on, with the step's name. For tests; only the first
/// hook counts.
#[doc(hidden)]
pub fn set_step_hook(hook: fn(&'static str)) {
    let _ = HOOK.set(hook);
}

/// A step of the protocol is about to be followed by the next.
pub(crate) fn at(name: &'static str) {
    if let Some(hook) = HOOK.get() {
        hook(name);
    }
}
