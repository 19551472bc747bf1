//! Histograms in the few buckets that the Prometheus Go client makes of the runtime's many.

use inspect::metrics::{SizeClass, TimeHistogram};

/// Times longer than this are one bucket, seconds.
const LONGEST: f64 = 1.0;

/// Counts by upper bounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Inclusive upper bound, and the count of all values up to it; without that of infinity.
    pub buckets: Vec<(f64, u64)>,
    /// All values together; of times a lower estimate, for the runtime keeps no sum.
    pub sum: f64,
    /// How many values there were.
    pub count: u64,
}

/// Fine buckets: the inclusive lower bound of each and its count, and what lies below the first.
struct Fine {
    below: u64,
    buckets: Vec<(f64, u64)>,
}

impl Histogram {
    /// Durations in seconds, in powers of ten.
    pub fn of_times(times: &TimeHistogram) -> Self {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let mut buckets: Vec<(f64, u64)> =
            times.buckets().map(|bucket| (seconds(bucket.from_ns), bucket.count)).collect();
        let end = times.buckets().last().map_or(0, |bucket| bucket.to_ns);
        if end != u64::MAX {
            buckets.push((seconds(end), times.overflow));
        }
        let sum = buckets.iter().map(|(from, count)| from * *count as f64).sum();
        Fine { below: times.underflow, buckets }.coarse(10.0, Some(LONGEST), sum)
    }

    /// Sizes of objects in bytes, in powers of two: those allocated, or those freed.
    pub fn of_sizes(classes: &[SizeClass], of: fn(&SizeClass) -> (u64, u64)) -> Self {
        let mut from = 1.0;
        let mut buckets = Vec::with_capacity(classes.len());
        let mut sum = 0.0;
        for class in classes {
            let (count, bytes) = of(class);
            sum += bytes as f64;
            buckets.push((from, count));
            // The next class begins behind the largest object of this one.
            from = class.size as f64 + 1.0;
        }
        Fine { below: 0, buckets }.coarse(2.0, None, sum)
    }
}

impl Fine {
    /// Joins buckets so that each begins at `base` times where the one before began, or behind
    /// (`reBucketExp` of client_golang); those that begin past `longest` become part of the last.
    fn coarse(&self, base: f64, longest: Option<f64>, sum: f64) -> Histogram {
        let mut bounds: Vec<f64> = Vec::new();
        let mut last = None;
        for &(from, _) in &self.buckets {
            match last {
                Some(last) if from < last * base => {}
                _ => {
                    bounds.push(from);
                    last = Some(from);
                }
            }
        }
        bounds.retain(|&bound| longest.is_none_or(|longest| bound <= longest));
        let mut buckets = Vec::with_capacity(bounds.len());
        let mut count = self.below;
        let mut fine = self.buckets.iter().peekable();
        // The first bound is where the first bucket begins.
        for bound in bounds.into_iter().skip(1) {
            while let Some((_, more)) = fine.next_if(|(from, _)| *from < bound) {
                count = count.saturating_add(*more);
            }
            // What is less than the bound is at most the number before it.
            buckets.push((bound.next_down(), count));
        }
        let count = fine.fold(count, |sum, (_, more)| sum.saturating_add(*more));
        Histogram { buckets, sum, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::Number;

    fn bounds(histogram: &Histogram) -> Vec<String> {
        histogram.buckets.iter().map(|(bound, _)| Number::Real(*bound).to_string()).collect()
    }

    /// The bounds of Go 1.20 and later, of which client_golang 1.25 serves these.
    #[test]
    fn times_come_in_the_clients_buckets() {
        // As in runtime/histogram.go: groups of four buckets, from 64 ns on.
        let from = |index: u64| match index {
            0..4 => index * 64,
            _ => (4 + index % 4) << (index / 4 + 5),
        };
        let buckets = (0..160).map(|index| (from(index) as f64 / 1e9, 1)).collect();
        let histogram = Fine { below: 2, buckets }.coarse(10.0, Some(LONGEST), 0.0);
        let wanted = [
            "6.399999999999999e-08",
            "6.399999999999999e-07",
            "7.167999999999999e-06",
            "8.191999999999999e-05",
            "0.0009175039999999999",
            "0.010485759999999998",
            "0.11744051199999998",
        ];
        // Zero itself is a bound, and what is below it has no bucket.
        assert_eq!(bounds(&histogram)[..1], ["6.399999999999999e-08"]);
        assert_eq!(bounds(&histogram), wanted);
        assert_eq!(histogram.buckets[0].1, 3);
        assert_eq!(histogram.count, 162);
    }

    #[test]
    fn sizes_come_in_the_clients_buckets() {
        let sizes = [8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 0];
        let classes: Vec<SizeClass> = sizes
            .into_iter()
            .map(|size| SizeClass { size, mallocs: 1, allocated: size, ..SizeClass::default() })
            .collect();
        let histogram = Histogram::of_sizes(&classes, |class| (class.mallocs, class.allocated));
        let wanted =
            ["8.999999999999998", "24.999999999999996", "64.99999999999999", "144.99999999999997"];
        assert_eq!(bounds(&histogram), wanted);
        let counts: Vec<u64> = histogram.buckets.iter().map(|bucket| bucket.1).collect();
        assert_eq!(counts, [1, 3, 6, 11]);
        assert_eq!((histogram.count, histogram.sum), (13, 912.0));
        assert_eq!(Histogram::of_sizes(&[], |_| (1, 1)), Histogram::default());
    }
}
