//! Which backend captures, and how it is installed.

use super::fallback::Fallback;
use super::install::forced_words;
use crate::args::{Backend, CaptureArgs, Fallback as Choice};
use crate::target::Target;
use crate::tariff::Probed;
use anyhow::{Context as _, anyhow};
use capture::{Capture, Error, Merged, Request, Scope};
use capture_trampoline::TrampolineCapture;
use capture_uprobe::{Options, UprobeCapture};
use probe::Plan;
use probe::selection::Selection;
use process::Held;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Whatever the size of a ring: what comes is to be seen soon.
const LONGEST_REST: Duration = Duration::from_millis(20);

/// Sizes of rings, when none is asked for, in MiB.
#[derive(Clone, Copy, Debug)]
pub struct Rings {
    /// Of uprobes.
    pub uprobes: u32,
    /// Of trampolines in running processes.
    pub trampolines: u32,
    /// Of trampolines in a program that is started.
    pub launch: u32,
    /// How long records may gather for each MiB of a ring (see [`Capture::rest_up_to`]): a part of what it takes to
    /// fill it. Nothing where that may be as short as the captures' own pauses.
    pub rest: Duration,
}

impl Rings {
    /// How long records may gather in rings of so many MiB.
    pub fn rest_of(&self, ring: u32) -> Duration {
        self.rest.saturating_mul(ring).min(LONGEST_REST)
    }
}

/// What is to be installed, and on what.
pub struct Installer<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The executable.
    pub target: &'a Target,
    /// Its processes.
    pub scope: Scope,
    /// The command line.
    pub capture: &'a CaptureArgs,
    /// Which functions were asked for, and how.
    pub selection: &'a Selection,
    /// Which functions get uprobes when trampolines do not fit.
    pub fallback: Choice,
    /// Sizes of rings.
    pub rings: Rings,
    /// Forced ways.
    pub forced: Options,
    /// Whether nobody will ask for call sites.
    pub without_callers: bool,
}

/// What a backend made of it.
pub struct Made {
    /// The capture.
    pub capture: Box<dyn Capture>,
    /// What a person should know.
    pub notes: Vec<String>,
    /// Functions it left out (indices into the plan), with the reason.
    pub refused: BTreeMap<u32, String>,
    /// Which sites have uprobes.
    pub probed: Probed,
    /// Why this backend.
    pub why: String,
}

/// What became of a program that was to be started with trampolines.
enum Started {
    Made(Made),
    /// It carries none, but waits to be started, or stood before its first instruction while uprobes
    /// were installed.
    Without {
        reason: anyhow::Error,
        uprobes: Option<anyhow::Result<Made>>,
    },
}

impl Installer<'_> {
    /// Installs by the backend that is asked for, or by the one that suits. `child` is the one
    /// process of a launch, which waits to begin.
    pub fn install(&self, child: Option<&mut Held>) -> anyhow::Result<Made> {
        let context = || format!("failed to trace {}", self.target.shown.display());
        let is_launch = child.is_some();
        let mut made = self.choose(child).with_context(context)?;
        let ring = match (made.capture.backend(), is_launch) {
            ("uprobe", _) => self.rings.uprobes,
            (_, false) => self.rings.trampolines,
            (_, true) => self.rings.launch,
        };
        made.capture.rest_up_to(self.rings.rest_of(self.capture.ring.unwrap_or(ring)));
        Ok(made)
    }

    fn choose(&self, child: Option<&mut Held>) -> anyhow::Result<Made> {
        match (self.capture.backend, child) {
            (Backend::Uprobe, _) => self.uprobes(),
            (Backend::Trampoline, None) => self.attach_trampolines(),
            (Backend::Trampoline, Some(child)) => {
                match self.start_with_trampolines(child, &self.refusals()?, None)? {
                    Started::Made(made) => Ok(made),
                    Started::Without { reason, .. } => Err(reason),
                }
            }
            (Backend::Auto, None) => self.uprobes_of_choice(),
            (Backend::Auto, Some(child)) => self.start(child),
        }
    }

    /// `--backend auto` on what runs already: nobody's code is written into unasked.
    fn uprobes_of_choice(&self) -> anyhow::Result<Made> {
        let one_by_one = matches!(self.scope, Scope::Pids(_));
        let mut made = self.uprobes().map_err(|error| match error.downcast_ref::<Error>() {
            Some(Error::Unsupported { .. } | Error::Permission { .. }) if one_by_one => error
                .context(
                    "uprobes are not possible (--backend trampoline does without them, by \
                     writing into the code of the process)",
                ),
            _ => error,
        })?;
        made.why = match one_by_one {
            true => {
                "it runs already; --backend trampoline costs it far less, and writes into its code"
            }
            false => "trampolines need a process by --pid or `-- CMD`",
        }
        .to_owned();
        Ok(made)
    }

    /// `--backend auto` on a program to be started: trampolines, else uprobes.
    fn start(&self, child: &mut Held) -> anyhow::Result<Made> {
        let instead = || self.uprobes();
        let started = match self.suitable_refusals() {
            Ok(refused) => self.start_with_trampolines(child, &refused, Some(&instead))?,
            Err(reason) => Started::Without { reason, uprobes: None },
        };
        let (reason, uprobes) = match started {
            Started::Made(mut made) => {
                made.why = "gospect starts the program".to_owned();
                return Ok(made);
            }
            Started::Without { reason, uprobes } => (reason, uprobes),
        };
        let mut made = uprobes.unwrap_or_else(|| self.uprobes()).map_err(|error| {
            error.context(format!("trampolines are not possible ({reason:#}), nor are uprobes"))
        })?;
        made.why = format!("trampolines are not possible: {reason:#}");
        made.notes.push(made.why.clone());
        Ok(made)
    }

    /// Functions that can carry no trampolines in any process.
    fn refusals(&self) -> Result<BTreeMap<u32, String>, Error> {
        capture_trampoline::refusals(&self.target.executable, self.plan)
    }

    /// The same, when it is worth an attempt; else why not.
    fn suitable_refusals(&self) -> anyhow::Result<BTreeMap<u32, String>> {
        if let Some(why) = capture_trampoline::why_unusable() {
            return Err(anyhow!(why));
        }
        let refused = self.refusals()?;
        let traced = (0u32..).zip(&self.plan.functions).filter(|(_, function)| function.traced);
        let reasons: Vec<_> = traced.map(|(index, _)| refused.get(&index)).collect();
        match reasons.first() {
            Some(Some(reason)) if reasons.iter().all(Option::is_some) => {
                Err(anyhow!("none of the functions can carry one (the first one {reason})"))
            }
            _ => Ok(refused),
        }
    }

    fn uprobes(&self) -> anyhow::Result<Made> {
        let request = self.request(self.rings.uprobes);
        if let Some(pid) = self.carrier(&request) {
            return Err(Error::Failed {
                what: format!("put uprobes on `{}`", request.name()),
                source: format!(
                    "process {pid} runs it with trampolines of gospect in its code: end that \
                     capture, or run `gospect detach -p {pid}` when its gospect was killed"
                )
                .into(),
            }
            .into());
        }
        let options = Options { without_callers: self.without_callers, ..self.forced };
        let capture = UprobeCapture::install(&request, options)?;
        Ok(Made {
            notes: capture.notes().to_vec(),
            refused: skipped(&capture),
            probed: Probed::All,
            capture: Box::new(capture),
            why: String::new(),
        })
    }

    /// A process that uprobes of this request would come into and that has code of ours in it: a
    /// breakpoint that the kernel sets over one of our jumps, or takes off there, breaks the program,
    /// since it knows the file's bytes only.
    fn carrier(&self, request: &Request<'_>) -> Option<u32> {
        match capture_uprobe::only_process(&request.scope, self.forced) {
            Some(pid) => capture_trampoline::is_carrier(pid).then_some(pid),
            None => capture_trampoline::carrier(&request.path, &[]),
        }
    }

    /// Trampolines in running processes, then uprobes in the functions that carry none: only now
    /// it is known which are busy.
    fn attach_trampolines(&self) -> anyhow::Result<Made> {
        let request = self.request(self.rings.trampolines);
        let first = TrampolineCapture::install(&request, self.options(BTreeSet::new()))?;
        // Where the program has rewritten its code, the kernel would put the file's instruction.
        let is_rewritten =
            |function| first.reports().any(|(_, report)| report.rewritten.contains(&function));
        let may_be_probed = |function| first.bare().contains(&function) && !is_rewritten(function);
        let second = self.fallback().split(self.plan, first.refused(), &may_be_probed);
        let rest = self.rest(&request, second.probed);
        Ok(self.joined(first, rest, second.withheld))
    }

    /// Trampolines before the first instruction. In functions that are known to carry none the probes
    /// come first, since the program begins with the trampolines. When they turn out to be impossible,
    /// `instead` runs before the first instruction too.
    ///
    /// Errors: the program could not be started.
    fn start_with_trampolines(
        &self,
        child: &mut Held,
        refused: &BTreeMap<u32, String>,
        instead: Option<&dyn Fn() -> anyhow::Result<Made>>,
    ) -> anyhow::Result<Started> {
        let request = self.request(self.rings.launch);
        let second = self.fallback().split(self.plan, refused, &|_| true);
        let mut rest = Some(self.rest(&request, second.probed));
        let probed = rest.iter().flat_map(Rest::functions).collect();
        let (mut is_begun, mut uprobes) = (false, None);
        let release = || {
            is_begun = true;
            child.release()
        };
        let first = TrampolineCapture::launch(&request, self.options(probed), release, |_| {
            rest = None;
            uprobes = instead.map(|instead| instead());
        });
        match (first, rest) {
            (Ok(first), Some(rest)) => Ok(Started::Made(self.joined(first, rest, second.withheld))),
            (Err(reason), Some(_)) if is_begun => Err(reason.into()),
            (Err(reason), _) => Ok(Started::Without { reason: reason.into(), uprobes }),
            (Ok(_), None) => Err(anyhow!("the program began twice")),
        }
    }

    fn request(&self, ring: u32) -> Request<'_> {
        Request {
            plan: self.plan,
            path: self.target.path.clone(),
            scope: self.scope.clone(),
            ring_bytes: (self.capture.ring.unwrap_or(ring) as usize) << 20,
        }
    }

    fn options(&self, excluded: BTreeSet<u32>) -> capture_trampoline::Options {
        let executable = Some(Arc::clone(&self.target.executable));
        let no_rdpid = forced_words().iter().any(|word| word == "no-rdpid");
        capture_trampoline::Options { executable, excluded, no_rdpid }
    }

    fn fallback(&self) -> Fallback<'_> {
        Fallback {
            choice: self.fallback,
            selection: self.selection,
            executable: &self.target.executable,
        }
    }

    /// Both as one. `withheld` are functions that get neither.
    fn joined(
        &self,
        first: TrampolineCapture,
        rest: Rest,
        withheld: BTreeMap<u32, String>,
    ) -> Made {
        let mut refused = first.refused().clone();
        refused.extend(withheld);
        let mut notes = Vec::new();
        let mut probed = BTreeSet::new();
        let capture: Box<dyn Capture> = match rest {
            Rest::Probed(rest) => {
                refused.retain(|function, _| !rest.functions.contains(function));
                refused.extend(rest.skipped);
                notes.push(format!(
                    "{} functions that carry no trampolines are probed by uprobes",
                    rest.functions.len()
                ));
                probed.extend(rest.sites.iter().copied());
                Box::new(Merged::new(Box::new(first), rest.capture, rest.sites))
            }
            Rest::Nothing => Box::new(first),
            Rest::Impossible(reason) => {
                notes.push(format!("functions without trampolines are left out: {reason:#}"));
                Box::new(first)
            }
        };
        let probed = Probed::Sites(probed);
        Made { capture, notes, refused, probed, why: String::new() }
    }

    /// Uprobes in those functions, and in no others.
    fn rest(&self, request: &Request<'_>, functions: BTreeSet<u32>) -> Rest {
        let (mut plan, sites) = self.plan.only(&|function| functions.contains(&function));
        if sites.is_empty() {
            return Rest::Nothing;
        }
        // These lie anywhere, in functions with jumps too.
        plan.g_changes.clear();
        let part = Request {
            plan: &plan,
            ring_bytes: self.request(self.rings.uprobes).ring_bytes,
            ..request.clone()
        };
        // Where the kernel knows only the file, its breakpoints come into all that run it.
        if capture_uprobe::only_process(&request.scope, self.forced).is_none()
            && let Scope::Pids(pids) = &request.scope
            && let Some(pid) = capture_trampoline::carrier(&request.path, pids)
        {
            return Rest::Impossible(anyhow!(
                "process {pid} carries trampolines of another gospect"
            ));
        }
        let capture = match UprobeCapture::install(&part, self.forced) {
            Ok(capture) => capture,
            Err(error) => return Rest::Impossible(error.into()),
        };
        let skipped = skipped(&capture);
        let functions = functions.into_iter().filter(|f| !skipped.contains_key(f)).collect();
        Rest::Probed(Rested { capture: Box::new(capture), sites, functions, skipped })
    }
}

fn skipped(capture: &UprobeCapture) -> BTreeMap<u32, String> {
    let skipped = capture.skipped_sites().iter();
    skipped
        .map(|site| (site.function, format!("the kernel refused a probe: {}", site.reason)))
        .collect()
}

/// What became of the functions without trampolines.
enum Rest {
    Nothing,
    Probed(Rested),
    Impossible(anyhow::Error),
}

struct Rested {
    capture: Box<dyn Capture>,
    /// The whole plan's number of each of its sites.
    sites: Vec<u32>,
    functions: BTreeSet<u32>,
    skipped: BTreeMap<u32, String>,
}

impl Rest {
    /// Functions with uprobes, or with some of theirs.
    fn functions(&self) -> Vec<u32> {
        match self {
            Self::Probed(rest) => {
                rest.functions.iter().chain(rest.skipped.keys()).copied().collect()
            }
            Self::Nothing | Self::Impossible(_) => Vec::new(),
        }
    }
}
