//! The one place that reads clocks.

use rustix::time::{ClockId, clock_gettime};

fn now_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// CLOCK_MONOTONIC, the clock of the uprobe backend's records, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    now_ns(ClockId::Monotonic)
}

/// What to add to a CLOCK_MONOTONIC time to get Unix time, nanoseconds.
///
/// The two clocks are read as a triple and the tightest of a few tries is kept, so that
/// being descheduled in between does not shift every time shown.
pub fn unix_offset_ns() -> i64 {
    (0..5)
        .map(|_| {
            let before = monotonic_ns();
            let unix = now_ns(ClockId::Realtime);
            let after = monotonic_ns();
            let middle = before + (after - before) / 2;
            (after - before, unix.wrapping_sub(middle) as i64)
        })
        .min()
        .map_or(0, |(_, offset)| offset)
}

/// Local time minus UTC now, seconds.
pub fn utc_offset_s() -> i32 {
    jiff::Zoned::now().offset().seconds()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_turns_monotonic_into_unix_time() {
        let shown = monotonic_ns().wrapping_add_signed(unix_offset_ns());
        let unix =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos()
                as u64;
        assert!(unix.abs_diff(shown) < 50_000_000, "{unix} {shown}");
    }
}
