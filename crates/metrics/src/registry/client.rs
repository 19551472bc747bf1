//! What the Prometheus Go client's default collector of the runtime exports (client_golang 1.25,
//! `go_collector.go`): names, types and help texts are an interface that dashboards use, and equal.

use crate::metric::Unit::{Bytes, Count, Percent, Seconds, UnixSeconds};
use crate::metric::{Metric, counter, gauge, summary};
use crate::number::Number;
use crate::points::Points;
use crate::reading::Reading;
use crate::sample::{Summary, Value};
use inspect::metrics::{RuntimeMetrics, Unknown};

pub(super) static METRICS: &[Metric] = &[
    summary(
        "go_gc_duration_seconds",
        Seconds,
        "A summary of the wall-time pause (stop-the-world) duration in garbage collection cycles.",
        pauses,
    ),
    gauge(
        "go_gc_gogc_percent",
        Percent,
        "Heap size target percentage configured by the user, otherwise 100. This value is set by the GOGC environment variable, and the runtime/debug.SetGCPercent function. Sourced from /gc/gogc:percent.",
        |r, p| p.computed(r, &[], gogc),
    ).up_down("go.config.gogc", "%"),
    gauge(
        "go_gc_gomemlimit_bytes",
        Bytes,
        "Go runtime memory limit configured by the user, otherwise math.MaxInt64. This value is set by the GOMEMLIMIT environment variable, and the runtime/debug.SetMemoryLimit function. Sourced from /gc/gomemlimit:bytes.",
        |r, p| p.go(r, |m| &m.collector.memory_limit),
    ).up_down("go.memory.limit", "By").absent(i64::MAX as u64),
    gauge(
        "go_goroutines",
        Count,
        "Number of goroutines that currently exist.",
        |r, p| p.go(r, |m| &m.scheduler.goroutines),
    ).up_down("go.goroutine.count", "{goroutine}"),
    gauge(
        "go_info",
        Count,
        "Information about the Go environment.",
        info,
    ),
    gauge(
        "go_memstats_alloc_bytes",
        Bytes,
        "Number of bytes allocated in heap and currently in use. Equals to /memory/classes/heap/objects:bytes.",
        |r, p| p.go(r, |m| &m.memory.heap_alloc),
    ),
    counter(
        "go_memstats_alloc_bytes_total",
        Bytes,
        "Total number of bytes allocated in heap until now, even if released already. Equals to /gc/heap/allocs:bytes.",
        |r, p| p.go(r, |m| &m.memory.total_alloc),
    ).sum("go.memory.allocated", "By"),
    gauge(
        "go_memstats_buck_hash_sys_bytes",
        Bytes,
        "Number of bytes used by the profiling bucket hash table. Equals to /memory/classes/profiling/buckets:bytes.",
        |r, p| p.go(r, |m| &m.memory.buckhash_sys),
    ),
    counter(
        "go_memstats_frees_total",
        Count,
        "Total number of heap objects frees. Equals to /gc/heap/frees:objects + /gc/heap/tiny/allocs:objects.",
        |r, p| p.go(r, |m| &m.memory.frees),
    ),
    gauge(
        "go_memstats_gc_sys_bytes",
        Bytes,
        "Number of bytes used for garbage collection system metadata. Equals to /memory/classes/metadata/other:bytes.",
        |r, p| p.go(r, |m| &m.memory.gc_sys),
    ),
    gauge(
        "go_memstats_heap_alloc_bytes",
        Bytes,
        "Number of heap bytes allocated and currently in use, same as go_memstats_alloc_bytes. Equals to /memory/classes/heap/objects:bytes.",
        |r, p| p.go(r, |m| &m.memory.heap_alloc),
    ),
    gauge(
        "go_memstats_heap_idle_bytes",
        Bytes,
        "Number of heap bytes waiting to be used. Equals to /memory/classes/heap/released:bytes + /memory/classes/heap/free:bytes.",
        |r, p| p.go(r, |m| &m.memory.heap_idle),
    ),
    gauge(
        "go_memstats_heap_inuse_bytes",
        Bytes,
        "Number of heap bytes that are in use. Equals to /memory/classes/heap/objects:bytes + /memory/classes/heap/unused:bytes",
        |r, p| p.go(r, |m| &m.memory.heap_inuse),
    ),
    gauge(
        "go_memstats_heap_objects",
        Count,
        "Number of currently allocated objects. Equals to /gc/heap/objects:objects.",
        |r, p| p.go(r, |m| &m.memory.heap_objects),
    ),
    gauge(
        "go_memstats_heap_released_bytes",
        Bytes,
        "Number of heap bytes released to OS. Equals to /memory/classes/heap/released:bytes.",
        |r, p| p.go(r, |m| &m.memory.heap_released),
    ),
    gauge(
        "go_memstats_heap_sys_bytes",
        Bytes,
        "Number of heap bytes obtained from system. Equals to /memory/classes/heap/objects:bytes + /memory/classes/heap/unused:bytes + /memory/classes/heap/released:bytes + /memory/classes/heap/free:bytes.",
        |r, p| p.go(r, |m| &m.memory.heap_sys),
    ),
    gauge(
        "go_memstats_last_gc_time_seconds",
        UnixSeconds,
        "Number of seconds since 1970 of last garbage collection.",
        |r, p| p.computed(r, &[], |m| m.collector.last_ns.clone().map(Number::seconds)),
    ),
    counter(
        "go_memstats_mallocs_total",
        Count,
        "Total number of heap objects allocated, both live and gc-ed. Semantically a counter version for go_memstats_heap_objects gauge. Equals to /gc/heap/allocs:objects + /gc/heap/tiny/allocs:objects.",
        |r, p| p.go(r, |m| &m.memory.mallocs),
    ),
    gauge(
        "go_memstats_mcache_inuse_bytes",
        Bytes,
        "Number of bytes in use by mcache structures. Equals to /memory/classes/metadata/mcache/inuse:bytes.",
        |r, p| p.go(r, |m| &m.memory.mcache_inuse),
    ),
    gauge(
        "go_memstats_mcache_sys_bytes",
        Bytes,
        "Number of bytes used for mcache structures obtained from system. Equals to /memory/classes/metadata/mcache/inuse:bytes + /memory/classes/metadata/mcache/free:bytes.",
        |r, p| p.go(r, |m| &m.memory.mcache_sys),
    ),
    gauge(
        "go_memstats_mspan_inuse_bytes",
        Bytes,
        "Number of bytes in use by mspan structures. Equals to /memory/classes/metadata/mspan/inuse:bytes.",
        |r, p| p.go(r, |m| &m.memory.mspan_inuse),
    ),
    gauge(
        "go_memstats_mspan_sys_bytes",
        Bytes,
        "Number of bytes used for mspan structures obtained from system. Equals to /memory/classes/metadata/mspan/inuse:bytes + /memory/classes/metadata/mspan/free:bytes.",
        |r, p| p.go(r, |m| &m.memory.mspan_sys),
    ),
    gauge(
        "go_memstats_next_gc_bytes",
        Bytes,
        "Number of heap bytes when next garbage collection will take place. Equals to /gc/heap/goal:bytes.",
        |r, p| p.go(r, |m| &m.collector.heap_goal),
    ).up_down("go.memory.gc.goal", "By"),
    gauge(
        "go_memstats_other_sys_bytes",
        Bytes,
        "Number of bytes used for other system allocations. Equals to /memory/classes/other:bytes.",
        |r, p| p.go(r, |m| &m.memory.other_sys),
    ),
    gauge(
        "go_memstats_stack_inuse_bytes",
        Bytes,
        "Number of bytes obtained from system for stack allocator in non-CGO environments. Equals to /memory/classes/heap/stacks:bytes.",
        |r, p| p.go(r, |m| &m.memory.stack_inuse),
    ),
    gauge(
        "go_memstats_stack_sys_bytes",
        Bytes,
        "Number of bytes obtained from system for stack allocator. Equals to /memory/classes/heap/stacks:bytes + /memory/classes/os-stacks:bytes.",
        |r, p| p.go(r, |m| &m.memory.stack_sys),
    ),
    gauge(
        "go_memstats_sys_bytes",
        Bytes,
        "Number of bytes obtained from system. Equals to /memory/classes/total:byte.",
        |r, p| p.go(r, |m| &m.memory.sys),
    ),
    gauge(
        "go_sched_gomaxprocs_threads",
        Count,
        "The current runtime.GOMAXPROCS setting, or the number of operating system threads that can execute user-level Go code simultaneously. Sourced from /sched/gomaxprocs:threads.",
        |r, p| p.go(r, |m| &m.scheduler.gomaxprocs),
    ).up_down("go.processor.limit", "{thread}"),
    gauge(
        "go_threads",
        Count,
        "Number of OS threads created.",
        |r, p| p.go(r, |m| &m.scheduler.threads),
    ),
];

/// -1, which is off, is what the client makes of it: the runtime tells an unsigned number.
fn gogc(of: &RuntimeMetrics) -> Result<Number, Unknown> {
    let percent = of.collector.gogc_percent.clone()?;
    Ok(Number::Integer(i64::from(percent) as u64))
}

fn info(reading: &Reading<'_>, points: &mut Points<'_>) {
    if let Some(version) = reading.go_version {
        points.number(&[("version", version)], 1);
    }
}

fn pauses(reading: &Reading<'_>, points: &mut Points<'_>) {
    let Some(runtime) = reading.runtime else { return };
    let collector = &runtime.collector;
    let value = || {
        let pauses = collector.pauses.as_ref().map_err(Unknown::clone)?;
        let seconds = |ns: u64| ns as f64 / 1e9;
        let shares = [0.0, 0.25, 0.5, 0.75, 1.0];
        Ok(Value::Summary(Summary {
            quantiles: shares.into_iter().zip(pauses.quantiles().map(seconds)).collect(),
            sum: seconds(collector.pause_total_ns.clone()?),
            count: collector.cycles.clone()?,
        }))
    };
    points.point(&[], value());
}
