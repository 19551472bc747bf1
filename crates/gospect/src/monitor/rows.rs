//! From what was read to what is written.

use super::watched::{Read, Watched};
use metrics::{Reading, Sample};
use output::ProcessMetrics;

/// The metrics of one process.
pub fn rows(watched: &Watched, read: &Read) -> ProcessMetrics {
    let reading = Reading {
        go_version: watched.go_version(),
        runtime: read.runtime.as_ref(),
        states: read.states.as_ref(),
        usage: Some(&read.usage),
    };
    let mut samples = metrics::samples(&reading);
    let mut restricted = watched.restricted().map(str::to_owned).or_else(|| read.why.clone());
    if let Some(why) = all_unknown(&samples, &reading) {
        // One reason for all of it, said once.
        restricted = Some(why);
        samples = metrics::samples(&Reading { runtime: None, states: None, ..reading });
    }
    ProcessMetrics {
        pid: watched.process.pid(),
        exe: watched.exe.clone(),
        service: watched.service.clone(),
        go_version: watched.go_version().map(str::to_owned),
        restricted,
        samples,
    }
}

/// Why the runtime tells nothing at all, when it does not.
fn all_unknown(samples: &[Sample], reading: &Reading<'_>) -> Option<String> {
    reading.runtime?;
    let without = metrics::samples(&Reading { runtime: None, states: None, ..*reading });
    let known = samples.iter().filter(|sample| sample.value.is_ok()).count();
    let reason = samples.iter().find_map(|sample| sample.value.as_ref().err())?;
    (known <= without.len()).then(|| reason.to_string())
}
