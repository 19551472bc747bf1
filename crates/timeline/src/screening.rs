//! Conditions on calls, and what they came to.

use crate::event::{Call, End};
use probe::Plan;
use probe::expression::{Facts, Verdict};
use probe::screen::Screen;
use std::collections::BTreeMap;

/// Reasons that are told apart; the values of a target may give any.
const MAX_REASONS: usize = 16;

/// What conditions came to in a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Screened {
    /// Calls that were hidden, since a condition did not hold.
    pub hidden: u64,
    /// Calls that were shown although a condition could not be decided.
    pub undecided: u64,
    /// Why it could not, and how often.
    pub reasons: BTreeMap<String, u64>,
}

impl Screened {
    /// Counts a verdict; tells whether the call stays.
    fn note(&mut self, verdict: Verdict<'_>) -> bool {
        match verdict {
            Verdict::True => true,
            Verdict::False => {
                self.hidden += 1;
                false
            }
            Verdict::Unknown(reason) => {
                self.undecided += 1;
                let has_room = self.reasons.len() < MAX_REASONS;
                let reason = if has_room || self.reasons.contains_key(reason) {
                    reason
                } else {
                    "other reasons"
                };
                match self.reasons.get_mut(reason) {
                    Some(count) => *count += 1,
                    None => _ = self.reasons.insert(reason.to_owned(), 1),
                }
                true
            }
        }
    }
}

/// The conditions of a plan.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    /// By function.
    screens: Vec<Option<Screen>>,
    pub(crate) screened: Screened,
}

impl Conditions {
    pub(crate) fn of(plan: &Plan) -> Self {
        let screen =
            |index: u32| plan.screens.get(&index).filter(|screen| decides(screen)).cloned();
        let any = plan.screens.values().any(decides);
        let all = if any { plan.functions.len() as u32 } else { 0 };
        Self { screens: (0..all).map(screen).collect(), screened: Screened::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.screens.is_empty()
    }

    fn screen(&self, function: u32) -> Option<&Screen> {
        self.screens.get(function as usize)?.as_ref()
    }

    /// Whether the call's end has a say.
    pub(crate) fn waits_for_end(&self, function: u32) -> bool {
        self.screen(function).is_some_and(|screen| !screen.end.is_empty())
    }

    /// Whether a call that begins may be shown.
    pub(crate) fn admits_entry(&mut self, call: &Call) -> bool {
        let screen = self.screens.get(call.function as usize).and_then(Option::as_ref);
        let Some(screening) = screen.and_then(|screen| screen.entry.as_ref()) else {
            return true;
        };
        let facts = Facts { args: &call.args, goid: call.goid, ..Facts::default() };
        self.screened.note(screening.predicate.verdict(&facts))
    }

    /// Whether a call that ended is shown.
    pub(crate) fn admits_end(&mut self, call: &Call) -> bool {
        let Some(screen) = self.screens.get(call.function as usize).and_then(Option::as_ref) else {
            return true;
        };
        let known = !matches!(call.end, End::Lost | End::Open);
        let facts = Facts {
            args: &call.args,
            results: &call.results,
            goid: call.goid,
            duration_ns: known.then(|| call.end_ns.saturating_sub(call.start_ns)),
        };
        let mut all = Verdict::True;
        for screening in &screen.end {
            match screening.predicate.verdict(&facts) {
                Verdict::False => {
                    all = Verdict::False;
                    break;
                }
                unknown @ Verdict::Unknown(_) if all == Verdict::True => all = unknown,
                _ => {}
            }
        }
        self.screened.note(all)
    }
}

/// Whether a screen says which calls are shown.
pub fn decides(screen: &Screen) -> bool {
    screen.entry.is_some() || !screen.end.is_empty()
}
