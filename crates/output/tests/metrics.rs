//! Metrics in each form, whole.

use std::path::Path;

use metrics::{Histogram, Metric, Number, Sample, Summary, Value};
use output::{MetricsSummary, ProcessMetrics};
use testkit::assert_golden;

fn metric(name: &str) -> &'static Metric {
    metrics::all().find(|metric| metric.name == name).expect("a metric of this name")
}

fn number(name: &str, labels: &[(&'static str, &str)], number: impl Into<Number>) -> Sample {
    let labels = labels.iter().map(|&(name, value)| (name, value.into())).collect();
    Sample { metric: metric(name), labels, value: Ok(Value::Number(number.into())) }
}

fn unknown(name: &str, why: inspect::metrics::Unknown) -> Sample {
    Sample { metric: metric(name), labels: Vec::new(), value: Err(why) }
}

/// In the order of the registry, as the writers want it.
fn ordered(mut samples: Vec<Sample>) -> Vec<Sample> {
    let place = |sample: &Sample| metrics::all().position(|of| std::ptr::eq(of, sample.metric));
    samples.sort_by_key(place);
    samples
}

fn shop() -> ProcessMetrics {
    let summary = Summary {
        quantiles: vec![(0.0, 1.7507e-5), (0.25, 2e-5), (0.5, 3e-5), (0.75, 5e-5), (1.0, 0.0012)],
        sum: 0.002_695,
        count: 4,
    };
    let histogram = Histogram { buckets: vec![(6.4e-8, 3), (0.001_5, 9)], sum: 0.25, count: 10 };
    let value = |name, value| Sample { metric: metric(name), labels: Vec::new(), value: Ok(value) };
    ProcessMetrics {
        pid: 4242,
        exe: "/srv/a \"shop\"\\bin\n/server".to_owned(),
        service: "the shop".to_owned(),
        go_version: Some("go1.27.3".to_owned()),
        restricted: None,
        samples: ordered(vec![
            value("go_gc_duration_seconds", Value::Summary(summary)),
            number("go_gc_gogc_percent", &[], u64::MAX),
            number("go_gc_gomemlimit_bytes", &[], i64::MAX as u64),
            number("go_goroutines", &[], 12),
            number("go_info", &[("version", "go1.27.3")], 1),
            number("go_memstats_alloc_bytes", &[], 7_395_144),
            value("go_sched_latencies_seconds", Value::Histogram(histogram)),
            unknown(
                "go_sched_goroutines_created_goroutines_total",
                inspect::metrics::Unknown::NotInVersion,
            ),
            unknown("go_memstats_sys_bytes", inspect::metrics::Unknown::Torn("memstats")),
            number("gospect_gc_cpu_ratio", &[], 0.0125),
            number("gospect_goroutines", &[("state", "runnable")], 2),
            number("gospect_goroutines", &[("state", "waiting")], 10),
            number("process_cpu_seconds_total", &[], 1.25),
        ]),
    }
}

fn other() -> ProcessMetrics {
    ProcessMetrics {
        pid: 1,
        exe: "/usr/lib/systemd/systemd".to_owned(),
        service: "systemd".to_owned(),
        go_version: None,
        restricted: Some("not a Go executable".to_owned()),
        samples: ordered(vec![
            number("gospect_runtime_readable", &[], 0),
            number("process_cpu_seconds_total", &[], 3.5),
        ]),
    }
}

fn golden(name: &str, actual: Vec<u8>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/metrics").join(name);
    assert_golden(path, &String::from_utf8(actual).unwrap());
}

#[test]
fn the_exposition_keeps_each_metric_together() {
    let mut out = Vec::new();
    output::write_exposition(&[other(), shop()], &mut out).unwrap();
    golden("exposition.txt", out);
}

#[test]
fn json_has_a_line_for_each_figure() {
    let mut out = Vec::new();
    for process in [other(), shop()] {
        output::write_metrics_json(&process, 1_796_000_000_123_456_789, true, &mut out).unwrap();
    }
    output::write_metrics_json(&other(), 1_796_000_001_000_000_000, false, &mut out).unwrap();
    let summary = MetricsSummary { rounds: 2, processes: 2, restricted: 1, ..Default::default() };
    summary.write_json(&mut out).unwrap();
    golden("lines.jsonl", out);
}

#[test]
fn people_get_units() {
    let mut out = Vec::new();
    for process in [other(), shop()] {
        output::write_metrics_text(&process, true, &mut out).unwrap();
    }
    golden("text.txt", out);
}
