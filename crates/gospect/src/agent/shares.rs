//! Who pays for hits that no record tells of: those that were lost, and those of breakpoints that nobody looks at.

use std::time::{Duration, Instant};

/// After which time it is no longer known who was hit most.
const RECENT: Duration = Duration::from_secs(2);
/// As many times as much as now, records told of lately: then that says more than the few that came since.
const MUCH: u64 = 10;

/// What each function's records were worth when there were many of them the last time.
#[derive(Debug, Default)]
pub struct Shares {
    last: Vec<u64>,
    at: Option<Instant>,
}

impl Shares {
    /// What each function pays, nanoseconds: what its records are worth that came since the last time (`new`,
    /// picoseconds), and its share of `unseen_ns`. That goes by these records, or by those of a moment ago where there
    /// were far more: whose records came last may have been given up since. Where there are none, `otherwise` says
    /// who shares it.
    pub fn split(
        &mut self,
        new: &[u64],
        unseen_ns: u64,
        now: Instant,
        otherwise: impl FnOnce() -> Vec<u64>,
    ) -> Vec<u64> {
        let sum = |shares: &[u64]| shares.iter().fold(0_u64, |sum, &one| sum.saturating_add(one));
        let is_recent = self.at.is_some_and(|at| now.duration_since(at) < RECENT);
        let before = if is_recent { sum(&self.last) } else { 0 };
        let came = sum(new);
        let mut other = Vec::new();
        if came > 0 && came.saturating_mul(MUCH) >= before {
            (self.last, self.at) = (new.to_vec(), Some(now));
        } else if before == 0 && unseen_ns > 0 {
            other = otherwise();
        }
        let shares = if other.is_empty() { &self.last } else { &other };
        let whole = sum(shares) as f64;
        let share = |at: usize| match shares.get(at) {
            Some(&one) if whole > 0.0 => (unseen_ns as f64 * (one as f64 / whole)) as u64,
            _ => 0,
        };
        new.iter().enumerate().map(|(at, ps)| (ps / 1_000).saturating_add(share(at))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nobody() -> Vec<u64> {
        panic!("it is known who")
    }

    #[test]
    fn what_is_lost_is_paid_by_those_whose_records_come() {
        let mut shares = Shares::default();
        let now = Instant::now();
        assert_eq!(shares.split(&[3_000, 9_000], 40, now, nobody), [13, 39]);
        // Nothing came at all: as a moment ago.
        assert_eq!(shares.split(&[0, 0], 40, now, nobody), [10, 30]);
        assert_eq!(shares.split(&[4_000, 4_000], 0, now, nobody), [4, 4]);
        assert_eq!(shares.split(&[0, 0], 40, now + RECENT, || vec![1, 0]), [40, 0]);
        assert_eq!(shares.split(&[0, 0], 0, now + RECENT, nobody), [0, 0]);
    }

    #[test]
    fn what_goes_on_does_not_pay_for_what_was_given_up() {
        let mut shares = Shares::default();
        let now = Instant::now();
        assert_eq!(shares.split(&[1_000_000, 10_000], 0, now, nobody), [1_000, 10]);
        // The dear one is given up: its hits are seen no more, and cost until it is out.
        assert_eq!(shares.split(&[0, 20_000], 10_100, now, nobody), [10_000, 120]);
        // Later nobody pays for it.
        let later = now + RECENT;
        assert_eq!(shares.split(&[0, 20_000], 5, later, nobody), [0, 25]);
    }
}
