//! Plans an image and puts the plan on its processes.

use super::backend::{Installer, Made, Rings};
use super::who::Who;
use crate::args::{Auto, TraceArgs};
use crate::failure::{nothing, usage};
use crate::pipeline::ShowOptions;
use crate::session::Session;
use crate::symbols::Symbols;
use crate::target::Target;
use crate::{explain, facts, spans};
use anyhow::Context as _;
use binary::DebugInfo;
use capture::Scope;
use capture_uprobe::Options;
use output::Clock;
use probe::planner::{Planned, Question, ValueOptions, plan};
use probe::selection::Selection;
use process::Held;
use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// The same, as they stand there.
pub fn forced_words() -> Vec<String> {
    let list = std::env::var_os("GOSPECT_FORCE").unwrap_or_default();
    let list = list.to_string_lossy();
    list.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Uprobes slow a target down enough for any ring. Trampolines do not, and share the target's cache;
/// and a program that is started does in its first milliseconds what fills a small one.
const RINGS: Rings = Rings { uprobes: 8, trampolines: 2, launch: 16, rest: Duration::ZERO };

/// Records of requests are large, with texts and headers, and few.
const SPAN_RINGS: Rings =
    Rings { uprobes: 32, trampolines: 4, launch: 16, rest: Duration::from_millis(5) };

/// Beside requests calls were asked for, which may come by the million.
const SPAN_AND_CALL_RINGS: Rings = Rings { rest: Duration::ZERO, ..SPAN_RINGS };

/// Sizes of rings for calls, or for requests (`of_spans`) and what else is selected.
pub fn rings(of_spans: bool, selection: &Selection) -> Rings {
    let has_calls = selection.wanted.len() > selection.always;
    match (of_spans, has_calls) {
        (false, _) => RINGS,
        (true, false) => SPAN_RINGS,
        (true, true) => SPAN_AND_CALL_RINGS,
    }
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
                limits: select.limits(),
            },
            runtime,
            fips: fips.as_ref(),
        };
        let mut planned = plan(&question).with_context(context)?;
        if self.args.spans.is_some() {
            // What sensors look for is not in every version.
            planned.mistakes.retain(|mistake| mistake.rule >= Some(self.selection.always));
        }
        if let Some(mistake) = planned.mistakes.first() {
            return Err(usage(format!("`{}`: {}", mistake.text, mistake.error)));
        }
        planned.plan.image.path = target.shown.display().to_string();
        if self.args.spans.is_some() {
            return self.sensed(target, debug.as_ref(), planned);
        }
        if self.args.capture.record.is_some() {
            // A recording holds all calls.
            planned.plan.decide_outside();
        }
        if !planned.plan.functions.iter().any(|function| function.traced) {
            let reason = explain::why_nothing(&target.executable, self.selection, &planned)?;
            return Err(nothing(format!("{}: {reason}", target.shown.display())));
        }
        Ok(planned)
    }
}

/// What an installation needs besides the plan.
pub struct Installing<'a> {
    /// The command line.
    pub args: &'a TraceArgs,
    /// Which functions.
    pub selection: &'a Selection,
    /// Forced ways.
    pub forced: Options,
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
    /// Why this backend.
    pub why: String,
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
        let is_open = scope == Scope::EveryProcess;
        let installer = Installer {
            plan: &planned.plan,
            target,
            scope,
            capture: &self.args.capture,
            selection: self.selection,
            fallback: self.args.capture.fallback,
            rings: rings(self.args.spans.is_some(), self.selection),
            forced: self.forced,
            // A table shows no callers; a recording may be shown in every way.
            without_callers: self.show.stat && !self.show.keep_names,
        };
        let Made { capture, mut notes, refused, probed, why } = installer.install(child)?;
        let attach_time = start.elapsed();
        notes.extend(explain::add_refused(&mut planned.plan, &refused));
        let plan = Arc::new(planned.plan.clone());
        let symbols = Symbols::new(Arc::clone(&target.executable), target.bias_finder());
        let mut session =
            Session::new(&planned, plan, capture, symbols, self.clock, self.show, &probed);
        if is_open {
            session.observe_ends();
        }
        Ok(Installed { session, attach_time, notes, why })
    }
}

impl Planning<'_> {
    /// Completes a plan of sensors. What their expressions do not find is missing in spans.
    fn sensed(
        &self,
        target: &Target,
        debug: Option<&DebugInfo>,
        mut planned: Planned,
    ) -> anyhow::Result<Planned> {
        // With a taker other functions may be watched without any requests.
        let has_taker = self.args.spans.as_ref().is_some_and(|choice| choice.taker.is_some());
        let has_calls = sensors::has_calls(&planned.plan);
        let is_useful = sensors::is_sensed(&planned.plan) || has_taker && has_calls;
        if !is_useful {
            let refused = planned.plan.refused.iter();
            let reasons: Vec<String> = refused
                .map(|refusal| format!("{} {}", refusal.function, refusal.reason.0))
                .collect();
            let reason = match reasons.is_empty() {
                true => "it has neither a server nor a client of net/http".to_owned(),
                false => reasons.join("; "),
            };
            let shown = target.shown.display();
            return Err(nothing(format!("{shown}: no requests can be seen: {reason}")));
        }
        // Sensors are for all programs: none has all of their functions.
        let asked = &self.selection.wanted[self.selection.always..];
        let is_asked = |text: &String| asked.iter().any(|wanted| wanted.text == *text);
        planned.unmatched.retain(is_asked);
        if !asked.is_empty() && !has_calls && !has_taker {
            let shown = target.shown.display();
            return Err(nothing(match planned.unmatched.is_empty() {
                false => {
                    let why = explain::why_less(&target.executable, self.selection, &planned)?;
                    format!("{shown}: {}", why.unwrap_or_default())
                }
                true => format!(
                    "{shown}: none of the functions of --functions can be shown within requests: they are \
                     excluded, refused, or watched for the requests themselves"
                ),
            }));
        }
        let times = self.args.spans.as_ref().is_some_and(|choice| choice.times);
        spans::watch_goroutines(target, debug, times, &mut planned);
        Ok(planned)
    }
}

impl<'a> Planning<'a> {
    /// Planning for `who`.
    pub fn new(args: &'a TraceArgs, selection: &'a Selection, who: &Who) -> Self {
        Self { args, selection, sees_start: who.sees_start() }
    }
}
