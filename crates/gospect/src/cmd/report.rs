//! `gospect report FILE`: any output from a recorded file, without the process.

use crate::args::{Format, ReportArgs};
use crate::failure::Outcome;
use crate::pipeline::{Pipeline, ShowOptions};
use crate::{clock, sink};
use anyhow::Context as _;
use output::{Clock, Summary, SymbolTable};
use probe::Plan;
use std::fs::File;
use std::io::{BufReader, Write as _};
use std::path::Path;
use std::sync::Arc;
use wire::file::{Chunk, FileReader, records};

/// What a first pass over the file finds besides its records.
struct Contents {
    plan: Plan,
    names: SymbolTable,
    summary: Option<Summary>,
    clock: Clock,
    backend: String,
    truncated: bool,
}

/// Shows the file.
pub fn run(args: &ReportArgs) -> anyhow::Result<Outcome> {
    let context = || format!("failed to read the recording {}", args.file.display());
    let contents = survey(&args.file).with_context(context)?;
    let color = sink::is_colored(args.show.color, args.show.output.as_deref());
    let mut out = sink::open(args.show.output.as_deref())?;
    let plan = Arc::new(contents.plan);
    let options = ShowOptions::new(&args.show, color);
    let mut pipeline = Pipeline::new(Arc::clone(&plan), contents.clock, &options);
    let mut last_ns = 0;
    let mut reader = FileReader::new(BufReader::new(File::open(&args.file)?))?;
    while let Some(chunk) = reader.next_chunk()? {
        let Chunk::Records(batch) = chunk else { continue };
        for record in records(&batch) {
            let Ok(record) = record else {
                pipeline.malformed();
                continue;
            };
            last_ns = record.ts_ns.max(last_ns);
            pipeline.record(&record, &contents.names, &mut out)?;
            // Only times pass here that the records tell, so that a file gives one output.
            pipeline.tick(last_ns, &contents.names, &mut out)?;
        }
    }
    pipeline.finish(last_ns, &contents.names, &mut out)?;
    let mut summary = contents.summary.unwrap_or_else(|| Summary {
        notes: vec!["the recording has no summary: its gospect did not end in order".to_owned()],
        ..Summary::of_plan(&contents.backend, &plan)
    });
    if contents.truncated {
        summary.notes.push("the recording is truncated: this is what it holds".to_owned());
    }
    summary.count(&pipeline.counters());
    match args.show.format {
        Format::Json => summary.write_json(&mut out)?,
        Format::Text if args.show.quiet => {}
        Format::Text => {
            out.flush()?;
            summary.write_text(&mut std::io::stderr())?;
        }
    }
    out.flush()?;
    Ok(match summary {
        Summary { lost, .. } if lost > 0 && args.strict => Outcome::Grave,
        Summary { panics, .. } if panics > 0 => Outcome::Grave,
        Summary { entries: 0, .. } => Outcome::Nothing,
        _ => Outcome::Done,
    })
}

/// The names stand at the end of the file and are needed from its beginning: two passes.
fn survey(path: &Path) -> anyhow::Result<Contents> {
    let mut reader = FileReader::new(BufReader::new(File::open(path)?))?;
    let header = reader.header().clone();
    let mut plan = None;
    let mut names = SymbolTable::default();
    let mut summary = None;
    while let Some(chunk) = reader.next_chunk()? {
        match chunk {
            Chunk::Plan(json) => {
                plan = Some(serde_json::from_slice(&json).context("failed to read its plan")?);
            }
            Chunk::Symbols(json) => names = serde_json::from_slice(&json)?,
            Chunk::Summary(json) => summary = Some(serde_json::from_slice(&json)?),
            Chunk::Records(_) => {}
        }
    }
    Ok(Contents {
        plan: plan.context("it has no plan")?,
        names,
        summary,
        clock: Clock { unix_offset_ns: header.unix_offset_ns, utc_offset_s: clock::utc_offset_s() },
        backend: header.backend,
        truncated: reader.truncated(),
    })
}
