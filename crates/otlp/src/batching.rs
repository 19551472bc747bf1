//! How many spans are sent at a time, and when: the OTEL_BSP_* variables.

use crate::variables::Variables;
use std::time::Duration;

/// A queue or a batch longer than this is none that memory is there for.
const MOST: usize = 1 << 20;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batching {
    /// Spans waiting at the most (OTEL_BSP_MAX_QUEUE_SIZE).
    pub queue: usize,
    /// Spans sent at a time at the most (OTEL_BSP_MAX_EXPORT_BATCH_SIZE).
    pub batch: usize,
    /// How long the first span of a batch waits for others (OTEL_BSP_SCHEDULE_DELAY).
    pub delay: Duration,
    /// How long a batch is tried (OTEL_BSP_EXPORT_TIMEOUT).
    pub patience: Duration,
}

impl Default for Batching {
    /// 2,048 spans, 512 at a time, after a second (the specification has five), for 30 s.
    fn default() -> Self {
        let (delay, patience) = (Duration::from_secs(1), Duration::from_secs(30));
        Self { queue: 2048, batch: 512, delay, patience }
    }
}

impl Batching {
    /// As the variables say; what is no number they may have is told in `warnings`.
    pub(crate) fn new(variables: &Variables<'_>, warnings: &mut Vec<String>) -> Self {
        let usual = Self::default();
        let mut number = |name: &str, least: u64, most: u64| {
            let name = format!("OTEL_BSP_{name}");
            let text = variables.get(&name)?;
            let number = text.parse().ok().filter(|number| (least..=most).contains(number));
            if number.is_none() {
                let told =
                    format!("{name} is `{text}`, no number from {least} to {most}: it is left out");
                warnings.push(told);
            }
            number
        };
        let size = |number: Option<u64>, usual| number.map_or(usual, |number| number as usize);
        let queue = size(number("MAX_QUEUE_SIZE", 1, MOST as u64), usual.queue);
        let batch = size(number("MAX_EXPORT_BATCH_SIZE", 1, MOST as u64), usual.batch);
        let day = 86_400_000;
        let delay = number("SCHEDULE_DELAY", 0, day).map_or(usual.delay, Duration::from_millis);
        let patience =
            number("EXPORT_TIMEOUT", 0, day).map_or(usual.patience, Duration::from_millis);
        // A batch that the queue does not hold never fills.
        Self { queue, batch: batch.min(queue), delay, patience }
    }
}
