//! What is given up when watching costs a process more than it may.
//!
//! What is watched consists of units (a function, or a group of sensors), and each has a cost. Over budget the
//! dearest one goes; after a pause it comes back to be tried, and each time that this turns out to be too much the
//! pause is twice as long.

use std::collections::BTreeMap;
use std::time::Duration;

/// The knobs of a [`Budget`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Share of a CPU, percent; `None` for no limit.
    pub percent: Option<f64>,
    /// Time over which costs are weighed.
    pub window: Duration,
    /// The first pause of what was given up.
    pub pause: Duration,
    /// The longest one.
    pub longest: Duration,
}

impl Default for Limits {
    /// No limit; costs of a second; 30 seconds to half an hour.
    fn default() -> Self {
        Self {
            percent: None,
            window: Duration::from_secs(1),
            pause: Duration::from_secs(30),
            longest: Duration::from_secs(1800),
        }
    }
}

/// What changes.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "change")]
pub enum Change {
    /// A unit is given up.
    Drop {
        /// Which.
        unit: String,
        /// What it cost, percent of a CPU.
        percent: f64,
        /// What all together cost.
        total: f64,
        /// When it is tried again, seconds from now.
        pause_s: u64,
    },
    /// A unit comes back.
    Restore {
        /// Which.
        unit: String,
    },
}

/// What is known of a unit.
#[derive(Clone, Debug, Default)]
struct Unit {
    /// Costs since the window began, nanoseconds.
    spent_ns: u64,
    /// When it comes back, nanoseconds; it is watched while there is none.
    back_ns: Option<u64>,
    /// The next pause, when it was given up before.
    pause: Option<Duration>,
    /// When it came back last.
    tried_ns: u64,
    percent: f64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Budget {
    limits: Limits,
    units: BTreeMap<String, Unit>,
    /// `None` before the first look.
    begun_ns: Option<u64>,
    total: f64,
}

impl Budget {
    /// One with nothing spent.
    pub fn new(limits: Limits) -> Self {
        Self { limits, units: BTreeMap::new(), begun_ns: None, total: 0.0 }
    }

    /// Another limit from now on, percent of a CPU.
    pub fn limit(&mut self, percent: Option<f64>) {
        self.limits.percent = percent;
    }

    /// Adds what a unit cost, nanoseconds of CPU.
    pub fn spend(&mut self, unit: &str, ns: u64) {
        if let Some(known) = self.units.get_mut(unit) {
            known.spent_ns = known.spent_ns.saturating_add(ns);
        } else {
            let known = Unit { spent_ns: ns, ..Unit::default() };
            self.units.insert(unit.to_owned(), known);
        }
    }

    /// What all together cost in the last window, percent of a CPU.
    pub fn percent(&self) -> f64 {
        self.total
    }

    /// What each unit cost in the last window.
    pub fn units(&self) -> impl Iterator<Item = (&str, f64)> {
        self.units.iter().map(|(name, unit)| (name.as_str(), unit.percent))
    }

    /// Units that are given up now, with the seconds until they are tried again.
    pub fn dropped(&self, now_ns: u64) -> impl Iterator<Item = (&str, u64)> {
        self.units.iter().filter_map(move |(name, unit)| {
            let left = unit.back_ns?.saturating_sub(now_ns);
            Some((name.as_str(), left.div_ceil(1_000_000_000)))
        })
    }

    /// What is to change at `now_ns`. Costs are looked at when a window is over, and at once where it is certain
    /// already that it costs too much. `ceiling_ns` is what the process used of CPU since it was asked last, where
    /// that is known: no estimate is larger.
    pub fn decide(&mut self, now_ns: u64, ceiling_ns: Option<u64>) -> Vec<Change> {
        let begun = *self.begun_ns.get_or_insert(now_ns);
        let passed = now_ns.saturating_sub(begun);
        let window = self.limits.window.as_nanos() as u64;
        let spent: u64 = self.units.values().fold(0, |sum, unit| sum.saturating_add(unit.spent_ns));
        let allowed = self.limits.percent.map(|percent| window as f64 * percent / 100.0);
        let is_certain = allowed.is_some_and(|allowed| spent as f64 > 2.0 * allowed);
        let may_look = passed >= window || is_certain && passed >= window / 4;
        let mut changes = self.back(now_ns);
        if !may_look {
            return changes;
        }
        let share = match ceiling_ns {
            Some(ceiling) if spent > ceiling && spent > 0 => ceiling as f64 / spent as f64,
            _ => 1.0,
        };
        for unit in self.units.values_mut() {
            let ns = std::mem::take(&mut unit.spent_ns) as f64 * share;
            unit.percent = ns * 100.0 / passed as f64;
        }
        self.total = self.units.values().map(|unit| unit.percent).sum();
        self.begun_ns = Some(now_ns);
        self.give_up(now_ns, &mut changes);
        changes
    }

    fn back(&mut self, now_ns: u64) -> Vec<Change> {
        // One at a time: if it is too much, it is known which it was.
        let due =
            self.units.iter_mut().find(|(_, unit)| unit.back_ns.is_some_and(|back| back <= now_ns));
        let Some((name, unit)) = due else { return Vec::new() };
        (unit.back_ns, unit.tried_ns) = (None, now_ns);
        vec![Change::Restore { unit: name.clone() }]
    }

    fn give_up(&mut self, now_ns: u64, changes: &mut Vec<Change>) {
        let Some(allowed) = self.limits.percent else { return };
        let (mut left, total) = (self.total, self.total);
        while left > allowed {
            let watched = self.units.iter_mut().filter(|(_, unit)| unit.back_ns.is_none());
            let dearest = watched.max_by(|a, b| a.1.percent.total_cmp(&b.1.percent));
            let Some((name, unit)) = dearest.filter(|(_, unit)| unit.percent > 0.0) else { return };
            let rested = Duration::from_nanos(now_ns.saturating_sub(unit.tried_ns));
            let pause = match unit.pause {
                // It was good for long enough: it begins anew.
                Some(pause) if rested < pause * 2 => (pause * 2).min(self.limits.longest),
                _ => self.limits.pause,
            };
            unit.pause = Some(pause);
            unit.back_ns = Some(now_ns.saturating_add(pause.as_nanos() as u64));
            left -= unit.percent;
            changes.push(Change::Drop {
                unit: name.clone(),
                percent: unit.percent,
                total,
                pause_s: pause.as_secs(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn budget(percent: f64) -> Budget {
        Budget::new(Limits { percent: Some(percent), ..Limits::default() })
    }

    fn dropped(unit: &str, percent: f64, total: f64, pause_s: u64) -> Change {
        Change::Drop { unit: unit.to_owned(), percent, total, pause_s }
    }

    #[test]
    fn the_dearest_goes_until_the_rest_is_within_the_budget() {
        let mut budget = budget(5.0);
        assert_eq!(budget.decide(0, None), []);
        for (unit, percent) in [("a", 3), ("b", 40), ("c", 20)] {
            budget.spend(unit, SECOND / 100 * percent);
        }
        let changes = budget.decide(SECOND, None);
        assert_eq!(changes, [dropped("b", 40.0, 63.0, 30), dropped("c", 20.0, 63.0, 30)]);
        assert_eq!(budget.dropped(2 * SECOND).collect::<Vec<_>>(), [("b", 29), ("c", 29)]);
        budget.spend("a", SECOND / 100 * 3);
        assert_eq!(budget.decide(2 * SECOND, None), []);
        assert_eq!(budget.percent(), 3.0);
    }

    #[test]
    fn much_too_much_is_seen_before_the_window_is_over() {
        let mut budget = budget(5.0);
        budget.decide(0, None);
        budget.spend("hot", SECOND / 5);
        assert_eq!(budget.decide(SECOND / 10, None), []);
        assert_eq!(budget.decide(SECOND / 4, None), [dropped("hot", 80.0, 80.0, 30)]);
    }

    #[test]
    fn pauses_grow_and_begin_anew_after_a_good_time() {
        let mut budget = budget(5.0);
        budget.decide(0, None);
        let mut now = 0;
        let mut pauses = Vec::new();
        let mut restored = Vec::new();
        for second in 1..400 {
            now = second * SECOND;
            if budget.dropped(now).next().is_none() {
                budget.spend("hot", SECOND / 2);
            }
            for change in budget.decide(now, None) {
                match change {
                    Change::Drop { pause_s, .. } => pauses.push(pause_s),
                    Change::Restore { .. } => restored.push(second),
                }
            }
        }
        assert_eq!((pauses, restored), (vec![30, 60, 120, 240], vec![31, 92, 213]));
        // It comes back and is quiet.
        for _ in 0..600 {
            now += SECOND;
            budget.spend("hot", SECOND / 100);
            let changes = budget.decide(now, None);
            assert!(changes.iter().all(|change| matches!(change, Change::Restore { .. })));
        }
        budget.spend("hot", SECOND);
        now += SECOND;
        assert_eq!(budget.decide(now, None), [dropped("hot", 100.0, 100.0, 30)]);
    }

    #[test]
    fn no_estimate_is_larger_than_what_the_process_used() {
        let mut budget = budget(5.0);
        budget.decide(0, None);
        budget.spend("a", 3 * SECOND);
        budget.spend("b", SECOND);
        let changes = budget.decide(SECOND, Some(SECOND / 25));
        assert_eq!((changes, budget.percent()), (Vec::new(), 4.0));
        let units: Vec<_> = budget.units().collect();
        assert_eq!(units, [("a", 3.0), ("b", 1.0)]);
    }

    #[test]
    fn without_a_limit_costs_are_only_counted() {
        let mut budget = Budget::new(Limits::default());
        budget.decide(0, None);
        budget.spend("a", 10 * SECOND);
        assert_eq!((budget.decide(SECOND, None), budget.percent()), (Vec::new(), 1000.0));
    }
}
