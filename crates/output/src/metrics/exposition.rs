//! Prometheus's text exposition format, version 0.0.4.

use super::ProcessMetrics;
use metrics::{Metric, Sample};
use std::fmt::Write as _;
use std::io::{self, Write};

/// The `Content-Type` of what [`write_exposition`] writes.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Writes the metrics of `processes`, each with the labels `pid`, `exe` and `service`; all of one
/// metric together, as the format wants it.
pub fn write_exposition(processes: &[ProcessMetrics], out: &mut dyn Write) -> io::Result<()> {
    let mut rest: Vec<(String, &[Sample])> = processes
        .iter()
        .map(|process| (process_labels(process), process.samples.as_slice()))
        .collect();
    let mut text = String::new();
    for metric in metrics::all() {
        text.clear();
        for (labels, samples) in &mut rest {
            let end = samples.iter().position(|sample| !std::ptr::eq(sample.metric, metric));
            let (own, others) = samples.split_at(end.unwrap_or(samples.len()));
            *samples = others;
            for sample in own {
                push_sample(&mut text, labels, sample);
            }
        }
        if !text.is_empty() {
            write_head(metric, out)?;
            out.write_all(text.as_bytes())?;
        }
    }
    Ok(())
}

fn write_head(metric: &Metric, out: &mut dyn Write) -> io::Result<()> {
    let help = metric.help.replace('\\', r"\\").replace('\n', r"\n");
    writeln!(out, "# HELP {} {help}", metric.name)?;
    writeln!(out, "# TYPE {} {}", metric.name, metric.kind.name())
}

/// What tells the metrics of one process from those of others, as labels.
pub fn process_labels(process: &ProcessMetrics) -> String {
    let mut labels = format!("pid=\"{}\"", process.pid);
    push_label(&mut labels, "exe", &process.exe);
    push_label(&mut labels, "service", &process.service);
    labels
}

fn push_label(out: &mut String, name: &str, value: &str) {
    out.push(',');
    push_quoted(out, name, value);
}

/// A label without what separates it from others.
pub(super) fn push_quoted(out: &mut String, name: &str, value: &str) {
    _ = write!(out, "{name}=\"");
    for c in value.chars() {
        match c {
            '\\' => out.push_str(r"\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str(r"\n"),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// What is not known has no line: there is no value that means so.
fn push_sample(out: &mut String, process: &str, sample: &Sample) {
    let Ok(value) = &sample.value else { return };
    for line in value.lines() {
        _ = write!(out, "{}{}{{{process}", sample.metric.name, line.suffix);
        for (name, value) in &sample.labels {
            push_label(out, name, value);
        }
        if let Some((name, value)) = &line.label {
            push_label(out, name, value);
        }
        _ = writeln!(out, "}} {}", line.number);
    }
}
