//! What is given up when watching costs a process more than it may.
//!
//! What is watched consists of units (a function, or a group of sensors), and each has a cost. Over budget the
//! dearest one goes; after a pause it comes back to be tried, and each time that this turns out to be too much the
//! pause is twice as long. Nothing comes back before the budget has paid for what was spent beyond it: so the mean over
//! all attempts stays within the budget too.

use std::collections::BTreeMap;
use std::time::Duration;

/// The kernel counts CPU time of processes in hundredths of a second: what lies between two readings may be as much
/// more, nanoseconds.
const CPU_STEP_NS: u64 = 20_000_000;

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

/// A share of a CPU as people read it: that of a small budget is small.
pub fn percent(share: f64) -> String {
    if share < 1.0 { format!("{share:.3}%") } else { format!("{share:.1}%") }
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
    /// `None` before the first window is over.
    percent: Option<f64>,
}

/// The time over which costs are weighed.
#[derive(Clone, Copy, Debug)]
struct Window {
    begun_ns: u64,
    /// What the process had used of CPU then, or before; `None` when nobody knows.
    cpu_ns: Option<u64>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Budget {
    limits: Limits,
    units: BTreeMap<String, Unit>,
    /// `None` before there is anything to weigh.
    window: Option<Window>,
    /// `None` before the first window is over.
    total: Option<f64>,
    /// When a unit came back last.
    restored_ns: Option<u64>,
    /// What was spent beyond the budget and not made good yet, nanoseconds.
    debt_ns: f64,
}

impl Budget {
    /// One with nothing spent.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            units: BTreeMap::new(),
            window: None,
            total: None,
            restored_ns: None,
            debt_ns: 0.0,
        }
    }

    /// Something is watched from now on.
    pub fn begin(&mut self, now_ns: u64) {
        self.window.get_or_insert(Window { begun_ns: now_ns, cpu_ns: None });
    }

    /// Another limit from now on, percent of a CPU. Where more is allowed, what was given up comes back at once.
    pub fn limit(&mut self, percent: Option<f64>) {
        let is_more = match (self.limits.percent, percent) {
            (Some(old), Some(new)) => new > old,
            (old, new) => old.is_some() && new.is_none(),
        };
        self.limits.percent = percent;
        if !is_more {
            return;
        }
        self.debt_ns = 0.0;
        for unit in self.units.values_mut().filter(|unit| unit.back_ns.is_some()) {
            (unit.back_ns, unit.pause) = (Some(0), None);
        }
    }

    /// The first pause of what is given up from now on.
    pub fn retry(&mut self, pause: Duration) {
        self.limits.pause = pause;
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

    /// What all together cost in the last window, percent of a CPU; `None` while that is not known.
    pub fn percent(&self) -> Option<f64> {
        self.total
    }

    /// What each unit cost in the last window, likewise.
    pub fn units(&self) -> impl Iterator<Item = (&str, Option<f64>)> {
        self.units.iter().map(|(name, unit)| (name.as_str(), unit.percent))
    }

    /// Whether there is nothing to weigh or to decide until something is spent.
    pub fn is_calm(&self) -> bool {
        let is_calm = |unit: &Unit| unit.back_ns.is_none() && unit.spent_ns == 0;
        self.total == Some(0.0) && self.units.values().all(is_calm)
    }

    /// Units that are given up now, with the seconds until they are tried again.
    pub fn dropped(&self, now_ns: u64) -> impl Iterator<Item = (&str, u64)> {
        self.units.iter().filter_map(move |(name, unit)| {
            let left = unit.back_ns?.saturating_sub(now_ns);
            Some((name.as_str(), left.div_ceil(1_000_000_000)))
        })
    }

    /// Nothing was spent up to now: a window that begins now is one of what comes.
    pub fn rest(&mut self, now_ns: u64) {
        if let Some(window) = &mut self.window
            && self.units.values().all(|unit| unit.spent_ns == 0)
        {
            // What it has used since then is no less than what it uses from now on.
            window.begun_ns = now_ns;
        }
    }

    /// What is to change at `now_ns`. Costs are looked at when a window is over, and at once where it is certain
    /// already that it costs too much. `cpu_ns` is what the process has used of CPU since its start, where that is
    /// known: no estimate is larger than what it has used meanwhile.
    pub fn decide(&mut self, now_ns: u64, cpu_ns: Option<u64>) -> Vec<Change> {
        let window = *self.window.get_or_insert(Window { begun_ns: now_ns, cpu_ns });
        let passed = now_ns.saturating_sub(window.begun_ns);
        let length = self.limits.window.as_nanos() as u64;
        let spent: u64 = self.units.values().fold(0, |sum, unit| sum.saturating_add(unit.spent_ns));
        let used = cpu_ns.zip(window.cpu_ns).map(|(now, then)| now.saturating_sub(then));
        let ceiling = used.map_or(u64::MAX, |used| used.saturating_add(CPU_STEP_NS));
        let cost = spent.min(ceiling);
        let allowed = self.limits.percent.map(|percent| length as f64 * percent / 100.0);
        let is_certain = allowed.is_some_and(|allowed| cost as f64 > allowed);
        if passed < length && (!is_certain || passed < length / 4) {
            return self.back(now_ns).into_iter().collect();
        }
        let share = if spent > cost { cost as f64 / spent as f64 } else { 1.0 };
        for unit in self.units.values_mut() {
            let ns = std::mem::take(&mut unit.spent_ns) as f64 * share;
            unit.percent = Some(ns * 100.0 / passed as f64);
        }
        let total: f64 = self.units.values().filter_map(|unit| unit.percent).sum();
        // Of -0.0, the sum of nothing, 0.0.
        self.total = Some(total + 0.0);
        self.window = Some(Window { begun_ns: now_ns, cpu_ns });
        let mut changes = Vec::new();
        if let Some(percent) = self.limits.percent {
            let over = (total - percent) / 100.0 * passed as f64;
            self.debt_ns = (self.debt_ns + over).max(0.0);
            self.give_up(percent, now_ns, &mut changes);
        }
        changes.extend(self.back(now_ns));
        changes
    }

    fn back(&mut self, now_ns: u64) -> Option<Change> {
        // One at a time, each for a window: if it is too much, it is known which it was.
        let length = self.limits.window.as_nanos() as u64;
        let is_tried = |restored| now_ns.saturating_sub(restored) < length;
        if self.debt_ns > 1.0 || self.restored_ns.is_some_and(is_tried) {
            return None;
        }
        let due =
            self.units.iter_mut().find(|(_, unit)| unit.back_ns.is_some_and(|back| back <= now_ns));
        let (name, unit) = due?;
        (unit.back_ns, unit.tried_ns) = (None, now_ns);
        self.restored_ns = Some(now_ns);
        Some(Change::Restore { unit: name.clone() })
    }

    fn give_up(&mut self, allowed: f64, now_ns: u64, changes: &mut Vec<Change>) {
        let total = self.total.unwrap_or_default();
        let mut watched: Vec<(&String, &mut Unit)> =
            self.units.iter_mut().filter(|(_, unit)| unit.back_ns.is_none()).collect();
        let cost = |unit: &Unit| unit.percent.unwrap_or_default();
        watched.sort_by(|a, b| cost(b.1).total_cmp(&cost(a.1)));
        // What is given up may have cost something until it was out: nothing else has to go for that.
        let (mut left, mut count) = (watched.iter().map(|(_, unit)| cost(unit)).sum::<f64>(), 0);
        for (_, unit) in &watched {
            if left <= allowed || cost(unit) <= 0.0 {
                break;
            }
            left -= cost(unit);
            count += 1;
        }
        // By what the rest leaves of the budget.
        let free = (allowed - left).max(f64::MIN_POSITIVE) / 100.0;
        let paid = Duration::try_from_secs_f64(self.debt_ns / 1e9 / free);
        let paid = paid.unwrap_or(Duration::MAX).min(self.limits.longest);
        for (name, unit) in watched.into_iter().take(count) {
            let rested = Duration::from_nanos(now_ns.saturating_sub(unit.tried_ns));
            let pause = match unit.pause {
                // It was good for long enough: it begins anew.
                Some(pause) if rested < pause * 2 => (pause * 2).min(self.limits.longest),
                _ => self.limits.pause,
            };
            unit.pause = Some(pause);
            let pause = pause.max(paid);
            unit.back_ns = Some(now_ns.saturating_add(pause.as_nanos() as u64));
            changes.push(Change::Drop {
                unit: name.clone(),
                percent: cost(unit),
                total,
                pause_s: pause.as_secs_f64().ceil() as u64,
            });
        }
    }
}

#[cfg(test)]
mod tests;
