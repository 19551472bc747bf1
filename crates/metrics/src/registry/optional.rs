//! What the Prometheus Go client exports when it is asked for more, under the names it gives
//! it (client_golang 1.25, `WithGoCollectorRuntimeMetrics`); of what says more than the default ones.

use crate::histogram::Histogram;
use crate::metric::Unit::{Bytes, Count, Seconds};
use crate::metric::{Metric, counter, gauge, histogram};
use crate::number::Number;
use crate::points::Points;
use crate::reading::Reading;
use crate::sample::Value;
use inspect::metrics::{CpuTimes, GoroutineStates, SizeClass, Unknown};

const fn cpu(
    name: &'static str,
    help: &'static str,
    source: fn(&Reading<'_>, &mut Points<'_>),
) -> Metric {
    counter(name, Seconds, help, source)
}

/// A class of CPU time that the conventions have too; the others are sums of such.
const fn cpu_class(
    name: &'static str,
    help: &'static str,
    source: fn(&Reading<'_>, &mut Points<'_>),
    attributes: &'static [(&'static str, &'static str)],
) -> Metric {
    cpu(name, help, source).sum("go.cpu.time", "s").attributes(attributes)
}

pub(super) static METRICS: &[Metric] = &[
    counter(
        "go_cgo_go_to_c_calls_calls_total",
        Count,
        "Calls from Go to C since the start.",
        |r, p| p.go(r, |m| &m.cgo_calls),
    ),
    cpu_class(
        "go_cpu_classes_gc_mark_assist_cpu_seconds_total",
        "CPU time of goroutines that had to help marking, as the runtime estimates it at the end of a cycle.",
        |r, p| times(r, p, |cpu| cpu.gc_assist_ns),
        &[("go.cpu.state", "gc"), ("go.cpu.detailed_state", "gc/mark/assist")],
    ),
    cpu_class(
        "go_cpu_classes_gc_mark_dedicated_cpu_seconds_total",
        "CPU time of processors given to marking, as the runtime estimates it at the end of a cycle.",
        |r, p| times(r, p, |cpu| cpu.gc_dedicated_ns),
        &[("go.cpu.state", "gc"), ("go.cpu.detailed_state", "gc/mark/dedicated")],
    ),
    cpu_class(
        "go_cpu_classes_gc_mark_idle_cpu_seconds_total",
        "CPU time of marking on processors that had no other work, as the runtime estimates it at the end of a cycle.",
        |r, p| times(r, p, |cpu| cpu.gc_idle_ns),
        &[("go.cpu.state", "gc"), ("go.cpu.detailed_state", "gc/mark/idle")],
    ),
    cpu_class(
        "go_cpu_classes_gc_pause_cpu_seconds_total",
        "Length of the collector's pauses times the processors, as the runtime estimates it at the end of a cycle.",
        |r, p| times(r, p, |cpu| cpu.gc_pause_ns),
        &[("go.cpu.state", "gc"), ("go.cpu.detailed_state", "gc/pause")],
    ),
    cpu(
        "go_cpu_classes_gc_total_cpu_seconds_total",
        "CPU time of the collector, as the runtime estimates it at the end of a cycle.",
        |r, p| times(r, p, |cpu| cpu.gc_total_ns),
    ),
    cpu_class(
        "go_cpu_classes_idle_cpu_seconds_total",
        "CPU time that was there and not used, as the runtime estimates it at the end of a cycle.",
        |r, p| times(r, p, |cpu| cpu.idle_ns),
        &[("go.cpu.state", "idle"), ("go.cpu.detailed_state", "idle")],
    ),
    cpu_class(
        "go_cpu_classes_scavenge_assist_cpu_seconds_total",
        "CPU time of goroutines that had to return memory, as the runtime estimates it at the end of a cycle.",
        |r, p| times(r, p, |cpu| cpu.scavenge_assist_ns),
        &[("go.cpu.state", "scavenge"), ("go.cpu.detailed_state", "scavenge/assist")],
    ),
    cpu_class(
        "go_cpu_classes_scavenge_background_cpu_seconds_total",
        "CPU time of returning memory in the background, as the runtime estimates it at the end of a cycle.",
        |r, p| times(r, p, |cpu| cpu.scavenge_background_ns),
        &[("go.cpu.state", "scavenge"), ("go.cpu.detailed_state", "scavenge/background")],
    ),
    cpu(
        "go_cpu_classes_scavenge_total_cpu_seconds_total",
        "CPU time of returning memory, as the runtime estimates it at the end of a cycle.",
        |r, p| times(r, p, |cpu| cpu.scavenge_total_ns),
    ),
    cpu(
        "go_cpu_classes_total_cpu_seconds_total",
        "CPU time that was there: the processors times the time gone by, as of the end of a cycle.",
        |r, p| times(r, p, |cpu| cpu.total_ns),
    ),
    cpu_class(
        "go_cpu_classes_user_cpu_seconds_total",
        "CPU time of the program's own code, as the runtime estimates it at the end of a cycle.",
        |r, p| times(r, p, |cpu| cpu.user_ns),
        &[("go.cpu.state", "user"), ("go.cpu.detailed_state", "user")],
    ),
    counter(
        "go_gc_cycles_automatic_gc_cycles_total",
        Count,
        "Collections that the runtime began by itself.",
        |r, p| {
            p.computed(r, &[], |m| {
                let forced = m.collector.forced_cycles.clone()?;
                Ok(m.collector.cycles.clone()?.saturating_sub(forced).into())
            });
        },
    ),
    counter(
        "go_gc_cycles_forced_gc_cycles_total",
        Count,
        "Collections that the program asked for.",
        |r, p| p.go(r, |m| &m.collector.forced_cycles),
    ),
    counter("go_gc_cycles_total_gc_cycles_total", Count, "Collections completed.", |r, p| {
        p.go(r, |m| &m.collector.cycles)
    })
    .sum("go.memory.gc.cycles", "{gc_cycle}"),
    histogram(
        "go_gc_heap_allocs_by_size_bytes",
        Bytes,
        "Sizes of objects allocated on the heap; tiny ones count by the blocks they share.",
        |r, p| sizes(r, p, |class| (class.mallocs, class.allocated)),
    ),
    counter(
        "go_gc_heap_allocs_objects_total",
        Count,
        "Objects allocated on the heap; tiny ones count by the blocks they share.",
        |r, p| {
            p.computed(r, &[], |m| {
                let tiny = m.memory.tiny_allocs.clone()?;
                Ok(m.memory.mallocs.clone()?.saturating_sub(tiny).into())
            });
        },
    )
    .sum("go.memory.allocations", "{allocation}"),
    histogram(
        "go_gc_heap_frees_by_size_bytes",
        Bytes,
        "Sizes of objects freed on the heap; tiny ones count by the blocks they share.",
        |r, p| sizes(r, p, |class| (class.frees, class.freed)),
    ),
    gauge(
        "go_gc_heap_live_bytes",
        Bytes,
        "Bytes of objects that the last collection found reachable.",
        |r, p| p.go(r, |m| &m.collector.heap_marked),
    ),
    counter(
        "go_gc_heap_tiny_allocs_objects_total",
        Count,
        "Tiny objects allocated: several share a block.",
        |r, p| p.go(r, |m| &m.memory.tiny_allocs),
    ),
    counter(
        "go_sched_goroutines_created_goroutines_total",
        Count,
        "Goroutines created since the start.",
        |r, p| p.go(r, |m| &m.scheduler.goroutines_created),
    ),
    gauge(
        "go_sched_goroutines_not_in_go_goroutines",
        Count,
        "Goroutines in a system call or in C.",
        |r, p| states(r, p, |states| states.syscall),
    ),
    gauge(
        "go_sched_goroutines_runnable_goroutines",
        Count,
        "Goroutines that could run and do not.",
        |r, p| states(r, p, |states| states.runnable),
    ),
    gauge(
        "go_sched_goroutines_running_goroutines",
        Count,
        "Goroutines that run Go code.",
        |r, p| states(r, p, |states| states.running),
    ),
    gauge(
        "go_sched_goroutines_waiting_goroutines",
        Count,
        "Goroutines that wait for something.",
        |r, p| states(r, p, |states| states.waiting),
    ),
    histogram(
        "go_sched_latencies_seconds",
        Seconds,
        "Times that goroutines were runnable before they ran.",
        |r, p| p.times(r, |m| &m.scheduler.latencies),
    )
    .distribution("go.schedule.duration", "s"),
    histogram(
        "go_sched_pauses_stopping_gc_seconds",
        Seconds,
        "Times from the wish to stop all processors for the collector until they stood.",
        |r, p| p.times(r, |m| &m.scheduler.pauses_stopping_gc),
    ),
    histogram(
        "go_sched_pauses_stopping_other_seconds",
        Seconds,
        "Times from the wish to stop all processors, not for the collector, until they stood.",
        |r, p| p.times(r, |m| &m.scheduler.pauses_stopping_other),
    ),
    histogram(
        "go_sched_pauses_total_gc_seconds",
        Seconds,
        "Lengths of the collector's pauses.",
        |r, p| p.times(r, |m| &m.collector.pause_histogram),
    )
    .distribution("go.memory.gc.pause.duration", "s"),
    histogram(
        "go_sched_pauses_total_other_seconds",
        Seconds,
        "Lengths of pauses that are not the collector's.",
        |r, p| p.times(r, |m| &m.scheduler.pauses_other),
    ),
    counter(
        "go_sync_mutex_wait_total_seconds_total",
        Seconds,
        "Time that goroutines waited for a lock, all together.",
        |r, p| p.computed(r, &[], |m| m.scheduler.mutex_wait_ns.clone().map(Number::seconds)),
    ),
];

fn times(reading: &Reading<'_>, points: &mut Points<'_>, of: fn(&CpuTimes) -> u64) {
    let Some(runtime) = reading.runtime else { return };
    let value = runtime.collector.cpu.as_ref().map_err(Unknown::clone).map(of);
    points.point(&[], value.map(|ns| Value::Number(Number::seconds(ns))));
}

fn sizes(reading: &Reading<'_>, points: &mut Points<'_>, of: fn(&SizeClass) -> (u64, u64)) {
    let Some(runtime) = reading.runtime else { return };
    let classes = runtime.memory.size_classes.as_ref().map_err(Unknown::clone);
    let value = classes.map(|classes| Value::Histogram(Histogram::of_sizes(classes, of)));
    points.point(&[], value);
}

fn states(reading: &Reading<'_>, points: &mut Points<'_>, of: fn(&GoroutineStates) -> u64) {
    let Some(states) = reading.states else { return };
    let value = states.as_ref().map_err(Unknown::clone).map(of);
    points.point(&[], value.map(|count| Value::Number(count.into())));
}
