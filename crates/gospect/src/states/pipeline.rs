//! Records of state changes to what is shown of them.

use super::filter::Filter;
use crate::args::{StatesBy, StatesFormat};
use output::{
    Clock, GoroutineRows, Perfetto, PerfettoFile, StatesHead, StatesJson, StatesPart,
    StatesSummary, StatesText, SymbolTable, write_goroutine_table, write_reason_table,
    write_site_table,
};
use probe::Plan;
use std::io::{self, Write};
use std::sync::Arc;
use timeline::Symbolizer;
use timeline::states::{Event, Lifetime, StateCounters, States, Tally};
use wire::Record;

/// Rows of a table.
const ROWS: usize = 100;

/// Rows of a table that is shown again and again.
const LIVE_ROWS: usize = 20;

/// What is shown.
#[derive(Clone, Debug, Default)]
pub struct StatesOptions {
    /// The form.
    pub format: StatesFormat,
    /// Every change, not only sums.
    pub events: bool,
    /// What the sums are by; `None` when that was not said.
    pub by: Option<StatesBy>,
    /// Escape sequences.
    pub color: bool,
    /// What of it.
    pub filter: Filter,
    /// Keep the names that a recorded file needs.
    pub keep_names: bool,
    /// The head of the text of all executables.
    pub head: StatesHead,
    /// What the timelines of all executables are written to.
    pub timeline: PerfettoFile,
}

/// The form of what is shown.
enum StatesShow {
    /// A line per change.
    Text(StatesText),
    /// JSON Lines.
    Json(Box<StatesJson>),
    /// A timeline.
    Perfetto(Box<Perfetto>),
    /// Tables at the end.
    Tables,
}

/// One image's stream of records on its way out.
pub struct StatesPipeline {
    states: States,
    options: StatesOptions,
    show: StatesShow,
    rows: GoroutineRows,
    /// Sums of what the filter chooses, when it leaves something out.
    chosen: Option<Tally>,
    names: Option<SymbolTable>,
    events: Vec<Event>,
    malformed: u64,
    /// Counts before the living were told of.
    at_end: Option<StateCounters>,
}

impl StatesPipeline {
    /// A pipeline for records of `plan`.
    pub fn new(plan: Arc<Plan>, clock: Clock, options: StatesOptions) -> Self {
        let show = match options.format {
            StatesFormat::Text if options.events => {
                StatesShow::Text(StatesText::new(clock, options.color, options.head.clone()))
            }
            StatesFormat::Text => StatesShow::Tables,
            StatesFormat::Json => {
                StatesShow::Json(Box::new(StatesJson::new(clock, options.events)))
            }
            StatesFormat::Perfetto => {
                let arrows = options.filter.arrows();
                StatesShow::Perfetto(Box::new(Perfetto::new(options.timeline.clone(), arrows)))
            }
        };
        Self {
            states: States::new(plan),
            show,
            rows: GoroutineRows::default(),
            chosen: (!options.filter.is_empty()).then(Tally::default),
            names: options.keep_names.then(SymbolTable::default),
            events: Vec::new(),
            malformed: 0,
            at_end: None,
            options,
        }
    }

    /// Takes one record.
    pub fn record(
        &mut self,
        record: &Record<'_>,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        self.states.push(record, &mut self.events);
        self.pass_on(symbols, out)
    }

    /// Tells that `now_ns` (the capture's clock) is reached.
    pub fn tick(
        &mut self,
        now_ns: u64,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        self.states.tick(now_ns, &mut self.events);
        self.pass_on(symbols, out)
    }

    /// Counts bytes that were no record.
    pub fn malformed(&mut self) {
        self.malformed += 1;
    }

    /// What was counted.
    pub fn counters(&self) -> StateCounters {
        let mut counters = self.states.counters();
        counters.invalid += self.malformed;
        counters
    }

    /// The names that a recorded file needs, those not handed out before.
    pub fn new_names(&mut self) -> Option<SymbolTable> {
        let names = self.names.as_mut()?;
        Some(names.take_new()).filter(|names| !names.is_empty())
    }

    /// Sums as they are at `now_ns`.
    fn tally(&self, now_ns: u64) -> Tally {
        let Some(chosen) = &self.chosen else { return self.states.tally(now_ns) };
        let mut tally = chosen.clone();
        let living = self.states.living(now_ns);
        for lifetime in living.filter(|lifetime| self.options.filter.wants_open(lifetime)) {
            self.states.add_open(&mut tally, lifetime.who, now_ns);
        }
        tally
    }

    /// Shows how things stand, on a terminal that is cleared first.
    pub fn show_live(
        &mut self,
        now_ns: u64,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if matches!(self.show, StatesShow::Tables) {
            out.write_all(b"\x1b[H\x1b[J")?;
            self.tables(now_ns, LIVE_ROWS, symbols, out)?;
        }
        Ok(())
    }

    fn tables(
        &self,
        now_ns: u64,
        most: usize,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let (tally, reasons) = (self.tally(now_ns), self.states.reasons());
        match self.options.by.unwrap_or_default() {
            StatesBy::Site => write_site_table(&tally, reasons, most, symbols, out),
            StatesBy::Reason => write_reason_table(&tally, reasons, out),
            StatesBy::Goid => {
                let living = self.states.living(now_ns);
                let filter = &self.options.filter;
                let wanted = living.filter(|one| filter.wants_goroutine(one.who.goid));
                let living: Vec<Lifetime> = wanted.collect();
                write_goroutine_table(&self.rows, &living, reasons, most, symbols, out)
            }
        }
    }

    /// Tells of the goroutines that live, and writes tables.
    pub fn finish(
        &mut self,
        now_ns: u64,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        self.tick(u64::MAX, symbols, out)?;
        let tally = self.tally(now_ns);
        if matches!(self.show, StatesShow::Tables) && self.states.counters().changes > 0 {
            self.tables(now_ns, ROWS, symbols, out)?;
        }
        let counters = self.states.counters();
        self.states.finish(now_ns, &mut self.events);
        self.pass_on(symbols, out)?;
        match &mut self.show {
            StatesShow::Perfetto(perfetto) => perfetto.finish(now_ns, out)?,
            StatesShow::Json(json) => match self.options.by {
                Some(StatesBy::Site) => json.sites(&tally, self.states.reasons(), symbols, out)?,
                Some(StatesBy::Reason) => json.reasons(&tally, self.states.reasons(), out)?,
                Some(StatesBy::Goid) | None => {}
            },
            StatesShow::Text(_) | StatesShow::Tables => {}
        }
        self.chosen = Some(tally);
        self.at_end = Some(counters);
        Ok(())
    }

    /// What `finish` has prepared for the summary.
    pub fn part<'a>(&'a self, symbols: &'a dyn Symbolizer) -> Option<StatesPart<'a>> {
        let mut counters = self.at_end?;
        counters.invalid += self.malformed;
        let (tally, reasons) = (self.chosen.as_ref()?, self.states.reasons());
        Some(StatesPart { counters, tally, reasons, symbols })
    }

    fn pass_on(&mut self, symbols: &dyn Symbolizer, out: &mut dyn Write) -> io::Result<()> {
        for event in std::mem::take(&mut self.events) {
            if let Some(names) = &mut self.names
                && let Event::Lifetime(lifetime) = &event
            {
                names.observe_origin(lifetime.who.pid, &lifetime.origin, symbols);
            }
            self.choose(&event);
            if !self.is_wanted(&event) {
                continue;
            }
            match &mut self.show {
                StatesShow::Text(text) => text.event(&event, out)?,
                StatesShow::Json(json) => {
                    json.event(&event, self.states.reasons(), symbols, out)?
                }
                StatesShow::Perfetto(perfetto) => perfetto.event(&event, symbols, out)?,
                StatesShow::Tables => {
                    if let Event::Lifetime(lifetime) = &event {
                        self.rows.push(lifetime);
                    }
                }
            }
        }
        Ok(())
    }

    fn is_wanted(&self, event: &Event) -> bool {
        let filter = &self.options.filter;
        match event {
            Event::Change(change) => filter.wants_change(change),
            Event::Unknown(unknown) => filter.wants_unknown(unknown),
            Event::Lifetime(lifetime) => filter.wants_goroutine(lifetime.who.goid),
            Event::Gap { .. } | Event::ProcessExit { .. } => true,
        }
    }

    /// Adds the stay that ends, when only chosen ones are summed up.
    fn choose(&mut self, event: &Event) {
        let Some(chosen) = &mut self.chosen else { return };
        if let Event::Change(change) = event {
            if self.options.filter.wants_goroutine(change.who.goid) {
                chosen.count(change);
            }
            if self.options.filter.wants_end(change) {
                chosen.add_change(change, self.states.reasons());
            }
        }
    }
}

/// Writes the summary: results to `out`, what else there is to know of a text to `notes`.
pub fn write_summary(
    summary: &StatesSummary<'_>,
    options: &StatesOptions,
    out: &mut dyn Write,
    notes: Option<&mut dyn Write>,
) -> io::Result<()> {
    match (options.format, options.events) {
        (StatesFormat::Json, _) => return summary.write_json(out),
        (StatesFormat::Text, false) => summary.write_results(out)?,
        (StatesFormat::Text, true) => {}
        (StatesFormat::Perfetto, _) => options.timeline.close(out)?,
    }
    out.flush()?;
    notes.map_or(Ok(()), |notes| summary.write_text(notes))
}
