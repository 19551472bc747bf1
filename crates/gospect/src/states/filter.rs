//! Which stays in a state are shown and summed up.

use crate::args::SchedArgs;
use crate::failure::usage;
use output::Arrows;
use probe::pattern::Pattern;
use timeline::states::{Change, Kind, Lifetime, State, Unknown};

/// What `--goid`, `--state`, `--reason` and `--min` choose.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    goids: Vec<u64>,
    states: Vec<State>,
    reasons: Vec<Pattern>,
    min_ns: u64,
}

impl Filter {
    /// As typed.
    pub fn of(args: &SchedArgs) -> anyhow::Result<Self> {
        let state = |name: &String| {
            State::by_name(&name.to_lowercase()).ok_or_else(|| {
                let names: Vec<&str> = State::names().collect();
                usage(format!("no state `{name}`; there are {}", names.join(", ")))
            })
        };
        let reason = |text: &String| {
            Pattern::parse(text)
                .map_err(|error| usage(format!("malformed --reason `{text}`: {error}")))
        };
        Ok(Self {
            goids: args.goid.clone(),
            states: args.state.iter().map(state).collect::<Result<_, _>>()?,
            reasons: args.reason.iter().map(reason).collect::<Result<_, _>>()?,
            min_ns: args.min.map_or(0, |span| span.0.as_nanos() as u64),
        })
    }

    /// Whether everything is chosen.
    pub fn is_empty(&self) -> bool {
        let anything = self.goids.is_empty() && self.states.is_empty();
        anything && self.reasons.is_empty() && self.min_ns == 0
    }

    /// Which arrows of a timeline begin at something chosen.
    pub fn arrows(&self) -> Arrows {
        let whole = self.states.is_empty() && self.reasons.is_empty() && self.min_ns == 0;
        match (whole, self.goids.is_empty()) {
            (false, _) => Arrows::None,
            (true, true) => Arrows::All,
            (true, false) => Arrows::Among(self.goids.clone()),
        }
    }

    /// Whether the goroutine is.
    pub fn wants_goroutine(&self, goid: u64) -> bool {
        self.goids.is_empty() || self.goids.contains(&goid)
    }

    fn wants(&self, goid: u64, state: State, reason: Option<&str>, ns: u64) -> bool {
        let waits = state.kind() == Kind::Waiting;
        let for_this = |reason: &str| self.reasons.iter().any(|pattern| pattern.matches(reason));
        self.wants_goroutine(goid)
            && (self.states.is_empty() || self.states.contains(&state))
            && (self.reasons.is_empty() || (waits && reason.is_some_and(for_this)))
            && ns >= self.min_ns
    }

    /// Whether the stay that `change` ends is chosen.
    pub fn wants_end(&self, change: &Change) -> bool {
        let ns = change.ts_ns.saturating_sub(change.since_ns);
        // The reason of a change is that of the wait that begins, if one does.
        let reason = change.reason.as_deref().filter(|_| change.to.kind() != Kind::Waiting);
        change.from.is_alive() && self.wants(change.who.goid, change.from, reason, ns)
    }

    /// Whether `change` is shown.
    pub fn wants_change(&self, change: &Change) -> bool {
        let begins = || {
            let reason = change.reason.as_deref();
            self.min_ns == 0 && self.wants(change.who.goid, change.to, reason, 0)
        };
        self.wants_end(change) || begins()
    }

    /// Whether a stay that a loss cut is shown: what it was for is not known.
    pub fn wants_unknown(&self, unknown: &Unknown) -> bool {
        let ns = unknown.to_ns.saturating_sub(unknown.from_ns);
        let anything = self.states.is_empty() && self.reasons.is_empty();
        anything && self.wants_goroutine(unknown.who.goid) && ns >= self.min_ns
    }

    /// Whether the stay that is not over is chosen.
    pub fn wants_open(&self, lifetime: &Lifetime) -> bool {
        let ns = lifetime.to_ns.saturating_sub(lifetime.since_ns);
        let reason = lifetime.reason.as_deref();
        lifetime.state.is_alive() && self.wants(lifetime.who.goid, lifetime.state, reason, ns)
    }
}
