//! Metrics as JSON Lines.

use super::ProcessMetrics;
use metrics::{Number, Sample};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Integers up to here are exact in every reader of JSON.
const EXACT: u64 = 1 << 53;

struct Figure(Number);

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Number::Integer(value) if value <= EXACT => serializer.serialize_u64(value),
            Number::Real(value) if value.is_finite() => serializer.serialize_f64(value),
            other => serializer.collect_str(&other),
        }
    }
}

#[derive(Serialize)]
struct Row<'a> {
    r#type: &'static str,
    ts_ns: u64,
    pid: u32,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Figure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unavailable: Option<String>,
    labels: BTreeMap<&'a str, &'a str>,
}

#[derive(Serialize)]
struct Restricted<'a> {
    r#type: &'static str,
    ts_ns: u64,
    pid: u32,
    exe: &'a str,
    reason: &'a str,
}

/// Writes one `{"type":"metric"}` line for each figure; `ts_ns` is Unix time. When the runtime was
/// not read and `with_reason`, the reason comes first as `{"type":"restricted"}`.
pub fn write_metrics_json(
    process: &ProcessMetrics,
    ts_ns: u64,
    with_reason: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    if let Some(reason) = process.restricted.as_deref().filter(|_| with_reason) {
        let exe = &process.exe;
        let row = Restricted { r#type: "restricted", ts_ns, pid: process.pid, exe, reason };
        write_line(&row, out)?;
    }
    for sample in &process.samples {
        write_sample(process, ts_ns, sample, out)?;
    }
    Ok(())
}

fn write_sample(
    process: &ProcessMetrics,
    ts_ns: u64,
    sample: &Sample,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut labels: BTreeMap<&str, &str> =
        sample.labels.iter().map(|(name, value)| (*name, &**value)).collect();
    labels.insert("exe", &process.exe);
    labels.insert("service", &process.service);
    let row = |name: String| Row {
        r#type: "metric",
        ts_ns,
        pid: process.pid,
        name,
        value: None,
        unavailable: None,
        labels: labels.clone(),
    };
    let name = sample.metric.name;
    let value = match &sample.value {
        Ok(value) => value,
        Err(why) => {
            return write_line(
                &Row { unavailable: Some(why.to_string()), ..row(name.to_owned()) },
                out,
            );
        }
    };
    for line in &value.lines() {
        let mut row = row(format!("{name}{}", line.suffix));
        row.value = Some(Figure(line.number));
        if let Some((name, value)) = &line.label {
            row.labels.insert(name, value);
        }
        write_line(&row, out)?;
    }
    Ok(())
}

/// How the reading of metrics went.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct MetricsSummary {
    /// Times all processes were read.
    pub rounds: u64,
    /// Processes read at least once.
    pub processes: u64,
    /// Of these, ones whose runtime could not be read, at the end or at their end.
    pub restricted: u64,
    /// Of these, ones that ended meanwhile.
    pub ended: u64,
    /// Times a process was found to run another program image than before.
    pub replaced: u64,
    /// Longest reading of all processes, nanoseconds.
    pub longest_round_ns: u64,
}

impl MetricsSummary {
    /// Writes the `{"type":"summary"}` line.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        #[derive(Serialize)]
        struct Tagged<'a> {
            r#type: &'static str,
            #[serde(flatten)]
            summary: &'a MetricsSummary,
        }
        write_line(&Tagged { r#type: "summary", summary: self }, out)
    }
}

fn write_line(row: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let mut line = serde_json::to_vec(row)?;
    line.push(b'\n');
    out.write_all(&line)
}
