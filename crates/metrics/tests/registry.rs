//! The table, whole: names, types, units and help texts are an interface.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use metrics::{Kind, Reading};
use process::{Process, UsageReader};
use testkit::assert_golden;

#[test]
fn the_registry_is_as_it_was() {
    let mut text = String::new();
    for metric in metrics::all() {
        let (name, kind, unit, help) = (metric.name, metric.kind, metric.unit, metric.help);
        let _ = writeln!(text, "{name} {} {unit:?}\n  {help}", kind.name());
        if let Some(otel) = &metric.otel {
            let _ = write!(text, "  {} {:?} {}", otel.name, otel.instrument, otel.unit);
            for (key, value) in otel.attributes {
                let _ = write!(text, " {key}={value}");
            }
            for (label, key) in otel.labels {
                let _ = write!(text, " {key}=<{label}>");
            }
            text.push('\n');
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/registry.txt");
    assert_golden(path, &text);
}

/// Prometheus's conventions (the naming rules that `promtool check metrics` applies).
#[test]
fn names_follow_the_conventions() {
    let mut seen = BTreeSet::new();
    for metric in metrics::all() {
        let name = metric.name;
        assert!(seen.insert(name), "{name} twice");
        assert!(name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_'));
        assert_eq!(name.ends_with("_total"), metric.kind == Kind::Counter, "{name}");
        assert!(metric.help.ends_with('.') || name.starts_with("go_memstats"), "{name}");
    }
}

#[test]
fn of_what_was_not_read_there_is_no_figure() {
    let nothing = metrics::samples(&Reading::default());
    let names: Vec<&str> = nothing.iter().map(|sample| sample.metric.name).collect();
    assert_eq!(names, ["gospect_runtime_readable"]);
    let process = Process::open(std::process::id()).unwrap();
    let usage = UsageReader::new().read(&process).unwrap();
    let reading = Reading { usage: Some(&usage), ..Reading::default() };
    let names: BTreeSet<&str> =
        metrics::samples(&reading).iter().map(|sample| sample.metric.name).collect();
    let wanted: BTreeSet<&str> = metrics::all()
        .map(|metric| metric.name)
        .filter(|name| name.contains("process_") || *name == "gospect_runtime_readable")
        .collect();
    assert_eq!(names, wanted);
}
