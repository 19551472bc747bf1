//! From time stamp counters to nanoseconds of CLOCK_MONOTONIC.
//!
//! Pairs of both clocks, taken close together, are points of the conversion. One is taken before
//! records are handed over, which are all older: their times lie on the line from the last
//! time given out to this point, and are as exact as the points. That matters where another
//! backend's records, whose times are the kernel's, stand between these. The result never
//! runs backwards.

use std::arch::x86_64::_rdtsc;

/// Fraction bits of a rate.
const SHIFT: u32 = 32;

/// How long a rate is measured before it is believed, nanoseconds.
const MEASURE_NS: u64 = 2_000_000;

/// How far back a rate is measured: one that changes (adjtime) is followed.
const REACH_NS: u64 = 10_000_000_000;

/// How often a pair is taken, and when it is good enough, ticks: some 50 nanoseconds.
const TRIES: usize = 20;
const CLOSE: u64 = 150;

/// Clock sources whose kernels keep time by a TSC that all CPUs share.
const TRUSTED: [&str; 3] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page"];

/// The counter now.
pub(crate) fn tsc() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction; user space may use it unless a process asks
    // otherwise by PR_SET_TSC, which we do not.
    unsafe { _rdtsc() }
}

/// Why the counter tells no time here; `None` when it does.
pub fn why_unusable() -> Option<String> {
    why_untrusted(process::clock_source())
}

fn why_untrusted(source: Option<String>) -> Option<String> {
    match source {
        Some(source) if TRUSTED.contains(&source.as_str()) => None,
        Some(source) => Some(format!("clock source {source}: the kernel does not trust the TSC")),
        None => Some("no clock source in /sys".to_owned()),
    }
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    tsc: u64,
    ns: u64,
}

impl Pair {
    /// The pair of several that was taken in the shortest time.
    fn take() -> Self {
        let mut best: Option<(u64, Self)> = None;
        for at in 0..TRIES {
            if at >= 3 && best.is_some_and(|(shortest, _)| shortest < CLOSE) {
                break;
            }
            let before = tsc();
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            let took = tsc().wrapping_sub(before);
            let ns = (now.tv_sec as u64).wrapping_mul(1_000_000_000) + now.tv_nsec as u64;
            let pair = Self { tsc: before.wrapping_add(took / 2), ns };
            if best.is_none_or(|(shortest, _)| took < shortest) {
                best = Some((took, pair));
            }
        }
        best.map_or(Self { tsc: 0, ns: 0 }, |(_, pair)| pair)
    }
}

/// A straight piece of the conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    anchor: Pair,
    /// Nanoseconds for each tick, with [`SHIFT`] fraction bits.
    rate: u64,
}

impl Line {
    #[inline]
    fn ns(&self, tsc: u64) -> u64 {
        let span = |from: u64, to: u64| {
            let ns = (u128::from(to - from) * u128::from(self.rate)) >> SHIFT;
            u64::try_from(ns).unwrap_or(u64::MAX)
        };
        match self.anchor.tsc {
            anchor if tsc >= anchor => self.anchor.ns.saturating_add(span(anchor, tsc)),
            anchor => self.anchor.ns.saturating_sub(span(tsc, anchor)),
        }
    }
}

/// The conversion.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// Where the rate is measured from.
    first: Pair,
    /// Between the last time given out and the last pair.
    before: Line,
    /// From the last pair on.
    now: Line,
    /// The last counter value that was converted, and the largest time given out.
    given: Pair,
}

impl Clock {
    /// Measures the rate for two milliseconds.
    pub(crate) fn new() -> Self {
        let first = Pair::take();
        let mut second = Pair::take();
        while second.ns.saturating_sub(first.ns) < MEASURE_NS {
            std::hint::spin_loop();
            second = Pair::take();
        }
        Self::over(first, second)
    }

    fn over(first: Pair, second: Pair) -> Self {
        let line = Line { anchor: first, rate: rate(first, second) };
        Self { first, before: line, now: line, given: Pair { ns: 0, ..first } }
    }

    /// Takes another point; before records are converted that are older.
    pub(crate) fn refine(&mut self) {
        self.refine_with(Pair::take());
    }

    fn refine_with(&mut self, pair: Pair) {
        if pair.tsc <= self.now.anchor.tsc {
            return;
        }
        let from = if self.given.ns == 0 { self.now.anchor } else { self.given };
        self.before = if from.tsc < pair.tsc {
            Line { anchor: from, rate: rate(from, pair) }
        } else {
            self.now
        };
        let measured = pair.ns.saturating_sub(self.first.ns);
        let rate = if measured < MEASURE_NS { self.now.rate } else { rate(self.first, pair) };
        self.now = Line { anchor: pair, rate };
        if measured > REACH_NS {
            self.first = pair;
        }
    }

    /// The time of a counter value; never before one given out earlier.
    pub(crate) fn ns(&mut self, tsc: u64) -> u64 {
        let line = if tsc < self.now.anchor.tsc { &self.before } else { &self.now };
        let ns = self.given.ns.max(line.ns(tsc));
        self.given = Pair { tsc: self.given.tsc.max(tsc), ns };
        ns
    }

    /// How many ticks a time of `ns` nanoseconds has.
    pub(crate) fn ticks(&self, ns: u64) -> u64 {
        let ticks = (u128::from(ns) << SHIFT) / u128::from(self.now.rate.max(1));
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
}

/// Nanoseconds for each tick between two pairs.
fn rate(from: Pair, to: Pair) -> u64 {
    let ticks = u128::from(to.tsc.saturating_sub(from.tsc)).max(1);
    let rate = (u128::from(to.ns.saturating_sub(from.ns)) << SHIFT) / ticks;
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_does_not_trust_the_counter_is_believed() {
        for source in TRUSTED {
            assert_eq!(why_untrusted(Some(source.to_owned())), None);
        }
        let expected = "clock source hpet: the kernel does not trust the TSC";
        assert_eq!(why_untrusted(Some("hpet".to_owned())).as_deref(), Some(expected));
        assert_eq!(why_untrusted(None).as_deref(), Some("no clock source in /sys"));
    }

    #[test]
    fn the_clock_is_the_kernels() {
        assert_eq!(why_unusable(), None);
        let mut clock = Clock::new();
        for _ in 0..100 {
            let pair = Pair::take();
            let error = clock.ns(pair.tsc).abs_diff(pair.ns);
            assert!(error < 5_000, "{error} ns");
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    }

    #[test]
    fn times_lie_between_points_however_far_off_the_rate_was() {
        // A counter of 2 GHz, whose rate is thought to be 100 ppm less; looked at late, at last.
        let at = |us: u64| Pair { tsc: 1_000_000 + us * 2000, ns: 5_000_000 + us * 1000 };
        let mut clock = Clock::over(at(0), Pair { ns: at(3000).ns - 300, ..at(3000) });
        let mut last = 0;
        let mut begin = 0;
        for end in [4000, 4250, 4500, 8000, 700_000, 701_000, 30_000_000] {
            clock.refine_with(at(end));
            for step in 0..100 {
                let pair = at(begin + (end - begin) * step / 100);
                let ns = clock.ns(pair.tsc);
                assert!(ns >= last && ns.abs_diff(pair.ns) <= 1, "{ns} {last} {pair:?}");
                last = ns;
            }
            begin = end;
        }
        // Behind the last point the rate of all of them counts.
        assert!(clock.ns(at(31_000_000).tsc).abs_diff(at(31_000_000).ns) < 2000);
    }

    #[test]
    fn times_do_not_run_back() {
        let first = Pair { tsc: 1_000_000, ns: 5_000_000 };
        let mut clock = Clock::over(first, Pair { tsc: 5_000_000, ns: 7_000_000 });
        let ahead = clock.ns(9_000_000);
        assert_eq!(ahead, 9_000_000);
        // The clock is 100 ns behind what was given out already.
        clock.refine_with(Pair { tsc: 9_000_100, ns: 8_999_950 });
        assert_eq!(clock.ns(9_000_050), ahead);
        assert_eq!(clock.ns(8_000_000), ahead);
        assert!(clock.ns(9_010_000) > ahead);
    }
}
