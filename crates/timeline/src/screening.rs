//! Conditions on calls, and what they came to.

use crate::event::{Call, End};
use probe::Plan;
use probe::expression::{Facts, Verdict};
use probe::screen::Screen;
use probe::value::Value;
use std::collections::{BTreeMap, HashSet};

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
    /// Adds what conditions came to elsewhere.
    pub fn add(&mut self, other: &Self) {
        self.hidden += other.hidden;
        self.undecided += other.undecided;
        for (reason, count) in &other.reasons {
            *self.reasons.entry(reason.clone()).or_default() += count;
        }
    }

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

/// Those conditions of a plan that one stage decides.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    /// By function; none at all when no function has one.
    screens: Vec<Option<Screen>>,
    /// Functions of which hits reject entries.
    rejecting: HashSet<u32>,
    pub(crate) screened: Screened,
}

impl Conditions {
    /// What entries decide.
    pub(crate) fn at_entry(plan: &Plan) -> Self {
        let sites = plan.sites.iter().filter(|site| site.condition > 0);
        let rejecting = sites.map(|site| site.function).collect();
        Self { rejecting, ..Self::of(plan, |screen| screen.entry.is_some()) }
    }

    /// What ends decide.
    pub(crate) fn at_end(plan: &Plan) -> Self {
        Self::of(plan, |screen| !screen.end.is_empty())
    }

    fn of(plan: &Plan, decides: fn(&Screen) -> bool) -> Self {
        let screen =
            |index: u32| plan.screens.get(&index).filter(|screen| decides(screen)).cloned();
        let any = plan.screens.values().any(decides);
        let all = if any { plan.functions.len() as u32 } else { 0 };
        Self { screens: (0..all).map(screen).collect(), ..Self::default() }
    }

    /// Whether they say something of a function's calls.
    pub(crate) fn are_about(&self, function: u32) -> bool {
        self.screens.get(function as usize).is_some_and(Option::is_some)
    }

    /// Whether there may be exits of a function's calls that made no entry record.
    pub(crate) fn reject_at_hits(&self, function: u32) -> bool {
        self.rejecting.contains(&function)
    }

    /// Whether a call that begins may be shown.
    pub(crate) fn admit_entry(&mut self, function: u32, goid: u64, args: &[Value]) -> bool {
        let screen = self.screens.get(function as usize).and_then(Option::as_ref);
        let Some(screening) = screen.and_then(|screen| screen.entry.as_ref()) else {
            return true;
        };
        let facts = Facts { args, goid, ..Facts::default() };
        self.screened.note(screening.predicate.verdict(&facts))
    }

    /// Whether a call that ended is shown.
    pub(crate) fn admit_end(&mut self, call: &Call) -> bool {
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
