//! Requests: what is planned for them, and how they are written.

use crate::args::{Format, SpanChoice};
use crate::pipeline::ShowOptions;
use crate::target::Target;
use binary::DebugInfo;
use binary::code::ProbeCost;
use binary::layout::RuntimeLayouts;
use otlp::{Exported, Exporter};
use output::{
    CallForm, CallWriter, Clock, Json, SpanCounts, SpanTimeline, SpanTrees, TextOptions,
    write_span_json,
};
use probe::handover::{HandOver, add_hand_overs};
use probe::planner::Planned;
use probe::selection::Selection;
use probe::states::{CREATING, StateEvent, StateOffsets, add_creations, add_states, state_names};
use probe::{Plan, Refusal, RefusalReason};
use sensors::{Made, SensorOptions, Span, SpanBuilder, SpanOptions};
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write};
use std::sync::Arc;
use timeline::states::{Origin, States};
use timeline::{End, Event, Symbolizer};
use wire::Record;

/// The functions that are watched: those of sensors, and those that are asked for, to which the exclusions
/// apply.
pub fn selection(choice: &SpanChoice, asked: Selection) -> Selection {
    let options = SensorOptions { queries: choice.queries, headers: choice.headers.clone() };
    let sensors = sensors::selection(&options).wanted;
    let always = sensors.len();
    let wanted = sensors.into_iter().chain(asked.wanted).collect();
    Selection { wanted, always, ..asked }
}

/// Adds to a plan what tells which goroutine made which, and for `times` what each does. Without it requests lose
/// what they do on other goroutines and what their time went to, nothing else.
pub fn watch_goroutines(
    target: &Target,
    debug: Option<&DebugInfo>,
    times: bool,
    planned: &mut Planned,
) {
    let costs: HashMap<_, _> =
        planned.plan.sites.iter().map(|site| site.address).zip(planned.costs.drain(..)).collect();
    let layouts = RuntimeLayouts::new(target.executable.go_version(), debug);
    let added = match StateOffsets::of(&layouts) {
        Ok(offsets) if times => {
            add_all_states(target, &offsets, &mut planned.plan).map_err(|error| error.to_string())
        }
        Ok(offsets) => add_creations(&mut planned.plan, &target.executable, &offsets)
            .map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    // Without it no goroutine is known to work for the request that made it alone.
    let added = added.and_then(|()| {
        let offsets = StateOffsets::of(&layouts).map_err(|error| error.to_string())?;
        add_hand_overs(&mut planned.plan, &target.executable, &offsets)
            .map_err(|error| error.to_string())
    });
    if let Err(reason) = added {
        let reason = RefusalReason(format!("is not watched for who makes goroutines: {reason}"));
        planned.plan.refused.push(Refusal { function: CREATING.to_owned(), reason });
    }
    // Sites may have been put between others.
    let of = |address| costs.get(address).copied().unwrap_or(ProbeCost::SingleStepped);
    planned.costs = planned.plan.sites.iter().map(|site| of(&site.address)).collect();
}

fn add_all_states(
    target: &Target,
    offsets: &StateOffsets,
    plan: &mut Plan,
) -> Result<(), binary::Error> {
    plan.states = Some(state_names(&target.executable)?);
    add_states(plan, &target.executable, offsets)
}

/// Whether a recording is one of requests.
pub fn is_recording_of(plan: &Plan) -> bool {
    let has_creations = (0..plan.sites.len() as u32).any(|site| StateEvent::is_at(plan, site));
    has_creations && sensors::is_sensed(plan)
}

/// What someone takes who wants no text of it.
#[derive(Debug)]
pub enum Taken {
    /// A span.
    Span(Box<Span>),
    /// A call that was seen to return, of a function by its number in the plan: how long it took, nanoseconds.
    Call {
        /// Which function.
        function: u32,
        /// How long.
        ns: u64,
    },
}

/// Where that goes.
pub type Taker = std::sync::mpsc::Sender<Taken>;

enum Writer {
    Timeline(Box<SpanTimeline>),
    Taker(Taker),
    Collector(Box<Exporter>),
    Trees(Box<SpanTrees>),
    /// And a writer for what is no span: gaps and panics.
    Json(Clock, Box<Json>),
}

/// Makes spans of a timeline's events and writes them.
pub struct Spans {
    plan: Arc<Plan>,
    builder: SpanBuilder,
    writer: Writer,
    calls: CallWriter,
    /// Which sites tell of goroutines.
    goroutines: Vec<bool>,
    /// What goroutines do, where that is told.
    states: Option<States>,
    state_events: Vec<timeline::states::Event>,
    done: Vec<Span>,
    line: Vec<u8>,
    written: u64,
    exported: Option<Exported>,
}

impl Spans {
    /// For events of `plan`.
    pub fn new(plan: &Arc<Plan>, clock: Clock, show: &ShowOptions, text: TextOptions) -> Self {
        let seed = RandomState::new().hash_one(clock.unix_offset_ns);
        let SpanChoice { statements, times, collector, taker, .. } =
            show.spans.clone().unwrap_or_default();
        let options = SpanOptions { seed, statements, times, ..SpanOptions::default() };
        let writer = match (taker, collector, show.format) {
            (Some(taker), ..) => Writer::Taker(taker),
            (None, Some(settings), _) => {
                Writer::Collector(Box::new(Exporter::start(*settings, clock)))
            }
            (None, None, _) if let Some(file) = &show.timeline => {
                Writer::Timeline(Box::new(SpanTimeline::new(Arc::clone(plan), file.clone())))
            }
            (None, None, Format::Text) => {
                Writer::Trees(Box::new(SpanTrees::new(Arc::clone(plan), clock, text)))
            }
            (None, None, Format::Json) => {
                Writer::Json(clock, Box::new(Json::new(Arc::clone(plan), clock)))
            }
        };
        let form = match writer {
            Writer::Json(..) => CallForm::Json,
            Writer::Trees(_) | Writer::Timeline(_) | Writer::Collector(_) | Writer::Taker(_) => {
                CallForm::Text
            }
        };
        let sites = 0..plan.sites.len() as u32;
        Self {
            calls: CallWriter::new(Arc::clone(plan), form),
            builder: SpanBuilder::new(plan, options),
            goroutines: sites
                .map(|site| StateEvent::is_at(plan, site) || HandOver::is_at(plan, site))
                .collect(),
            states: times.then(|| States::new(Arc::clone(plan))),
            state_events: Vec::new(),
            plan: Arc::clone(plan),
            writer,
            done: Vec::new(),
            line: Vec::new(),
            written: 0,
            exported: None,
        }
    }

    /// Takes a record that tells of goroutines; tells whether it was one. `named` is told where goroutines come from
    /// that names are needed for.
    pub fn takes(
        &mut self,
        record: &Record<'_>,
        symbols: &dyn Symbolizer,
        named: &mut dyn FnMut(u32, &Origin),
    ) -> bool {
        if !self.goroutines.get(record.site as usize).is_some_and(|it| *it) {
            return false;
        }
        if let Some(HandOver { from, from_startpc, to }) = HandOver::parse(&self.plan, record) {
            named(record.pid, &Origin { startpc: from_startpc, ..Origin::default() });
            let is_of_library = || {
                let place = symbols.location(record.pid, from_startpc);
                place.is_some_and(|place| sensors::is_of_library(&place.func))
            };
            self.builder.handed(record.pid, from, to, &is_of_library);
            return true;
        }
        if let Some(states) = &mut self.states {
            states.push(record, &mut self.state_events);
            for event in self.state_events.drain(..) {
                self.builder.state(&event);
            }
        }
        if let Some(StateEvent::Creation(creation)) = StateEvent::parse(&self.plan, record) {
            let creator = creation.parent.unwrap_or(record.goid);
            self.builder.created(record.pid, creator, creation.goid);
            let (pid, goid, ts_ns) = (record.pid, creation.goid, record.ts_ns);
            let (gopc, startpc) = (creation.gopc, creation.startpc);
            let origin = Origin { gopc, startpc, parent: creator };
            if self.builder.made(Made { pid, goid, ts_ns, origin }) {
                named(pid, &origin);
            }
        }
        true
    }

    /// Tells that `now_ns` (the capture's clock) is reached: spans whose time is known go out.
    pub fn tick(&mut self, now_ns: u64, out: &mut dyn Write) -> io::Result<()> {
        let Some(states) = &mut self.states else { return Ok(()) };
        states.tick(now_ns, &mut self.state_events);
        for event in self.state_events.drain(..) {
            self.builder.state(&event);
        }
        self.builder.advance(now_ns, &mut self.done);
        self.write(out)
    }

    /// Takes an event, and writes the spans that ended by it.
    pub fn event(
        &mut self,
        event: &Event,
        symbols: &dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if let (Writer::Json(_, json), Event::Gap { .. } | Event::Panic(_)) =
            (&mut self.writer, event)
        {
            json.event(event, symbols, out)?;
        }
        if let (Writer::Timeline(timeline), Event::Enter(call)) = (&self.writer, event) {
            timeline.begins(call.start_ns);
        }
        if let (Writer::Taker(taker), Event::Enter(call) | Event::Leave(call)) =
            (&self.writer, event)
            && self.builder.is_shown(call.function)
        {
            if matches!(event, Event::Leave(_)) && call.end_exact {
                let ns = call.end_ns.saturating_sub(call.start_ns);
                // Whoever took it may have gone.
                _ = taker.send(Taken::Call { function: call.function, ns });
            }
            return Ok(());
        }
        match event {
            Event::Enter(call) | Event::Leave(call) if self.builder.is_shown(call.function) => {
                self.builder.push_call(event, symbols, &mut self.calls);
            }
            _ => self.builder.push(event, symbols, &mut self.done),
        }
        match event {
            Event::Leave(call) if call.end == End::Exec => self.calls.forget(call.pid),
            Event::ProcessExit { pid, .. } => self.calls.forget(*pid),
            _ => {}
        }
        self.write(out)
    }

    /// Writes what was held back.
    pub fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if let Some(states) = &mut self.states {
            states.tick(u64::MAX, &mut self.state_events);
            for event in self.state_events.drain(..) {
                self.builder.state(&event);
            }
        }
        self.builder.finish(&mut self.done);
        self.write(out)?;
        match &mut self.writer {
            Writer::Trees(trees) => trees.finish(out),
            Writer::Timeline(timeline) => timeline.finish(out),
            Writer::Json(..) | Writer::Taker(_) => Ok(()),
            Writer::Collector(exporter) => {
                self.exported = Some(exporter.finish());
                Ok(())
            }
        }
    }

    /// What was counted.
    pub fn counts(&self) -> SpanCounts {
        SpanCounts {
            written: self.written,
            refused: self.builder.refused(),
            calls_outside: self.builder.calls_outside(),
        }
    }

    /// What became of spans that were sent, as a person reads it.
    pub fn exported(&self) -> Option<String> {
        self.exported.as_ref().map(ToString::to_string)
    }

    fn write(&mut self, out: &mut dyn Write) -> io::Result<()> {
        for span in self.done.drain(..) {
            self.written += 1;
            match &mut self.writer {
                Writer::Trees(trees) => trees.span(span, out)?,
                Writer::Timeline(timeline) => timeline.span(span, out)?,
                Writer::Json(clock, _) => {
                    write_span_json(&span, &self.plan, clock, &mut self.line, out)?;
                }
                Writer::Collector(exporter) => exporter.span(span),
                Writer::Taker(taker) => _ = taker.send(Taken::Span(Box::new(span))),
            }
        }
        Ok(())
    }
}
