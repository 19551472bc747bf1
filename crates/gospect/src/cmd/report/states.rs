//! A recording of goroutine states.

use crate::args::{Format, ReportArgs, StatesFormat};
use crate::failure::{Outcome, usage};
use crate::recording::Ending;
use crate::sink;
use crate::states::{StatesOptions, StatesPipeline, write_summary};
use output::{Clock, StatesSummary, Summary, SymbolTable, nothing_changed};
use probe::Plan;
use std::io::Write;
use std::sync::Arc;

/// What a file holds besides its records.
pub struct Recorded {
    /// The plan.
    pub plan: Arc<Plan>,
    /// The records' clock.
    pub clock: Clock,
    /// Names of addresses.
    pub names: SymbolTable,
    /// How the capture ended.
    pub ending: Option<Ending>,
    /// The backend that captured.
    pub backend: String,
    /// Whether the file's end is missing.
    pub truncated: bool,
    /// Processes that hit a site.
    pub processes: u64,
}

impl Recorded {
    /// Shows the file.
    pub fn report(self, args: &ReportArgs, mut out: Box<dyn Write>) -> anyhow::Result<Outcome> {
        let options = options(args)?;
        let mut pipeline = StatesPipeline::new(self.plan.clone(), self.clock, options.clone());
        let last_ns = super::replay(&args.file, &mut |record| match record {
            Some(record) => pipeline.record(record, &self.names, &mut out),
            None => {
                pipeline.malformed();
                Ok(())
            }
        })?;
        let end_ns = self.ending.as_ref().map_or(0, |ending| ending.end_ns).max(last_ns);
        pipeline.finish(end_ns, &self.names, &mut out)?;
        let (plan, names) = (Arc::clone(&self.plan), self.names.clone());
        let summary = self.summary(&plan, &pipeline);
        let mut stderr = std::io::stderr();
        let notes: Option<&mut dyn Write> =
            if args.show.tell.quiet { None } else { Some(&mut stderr) };
        let parts = pipeline.part(&names).into_iter().collect();
        let whole = StatesSummary { capture: &summary, parts };
        write_summary(&whole, &options, &mut out, notes)?;
        out.flush()?;
        let counters = pipeline.counters();
        let grave =
            summary.target_signal.is_some() || (args.strict && summary.lost.max(counters.lost) > 0);
        Ok(match (grave, counters.changes) {
            (true, _) => Outcome::Grave,
            (false, 0) => Outcome::Nothing,
            (false, _) => Outcome::Done,
        })
    }

    /// The capture's own, or what can be said without it.
    fn summary(self, plan: &Plan, pipeline: &StatesPipeline) -> Summary {
        let mut summary = self.ending.map(|ending| ending.summary).unwrap_or_else(|| Summary {
            notes: vec![
                "the recording has no summary: its gospect did not end in order".to_owned(),
            ],
            processes: self.processes,
            ..Summary::of_plan(&self.backend, plan)
        });
        if self.truncated {
            summary.notes.push("the recording is truncated: this is what it holds".to_owned());
        }
        summary.zero_hits = nothing_changed(&summary, &pipeline.counters());
        summary
    }
}

fn options(args: &ReportArgs) -> anyhow::Result<StatesOptions> {
    let show = &args.show;
    let of_calls = show.drilldown.is_some()
        || show.depth.is_some()
        || show.min.is_some()
        || show.limit.is_some()
        || show.stat;
    if of_calls {
        return Err(usage(
            "the file is a recording of `gospect sched`, which holds no calls: use --events, --by \
             and --perfetto",
        ));
    }
    let format = match (args.perfetto, show.format) {
        (true, _) => StatesFormat::Perfetto,
        (false, Format::Json) => StatesFormat::Json,
        (false, Format::Text) => StatesFormat::Text,
    };
    Ok(StatesOptions {
        format,
        events: args.events,
        by: args.by,
        color: sink::is_colored(show.tell.color, show.tell.output.as_deref()),
        ..StatesOptions::default()
    })
}
