//! What the hits of an installed plan cost the targets, by estimate: each has a price, measured on this machine when
//! something is captured for the first time.

use binary::code::ProbeCost;
use capture::Counters;
use capture_trampoline::HitCost;
use capture_uprobe::SiteCost;
use probe::planner::Planned;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

const NS: u64 = 1_000;

/// What a uprobe's hit costs until it is measured, and where it cannot be: kernel 6.18, x86-64 (see
/// docs/evaluation.md).
const UPROBE: SiteCost = SiteCost { emulated_ns: 1_000, stepped_ns: 14_000 };
/// Each op of its fetch program.
const UPROBE_OP: u64 = 100 * NS;

/// What a trampoline's hit costs until it is measured, and where it cannot be (see docs/evaluation.md).
const TRAMPOLINE: HitCost = HitCost { recorded_ps: 13 * NS, lost_ps: 3 * NS };
/// Each op of its fetch program.
const TRAMPOLINE_OP: u64 = NS;

/// Sites with uprobes; others carry trampolines.
#[derive(Clone, Debug)]
pub enum Probed {
    /// Each.
    All,
    /// These, by their number in the plan.
    Sites(BTreeSet<u32>),
}

impl Probed {
    /// All sites carry trampolines.
    pub fn none() -> Self {
        Self::Sites(BTreeSet::new())
    }

    fn contains(&self, site: u32) -> bool {
        match self {
            Self::All => true,
            Self::Sites(sites) => sites.contains(&site),
        }
    }

    fn is_none(&self) -> bool {
        matches!(self, Self::Sites(sites) if sites.is_empty())
    }
}

/// A price that is measured once, beside whatever asks first; without a thread or without a result the assumed one stays.
type Measured<T> = Arc<OnceLock<T>>;

fn measured<T: Copy + Send + Sync + 'static>(measure: fn() -> Option<T>) -> Measured<T> {
    let measured = Measured::default();
    let result = Arc::clone(&measured);
    _ = std::thread::Builder::new().name("calibrate".to_owned()).spawn(move || {
        if let Some(price) = measure() {
            _ = result.set(price);
        }
    });
    measured
}

fn uprobes() -> Measured<SiteCost> {
    static PRICE: LazyLock<Measured<SiteCost>> =
        LazyLock::new(|| measured(|| capture_uprobe::calibrate().ok()));
    Arc::clone(&PRICE)
}

fn trampolines() -> Measured<HitCost> {
    static PRICE: LazyLock<Measured<HitCost>> =
        LazyLock::new(|| measured(|| capture_trampoline::calibrate().ok()));
    Arc::clone(&PRICE)
}

/// Prices of a plan's sites, and what is owed so far.
#[derive(Debug)]
pub struct Tariff {
    /// How a uprobe is run, if it is one, and the ops of the fetch program.
    sites: Vec<(Option<ProbeCost>, u16)>,
    /// Picoseconds of CPU.
    prices: Vec<u64>,
    uprobe: SiteCost,
    trampoline: HitCost,
    /// Those that are not taken over yet.
    uprobes: Option<Measured<SiteCost>>,
    trampolines: Option<Measured<HitCost>>,
    has_trampolines: bool,
    hits: u64,
    owed_ps: u64,
    /// The most that was said to be owed, nanoseconds.
    told_ns: AtomicU64,
}

impl Tariff {
    /// For the sites of a plan, of which those of `probed` are uprobes.
    pub fn new(planned: &Planned, probed: &Probed) -> Self {
        let sites = planned.plan.sites.iter().zip(&planned.costs);
        let priced = |(number, (site, cost)): (u32, (&probe::Site, &ProbeCost))| {
            (probed.contains(number).then_some(*cost), site.program.len)
        };
        let has_trampolines = !matches!(probed, Probed::All);
        let mut tariff = Self {
            sites: (0..).zip(sites).map(priced).collect(),
            prices: Vec::new(),
            uprobe: UPROBE,
            trampoline: TRAMPOLINE,
            uprobes: (!probed.is_none()).then(uprobes),
            trampolines: has_trampolines.then(trampolines),
            has_trampolines,
            hits: 0,
            owed_ps: 0,
            told_ns: AtomicU64::new(0),
        };
        tariff.set();
        tariff
    }

    fn set(&mut self) {
        let of_site = |&(cost, ops): &(Option<ProbeCost>, u16)| {
            let (hit, op) = match cost {
                None => (self.trampoline.recorded_ps, TRAMPOLINE_OP),
                Some(ProbeCost::Emulated) => (self.uprobe.emulated_ns * NS, UPROBE_OP),
                Some(ProbeCost::SingleStepped) => (self.uprobe.stepped_ns * NS, UPROBE_OP),
            };
            hit + op * u64::from(ops)
        };
        self.prices = self.sites.iter().map(of_site).collect();
    }

    /// Goes over to what was measured, once there is something.
    pub fn update(&mut self) {
        let uprobe = self.uprobes.as_ref().and_then(|measured| measured.get().copied());
        let trampoline = self.trampolines.as_ref().and_then(|measured| measured.get().copied());
        if let Some(price) = uprobe {
            (self.uprobe, self.uprobes) = (price, None);
        }
        if let Some(price) = trampoline {
            (self.trampoline, self.trampolines) = (price, None);
        }
        if uprobe.is_some() || trampoline.is_some() {
            self.set();
        }
    }

    /// One more hit of a site; gives what it cost, picoseconds of CPU.
    pub fn hit(&mut self, site: u32) -> u64 {
        let price = self.prices.get(site as usize).copied().unwrap_or_default();
        self.hits += 1;
        self.owed_ps = self.owed_ps.saturating_add(price);
        price
    }

    /// What all hits so far cost the targets, nanoseconds of CPU, also those that did not come. Those that a condition
    /// rejected cost as much as those that came, those that were lost as much by uprobes; of two backends only
    /// trampolines lose much. It never becomes less, also where what was lost turns out to be cheaper than thought.
    pub fn owed_ns(&self, counters: &Counters) -> u64 {
        let mean = self.owed_ps.checked_div(self.hits).unwrap_or_default();
        let (lost, rejected) = match self.has_trampolines {
            true => (self.trampoline.lost_ps, self.trampoline.recorded_ps),
            false => (mean, mean),
        };
        let unseen = lost.saturating_mul(counters.lost);
        let unseen = unseen.saturating_add(rejected.saturating_mul(counters.rejected));
        let owed = self.owed_ps.saturating_add(unseen) / NS;
        self.told_ns.fetch_max(owed, Ordering::Relaxed).max(owed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe::{Plan, Program, Site};
    use wire::{GSource, SiteKind};

    /// Two sites: one that the kernel emulates, one that it steps.
    fn planned() -> Planned {
        let site = Site {
            function: 0,
            kind: SiteKind::Entry,
            address: Default::default(),
            file_offset: Default::default(),
            sp_delta: 0,
            g_source: GSource::R14,
            program: Program::default(),
            guard: None,
            condition: 0,
        };
        let plan = Plan { sites: vec![site; 2], ..Plan::default() };
        let costs = vec![ProbeCost::Emulated, ProbeCost::SingleStepped];
        Planned { plan, costs, ..Planned::default() }
    }

    #[test]
    fn what_is_owed_never_becomes_less() {
        let mut tariff = Tariff::new(&planned(), &Probed::All);
        let lost = |lost| Counters { lost, ..Counters::default() };
        tariff.hit(1);
        assert_eq!(tariff.owed_ns(&lost(100)), 101 * 14_000);
        (0..9).for_each(|_| _ = tariff.hit(0));
        // Less by the mean of now.
        assert_eq!(tariff.owed_ns(&lost(100)), 101 * 14_000);
        assert_eq!(tariff.owed_ns(&lost(10_000)), 14_000 + 9_000 + 10_000 * 2_300);
    }

    #[test]
    fn what_trampolines_lose_costs_less_than_what_they_record() {
        let mut tariff = Tariff::new(&planned(), &Probed::none());
        tariff.hit(0);
        let counters = Counters { lost: 10, rejected: 2, ..Counters::default() };
        assert_eq!(tariff.owed_ns(&counters), 13 + 30 + 26);
    }
}
