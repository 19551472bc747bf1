//! What a process's sensors are told to be: active, or why not.

use super::{Stage, Target};
use crate::agent::prepared::{GOROUTINES, Prepared};
use agent::status::{SensorState, SensorStatus};
use probe::expression::Request;
use std::collections::{BTreeMap, BTreeSet};

/// Functions that are named by a service and cannot be watched, told of at the most.
const REFUSED: usize = 20;

impl Target {
    /// State of what the service wants watched.
    pub fn sensors(&self, now_ns: u64) -> Vec<SensorStatus> {
        let dropped: BTreeMap<&str, u64> = self.budget.dropped(now_ns).collect();
        let costs: BTreeMap<&str, Option<f64>> = self.budget.units().collect();
        let there: BTreeSet<&str> = self.units().collect();
        let status = |name: &str, kind: &'static str| {
            let (state, reason) = match (&self.stage, dropped.get(name)) {
                (_, Some(left)) => {
                    let reason = format!("it cost more than the budget: tried again in {left} s");
                    (SensorState::Dropped, Some(reason))
                }
                (Stage::Planning, None) => (SensorState::Starting, None),
                (Stage::Off(reason), None) => (SensorState::Unavailable, Some(reason.clone())),
                (Stage::Watched(_), None) if !there.contains(name) => {
                    let reason =
                        "the program has none of its functions, or none that can be watched";
                    (SensorState::Unavailable, Some(reason.to_owned()))
                }
                (Stage::Watched(_), None) => self.left_out(name),
            };
            let makes_spans = sensors::GROUPS.contains(&name);
            // What never had a hit cost nothing, once it was weighed.
            let weighed = self.budget.percent().filter(|_| state == SensorState::Active);
            let cost_percent = costs.get(name).copied().unwrap_or(weighed.map(|_| 0.0));
            SensorStatus {
                name: name.to_owned(),
                kind,
                state,
                reason,
                hits: Some(self.hits.get(name).copied().unwrap_or(0)),
                cost_percent,
                spans: makes_spans
                    .then(|| self.sensor_spans.get(name).copied().unwrap_or_default()),
            }
        };
        let mut sensors: Vec<SensorStatus> = Vec::new();
        for &group in sensors::GROUPS {
            match self.service.sensors.iter().any(|name| name == group) {
                true => sensors.push(status(group, "sensor")),
                false => sensors.push(SensorStatus {
                    name: group.to_owned(),
                    kind: "sensor",
                    state: SensorState::Off,
                    reason: Some("the configuration leaves it out".to_owned()),
                    ..SensorStatus::default()
                }),
            }
        }
        if there.contains(GOROUTINES) {
            sensors.push(status(GOROUTINES, "sensor"));
        }
        let functions =
            there.iter().filter(|name| **name != GOROUTINES && !sensors::GROUPS.contains(name));
        sensors.extend(functions.map(|name| status(name, "function")));
        let missing = self.prepared.iter().flat_map(|prepared| self.missing(prepared));
        sensors.extend(missing.map(|(name, reason)| SensorStatus {
            name,
            kind: "function",
            state: SensorState::Unavailable,
            reason: Some(reason),
            ..SensorStatus::default()
        }));
        sensors
    }

    /// What of the plan can be given up, by name.
    fn units(&self) -> impl Iterator<Item = &str> {
        let units = self.prepared.iter().flat_map(|prepared| prepared.units.iter().flatten());
        units.map(String::as_str)
    }

    /// Whether a unit that was planned is watched, and what of it the backend had to leave out.
    fn left_out(&self, unit: &str) -> (SensorState, Option<String>) {
        let active = (SensorState::Active, None);
        let (Stage::Watched(capturing), Some(prepared)) = (&self.stage, &self.prepared) else {
            return active;
        };
        let plan = capturing.session.plan();
        let planned = prepared.planned.plan.functions.iter().zip(&prepared.units);
        let own = planned.zip(&plan.functions).filter(|((planned, of), _)| {
            planned.traced && of.as_ref().is_some_and(|of| of == unit)
        });
        let (mut count, mut out) = (0, Vec::new());
        for (_, installed) in own {
            count += 1;
            if !installed.traced {
                out.push(installed.name.as_str());
            }
        }
        let Some(first) = out.first() else { return active };
        let refusal = plan.refused.iter().find(|refusal| refusal.function == *first);
        let why = refusal.map_or("it cannot be watched", |refusal| &refusal.reason.0);
        let reason = match out.len() {
            1 => format!("{first} is left out: {why}"),
            more => format!("{first} and {} more are left out: {why}", more - 1),
        };
        let state = if out.len() == count { SensorState::Unavailable } else { SensorState::Active };
        (state, Some(reason))
    }

    /// What the service names and the program has not, or has in vain.
    fn missing(&self, prepared: &Prepared) -> Vec<(String, String)> {
        let asked = &self.service.functions;
        let unmatched = prepared.planned.unmatched.iter().filter(|text| asked.contains(text));
        let nothing = "the program has no function of this name";
        let mut missing: Vec<(String, String)> =
            unmatched.map(|text| (text.clone(), nothing.to_owned())).collect();
        let requests = asked.iter().filter_map(|text| Request::parse(text).ok());
        let patterns: Vec<_> = requests.map(|request| request.pattern).collect();
        let refused =
            prepared.planned.plan.refused.iter().filter(|refusal| {
                patterns.iter().any(|pattern| pattern.matches(&refusal.function))
            });
        let told = |refusal: &probe::Refusal| (refusal.function.clone(), refusal.reason.0.clone());
        missing.extend(refused.take(REFUSED).map(told));
        missing
    }
}
