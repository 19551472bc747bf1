//! An executable with the plan for it, and putting that into processes.

use crate::args::{Auto, Backend, Cli, Command, SpanChoice, TraceArgs};
use crate::cmd::trace::install::{Installed, Installing, Planning, forced_options, rings};
use crate::explain;
use crate::pipeline::ShowOptions;
use crate::session::Session;
use crate::spans::Taken;
use crate::symbols::Symbols;
use crate::target::Target;
use crate::tariff::Probed;
use agent::Service;
use binary::Segment;
use capture::{Capture as _, Scope};
use capture_trampoline::TrampolineCapture;
use capture_trampoline::preload::{Planned as Carried, is_same_build};
use clap::Parser as _;
use output::Clock;
use probe::planner::Planned;
use probe::selection::Selection;
use process::Held;
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

/// Bytes captured of a text, as `gospect spans` has it.
const TEXT_BYTES: u16 = 128;
/// Size of the rings of one process, MiB: an agent has many, and reads often.
const RING: u32 = 4;
/// What tells who made which goroutine, and what they do.
pub const GOROUTINES: &str = "goroutines";

/// An executable, planned for one service.
pub struct Prepared {
    /// The executable.
    pub target: Target,
    /// The plan.
    pub planned: Planned,
    selection: Selection,
    service: Service,
    /// What each function of the plan belongs to, as far as it can be given up.
    pub units: Vec<Option<String>>,
    /// The same for programs that put it into themselves, once one has asked.
    /// All files of one build share it.
    carried: Arc<OnceLock<Result<Arc<Carried>, String>>>,
}

/// A capture that began.
pub struct Begun {
    /// It.
    pub session: Session,
    /// What it gives.
    pub taken: Receiver<Taken>,
    /// What a person should know.
    pub notes: Vec<String>,
    /// Why this backend.
    pub why: String,
}

impl Prepared {
    /// Plans `target` for `service`. An empty plan is an error that says why.
    pub fn new(target: Target, service: &Service) -> anyhow::Result<Self> {
        let (taker, _) = channel();
        let args = trace_args(service, Some(taker))?;
        let choice = args.spans.clone().unwrap_or_default();
        let mut selection = crate::cmd::trace::spans_selection(&choice)?;
        keep_sensors(&mut selection, service);
        let planning = Planning { args: &args, selection: &selection, sees_start: true };
        let planned = planning.plan(&target)?;
        let units = planned.plan.functions.iter().map(|function| {
            if function.witness.is_some() {
                return None;
            }
            match sensors::sensor_of(&function.name) {
                Some(sensor) if function.traced => Some(sensors::group_of(sensor.role).to_owned()),
                _ if function.traced => Some(function.name.clone()),
                _ => Some(GOROUTINES.to_owned()),
            }
        });
        let units = units.collect();
        let (service, carried) = (service.clone(), Arc::default());
        Ok(Self { target, planned, selection, service, units, carried })
    }

    /// Whether a plan of `target` for `service` would be this one: the same build, in each container a file of its own.
    pub fn is_for(&self, target: &Target, service: &Service) -> bool {
        // Without its debug information a file of the same build is planned in another way.
        self.service.plans_as(service)
            && self.target.stamp.size == target.stamp.size
            && is_same_build(&self.target.executable, &target.executable)
    }

    /// The same of another file, for which it [is](Self::is_for).
    #[must_use]
    pub fn of_copy(&self, target: Target) -> Self {
        let mut planned = self.planned.clone();
        planned.plan.image.path = target.shown.display().to_string();
        Self {
            target,
            planned,
            selection: self.selection.clone(),
            service: self.service.clone(),
            units: self.units.clone(),
            carried: Arc::clone(&self.carried),
        }
    }

    /// Puts the plan into a process, without what is `dropped`. `child` is the process when it is to be started.
    pub fn install(
        &self,
        pid: u32,
        backend: Backend,
        dropped: &BTreeSet<String>,
        clock: Clock,
        child: Option<&mut Held>,
    ) -> anyhow::Result<Begun> {
        let (taker, taken) = channel();
        let mut args = trace_args(&self.service, Some(taker))?;
        args.capture.backend = backend;
        args.capture.ring = child.is_none().then_some(RING);
        let show = ShowOptions { spans: args.spans.clone(), ..ShowOptions::default() };
        let installing = Installing {
            args: &args,
            selection: &self.selection,
            forced: forced_options()?,
            clock,
            show: &show,
        };
        let planned = self.without(dropped);
        let installed = installing.install(&self.target, planned, Scope::Pids(vec![pid]), child)?;
        let Installed { mut session, notes, why, .. } = installed;
        session.observe_costs();
        Ok(Begun { session, taken, notes, why })
    }

    /// Whether a loader is run before the program, which may bring a library with it.
    pub fn has_loader(&self) -> bool {
        self.target.executable.image().segments().iter().any(Segment::names_loader)
    }

    /// What a program that asks is to carry: all of the plan that can be.
    pub fn carried(&self) -> Result<Arc<Carried>, String> {
        let made = || {
            let plan = Arc::new(self.planned.plan.clone());
            let executable = Arc::clone(&self.target.executable);
            let ring_bytes = (RING as usize) << 20;
            let carried = Carried::new(executable, plan, ring_bytes, BTreeSet::new());
            let told = |error: capture::Error| format!("{:#}", anyhow::Error::from(error));
            Ok(Arc::new(carried.map_err(told)?))
        };
        let carried = self.carried.get_or_init(made).clone();
        if let Ok(carried) = &carried {
            carried.read_from(self.target.stamp);
        }
        carried
    }

    /// Reads a capture that carries the whole plan and was begun by someone else.
    pub fn adopt(&self, mut capture: TrampolineCapture, clock: Clock) -> anyhow::Result<Begun> {
        capture.rest_up_to(rings(true, &self.selection).rest_of(RING));
        let (taker, taken) = channel();
        let args = trace_args(&self.service, Some(taker))?;
        let show = ShowOptions { spans: args.spans, ..ShowOptions::default() };
        let mut plan = self.planned.plan.clone();
        let notes = explain::add_refused(&mut plan, capture.refused());
        let (plan, capture) = (Arc::new(plan), Box::new(capture));
        let executable = Arc::clone(&self.target.executable);
        let symbols = Symbols::new(executable, self.target.bias_finder());
        let probed = Probed::none();
        let mut session =
            Session::new(&self.planned, plan, capture, symbols, clock, &show, &probed);
        session.observe_costs();
        Ok(Begun { session, taken, notes, why: "the program asked".to_owned() })
    }

    /// Functions of these units, by their numbers in the plan.
    pub fn functions_of(&self, units: &BTreeSet<String>) -> BTreeSet<u32> {
        let numbered = (0u32..).zip(&self.units);
        let is_theirs = |unit: &Option<String>| unit.as_ref().is_some_and(|it| units.contains(it));
        numbered.filter(|(_, unit)| is_theirs(unit)).map(|(function, _)| function).collect()
    }

    fn without(&self, dropped: &BTreeSet<String>) -> Planned {
        let mut planned = self.planned.clone();
        if dropped.is_empty() {
            return planned;
        }
        let is_kept = |function: u32| {
            let unit = self.units.get(function as usize).and_then(Option::as_ref);
            unit.is_none_or(|unit| !dropped.contains(unit))
        };
        let (plan, sites) = self.planned.plan.only(&is_kept);
        let costs = &self.planned.costs;
        planned.costs =
            sites.iter().filter_map(|&site| costs.get(site as usize).copied()).collect();
        planned.plan = plan;
        planned
    }
}

/// Leaves out the sensors that the service does not want.
fn keep_sensors(selection: &mut Selection, service: &Service) {
    let is_wanted = |text: &str| {
        let group = sensors::sensor_of(text).map(|sensor| sensors::group_of(sensor.role));
        group.is_some_and(|group| service.sensors.iter().any(|name| name == group))
    };
    let asked = selection.wanted.split_off(selection.always);
    selection.wanted.retain(|wanted| is_wanted(&wanted.text));
    selection.always = selection.wanted.len();
    selection.wanted.extend(asked);
}

/// The command line of `trace` that asks for what a service wants.
fn trace_args(service: &Service, taker: Option<Sender<Taken>>) -> anyhow::Result<TraceArgs> {
    let Command::Trace(mut args) = Cli::try_parse_from(["gospect", "trace"])?.command else {
        unreachable!("the line above names `trace`")
    };
    args.select.max_string = TEXT_BYTES;
    (args.select.arguments, args.select.results) = (Auto::None, Auto::None);
    args.spans = Some(SpanChoice {
        queries: service.queries,
        headers: service.headers.clone(),
        statements: service.sql,
        times: service.time,
        functions: service.functions.clone(),
        taker,
        ..SpanChoice::default()
    });
    Ok(*args)
}
