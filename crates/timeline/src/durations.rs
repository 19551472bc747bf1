//! How often which duration occurred, to 1%.
//!
//! Steps of equal width between powers of two. One line of the cache holds the durations
//! of a function that differ by an eighth, and counting takes a shift and an addition: at some
//! million calls a second, the histogram of a crate was a fifth of all that gospect did.

/// Steps between one power of two and the next, as a power of two: the largest duration of a step
/// is within 0.8% of all that falls into it.
const STEPS: u32 = 7;

/// Counts of durations, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Durations {
    counts: Vec<u32>,
}

impl Durations {
    /// Counts one.
    #[inline]
    pub fn add(&mut self, ns: u64) {
        let index = index(ns);
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(index) {
            *count = count.saturating_add(1);
        }
    }

    /// The duration that the share `quantile` of them does not exceed; 0 without any.
    pub fn quantile(&self, quantile: f64) -> u64 {
        let all: u64 = self.counts.iter().map(|&count| u64::from(count)).sum();
        let rank = (quantile * all as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, &count) in self.counts.iter().enumerate() {
            seen += u64::from(count);
            if seen >= rank {
                return largest(index);
            }
        }
        0
    }
}

/// The step that a duration falls into.
fn index(ns: u64) -> usize {
    let octave = (ns >> STEPS).checked_ilog2().map_or(0, |log| log + 1);
    let step = if octave == 0 { ns } else { (ns >> (octave - 1)) - (1 << STEPS) };
    ((octave as usize) << STEPS) + step as usize
}

/// The largest duration of a step.
fn largest(index: usize) -> u64 {
    let (octave, step) = ((index >> STEPS) as u32, (index & ((1 << STEPS) - 1)) as u64);
    match octave {
        0 => step,
        _ => (((1 << STEPS) + step) << (octave - 1)) + ((1 << (octave - 1)) - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn steps_follow_one_another() {
        let borders = [0, 1, 127, 128, 129, 255, 256, 257, 258, 511, 512, 515, 516];
        let indices = borders.map(index);
        assert_eq!(indices, [0, 1, 127, 128, 129, 255, 256, 256, 257, 383, 384, 384, 385]);
        assert_eq!(largest(index(256)), 257);
        assert_eq!((index(u64::MAX), largest(index(u64::MAX))), ((57 << 7) + 127, u64::MAX));
    }

    #[test]
    fn quantiles_are_those_of_what_was_counted() {
        let mut durations = Durations::default();
        assert_eq!(durations.quantile(0.5), 0);
        (1..=100).for_each(|ns| durations.add(ns));
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|share| durations.quantile(share)), [1, 50, 99, 100]);
    }

    proptest! {
        #[test]
        fn a_step_is_within_one_percent(log in 0u32..64, noise: u64) {
            let ns = (1 << log) | (noise & ((1 << log) - 1));
            let error = largest(index(ns)).checked_sub(ns);
            prop_assert!(error.is_some_and(|error| error <= ns / 100), "{ns}: {error:?}");
        }
    }
}
