//! From what was read to what the view shows.

use crate::monitor::{Read, Watched};
use inspect::metrics::{GoroutineStates, RuntimeMetrics, TimeHistogram};
use top::{Go, Observation, States};

/// What the view wants to know of a process.
pub fn observation(watched: &Watched, read: &Read) -> Observation {
    let usage = &read.usage;
    Observation {
        pid: watched.process.pid(),
        start: watched.process.start_ticks(),
        exe: watched.exe.clone(),
        service: watched.service.clone(),
        go_version: watched.go_version().map(str::to_owned),
        restricted: watched.restricted().map(str::to_owned).or_else(|| read.why.clone()),
        cpu_seconds: usage.cpu_seconds,
        resident: usage.resident_bytes,
        threads: usage.threads,
        open_fds: usage.open_fds,
        go: read.runtime.as_ref().map(|runtime| go(runtime, read)),
    }
}

fn go(of: &RuntimeMetrics, read: &Read) -> Go {
    let (memory, collector, scheduler) = (&of.memory, &of.collector, &of.scheduler);
    let known = |value: &Result<u64, _>| value.as_ref().ok().copied();
    // What the runtime says instead of none.
    let set = |value: &Result<u64, _>| known(value).filter(|value| *value < i64::MAX as u64);
    Go {
        heap_live: known(&collector.heap_live),
        heap_goal: set(&collector.heap_goal),
        sys: known(&memory.sys),
        memory_limit: set(&collector.memory_limit),
        gogc_percent: collector
            .gogc_percent
            .as_ref()
            .ok()
            .and_then(|gogc| u64::try_from(*gogc).ok()),
        allocated: known(&memory.total_alloc),
        cycles: known(&collector.cycles),
        phase: collector.phase.as_ref().ok().map(|phase| phase.name()),
        gc_cpu: collector.cpu_fraction.as_ref().ok().copied(),
        pauses: collector
            .pauses
            .as_ref()
            .map_or_else(|_| Vec::new(), |pauses| pauses.0.iter().map(|pause| pause.ns).collect()),
        goroutines: known(&scheduler.goroutines),
        states: read.states.as_ref().and_then(|states| states.as_ref().ok()).map(states),
        run_queue: scheduler.run_queue().ok(),
        latency: scheduler.latencies.as_ref().ok().and_then(latency),
        processors: known(&scheduler.gomaxprocs),
        processors_running: scheduler.processors.as_ref().ok().map(|of| of.running),
        threads_idle: known(&scheduler.threads_idle),
    }
}

fn states(of: &GoroutineStates) -> States {
    States {
        runnable: of.runnable,
        running: of.running,
        syscall: of.syscall,
        waiting: of.waiting,
        other: of.other,
        reasons: of
            .waiting_by_reason
            .iter()
            .map(|(reason, count)| {
                let reason = if reason.is_empty() { "unknown" } else { reason };
                (reason.to_owned(), *count)
            })
            .collect(),
    }
}

/// Upper bounds of the median and of the 99th percentile.
fn latency(of: &TimeHistogram) -> Option<(u64, u64)> {
    Some((of.quantile(0.5)?.to_ns, of.quantile(0.99)?.to_ns))
}
