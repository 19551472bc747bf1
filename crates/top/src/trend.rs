//! The recent past of a figure.

use std::collections::VecDeque;

/// Values kept: more than a wide terminal has columns for.
const MAX: usize = 240;

/// Eighths of a cell.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Values in the order of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trend(VecDeque<u64>);

impl Trend {
    pub(crate) fn push(&mut self, value: u64) {
        if self.0.len() == MAX {
            self.0.pop_front();
        }
        self.0.push_back(value);
    }

    /// The last `width` values as bars of one line, the highest of them full; blank before the
    /// first one.
    pub(crate) fn line(&self, width: usize) -> String {
        let shown: Vec<u64> = self.0.iter().rev().take(width).rev().copied().collect();
        let top = shown.iter().copied().max().unwrap_or_default();
        let bar = |value: &u64| {
            // Zero and what is next to nothing beside the highest are the lowest bar.
            let eighth = (*value as f64 / top.max(1) as f64 * 7.0).round() as usize;
            BARS[eighth.min(7)]
        };
        let mut line = " ".repeat(width - shown.len());
        line.extend(shown.iter().map(bar));
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_is_full_and_the_past_is_bounded() {
        let mut trend = Trend::default();
        assert_eq!(trend.line(3), "   ");
        for value in [0, 50, 100] {
            trend.push(value);
        }
        assert_eq!(trend.line(5), "  ▁▅█");
        assert_eq!(trend.line(2), "▅█");
        for _ in 0..1000 {
            trend.push(7);
        }
        assert_eq!(trend.0.len(), MAX);
        assert_eq!(trend.line(2), "██");
    }
}
