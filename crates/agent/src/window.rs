//! How many and how long in the last minutes.

/// Buckets of durations: powers of two from a microsecond, each in eight parts.
const PARTS: u32 = 8;
const BUCKETS: usize = 30 * PARTS as usize;

/// Durations of a time that goes on, in two halves: the older one goes when the newer is full.
#[derive(Clone, Debug)]
pub struct Window {
    half_ns: u64,
    begun_ns: u64,
    now: Half,
    before: Option<(u64, Half)>,
}

#[derive(Clone, Debug)]
struct Half {
    counts: Box<[u32]>,
    count: u64,
    errors: u64,
    max_ns: u64,
}

impl Half {
    fn new() -> Self {
        Self { counts: vec![0; BUCKETS].into(), count: 0, errors: 0, max_ns: 0 }
    }
}

/// What a window comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Rates {
    /// How many in the window.
    pub count: u64,
    /// Of them failed.
    pub errors: u64,
    /// How many a second.
    pub per_second: f64,
    /// Half of them took at most so long, nanoseconds; to a tenth, as the others.
    pub p50_ns: u64,
    /// 95 of 100; of fewer than twenty, the longest.
    pub p95_ns: u64,
    /// 99 of 100; of fewer than a hundred, the longest.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Window {
    /// Of between `half_ns` and twice that, from `now_ns` on.
    pub fn new(half_ns: u64, now_ns: u64) -> Self {
        Self { half_ns: half_ns.max(1), begun_ns: now_ns, now: Half::new(), before: None }
    }

    /// Adds one at `now_ns` that took `ns`.
    pub fn add(&mut self, now_ns: u64, ns: u64, is_error: bool) {
        self.turn(now_ns);
        let half = &mut self.now;
        let bucket = bucket(ns);
        if let Some(count) = half.counts.get_mut(bucket) {
            *count = count.saturating_add(1);
        }
        half.count += 1;
        half.errors += u64::from(is_error);
        half.max_ns = half.max_ns.max(ns);
    }

    fn turn(&mut self, now_ns: u64) {
        let age = now_ns.saturating_sub(self.begun_ns);
        if age < self.half_ns {
            return;
        }
        let full = std::mem::replace(&mut self.now, Half::new());
        // After a long pause nothing of it is recent.
        self.before = (age < 2 * self.half_ns).then_some((self.begun_ns, full));
        self.begun_ns = now_ns;
    }

    /// What it comes to at `now_ns`. There was nothing from `since_ns` to its begin: the first one of a kind does
    /// not come at the begin of the time that its rate is of.
    pub fn rates(&mut self, now_ns: u64, since_ns: u64) -> Rates {
        self.turn(now_ns);
        let halves = || [Some(&self.now), self.before.as_ref().map(|(_, half)| half)];
        let sum = |of: fn(&Half) -> u64| halves().into_iter().flatten().map(of).sum::<u64>();
        let count = sum(|half| half.count);
        let begun = self.before.as_ref().map_or(self.begun_ns, |(begun, _)| *begun);
        let begun = begun.min(since_ns.max(now_ns.saturating_sub(self.half_ns)));
        let seconds = now_ns.saturating_sub(begun).max(1_000_000_000) as f64 / 1e9;
        let max_ns = halves().into_iter().flatten().map(|half| half.max_ns).max().unwrap_or(0);
        let quantile = |share: f64| {
            let wanted = (count as f64 * share).ceil() as u64;
            let mut below = 0;
            for at in 0..BUCKETS {
                let of = |half: &Half| u64::from(half.counts.get(at).copied().unwrap_or(0));
                below += halves().into_iter().flatten().map(of).sum::<u64>();
                if below >= wanted && below > 0 {
                    return upper_ns(at).min(max_ns);
                }
            }
            max_ns
        };
        Rates {
            count,
            errors: sum(|half| half.errors),
            per_second: count as f64 / seconds,
            p50_ns: quantile(0.5),
            p95_ns: quantile(0.95),
            p99_ns: quantile(0.99),
            max_ns,
        }
    }
}

fn bucket(ns: u64) -> usize {
    let us = (ns as f64 / 1e3).max(1.0);
    ((us.log2() * f64::from(PARTS)) as usize).min(BUCKETS - 1)
}

fn upper_ns(bucket: usize) -> u64 {
    (((bucket + 1) as f64 / f64::from(PARTS)).exp2() * 1e3) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn quantiles_are_right_to_a_tenth() {
        let mut window = Window::new(60 * SECOND, 0);
        for ms in 1..=1000 {
            window.add(SECOND, ms * 1_000_000, ms % 100 == 0);
        }
        let rates = window.rates(10 * SECOND, 0);
        assert_eq!((rates.count, rates.errors, rates.per_second), (1000, 10, 100.0));
        let near = |ns: u64, ms: f64| (ns as f64 / 1e6 / ms - 1.0).abs() < 0.1;
        assert!(near(rates.p50_ns, 500.0) && near(rates.p95_ns, 950.0), "{rates:?}");
        assert!(near(rates.p99_ns, 990.0) && rates.max_ns == 1_000_000_000, "{rates:?}");
    }

    #[test]
    fn what_is_old_goes() {
        let mut window = Window::new(60 * SECOND, 0);
        window.add(SECOND, 5_000_000, true);
        window.add(61 * SECOND, 1_000_000, false);
        assert_eq!(window.rates(62 * SECOND, 0).count, 2);
        assert_eq!(window.rates(122 * SECOND, 0).count, 1);
        let none = window.rates(1000 * SECOND, 0);
        assert_eq!((none.count, none.max_ns, none.p99_ns), (0, 0, 0));
    }

    /// One request a moment ago is no request a second when nothing came before it.
    #[test]
    fn a_rate_is_of_the_time_that_was_watched() {
        let rate = |since: u64| {
            let mut window = Window::new(60 * SECOND, 100 * SECOND);
            window.add(100 * SECOND, 1, false);
            window.rates(101 * SECOND, since).per_second
        };
        assert_eq!(rate(0), 1.0 / 60.0);
        assert_eq!(rate(91 * SECOND), 0.1);
        assert_eq!(rate(101 * SECOND), 1.0);
    }

    #[test]
    fn of_few_the_highest_percentiles_are_the_longest() {
        let mut window = Window::new(60 * SECOND, 0);
        for ms in [1, 2, 300] {
            window.add(0, ms * 1_000_000, false);
        }
        let rates = window.rates(SECOND, 0);
        assert_eq!(
            (rates.p95_ns, rates.p99_ns, rates.max_ns),
            (300_000_000, 300_000_000, 300_000_000)
        );
        assert!((2_000_000..2_200_000).contains(&rates.p50_ns), "{rates:?}");
    }
}
