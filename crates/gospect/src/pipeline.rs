//! From one record to what a person sees: timeline, filter, writer. Live captures and
//! `report` share it.

use crate::args::{Format, ShowArgs, SpanChoice};
use crate::spans::Spans;
use output::{Clock, Json, PerfettoFile, SpanCounts, StatBy, SymbolTable, Text, TextOptions};
use probe::Plan;
use probe::expression::Request;
use probe::screen::Screen;
use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::Arc;
use timeline::{
    Counters, Event, Filter, FilterOptions, Options, Screened, Stats, Symbolizer, Timeline, decides,
};
use wire::{Record, RecordKind};

/// How results are shown.
#[derive(Clone, Debug, Default)]
pub struct ShowOptions {
    /// Text or JSON.
    pub format: Format,
    /// Escape sequences.
    pub color: bool,
    /// Several processes are captured.
    pub pids: bool,
    /// A table per function instead of calls.
    pub stat: bool,
    /// Requests instead of calls.
    pub spans: Option<SpanChoice>,
    /// A timeline of requests, which several executables share.
    pub timeline: Option<PerfettoFile>,
    /// Which function roots every tree shown.
    pub drilldown: Option<String>,
    /// Levels shown.
    pub depth: Option<u32>,
    /// Shortest call shown, nanoseconds.
    pub min_ns: Option<u64>,
    /// Root calls shown.
    pub limit: Option<u64>,
    /// Keep the names that a recorded file needs.
    pub keep_names: bool,
}

impl ShowOptions {
    /// As asked on the command line.
    pub fn new(args: &ShowArgs, color: bool) -> Self {
        Self {
            format: args.format,
            color,
            stat: args.stat,
            drilldown: args.drilldown.clone(),
            depth: args.depth,
            min_ns: args.min.map(|span| span.0.as_nanos() as u64),
            limit: args.limit,
            ..Self::default()
        }
    }

    /// The traced functions that `--drilldown` names: that function, else those of the pattern.
    /// `None` when it is not given.
    pub fn drilldown(&self, plan: &Plan) -> Option<HashSet<u32>> {
        let name = self.drilldown.as_deref()?;
        let traced = || plan.functions.iter().enumerate().filter(|(_, f)| f.traced);
        let named: HashSet<u32> =
            traced().filter(|(_, f)| f.name == name).map(|(index, _)| index as u32).collect();
        if !named.is_empty() {
            return Some(named);
        }
        // It may be a whole rule; as a pattern alone when its values make no sense.
        let pattern = Request::parse(name).ok().map(|request| request.pattern);
        let matches = |name: &str| pattern.as_ref().is_some_and(|p| p.matches(name));
        Some(traced().filter(|(_, f)| matches(&f.name)).map(|(index, _)| index as u32).collect())
    }

    fn filter(&self, plan: &Plan) -> FilterOptions {
        let drilldown = self.drilldown(plan);
        FilterOptions { drilldown, depth: self.depth, min_ns: self.min_ns, limit: self.limit }
    }
}

enum Show {
    Text(Box<Text>),
    Json(Json),
    Stat(Box<Stats>),
    StatBy(Box<StatBy>),
    Spans(Box<Spans>),
}

/// One image's stream of records on its way out.
pub struct Pipeline {
    plan: Arc<Plan>,
    timeline: Timeline,
    filter: Option<Filter>,
    show: Show,
    names: Option<SymbolTable>,
    plan_named: bool,
    format: Format,
    events: Vec<Event>,
    shown: Vec<Event>,
    malformed: u64,
}

impl Pipeline {
    /// A pipeline for records of `plan`.
    pub fn new(plan: Arc<Plan>, clock: Clock, options: &ShowOptions) -> Self {
        let filter = options.filter(&plan);
        let at_end = |screen: &Screen| !screen.end.is_empty();
        let filters = !filter.is_empty() || plan.screens.values().any(at_end);
        let filter = filters.then(|| Filter::new(filter).with_conditions(&plan));
        let text = TextOptions { color: options.color, pids: options.pids };
        let show = match (options.stat, options.format) {
            _ if options.spans.is_some() => {
                Show::Spans(Box::new(Spans::new(&plan, clock, options, text)))
            }
            (true, _) if StatBy::is_asked(&plan) => {
                Show::StatBy(Box::new(StatBy::new(Arc::clone(&plan))))
            }
            (true, _) => Show::Stat(Box::default()),
            (false, Format::Json) => Show::Json(Json::new(Arc::clone(&plan), clock)),
            (false, Format::Text) => {
                Show::Text(Box::new(Text::new(Arc::clone(&plan), clock, text)))
            }
        };
        // A recording names what open calls mention too.
        let needed = filter.is_some() || options.keep_names;
        let details = Options {
            enters: needed || matches!(show, Show::Text(_) | Show::Spans(_)),
            panics: matches!(show, Show::Spans(_)),
            ..Options::default()
        };
        let timeline = Timeline::new(Arc::clone(&plan), details);
        Self {
            plan,
            timeline,
            filter,
            show,
            names: options.keep_names.then(SymbolTable::default),
            plan_named: false,
            format: options.format,
            events: Vec::new(),
            shown: Vec::new(),
            malformed: 0,
        }
    }

    /// Takes one record. Time passes up to it first: a line that was held long enough goes out
    /// whether or not records came in between, so that a replay writes what the capture wrote.
    pub fn record(
        &mut self,
        record: &Record<'_>,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if let (Show::Stat(stats), None, None) = (&mut self.show, &self.filter, &self.names) {
            self.timeline.tally(record, stats);
            return Ok(());
        }
        let names = &mut self.names;
        let mut named = |pid, origin: &timeline::states::Origin| {
            if let Some(names) = names {
                names.observe_origin(pid, origin, symbols);
            }
        };
        if let Show::Spans(spans) = &mut self.show
            && record.kind == RecordKind::Hit
            && spans.takes(record, symbols, &mut named)
        {
            return Ok(());
        }
        self.tick(record.ts_ns, symbols, out)?;
        self.timeline.push(record, &mut self.events);
        if self.events.is_empty() { Ok(()) } else { self.pass_on(symbols, out) }
    }

    /// Tells that `now_ns` (the capture's clock) is reached: held lines may go out.
    pub fn tick(
        &mut self,
        now_ns: u64,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if let Some(filter) = &mut self.filter {
            filter.tick(now_ns, &mut self.shown);
            self.pass_on(symbols, out)?;
        }
        match &mut self.show {
            Show::Text(text) => text.tick(now_ns, symbols, out),
            Show::Spans(spans) => spans.tick(now_ns, out),
            Show::Json(_) | Show::Stat(_) | Show::StatBy(_) => Ok(()),
        }
    }

    /// See [`Timeline::release`].
    pub fn release(
        &mut self,
        is_released: &dyn Fn(u32) -> bool,
        now_ns: u64,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        self.timeline.release(is_released, now_ns, &mut self.events);
        self.pass_on(symbols, out)
    }

    /// See [`Timeline::drain_from`].
    pub fn drain_from(&mut self, ts_ns: u64) {
        self.timeline.drain_from(ts_ns);
    }

    /// Whether no call is open.
    pub fn is_idle(&self) -> bool {
        self.timeline.is_idle()
    }

    /// Whether the limit of root calls is reached.
    pub fn is_done(&self) -> bool {
        self.filter.as_ref().is_some_and(Filter::done)
    }

    /// Reports what is still open and writes what was held back; the table of `--stat`.
    pub fn finish(
        &mut self,
        now_ns: u64,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        self.tick(now_ns, symbols, out)?;
        self.timeline.finish(now_ns, &mut self.events);
        self.pass_on(symbols, out)?;
        match &mut self.show {
            Show::Text(text) => text.finish(now_ns, out),
            Show::Json(_) => Ok(()),
            Show::Spans(spans) => spans.finish(out),
            Show::Stat(stats) => match self.format {
                Format::Json => output::write_stat_json(&self.plan, &stats.table(), out),
                Format::Text => output::write_stat_table(&self.plan, &stats.table(), out),
            },
            Show::StatBy(stats) => match self.format {
                Format::Json => stats.write_json(out),
                Format::Text => stats.write_table(out),
            },
        }
    }

    /// What the timeline counted.
    pub fn counters(&self) -> Counters {
        let mut counters = self.timeline.counters();
        counters.invalid += self.malformed;
        counters
    }

    /// What conditions came to, where there are some.
    pub fn screened(&self) -> Option<Screened> {
        self.plan.screens.values().any(decides).then(|| {
            let mut screened = self.timeline.screened().clone();
            self.filter.iter().for_each(|filter| screened.add(filter.screened()));
            screened
        })
    }

    /// What was counted of spans, where requests are shown.
    pub fn spans(&self) -> Option<SpanCounts> {
        match &self.show {
            Show::Spans(spans) => Some(spans.counts()),
            _ => None,
        }
    }

    /// See [`Spans::exported`].
    pub fn exported(&self) -> Option<String> {
        match &self.show {
            Show::Spans(spans) => spans.exported(),
            _ => None,
        }
    }

    /// The names that a recorded file needs, those not handed out before; `None` when there
    /// are none or they are not kept.
    pub fn new_names(&mut self, symbols: &dyn Symbolizer) -> Option<SymbolTable> {
        let names = self.names.as_mut()?;
        if !std::mem::replace(&mut self.plan_named, true) {
            names.observe_plan(&self.plan, symbols);
        }
        Some(names.take_new()).filter(|names| !names.is_empty())
    }

    /// Counts bytes that were no record.
    pub fn malformed(&mut self) {
        self.malformed += 1;
    }

    fn pass_on(&mut self, symbols: &dyn Symbolizer, out: &mut dyn Write) -> io::Result<()> {
        if let Some(names) = &mut self.names {
            self.events.iter().for_each(|event| names.observe(event, symbols));
        }
        let shown = match &mut self.filter {
            Some(filter) => {
                self.events.drain(..).for_each(|event| filter.push(event, &mut self.shown));
                &mut self.shown
            }
            None => &mut self.events,
        };
        for event in shown.drain(..) {
            match &mut self.show {
                Show::Text(text) => text.event(&event, symbols, out)?,
                Show::Json(json) => json.event(&event, symbols, out)?,
                Show::Stat(stats) => stats.push(&event),
                Show::StatBy(stats) => stats.push(event, symbols),
                Show::Spans(spans) => spans.event(&event, symbols, out)?,
            }
        }
        Ok(())
    }
}
