//! Names of wait reasons, and what they mean for a goroutine's time.

use super::state::{is_pseudo, is_switched};
use probe::Plan;
use std::sync::Arc;

/// No version has more reasons.
const MAX_REASONS: usize = 256;

#[derive(Clone, Debug)]
struct Reason {
    name: Arc<str>,
    pseudo: bool,
    switched: bool,
}

/// The wait reasons of one Go version.
#[derive(Clone, Debug, Default)]
pub struct Reasons {
    reasons: Vec<Reason>,
}

impl Reasons {
    /// Those the plan names.
    pub fn of(plan: &Plan) -> Self {
        let names = plan.states.iter().flat_map(|names| &names.reasons).take(MAX_REASONS);
        let reason = |name: &String| Reason {
            name: Arc::from(name.as_str()),
            pseudo: is_pseudo(name),
            switched: is_switched(name),
        };
        Self { reasons: names.map(reason).collect() }
    }

    fn get(&self, number: u8) -> Option<&Reason> {
        self.reasons.get(usize::from(number)).filter(|reason| !reason.name.is_empty())
    }

    /// The name of a reason; a number without a name is named by its number, and 0 is none.
    pub fn name(&self, number: u8) -> Option<Arc<str>> {
        match self.get(number) {
            Some(reason) => Some(Arc::clone(&reason.name)),
            None => (number != 0).then(|| Arc::from(format!("reason {number}"))),
        }
    }

    /// The number of the reason with that name, as [`Reasons::name`] gives it.
    pub fn number(&self, name: &str) -> Option<u8> {
        let known = self.reasons.iter().position(|reason| &*reason.name == name);
        let named = || name.strip_prefix("reason ")?.parse().ok();
        known.and_then(|number| u8::try_from(number).ok()).or_else(named)
    }

    /// Whether who waits for this runs in truth.
    pub(crate) fn is_pseudo(&self, number: u8) -> bool {
        self.get(number).is_some_and(|reason| reason.pseudo)
    }

    /// Whether this wait may end in running.
    pub(crate) fn is_switched(&self, number: u8) -> bool {
        self.get(number).is_some_and(|reason| reason.switched)
    }
}
