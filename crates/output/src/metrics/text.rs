//! Metrics for people.

use super::ProcessMetrics;
use super::amount::amount;
use crate::printable::{push_printable, width};
use metrics::{Histogram, Number, Sample, Summary, Unit, Value};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Columns of a name; values of longer ones stand further right.
const NAME_WIDTH: usize = 56;

/// Writes the metrics of one process: a line that says which it is, then one for each. Why its runtime
/// was not read is said when `with_reason`.
pub fn write_metrics_text(
    process: &ProcessMetrics,
    with_reason: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut head = format!("{} ", process.pid);
    push_printable(&mut head, &process.exe);
    if !process.exe.ends_with(&format!("/{}", process.service)) {
        head.push_str("  service ");
        push_printable(&mut head, &process.service);
    }
    if let Some(version) = &process.go_version {
        head.push_str("  ");
        push_printable(&mut head, version);
    }
    writeln!(out, "{head}")?;
    if let Some(reason) = process.restricted.as_deref().filter(|_| with_reason) {
        let mut text = String::new();
        push_printable(&mut text, reason);
        writeln!(out, "  only what the kernel counts: {text}")?;
    }
    let mut unknown: Vec<(String, Vec<&str>)> = Vec::new();
    for sample in &process.samples {
        match &sample.value {
            Ok(value) => write_known(sample, value, out)?,
            Err(why) => {
                let why = why.to_string();
                let name = sample.metric.name;
                match unknown.iter_mut().find(|(known, _)| *known == why) {
                    Some((_, names)) if names.last() != Some(&name) => names.push(name),
                    Some(_) => {}
                    None => unknown.push((why, vec![name])),
                }
            }
        }
    }
    for (why, names) in unknown {
        writeln!(out, "  not known, {why}: {}", names.join(" "))?;
    }
    Ok(())
}

fn write_known(sample: &Sample, value: &Value, out: &mut dyn Write) -> io::Result<()> {
    let mut name = sample.metric.name.to_owned();
    if !sample.labels.is_empty() {
        let mut labels = Vec::with_capacity(sample.labels.len());
        for (key, value) in &sample.labels {
            let mut label = format!("{key}=");
            push_printable(&mut label, value);
            labels.push(label);
        }
        _ = write!(name, "{{{}}}", labels.join(","));
    }
    let unit = sample.metric.unit;
    let text = match value {
        Value::Number(number) => amount(unit, *number),
        Value::Summary(summary) => summary_text(unit, summary),
        Value::Histogram(histogram) => histogram_text(unit, histogram),
    };
    let gap = NAME_WIDTH.saturating_sub(width(&name)).max(1);
    writeln!(out, "  {name}{}{text}", " ".repeat(gap))
}

fn summary_text(unit: Unit, of: &Summary) -> String {
    let mut text = format!("{} of {} together", of.count, amount(unit, Number::Real(of.sum)));
    if of.count > 0 {
        for (share, value) in &of.quantiles {
            let name = match *share {
                0.0 => "min".to_owned(),
                1.0 => "max".to_owned(),
                share => format!("p{}", share * 100.0),
            };
            _ = write!(text, ", {name} {}", amount(unit, Number::Real(*value)));
        }
    }
    text
}

/// Quantiles as the upper bound of their bucket.
fn histogram_text(unit: Unit, of: &Histogram) -> String {
    let mut text = of.count.to_string();
    if of.count == 0 {
        return text;
    }
    for (name, share) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
        let rank = ((of.count as f64 * share).ceil() as u64).clamp(1, of.count);
        match of.buckets.iter().find(|(_, count)| *count >= rank) {
            Some((bound, _)) => {
                _ = write!(text, ", {name} up to {}", amount(unit, Number::Real(*bound)));
            }
            None => {
                let last = of.buckets.last().map_or(0.0, |(bound, _)| *bound);
                _ = write!(text, ", {name} over {}", amount(unit, Number::Real(last)));
            }
        }
    }
    text
}
