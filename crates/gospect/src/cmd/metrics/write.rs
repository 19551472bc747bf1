//! Rounds of metrics on their way out.

use super::say_restricted;
use crate::args::{MetricsArgs, MetricsFormat};
use crate::clock;
use crate::monitor::{Fleet, Round};
use crate::sink;
use anyhow::Context as _;
use output::{Clock, MetricsSummary, ProcessMetrics};
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Writes rounds in the chosen format.
pub struct Writer {
    format: MetricsFormat,
    quiet: bool,
    repeats: bool,
    out: Out,
    /// The reason last said, by process.
    told: HashMap<u32, String>,
    summary: MetricsSummary,
}

/// Where rounds go.
enum Out {
    /// One behind the other.
    Stream(Box<dyn Write>),
    /// Each in the place of the one before, for readers that take the file whole (the textfile
    /// collector of Prometheus's node exporter).
    File(PathBuf),
}

impl Writer {
    /// Opens the destination.
    pub fn open(args: &MetricsArgs) -> anyhow::Result<Self> {
        let whole = args.format == MetricsFormat::Prometheus;
        let out = match &args.output {
            Some(path) if whole && is_plain(path) => Out::File(path.clone()),
            path => Out::Stream(sink::open(path.as_deref())?),
        };
        Ok(Self {
            format: args.format,
            quiet: args.quiet,
            repeats: args.interval.is_some() || args.duration.is_some(),
            out,
            told: HashMap::new(),
            summary: MetricsSummary::default(),
        })
    }

    /// Writes what one round read.
    pub fn round(
        &mut self,
        all: &[ProcessMetrics],
        round: Round,
        took: Duration,
    ) -> anyhow::Result<()> {
        let summary = &mut self.summary;
        summary.rounds += 1;
        summary.ended += round.ended;
        summary.replaced += round.replaced;
        summary.longest_round_ns = summary.longest_round_ns.max(took.as_nanos() as u64);
        let now = clock::monotonic_ns();
        let clock =
            Clock { unix_offset_ns: clock::unix_offset_ns(), utc_offset_s: clock::utc_offset_s() };
        let mut text = Vec::new();
        if self.format == MetricsFormat::Text && self.repeats && !all.is_empty() {
            writeln!(text, "{}", clock.time_of_day(now))?;
        }
        let mut told = HashMap::with_capacity(self.told.len());
        for process in all {
            let reason = process.restricted.as_ref();
            let known = self.told.get(&process.pid);
            let new = reason.is_some() && known != reason;
            match self.format {
                MetricsFormat::Text => output::write_metrics_text(process, new, &mut text)?,
                MetricsFormat::Json => {
                    let unix = now.wrapping_add_signed(clock.unix_offset_ns);
                    output::write_metrics_json(process, unix, new, &mut text)?;
                }
                MetricsFormat::Prometheus => {
                    if let Some(reason) = reason.filter(|_| new && !self.quiet) {
                        say_restricted(process.pid, &process.exe, reason);
                    }
                }
            }
            // Also those that work again: the same reason a second time is news then.
            if let Some(reason) = reason {
                told.insert(process.pid, reason.clone());
            }
        }
        self.told = told;
        if self.format == MetricsFormat::Prometheus {
            output::write_exposition(all, &mut text)?;
        }
        self.write(&text)
    }

    fn write(&mut self, text: &[u8]) -> anyhow::Result<()> {
        match &mut self.out {
            Out::Stream(out) => {
                out.write_all(text)?;
                out.flush()?;
            }
            Out::File(path) => replace(path, text)?,
        }
        Ok(())
    }

    /// Writes the end; says how many processes were read.
    pub fn finish(mut self, fleet: &Fleet) -> anyhow::Result<u64> {
        let seen = self.summary.ended + fleet.len() as u64;
        self.summary.processes = seen;
        self.summary.restricted = self.told.len() as u64;
        if self.format == MetricsFormat::Json && !self.quiet {
            let mut text = Vec::new();
            self.summary.write_json(&mut text)?;
            self.write(&text)?;
        }
        Ok(seen)
    }
}

/// Whether `path` is, or will be, a file of which nobody holds the other end.
fn is_plain(path: &Path) -> bool {
    std::fs::metadata(path).map_or(true, |meta| meta.is_file())
}

/// Puts a file with `text` in the place of `path`: readers see the old one or the new one.
fn replace(path: &Path, text: &[u8]) -> anyhow::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let fresh = PathBuf::from(name);
    let written = std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, path));
    if written.is_err() {
        // Of what could not be put in place nothing is to be left.
        let _ = std::fs::remove_file(&fresh);
    }
    written.with_context(|| format!("failed to write to {}", path.display()))
}
