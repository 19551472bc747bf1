//! What the agent costs itself.

use agent::status::OwnStatus;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Over how long the share of CPU is taken at the least.
const SPAN: Duration = Duration::from_secs(5);
/// Below that the clocks' own steps show.
const LEAST: Duration = Duration::from_secs(1);

/// Looks at the agent itself, from time to time: a share is one of the time between two looks.
#[derive(Default)]
pub struct Own {
    /// Between one and two spans old.
    older: Option<(Instant, Duration)>,
    /// At most one.
    newer: Option<(Instant, Duration)>,
}

impl Own {
    /// Looks.
    pub fn look(&mut self) {
        self.look_at(Instant::now(), cpu());
    }

    fn look_at(&mut self, now: Instant, used: Duration) {
        let is_full =
            |(then, _): &(Instant, Duration)| now.saturating_duration_since(*then) >= SPAN;
        if self.newer.as_ref().is_none_or(is_full) {
            self.older = self.newer.or(self.older);
            self.newer = Some((now, used));
        }
    }

    /// All of it, now.
    pub fn status(&self) -> OwnStatus {
        let used = cpu();
        OwnStatus {
            cpu_seconds: used.as_secs_f64(),
            cpu_percent: self.percent(Instant::now(), used),
            memory_bytes: memory(),
        }
    }

    fn percent(&self, now: Instant, used: Duration) -> Option<f64> {
        let (then, before) = self.older.or(self.newer)?;
        let passed = now.saturating_duration_since(then);
        let share = used.saturating_sub(before).as_secs_f64() * 100.0 / passed.as_secs_f64();
        (passed >= LEAST).then_some(share)
    }
}

/// CPU time of the agent so far.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Anonymous memory, bytes.
fn memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib: u64 = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok())?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_one_of_the_last_seconds_and_not_known_in_the_first_one() {
        let (begin, ms) = (Instant::now(), Duration::from_millis);
        let mut own = Own::default();
        assert_eq!(own.percent(begin, ms(0)), None);
        own.look_at(begin, ms(100));
        assert_eq!(own.percent(begin + ms(999), ms(200)), None);
        assert_eq!(own.percent(begin + ms(1000), ms(200)), Some(10.0));
        // A look each half of a second; all of a CPU in the first minute, nothing after that.
        for look in 1..=140 {
            own.look_at(begin + ms(500 * look), ms(500 * look.min(120)));
        }
        assert_eq!(own.percent(begin + ms(70_000), ms(60_000)), Some(0.0));
        assert_eq!(own.percent(begin + ms(70_000), ms(60_500)), Some(10.0));
    }
}
