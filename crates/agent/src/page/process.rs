//! A process: a line in the table of all, and what there is to know about it.

use super::shown::{count, duration, short};
use super::{chart, tree};
use crate::status::{
    GroupStatus, ProcessStatus, RequestStatus, SensorState, SensorStatus, TreeStatus,
};
use maud::{Markup, html};

/// Those that answer something first, then by name.
pub(super) fn order(process: &ProcessStatus) -> (bool, bool, &str, u32) {
    let is_idle = process.requests.is_empty();
    (is_idle, process.restricted.is_some(), &process.service, process.pid)
}

/// All processes, a line each.
pub(super) fn table(processes: &[&ProcessStatus]) -> Markup {
    html! {
        table {
            thead {
                tr {
                    th { "service" } th.number { "pid" } th { "watched by" } th { "sensors" }
                    th.number { "requests/s" } th.number { "p50" } th.number { "p99" }
                    th.number { "errors" } th.number { "lost" } th.number { "cost" }
                }
            }
            tbody {
                @for process in processes { (line(process)) }
            }
        }
    }
}

fn line(process: &ProcessStatus) -> Markup {
    let served: Vec<_> =
        process.requests.iter().filter(|request| request.kind == "server").collect();
    let rate: f64 = served.iter().map(|request| request.rates.per_second).sum();
    let errors: u64 = served.iter().map(|request| request.rates.errors).sum();
    // Percentiles cannot be added: those of the most frequent kind stand for the process.
    let first = served.first().map(|request| request.rates);
    let active = process.sensors.iter().filter(|sensor| sensor.state == SensorState::Active);
    let limit = process.budget.limit_percent.map(|limit| format!(" of {limit}%"));
    html! {
        tr {
            td { a href=(format!("#p{}", process.pid)) { (process.service) } }
            td.number { (process.pid) }
            td { (way(process)) }
            td { (active.count()) " of " (process.sensors.len()) }
            td.number { (short(rate)) }
            td.number { (first.map_or_else(String::new, |rates| duration(rates.p50_ns))) }
            td.number { (first.map_or_else(String::new, |rates| duration(rates.p99_ns))) }
            td.number.bad[errors > 0] { (count(errors)) }
            td.number.bad[process.capture.lost > 0] { (count(process.capture.lost)) }
            td.number { (cost(process.budget.cost_percent, 1)) (limit.unwrap_or_default()) }
        }
    }
}

/// Nothing while it is not known.
fn cost(percent: Option<f64>, digits: usize) -> String {
    percent.map_or_else(String::new, |percent| format!("{percent:.digits$}%"))
}

fn way(process: &ProcessStatus) -> String {
    if process.restricted.is_some() {
        return "process metrics only".to_owned();
    }
    match (&process.capture.backend, &process.capture.way) {
        (Some(backend), Some(way)) => format!("{backend}, {way}"),
        (Some(backend), None) => backend.clone(),
        _ => "metrics".to_owned(),
    }
}

/// All of it.
pub(super) fn details(process: &ProcessStatus, now_ns: u64) -> Markup {
    let is_busy = !process.requests.is_empty();
    html! {
        details.process id=(format!("p{}", process.pid)) open[is_busy] {
            summary { h2 { (process.service) " " small { "pid " (process.pid) } } }
            p.facts {
                @if let Some(version) = &process.go_version { span { (version) } " · " }
                span { "up " (duration(now_ns.saturating_sub(process.started_unix_ns))) } " · "
                code { (process.command) }
                @if let Some(container) = &process.container { " · container " code { (container) } }
            }
            @if let Some(reason) = &process.restricted {
                p.bad { "Only what the kernel counts is known of it: " (reason) }
            }
            @if let Some(reason) = &process.capture.reason { p { (reason) } }
            @for note in &process.capture.notes { p.note { (note) } }
            (requests(&process.requests))
            (slowest(process))
            (charts(process))
            (goroutines(process.goroutines.as_deref().unwrap_or_default()))
            (sensors(process))
        }
    }
}

fn requests(requests: &[RequestStatus]) -> Markup {
    html! {
        @if !requests.is_empty() {
            h3 { "Requests of the last minutes" }
            table.requests {
                thead {
                    tr {
                        th { "request" } th.number { "count" } th.number { "per second" }
                        th.number { "errors" } th.number { "p50" } th.number { "p95" }
                        th.number { "p99" } th.number { "max" }
                    }
                }
                tbody {
                    @for request in requests {
                        tr {
                            td { @if request.kind == "client" { "› " } (request.name) }
                            td.number { (count(request.rates.count)) }
                            td.number { (short(request.rates.per_second)) }
                            td.number.bad[request.rates.errors > 0] { (count(request.rates.errors)) }
                            td.number { (duration(request.rates.p50_ns)) }
                            td.number { (duration(request.rates.p95_ns)) }
                            td.number { (duration(request.rates.p99_ns)) }
                            td.number { (duration(request.rates.max_ns)) }
                        }
                    }
                }
            }
        }
    }
}

fn slowest(process: &ProcessStatus) -> Markup {
    let id = |tree: &TreeStatus| format!("t{}-{}", process.pid, tree.trace_id);
    html! {
        @if !process.slowest.is_empty() {
            h3 { "Slowest of them" }
            @for slow in &process.slowest { (tree::tree(slow, &id(slow))) }
        }
    }
}

fn charts(process: &ProcessStatus) -> Markup {
    html! {
        @if !process.runtime.is_empty() {
            h3 { "Runtime" }
            div.charts { @for series in &process.runtime { (chart::chart(series)) } }
        }
    }
}

fn goroutines(groups: &[GroupStatus]) -> Markup {
    let most = groups.iter().map(|group| group.count).max().unwrap_or(0).max(1);
    html! {
        @if !groups.is_empty() {
            h3 { "Goroutines" }
            table.groups {
                tbody {
                    @for group in groups {
                        tr {
                            td { (group.state) }
                            td.number { (count(group.count)) }
                            td.bar {
                                svg viewBox="0 0 1000 10" preserveAspectRatio="none" {
                                    rect x="0" y="1" height="8"
                                        width=(format!("{:.1}", group.count as f64 * 1000.0 / most as f64)) {}
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn sensors(process: &ProcessStatus) -> Markup {
    let spans = &process.spans;
    html! {
        details id=(format!("s{}", process.pid)) {
            summary {
                "Sensors: " (count(spans.made)) " spans, " (count(spans.unfinished)) " unfinished, "
                (count(spans.truncated)) " with a value missing or cut, " (count(spans.refused)) " refused; "
                (count(process.capture.records)) " records, " (count(process.capture.lost)) " lost"
            }
            table {
                thead {
                    tr {
                        th { "sensor" } th { "state" } th.number { "hits" } th.number { "spans" }
                        th.number { "cost" } th { "why" }
                    }
                }
                tbody { @for sensor in &process.sensors { (sensor_line(sensor)) } }
            }
        }
    }
}

fn sensor_line(sensor: &SensorStatus) -> Markup {
    let state = match sensor.state {
        SensorState::Active => "active",
        SensorState::Off => "off",
        SensorState::Dropped => "given up",
        SensorState::Unavailable => "unavailable",
        SensorState::Starting => "starting",
    };
    html! {
        tr {
            td { (sensor.name) @if sensor.kind == "function" { " (function)" } }
            td.bad[sensor.state == SensorState::Dropped] { (state) }
            td.number { (sensor.hits.map_or_else(String::new, count)) }
            td.number { (sensor.spans.map_or_else(String::new, |spans| count(spans.made))) }
            td.number { (cost(sensor.cost_percent, 2)) }
            td { (sensor.reason.as_deref().unwrap_or_default()) }
        }
    }
}
