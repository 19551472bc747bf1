//! The capture's clock on the wall.

/// Maps the capture's clock to Unix time and to local time of day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Unix time minus the capture's clock, nanoseconds.
    pub unix_offset_ns: i64,
    /// Local time minus UTC, seconds.
    pub utc_offset_s: i32,
}

const NS_PER_DAY: i128 = 86_400_000_000_000;

impl Clock {
    /// Unix time in nanoseconds of a time on the capture's clock; saturates.
    pub fn unix_ns(&self, ts_ns: u64) -> i64 {
        self.unix_offset_ns.saturating_add_unsigned(ts_ns)
    }

    /// Local time of day, `HH:MM:SS.micros`.
    pub fn time_of_day(&self, ts_ns: u64) -> String {
        let local = i128::from(self.unix_ns(ts_ns)) + i128::from(self.utc_offset_s) * 1_000_000_000;
        let micros = local.rem_euclid(NS_PER_DAY) / 1000;
        let seconds = micros / 1_000_000;
        format!(
            "{:02}:{:02}:{:02}.{:06}",
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60,
            micros % 1_000_000
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_wrap_at_midnight_in_both_directions() {
        let clock = Clock { unix_offset_ns: 86_399_000_000_000, utc_offset_s: 3600 };
        assert_eq!(clock.time_of_day(1_123_456), "00:59:59.001123");
        let west = Clock { unix_offset_ns: 0, utc_offset_s: -1 };
        assert_eq!(west.time_of_day(0), "23:59:59.000000");
    }
}
