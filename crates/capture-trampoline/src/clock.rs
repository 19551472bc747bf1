//! From time stamp counters to nanoseconds of CLOCK_MONOTONIC.
//!
//! Pairs of both clocks, taken close together, give anchor and rate. The rate is refined as
//! time passes; a new anchor lies on the old line and only the slope changes, so that the
//! result never jumps and never runs backwards.

use std::arch::x86_64::_rdtsc;

/// Fraction bits of a rate.
const SHIFT: u32 = 32;

/// How long a line is used before it is refined, nanoseconds.
const REFINE_NS: u64 = 500_000_000;

/// Largest correction of the slope: 500 ppm, what adjtime may do to the clock itself.
const MAX_SLEW: i128 = (1 << SHIFT) / 2000;

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
        for _ in 0..5 {
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
    before: Line,
    now: Line,
    /// The largest time given out.
    last: u64,
    /// Counter value at which the rate is to be refined.
    due: u64,
}

impl Clock {
    /// Measures the rate for two milliseconds.
    pub(crate) fn new() -> Self {
        let first = Pair::take();
        let mut second = Pair::take();
        while second.ns.saturating_sub(first.ns) < 2_000_000 {
            std::hint::spin_loop();
            second = Pair::take();
        }
        let line = Line { anchor: first, rate: rate(first, second) };
        let mut clock = Self { first, before: line, now: line, last: 0, due: 0 };
        clock.due = clock.next();
        clock
    }

    /// Refines the rate when it is time to.
    pub(crate) fn refine(&mut self) {
        if tsc() >= self.due {
            self.refine_with(Pair::take());
            self.due = self.next();
        }
    }

    fn next(&self) -> u64 {
        self.now.anchor.tsc.saturating_add(self.ticks(REFINE_NS))
    }

    fn refine_with(&mut self, pair: Pair) {
        let ours = self.now.ns(pair.tsc);
        let error = i128::from(pair.ns) - i128::from(ours);
        let measured = rate(self.first, pair);
        // The error is made good over the time until the next refinement.
        let slew = error * i128::from(measured) / i128::from(REFINE_NS);
        let rate = i128::from(measured) + slew.clamp(-MAX_SLEW, MAX_SLEW);
        let rate = u64::try_from(rate).unwrap_or(measured);
        self.before = self.now;
        self.now = Line { anchor: Pair { tsc: pair.tsc, ns: ours }, rate };
        // A rate that changes (adjtime) is followed: not older than some refinements.
        if pair.ns.saturating_sub(self.first.ns) > 20 * REFINE_NS {
            self.first = pair;
        }
    }

    /// The time of a counter value; never before one given out earlier.
    pub(crate) fn ns(&mut self, tsc: u64) -> u64 {
        let line = if tsc < self.now.anchor.tsc { &self.before } else { &self.now };
        self.last = self.last.max(line.ns(tsc));
        self.last
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
            assert!(error < 100_000, "{error} ns");
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    }

    #[test]
    fn refinement_neither_jumps_nor_runs_back() {
        // A counter of 2 GHz whose clock is found to be 100 ppm fast.
        let first = Pair { tsc: 1_000_000, ns: 5_000_000 };
        let line = Line { anchor: first, rate: (1 << SHIFT) / 2 };
        let mut clock = Clock { first, before: line, now: line, last: 0, due: 0 };
        let mut last = 0;
        for second in 1..20u64 {
            let tsc = first.tsc + second * 1_000_000_000;
            let ns = first.ns + second * 500_050_000;
            for step in (0..1000).rev() {
                let at = clock.ns(tsc - step);
                assert!(at >= last);
                last = at;
            }
            clock.refine_with(Pair { tsc, ns });
            let after = clock.ns(tsc);
            assert!(after >= last && after - last < 1000, "{after} {last}");
            if second > 3 {
                assert!(clock.now.ns(tsc).abs_diff(ns) < 1000, "{} {ns}", clock.now.ns(tsc));
            }
        }
    }
}
