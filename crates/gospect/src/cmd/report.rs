//! `gospect report FILE`: any output from a recorded file, without the process.

mod states;

use crate::args::{Format, ReportArgs, SpanChoice};
use crate::failure::{Outcome, nothing, usage};
use crate::pipeline::{Pipeline, ShowOptions};
use crate::recording::Ending;
use crate::{clock, sink};
use anyhow::Context as _;
use output::{Clock, PerfettoFile, Summary, SymbolTable};
use probe::Plan;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, Write as _};
use std::path::Path;
use std::sync::Arc;
use wire::file::{Chunk, FileReader, records};
use wire::{Record, RecordKind};

/// What a first pass over the file finds besides its records.
struct Contents {
    plan: Plan,
    names: SymbolTable,
    ending: Option<Ending>,
    clock: Clock,
    backend: String,
    /// Processes that hit a site.
    pids: BTreeSet<u32>,
    truncated: bool,
}

/// Shows the file.
pub fn run(args: &ReportArgs) -> anyhow::Result<Outcome> {
    let context = || format!("failed to read the recording {}", args.file.display());
    let contents = survey(&args.file).with_context(context)?;
    let color = sink::is_colored(args.show.tell.color, args.show.tell.output.as_deref());
    sink::keep_apart(args.show.tell.output.as_deref(), &args.file)?;
    let mut out = sink::open(args.show.tell.output.as_deref())?;
    let plan = Arc::new(contents.plan);
    let spans = crate::spans::is_recording_of(&plan);
    if plan.states.is_some() && !spans {
        let states = states::Recorded {
            plan,
            clock: contents.clock,
            names: contents.names,
            ending: contents.ending,
            backend: contents.backend,
            truncated: contents.truncated,
            processes: contents.pids.len() as u64,
        };
        return states.report(args, out);
    }
    if args.events || args.by.is_some() {
        return Err(usage("--events and --by are for recordings of `gospect sched`"));
    }
    if args.perfetto && !spans {
        return Err(usage("--perfetto is for recordings of `gospect sched` and `gospect spans`"));
    }
    let mut options = ShowOptions::new(&args.show, color);
    let times = plan.states.is_some();
    options.timeline = args.perfetto.then(PerfettoFile::default);
    options.spans = spans.then(|| SpanChoice { times, ..SpanChoice::default() });
    options.pids = contents.ending.as_ref().map_or(contents.pids.len() > 1, |ending| ending.pids);
    if options.drilldown(&plan).is_some_and(|roots| roots.is_empty()) {
        return Err(nothing(format!(
            "{}: no function that was traced matches {}",
            args.file.display(),
            options.drilldown.unwrap_or_default()
        )));
    }
    let mut pipeline = Pipeline::new(Arc::clone(&plan), contents.clock, &options);
    if let Some(from) = contents.ending.as_ref().and_then(|ending| ending.drained_from_ns) {
        pipeline.drain_from(from);
    }
    let last_ns = replay(&args.file, &mut |record| match record {
        Some(record) => pipeline.record(record, &contents.names, &mut out),
        None => {
            pipeline.malformed();
            Ok(())
        }
    })?;
    let end_ns = contents.ending.as_ref().map_or(0, |ending| ending.end_ns).max(last_ns);
    pipeline.finish(end_ns, &contents.names, &mut out)?;
    if let Some(timeline) = &options.timeline {
        timeline.close(&mut out)?;
    }
    let mut summary = contents.ending.map(|ending| ending.summary).unwrap_or_else(|| Summary {
        notes: vec!["the recording has no summary: its gospect did not end in order".to_owned()],
        processes: contents.pids.len() as u64,
        ..Summary::of_plan(&contents.backend, &plan)
    });
    if contents.truncated {
        summary.notes.push("the recording is truncated: this is what it holds".to_owned());
    }
    summary.count(&pipeline.counters());
    (summary.hidden, summary.undecided) = (None, None);
    summary.undecided_for.clear();
    summary.screen(pipeline.screened().as_ref());
    (summary.spans, summary.calls_outside_spans) = (None, None);
    summary.count_spans(pipeline.spans());
    match args.show.format {
        Format::Json if !args.perfetto => summary.write_json(&mut out)?,
        _ if args.show.tell.quiet => {}
        _ => {
            out.flush()?;
            summary.write_text(&mut std::io::stderr())?;
        }
    }
    out.flush()?;
    Ok(outcome(&summary, args.strict))
}

/// Hands on every record of a file, `None` for bytes that are none. Gives the time of the last one,
/// 0 without any. Only times pass here that the records tell, so that a file gives one output.
fn replay(
    path: &Path,
    take: &mut dyn FnMut(Option<&Record<'_>>) -> std::io::Result<()>,
) -> anyhow::Result<u64> {
    let mut last_ns = 0;
    let mut reader = FileReader::new(BufReader::new(File::open(path)?))?;
    while let Some(chunk) = reader.next_chunk()? {
        let Chunk::Records(batch) = chunk else { continue };
        for record in records(&batch) {
            let record = record.ok();
            last_ns = record.as_ref().map_or(0, |record| record.ts_ns).max(last_ns);
            take(record.as_ref())?;
        }
    }
    Ok(last_ns)
}

/// As the capture's own.
fn outcome(summary: &Summary, strict: bool) -> Outcome {
    match summary {
        Summary { lost, .. } if *lost > 0 && strict => Outcome::Grave,
        Summary { panics, .. } if *panics > 0 => Outcome::Grave,
        Summary { target_signal: Some(_), .. } => Outcome::Grave,
        Summary { entries: 0, .. } => Outcome::Nothing,
        _ => Outcome::Done,
    }
}

/// The names stand at the end of the file and are needed from its beginning: two passes.
fn survey(path: &Path) -> anyhow::Result<Contents> {
    let mut reader = FileReader::new(BufReader::new(File::open(path)?))?;
    let header = reader.header().clone();
    let mut plan = None;
    let mut names = SymbolTable::default();
    let mut ending = None;
    let mut pids = BTreeSet::new();
    while let Some(chunk) = reader.next_chunk()? {
        match chunk {
            Chunk::Plan(json) => {
                plan = Some(serde_json::from_slice(&json).context("failed to read its plan")?);
            }
            Chunk::Symbols(json) => {
                names.merge(serde_json::from_slice(&json).context("failed to read its names")?);
            }
            Chunk::Summary(json) => {
                ending = Some(serde_json::from_slice(&json).context("failed to read its summary")?);
            }
            Chunk::Records(batch) => {
                let hits = records(&batch).flatten().filter(|r| r.kind == RecordKind::Hit);
                pids.extend(hits.map(|record| record.pid));
            }
        }
    }
    Ok(Contents {
        plan: plan.context("it has no plan")?,
        names,
        ending,
        pids,
        clock: Clock { unix_offset_ns: header.unix_offset_ns, utc_offset_s: clock::utc_offset_s() },
        backend: header.backend,
        truncated: reader.truncated(),
    })
}
