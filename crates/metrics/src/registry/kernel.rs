//! What the Prometheus Go client's collector of the process exports (client_golang 1.25,
//! `process_collector.go`), with its names, types and help texts; and two more for OpenTelemetry.

use crate::metric::Unit::{Bytes, Count, Seconds, UnixSeconds};
use crate::metric::{Metric, counter, gauge};

pub(super) static METRICS: &[Metric] = &[
    counter(
        "process_cpu_seconds_total",
        Seconds,
        "Total user and system CPU time spent in seconds.",
        |r, p| p.kernel(r.usage.map(|u| u.cpu_seconds)),
    ),
    gauge("process_max_fds", Count, "Maximum number of open file descriptors.", |r, p| {
        p.kernel(r.usage.and_then(|u| u.max_fds))
    }),
    counter(
        "process_network_receive_bytes_total",
        Bytes,
        "Number of bytes received by the process over the network.",
        |r, p| p.kernel(r.usage.and_then(|u| Some(u.network?.received))),
    )
    .sum("process.network.io", "By")
    .attributes(&[("network.io.direction", "receive")]),
    counter(
        "process_network_transmit_bytes_total",
        Bytes,
        "Number of bytes sent by the process over the network.",
        |r, p| p.kernel(r.usage.and_then(|u| Some(u.network?.sent))),
    )
    .sum("process.network.io", "By")
    .attributes(&[("network.io.direction", "transmit")]),
    gauge("process_open_fds", Count, "Number of open file descriptors.", |r, p| {
        p.kernel(r.usage.and_then(|u| u.open_fds))
    })
    .up_down("process.unix.file_descriptor.count", "{file_descriptor}"),
    gauge("process_resident_memory_bytes", Bytes, "Resident memory size in bytes.", |r, p| {
        p.kernel(r.usage.map(|u| u.resident_bytes))
    })
    .up_down("process.memory.usage", "By"),
    gauge(
        "process_start_time_seconds",
        UnixSeconds,
        "Start time of the process since unix epoch in seconds.",
        |r, p| p.kernel(r.usage.map(|u| u.start_unix_seconds)),
    ),
    gauge("process_virtual_memory_bytes", Bytes, "Virtual memory size in bytes.", |r, p| {
        p.kernel(r.usage.map(|u| u.virtual_bytes))
    })
    .up_down("process.memory.virtual", "By"),
    gauge(
        "process_virtual_memory_max_bytes",
        Bytes,
        "Maximum amount of virtual memory available in bytes.",
        |r, p| p.kernel(r.usage.and_then(|u| u.max_virtual_bytes)),
    ),
    counter(
        "gospect_process_cpu_mode_seconds_total",
        Seconds,
        "CPU time in seconds, of the process's own code (user) and in the kernel for it (system).",
        |r, p| {
            let Some(usage) = r.usage else { return };
            p.number(&[("mode", "user")], usage.user_seconds);
            p.number(&[("mode", "system")], usage.system_seconds);
        },
    )
    .sum("process.cpu.time", "s")
    .labels(&[("mode", "cpu.mode")]),
    gauge(
        "gospect_process_threads",
        Count,
        "Threads of the process, as the kernel counts them.",
        |r, p| p.kernel(r.usage.map(|u| u.threads)),
    )
    .up_down("process.thread.count", "{thread}"),
];
