//! What the Prometheus Go client does not have.

use crate::metric::Unit::{Bytes, Count, Ratio};
use crate::metric::{Metric, counter, gauge};
use crate::number::Number;
use crate::points::Points;
use crate::reading::Reading;
use crate::sample::Value;
use inspect::metrics::{GcPhase, Processors, RuntimeMetrics, Unknown};

/// What Prometheus's form of the conventions calls an attribute, and its name there.
const MEMORY_TYPE: &[(&str, &str)] = &[("go_memory_type", "go.memory.type")];

pub(super) static METRICS: &[Metric] = &[
    gauge(
        "go_memory_used_bytes",
        Bytes,
        "Memory that the Go runtime uses, by type: stacks, and all else.",
        |r, p| {
            p.computed(r, &[("go_memory_type", "stack")], stacks);
            p.computed(r, &[("go_memory_type", "other")], |m| {
                let used = m.memory.sys.clone()?.saturating_sub(m.memory.heap_released.clone()?);
                Ok(used.saturating_sub(m.memory.stack_inuse.clone()?).into())
            });
        },
    )
    .up_down("go.memory.used", "By")
    .labels(MEMORY_TYPE),
    gauge(
        "gospect_gc_cpu_ratio",
        Ratio,
        "Share of the CPU time available since the start that the collector used, as of its last cycle.",
        |r, p| p.computed(r, &[], |m| m.collector.cpu_fraction.clone().map(Number::Real)),
    ),
    gauge(
        "gospect_gc_heap_live_bytes",
        Bytes,
        "Bytes of the heap that the collector believes to be in use now.",
        |r, p| p.go(r, |m| &m.collector.heap_live),
    ),
    gauge(
        "gospect_gc_phase",
        Count,
        "What the collector does: 1 for its phase, 0 for the others.",
        phase,
    ),
    gauge(
        "gospect_goroutines",
        Count,
        "Goroutines by state, those of the runtime among them.",
        states,
    ),
    gauge(
        "gospect_goroutines_waiting",
        Count,
        "Goroutines that wait, by what they wait for; those of the runtime among them.",
        reasons,
    ),
    gauge(
        "gospect_sched_processors",
        Count,
        "Processors of the scheduler (P) by what they do.",
        processors,
    ),
    gauge(
        "gospect_sched_run_queue_goroutines",
        Count,
        "Goroutines in run queues: the global one, and those of processors together.",
        |r, p| {
            p.computed(r, &[("queue", "global")], |m| {
                m.scheduler.run_queue_global.clone().map(Number::Integer)
            });
            p.computed(r, &[("queue", "local")], |m| {
                let queues = m.scheduler.run_queue_local.as_ref().map_err(Unknown::clone)?;
                Ok(queues.iter().sum::<u64>().into())
            });
        },
    ),
    gauge("gospect_sched_system_goroutines", Count, "Goroutines of the runtime itself.", |r, p| {
        p.go(r, |m| &m.scheduler.goroutines_system)
    }),
    gauge(
        "gospect_sched_threads",
        Count,
        "Threads of the scheduler (M) by what they do; others are in system calls, in C, or stopped.",
        |r, p| {
            p.computed(r, &[("state", "idle")], |m| count(&m.scheduler.threads_idle));
            p.computed(r, &[("state", "idle_locked")], |m| count(&m.scheduler.threads_idle_locked));
            p.computed(r, &[("state", "running")], |m| count(&m.scheduler.threads_running));
            p.computed(r, &[("state", "spinning")], |m| count(&m.scheduler.threads_spinning));
        },
    ),
    counter(
        "gospect_sched_threads_created_total",
        Count,
        "Threads that the scheduler had since the start.",
        |r, p| p.go(r, |m| &m.scheduler.threads_created),
    ),
    gauge(
        "gospect_runtime_readable",
        Count,
        "Whether the Go runtime of the process can be read (1) or only what the kernel counts (0).",
        |r, p| p.number(&[], u64::from(r.runtime.is_some())),
    ),
];

fn count(of: &Result<u64, Unknown>) -> Result<Number, Unknown> {
    of.clone().map(Number::Integer)
}

fn stacks(of: &RuntimeMetrics) -> Result<Number, Unknown> {
    count(&of.memory.stack_inuse)
}

fn phase(reading: &Reading<'_>, points: &mut Points<'_>) {
    let Some(runtime) = reading.runtime else { return };
    match &runtime.collector.phase {
        Ok(now) => {
            for phase in [GcPhase::Off, GcPhase::Mark, GcPhase::MarkTermination] {
                points.number(&[("phase", phase.name())], u64::from(phase == *now));
            }
        }
        Err(why) => points.point(&[], Err(why.clone())),
    }
}

fn states(reading: &Reading<'_>, points: &mut Points<'_>) {
    match reading.states {
        None => {}
        Some(Err(why)) => points.point(&[], Err(why.clone())),
        Some(Ok(states)) => {
            let all = [
                ("other", states.other),
                ("runnable", states.runnable),
                ("running", states.running),
                ("syscall", states.syscall),
                ("waiting", states.waiting),
            ];
            for (state, count) in all {
                points.number(&[("state", state)], count);
            }
        }
    }
}

fn reasons(reading: &Reading<'_>, points: &mut Points<'_>) {
    let Some(Ok(states)) = reading.states else { return };
    // In the order of their names: the counts, by which they come, change.
    let mut reasons: Vec<_> = states.waiting_by_reason.iter().collect();
    reasons.sort();
    for (reason, count) in reasons {
        let reason = if reason.is_empty() { "unknown" } else { reason };
        points.number(&[("reason", reason)], *count);
    }
}

fn processors(reading: &Reading<'_>, points: &mut Points<'_>) {
    let Some(runtime) = reading.runtime else { return };
    let of = |of: fn(&Processors) -> u64| {
        let processors = runtime.scheduler.processors.as_ref().map_err(Unknown::clone)?;
        Ok(Value::Number(of(processors).into()))
    };
    points.point(&[("state", "idle")], of(|p| p.idle));
    points.point(&[("state", "running")], of(|p| p.running));
    points.point(&[("state", "stopped")], of(|p| p.stopped));
    points.point(&[("state", "syscall")], of(|p| p.syscall));
}
