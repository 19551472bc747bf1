//! Sums over goroutines: by the statement that made them, by reason, and how long they waited
//! for a processor.

use super::chain::{Stay, credit};
use super::event::{Change, Lifetime, Origin, Times, Who};
use super::reasons::Reasons;
use super::state::{Kind, State};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Groups kept at the most; what is beyond counts in one group without a place.
const MAX_GROUPS: usize = 1 << 14;

/// The longest waits that are kept.
const LONGEST: usize = 10;

/// The longest latency that is told from longer ones: an hour.
const MAX_LATENCY_NS: u64 = 3_600_000_000_000;

/// The first bound of [`Tally::latency_steps`].
const FIRST_STEP_NS: u64 = 1_000;

/// Goroutines made by one statement of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteSum {
    /// Made while watched.
    pub made: u64,
    /// Ended while watched.
    pub ended: u64,
    /// Living.
    pub live: u64,
    /// Where one of them comes from.
    pub origin: Origin,
    /// What their time went to.
    pub times: Times,
}

/// Waits for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitSum {
    /// How many are over.
    pub count: u64,
    /// How many go on.
    pub open: u64,
    /// Their time, nanoseconds.
    pub total_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl WaitSum {
    fn add(&mut self, ns: u64) {
        self.total_ns = self.total_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }
}

/// One long wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongWait {
    /// Nanoseconds.
    pub ns: u64,
    /// Who waited.
    pub who: Who,
    /// For what: the number of the reason.
    pub reason: u8,
    /// Where the goroutine comes from.
    pub origin: Origin,
    /// Whether it still waits.
    pub is_open: bool,
}

/// Time on run queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Stays on a run queue that ended in running.
    pub count: u64,
    /// Median, nanoseconds.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// The sums.
#[derive(Clone, Debug)]
pub struct Tally {
    pub(crate) sites: BTreeMap<(u32, u64), SiteSum>,
    pub(crate) waits: BTreeMap<u8, WaitSum>,
    longest: Vec<LongWait>,
    latency: Option<Histogram<u64>>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            sites: BTreeMap::new(),
            waits: BTreeMap::new(),
            longest: Vec::new(),
            // Two digits; the bounds are constants that it takes.
            latency: Histogram::new_with_bounds(1, MAX_LATENCY_NS, 2).ok(),
        }
    }
}

impl Tally {
    /// The group of a goroutine.
    fn site(&mut self, pid: u32, origin: Origin) -> &mut SiteSum {
        let known = self.sites.contains_key(&(pid, origin.gopc));
        let gopc = if known || self.sites.len() < MAX_GROUPS { origin.gopc } else { 0 };
        let sum = self.sites.entry((pid, gopc)).or_default();
        if sum.origin.startpc == 0 {
            sum.origin = Origin { parent: 0, ..origin };
        }
        sum
    }

    pub(crate) fn made(&mut self, pid: u32, origin: Origin) {
        self.site(pid, origin).made += 1;
    }

    /// Adds a goroutine up to the end of its time.
    pub(crate) fn add(&mut self, lifetime: &Lifetime) {
        let sum = self.site(lifetime.who.pid, lifetime.origin);
        sum.times.add(&lifetime.times);
        match lifetime.ended_ns {
            Some(_) => sum.ended += 1,
            None => sum.live += 1,
        }
    }

    /// Adds a stay that is over.
    pub(crate) fn stay(&mut self, stay: &Stay, went_on_running: bool, who: Who, origin: Origin) {
        match stay.kind {
            Kind::Waiting => {
                let sum = self.waits.entry(stay.reason).or_default();
                sum.count += 1;
                sum.add(stay.ns());
                self.long_wait(stay, who, origin, false);
            }
            Kind::Runnable if went_on_running => {
                if let Some(latency) = &mut self.latency {
                    latency.saturating_record(stay.ns().max(1));
                }
            }
            _ => {}
        }
    }

    /// Keeps the wait if it is one of the longest.
    fn long_wait(&mut self, stay: &Stay, who: Who, origin: Origin, is_open: bool) {
        let ns = stay.ns();
        let shortest = self.longest.last().map_or(0, |wait| wait.ns);
        if self.longest.len() >= LONGEST && ns <= shortest {
            return;
        }
        let at = self.longest.partition_point(|wait| wait.ns >= ns);
        self.longest.insert(at, LongWait { ns, who, reason: stay.reason, origin, is_open });
        self.longest.truncate(LONGEST);
    }

    /// Sums by process and return address of the `go` statement's call.
    pub fn sites(&self) -> impl Iterator<Item = (u32, &SiteSum)> {
        self.sites.iter().map(|((pid, _), sum)| (*pid, sum))
    }

    /// Sums by the number of the reason.
    pub fn waits(&self) -> impl Iterator<Item = (u8, WaitSum)> + '_ {
        self.waits.iter().map(|(reason, sum)| (*reason, *sum))
    }

    /// The longest waits, the longest first.
    pub fn longest(&self) -> &[LongWait] {
        &self.longest
    }

    /// How long goroutines were on run queues.
    pub fn latency(&self) -> Latency {
        let Some(latency) = self.latency.as_ref().filter(|latency| !latency.is_empty()) else {
            return Latency::default();
        };
        let quantile = |q| latency.value_at_quantile(q).min(latency.max());
        Latency {
            count: latency.len(),
            p50_ns: quantile(0.5),
            p90_ns: quantile(0.9),
            p99_ns: quantile(0.99),
            max_ns: latency.max(),
        }
    }

    /// How many of them were how long: bounds in nanoseconds, each four times the one before, and
    /// the number of stays that were shorter, and not shorter than the bound before. From the
    /// first that there are any of to the last.
    pub fn latency_steps(&self) -> Vec<(u64, u64)> {
        let mut steps: Vec<(u64, u64)> = Vec::new();
        for entry in self.latency.iter().flat_map(|latency| latency.iter_recorded()) {
            let mut bound = steps.last().map_or(FIRST_STEP_NS, |(bound, _)| *bound);
            while entry.value_iterated_to() >= bound && bound <= MAX_LATENCY_NS {
                if !steps.is_empty() {
                    steps.push((bound * 4, 0));
                }
                bound *= 4;
            }
            match steps.last_mut() {
                Some((_, count)) => *count += entry.count_since_last_iteration(),
                None => steps.push((bound, entry.count_since_last_iteration())),
            }
        }
        steps
    }

    /// Adds the latencies of another one.
    pub fn add_latency(&mut self, other: &Self) {
        if let (Some(sum), Some(other)) = (&mut self.latency, &other.latency) {
            // Both have the same bounds.
            _ = sum.add(other);
        }
    }

    /// Counts a goroutine that `change` makes or ends.
    pub fn count(&mut self, change: &Change) {
        let site = self.site(change.who.pid, change.origin);
        if !change.from.is_alive() {
            site.made += 1;
        }
        if !change.to.is_alive() {
            site.ended += 1;
        }
    }

    /// Adds the stay that `change` ends, and nothing else of the goroutine.
    pub fn add_change(&mut self, change: &Change, reasons: &Reasons) {
        let name = change.reason.as_deref();
        let stay = Stay {
            kind: change.from.kind(),
            reason: name.and_then(|name| reasons.number(name)).unwrap_or(0),
            since_ns: change.since_ns,
            to_ns: change.ts_ns,
        };
        credit(&mut self.site(change.who.pid, change.origin).times, &stay);
        self.stay(&stay, change.to == State::RUNNING, change.who, change.origin);
    }

    /// Adds a stay that is not over, of a goroutine that is counted as living.
    pub(crate) fn add_open(&mut self, stay: &Stay, who: Who, origin: Origin) {
        let site = self.site(who.pid, origin);
        site.live += 1;
        credit(&mut site.times, stay);
        self.open_wait(stay, who, origin);
    }

    /// Adds a stay that is not over to the waits, if it is one.
    pub(crate) fn open_wait(&mut self, stay: &Stay, who: Who, origin: Origin) {
        if stay.kind == Kind::Waiting {
            let sum = self.waits.entry(stay.reason).or_default();
            sum.open += 1;
            sum.add(stay.ns());
            self.long_wait(stay, who, origin, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_counted_by_steps() {
        let mut tally = Tally::default();
        assert_eq!(tally.latency_steps(), []);
        for ns in [1, 20_000, 21_000, 999, 1_000, 300_000] {
            tally.latency.as_mut().unwrap().record(ns).unwrap();
        }
        let expected =
            [(1_000, 2), (4_000, 1), (16_000, 0), (64_000, 2), (256_000, 0), (1_024_000, 1)];
        assert_eq!(tally.latency_steps(), expected);
    }
}
