//! What the agent costs itself.

use agent::status::OwnStatus;
use rustix::time::{ClockId, clock_gettime};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Over how long the share of CPU is taken.
const SPAN: Duration = Duration::from_secs(5);

/// CPU time of the agent so far.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Anonymous memory, bytes.
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib: Option<u64> = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    kib.unwrap_or(0) * 1024
}

/// All of it, now.
pub fn own() -> OwnStatus {
    static LAST: Mutex<Option<(Instant, Duration, f64)>> = Mutex::new(None);
    let (now, used) = (Instant::now(), cpu());
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let (then, before, percent) = *last.get_or_insert((now, used, 0.0));
    let passed = now.saturating_duration_since(then);
    let share = || used.saturating_sub(before).as_secs_f64() * 100.0 / passed.as_secs_f64();
    let cpu_percent = if passed > Duration::from_millis(100) { share() } else { percent };
    if passed > SPAN {
        *last = Some((now, used, cpu_percent));
    }
    OwnStatus { cpu_seconds: used.as_secs_f64(), cpu_percent, memory_bytes: memory() }
}
