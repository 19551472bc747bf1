//! Medians with intervals that assume nothing about the noise.

use serde::Serialize;

/// A median and the 95% interval of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    pub median: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// How many rounds it rests on.
    pub rounds: usize,
}

/// The median of `values` and its interval by order statistics: the narrowest symmetric pair of
/// ranks between which the median of the population lies with at least 95%, whatever the
/// distribution. Fewer than six values have no such pair: the ends are then the least and the
/// largest, with less confidence. `None` without values.
pub fn estimate(values: &[f64]) -> Option<Estimate> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rounds = sorted.len();
    let rank = rank(rounds);
    let middle = (sorted.get(rounds.checked_sub(1)? / 2)? + sorted.get(rounds / 2)?) / 2.0;
    let low = *sorted.get(rank)?;
    let high = *sorted.get(rounds.checked_sub(1 + rank)?)?;
    Some(Estimate { median: middle, low, high, rounds })
}

/// How many values may be left out at each end: the largest k for which a binomial of `n` even
/// chances is k or less with no more than 2.5%.
fn rank(n: usize) -> usize {
    let mut chance = 0.5_f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let mut below = 0.0;
    for k in 0..n {
        below += chance;
        if below > 0.025 {
            return k.saturating_sub(1);
        }
        chance *= (n - k) as f64 / (k + 1) as f64;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_tables() {
        // Conover, Practical Nonparametric Statistics, table A3: ranks counted from one there.
        let found: Vec<usize> = [3, 5, 6, 8, 9, 10, 12, 15, 20].map(rank).to_vec();
        assert_eq!(found, [0, 0, 0, 0, 1, 1, 2, 3, 5]);
    }

    #[test]
    fn the_interval_holds_the_median() {
        let values: Vec<f64> = (1..=10).rev().map(f64::from).collect();
        let expected = Estimate { median: 5.5, low: 2.0, high: 9.0, rounds: 10 };
        assert_eq!(estimate(&values), Some(expected));
        assert_eq!(estimate(&[]), None);
    }
}
