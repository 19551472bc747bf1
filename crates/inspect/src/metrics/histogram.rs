//! The runtime's histograms of durations (`runtime/histogram.go`, `timeHistogram`).

/// How durations are put into buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    /// Buckets there are.
    buckets: usize,
    /// Each power of two has two to the power of this many buckets of equal width.
    sub_bits: u32,
    /// The width of the narrowest buckets is two to the power of this, in nanoseconds.
    low_bits: u32,
    /// Whether what is too long has a count of its own behind that of what is negative; else
    /// the last bucket has it.
    overflow: bool,
}

/// Go 1.19 and since Go 1.20; they differ in their number of buckets.
const SHAPES: [Shape; 2] = [
    Shape { buckets: 720, sub_bits: 4, low_bits: 0, overflow: false },
    Shape { buckets: 160, sub_bits: 2, low_bits: 6, overflow: true },
];

/// Counts of durations. Bounds are those that `runtime/metrics` states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeHistogram {
    shape: Shape,
    counts: Vec<u64>,
    /// Negative durations: the clock went backwards.
    pub underflow: u64,
    /// Durations past the last bucket; 0 in Go 1.19, which counts them in the last bucket.
    pub overflow: u64,
}

/// One bucket: durations of `from_ns` and more, less than `to_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Lower bound in nanoseconds, inclusive.
    pub from_ns: u64,
    /// Upper bound in nanoseconds, exclusive; `u64::MAX` is none.
    pub to_ns: u64,
    /// Durations counted.
    pub count: u64,
}

impl TimeHistogram {
    /// Bytes of a `timeHistogram` with that many buckets; `None` when no known version has so
    /// many.
    pub fn size(buckets: usize) -> Option<usize> {
        let shape = SHAPES.iter().find(|shape| shape.buckets == buckets)?;
        Some((buckets + 1 + usize::from(shape.overflow)) * 8)
    }

    /// From the struct's words: the buckets, then what is negative, then what is too long.
    pub fn of_words(buckets: usize, words: &[u64]) -> Option<Self> {
        let shape = *SHAPES.iter().find(|shape| shape.buckets == buckets)?;
        let counts = words.get(..buckets)?.to_vec();
        let underflow = *words.get(buckets)?;
        let overflow = if shape.overflow { *words.get(buckets + 1)? } else { 0 };
        Some(Self { shape, counts, underflow, overflow })
    }

    /// All buckets, shortest durations first; without [`Self::underflow`] and
    /// [`Self::overflow`].
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        let bound = |index| self.shape.lower_bound(index);
        self.counts.iter().enumerate().map(move |(index, &count)| Bucket {
            from_ns: bound(index),
            to_ns: bound(index + 1),
            count,
        })
    }

    /// Durations counted.
    pub fn total(&self) -> u64 {
        let counts = self.counts.iter().chain([&self.underflow, &self.overflow]);
        counts.fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The bucket in which the `share`th (0 to 1) of all durations lies; `None` when there are
    /// none. Negative ones are in the first bucket, too long ones in one that begins where
    /// the last ends.
    pub fn quantile(&self, share: f64) -> Option<Bucket> {
        let total = self.total();
        if total == 0 {
            return None;
        }
        // As a rank from 1; the share of an inexact product may be one off at the ends.
        let rank = ((total as f64 * share).ceil() as u64).clamp(1, total);
        let mut seen = self.underflow;
        for bucket in self.buckets() {
            seen = seen.saturating_add(bucket.count);
            if seen >= rank {
                return Some(bucket);
            }
        }
        let from_ns = self.shape.lower_bound(self.shape.buckets);
        Some(Bucket { from_ns, to_ns: u64::MAX, count: self.overflow })
    }

    /// What was counted since `earlier`; `None` when that is of another shape or a count went
    /// backwards, as in another process.
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        if self.shape != earlier.shape {
            return None;
        }
        let counts: Option<Vec<u64>> = self
            .counts
            .iter()
            .zip(&earlier.counts)
            .map(|(now, then)| now.checked_sub(*then))
            .collect();
        Some(Self {
            shape: self.shape,
            counts: counts?,
            underflow: self.underflow.checked_sub(earlier.underflow)?,
            overflow: self.overflow.checked_sub(earlier.overflow)?,
        })
    }
}

impl Shape {
    /// The shortest duration of a bucket in nanoseconds (`timeHistogramMetricsBuckets`).
    fn lower_bound(&self, index: usize) -> u64 {
        if index >= self.buckets && !self.overflow {
            return u64::MAX;
        }
        let group = (index >> self.sub_bits) as u32;
        let sub = (index & ((1 << self.sub_bits) - 1)) as u64;
        match group {
            0 => sub << self.low_bits,
            _ => {
                let width = self.low_bits + group - 1;
                1 << (self.sub_bits + width) | sub << width
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(buckets: usize, counted: &[(usize, u64)]) -> TimeHistogram {
        let mut words = vec![0; TimeHistogram::size(buckets).unwrap() / 8];
        for (index, count) in counted {
            words[*index] = *count;
        }
        TimeHistogram::of_words(buckets, &words).unwrap()
    }

    fn bounds(histogram: &TimeHistogram, indices: &[usize]) -> Vec<u64> {
        let all: Vec<Bucket> = histogram.buckets().collect();
        indices.iter().map(|&index| all[index].from_ns).collect()
    }

    /// The values are those that `runtime/metrics` prints for `/sched/latencies:seconds`.
    #[test]
    fn bounds_are_those_of_the_runtime() {
        let new = of(160, &[]);
        assert_eq!(
            bounds(&new, &[0, 1, 4, 5, 8, 159]),
            [0, 64, 256, 320, 512, 123_145_302_310_912]
        );
        assert_eq!(new.buckets().last().unwrap().to_ns, 1 << 47);
        let old = of(720, &[]);
        assert_eq!(bounds(&old, &[0, 1, 15, 16, 17, 32, 33]), [0, 1, 15, 16, 17, 32, 34]);
        assert_eq!(bounds(&old, &[719]), [31 << 43]);
        assert_eq!(old.buckets().last().unwrap().to_ns, u64::MAX);
        assert_eq!(TimeHistogram::size(161), None);
    }

    #[test]
    fn quantiles_are_buckets() {
        let some = of(160, &[(4, 3), (8, 1), (161, 1)]);
        assert_eq!(some.total(), 5);
        assert_eq!(some.quantile(0.0).unwrap().from_ns, 256);
        assert_eq!(some.quantile(0.6).unwrap(), Bucket { from_ns: 256, to_ns: 320, count: 3 });
        assert_eq!(some.quantile(0.8).unwrap().from_ns, 512);
        assert_eq!(
            some.quantile(1.0).unwrap(),
            Bucket { from_ns: 1 << 47, to_ns: u64::MAX, count: 1 }
        );
        assert_eq!(of(160, &[]).quantile(0.5), None);
    }

    #[test]
    fn differences_are_of_the_same_process() {
        let (early, late) = (of(160, &[(4, 3)]), of(160, &[(4, 5), (5, 1)]));
        assert_eq!(late.since(&early), Some(of(160, &[(4, 2), (5, 1)])));
        assert_eq!(early.since(&late), None);
        assert_eq!(late.since(&of(720, &[])), None);
    }
}
