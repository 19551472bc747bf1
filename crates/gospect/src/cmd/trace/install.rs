//! Plans an image and puts the plan on its processes.

use super::who::Who;
use crate::args::{Auto, Backend, TraceArgs};
use crate::failure::{nothing, usage};
use crate::pipeline::ShowOptions;
use crate::session::{Costs, Session, SiteCosts};
use crate::symbols::Symbols;
use crate::target::Target;
use crate::{explain, facts};
use anyhow::Context as _;
use capture::{Capture, Merged, Request, Scope};
use capture_trampoline::TrampolineCapture;
use capture_uprobe::{Options, SiteCost, UprobeCapture};
use output::Clock;
use probe::planner::{Planned, Question, ValueOptions, plan};
use probe::selection::Selection;
use process::Held;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};

/// What a hit costs until it is measured, and where it cannot be: kernel 6.18, x86-64 (see
/// docs/evaluation.md).
const COSTS: SiteCosts = SiteCosts { emulated_ns: 1_000, stepped_ns: 14_000, op_ns: 100 };

/// What a hit of a trampoline costs, nanoseconds (see docs/evaluation.md).
const TRAMPOLINE_COSTS: SiteCosts = SiteCosts { emulated_ns: 13, stepped_ns: 13, op_ns: 1 };

/// Has what hits cost here measured once, beside the capture that asks first.
fn measured_costs() -> Arc<OnceLock<SiteCosts>> {
    static MEASURED: LazyLock<Arc<OnceLock<SiteCosts>>> = LazyLock::new(|| {
        let measured = Arc::new(OnceLock::new());
        let result = Arc::clone(&measured);
        // Without a thread or without a result the assumed costs stay.
        _ = std::thread::Builder::new().name("calibrate".to_owned()).spawn(move || {
            if let Ok(SiteCost { emulated_ns, stepped_ns }) = capture_uprobe::calibrate() {
                _ = result.set(SiteCosts { emulated_ns, stepped_ns, op_ns: COSTS.op_ns });
            }
        });
        measured
    });
    Arc::clone(&MEASURED)
}

/// The choices in `GOSPECT_FORCE`, which tests use to take the ways of older kernels.
pub fn forced_options() -> anyhow::Result<Options> {
    let mut options = Options::default();
    for word in forced_words() {
        match word.as_str() {
            // Of the other backend.
            "no-rdpid" => {}
            "no-bpf" => options.no_bpf = true,
            "perf-link" => options.perf_link = true,
            "bounded-loop" => options.bounded_loop = true,
            "read-g" => options.read_g_always = true,
            other => return Err(usage(format!("unknown choice `{other}` in GOSPECT_FORCE"))),
        }
    }
    Ok(options)
}

fn forced_words() -> Vec<String> {
    let list = std::env::var_os("GOSPECT_FORCE").unwrap_or_default();
    let list = list.to_string_lossy();
    list.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// How the plan is made: what of it does not depend on the image.
#[derive(Clone, Copy)]
pub struct Planning<'a> {
    /// The command line.
    pub args: &'a TraceArgs,
    /// Which functions.
    pub selection: &'a Selection,
    /// Whether processes may be seen from their first instruction on.
    pub sees_start: bool,
}

impl Planning<'_> {
    /// Plans one image. An empty plan is an error that says why.
    pub fn plan(&self, target: &Target) -> anyhow::Result<Planned> {
        let context = || target.shown.display().to_string();
        let debug = target.debug_info()?;
        let runtime =
            facts::runtime_facts(&target.executable, debug.as_ref()).with_context(context)?;
        let fips = self.sees_start.then(|| facts::fips_range(&target.executable)).flatten();
        let select = &self.args.select;
        let question = Question {
            executable: &target.executable,
            debug: debug.as_ref(),
            selection: self.selection,
            values: ValueOptions {
                arguments: select.arguments == Auto::Auto,
                results: select.results == Auto::Auto,
                max_string: select.max_string as u16,
            },
            runtime,
            fips: fips.as_ref(),
        };
        let mut planned = plan(&question).with_context(context)?;
        planned.plan.image.path = target.shown.display().to_string();
        if !planned.plan.functions.iter().any(|function| function.traced) {
            let reason = explain::why_nothing(&target.executable, self.selection, &planned)?;
            return Err(nothing(format!("{}: {reason}", target.shown.display())));
        }
        Ok(planned)
    }
}

/// What an installation needs besides the plan.
pub struct Installing<'a> {
    /// Which backend installs.
    pub backend: Backend,
    /// Forced ways.
    pub forced: Options,
    /// Ring size in bytes.
    pub ring_bytes: usize,
    /// The capture's clock.
    pub clock: Clock,
    /// How results are shown.
    pub show: &'a ShowOptions,
}

/// A session and what its installation said.
pub struct Installed {
    /// The session.
    pub session: Session,
    /// How long it took.
    pub attach_time: Duration,
    /// What a person should know.
    pub notes: Vec<String>,
}

impl Installing<'_> {
    /// Installs `planned` on the processes in `scope`. `child` is the one process of a launch,
    /// which has not begun yet; the trampoline backend lets it begin.
    pub fn install(
        &self,
        target: &Target,
        mut planned: Planned,
        scope: Scope,
        child: Option<&mut Held>,
    ) -> anyhow::Result<Installed> {
        let start = Instant::now();
        let request = Request {
            plan: &planned.plan,
            path: target.path.clone(),
            scope,
            ring_bytes: self.ring_bytes,
        };
        let Made { capture, notes, refused, costs } = self.capture(&request, target, child)?;
        let attach_time = start.elapsed();
        let mut notes = notes;
        notes.extend(explain::add_refused(&mut planned.plan, &refused));
        let plan = Arc::new(planned.plan.clone());
        let symbols = Symbols::new(Arc::clone(&target.executable), target.bias_finder());
        let session = Session::new(&planned, plan, capture, symbols, self.clock, self.show, costs);
        Ok(Installed { session, attach_time, notes })
    }

    /// Puts a plan on its processes.
    pub fn capture(
        &self,
        request: &Request<'_>,
        target: &Target,
        child: Option<&mut Held>,
    ) -> anyhow::Result<Made> {
        match self.backend {
            Backend::Trampoline => self.trampolines(request, target, child),
            Backend::Auto | Backend::Uprobe => self.uprobes(request),
        }
        .with_context(|| format!("failed to trace {}", target.shown.display()))
    }

    fn uprobes(&self, request: &Request<'_>) -> anyhow::Result<Made> {
        // A breakpoint that the kernel sets over one of our jumps, or takes off there, breaks the
        // program: it knows the file's bytes only.
        if let Some(pid) = capture_trampoline::carrier(&request.path) {
            return Err(capture::Error::Failed {
                what: format!("put uprobes on `{}`", request.path.display()),
                source: format!(
                    "process {pid} runs it with trampolines of gospect in its code: end that \
                     capture, or run `gospect detach -p {pid}` when its gospect was killed"
                )
                .into(),
            }
            .into());
        }
        // A table shows no callers; a recording may be shown in every way.
        let without_callers = self.show.stat && !self.show.keep_names;
        let options = Options { without_callers, ..self.forced };
        let capture = UprobeCapture::install(request, options)?;
        let refused = capture
            .skipped_sites()
            .iter()
            .map(|site| (site.function, format!("the kernel refused a probe: {}", site.reason)));
        Ok(Made {
            notes: capture.notes().to_vec(),
            refused: refused.collect(),
            costs: Costs { assumed: COSTS, measured: measured_costs() },
            capture: Box::new(capture),
        })
    }

    /// Trampolines, and uprobes in the functions that they cannot serve.
    fn trampolines(
        &self,
        request: &Request<'_>,
        target: &Target,
        child: Option<&mut Held>,
    ) -> anyhow::Result<Made> {
        let mut refused = capture_trampoline::refusals(&target.executable, request.plan)?;
        let options = capture_trampoline::Options {
            executable: Some(Arc::clone(&target.executable)),
            no_rdpid: forced_words().iter().any(|word| word == "no-rdpid"),
        };
        let costs = Costs { assumed: TRAMPOLINE_COSTS, measured: Arc::default() };
        // Of a program that is started the probes have to be there before its first
        // instruction, so before the trampolines, which let it begin; in a running one they
        // follow, when it is known which functions are busy.
        let (first, second) = match child {
            Some(child) => {
                let second = self.rest(request, &refused);
                let first = TrampolineCapture::launch(request, options, || child.release())?;
                (first, second)
            }
            None => {
                let first = TrampolineCapture::install(request, options)?;
                refused.extend(first.refused().clone());
                // The kernel would put the file's instruction where the program has another.
                let rewritten = first.reports().flat_map(|(_, report)| &report.rewritten);
                rewritten.for_each(|function| _ = refused.remove(function));
                let second = self.rest(request, &refused);
                (first, second)
            }
        };
        let mut left = first.refused().clone();
        let mut notes = Vec::new();
        let capture: Box<dyn Capture> = match second {
            Rest::Probed(rest) => {
                left.retain(|function, _| !rest.functions.contains(function));
                left.extend(rest.skipped);
                notes.push(format!(
                    "{} functions that carry no trampolines are probed by uprobes",
                    rest.functions.len()
                ));
                Box::new(Merged::new(Box::new(first), rest.capture, rest.sites))
            }
            Rest::Nothing => Box::new(first),
            Rest::Impossible(reason) => {
                notes.push(format!("functions without trampolines are left out: {reason:#}"));
                Box::new(first)
            }
        };
        Ok(Made { capture, notes, refused: left, costs })
    }

    /// Uprobes in those functions of the plan that are in `refused`, and in no others.
    fn rest(&self, request: &Request<'_>, refused: &BTreeMap<u32, String>) -> Rest {
        // What the backend itself has patched must bear no breakpoint.
        let is_hooked = |function: u32| {
            let function = request.plan.functions.get(function as usize);
            function.is_some_and(|function| function.name == capture_trampoline::HOOKED)
        };
        let (plan, sites) =
            request.plan.only(&|function| refused.contains_key(&function) && !is_hooked(function));
        if sites.is_empty() {
            return Rest::Nothing;
        }
        let part = Request { plan: &plan, ..request.clone() };
        let capture = match UprobeCapture::install(&part, self.forced) {
            Ok(capture) => capture,
            Err(error) => return Rest::Impossible(error.into()),
        };
        let skipped: BTreeMap<u32, String> = capture
            .skipped_sites()
            .iter()
            .map(|site| (site.function, format!("the kernel refused a probe: {}", site.reason)))
            .collect();
        let functions = sites.iter().map(|&site| request.plan.sites[site as usize].function);
        let functions = functions.filter(|function| !skipped.contains_key(function)).collect();
        Rest::Probed(Probed { capture: Box::new(capture), sites, functions, skipped })
    }
}

/// What became of the functions without trampolines.
enum Rest {
    Nothing,
    Probed(Probed),
    Impossible(anyhow::Error),
}

struct Probed {
    capture: Box<dyn Capture>,
    /// The whole plan's number of each of its sites.
    sites: Vec<u32>,
    functions: BTreeSet<u32>,
    skipped: BTreeMap<u32, String>,
}

/// What a backend made of a request.
pub struct Made {
    /// The capture, which runs.
    pub capture: Box<dyn Capture>,
    /// What a person should know.
    pub notes: Vec<String>,
    /// Functions it left out (indices into the plan), with the reason.
    pub refused: BTreeMap<u32, String>,
    /// What hits cost.
    pub costs: Costs,
}

/// Whether `who` is seen from the start.
impl<'a> Planning<'a> {
    /// Planning for `who`.
    pub fn new(args: &'a TraceArgs, selection: &'a Selection, who: &Who) -> Self {
        Self { args, selection, sees_start: who.sees_start() }
    }
}
