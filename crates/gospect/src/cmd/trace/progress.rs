//! `--verbose`: what is done, and how long it took.

use crate::args::TraceArgs;
use crate::sink;
use probe::planner::Planned;
use std::fmt;
use std::time::Instant;

/// Says each phase when it is over.
#[derive(Debug)]
pub struct Progress {
    verbose: bool,
    since: Instant,
}

impl Progress {
    /// The first phase begins.
    pub fn new(args: &TraceArgs) -> Self {
        Self { verbose: args.show.tell.verbose, since: Instant::now() }
    }

    /// Says what was done since the last phase ended. The next one begins.
    pub fn done(&mut self, what: impl fmt::Display) {
        let now = Instant::now();
        let took_ms = now.duration_since(self.since).as_secs_f64() * 1e3;
        self.since = now;
        if self.verbose {
            sink::say(format!("{what} ({took_ms:.1} ms)"));
        }
    }
}

/// What a plan holds, and what it does not.
pub struct Extent<'a>(pub &'a Planned);

impl fmt::Display for Extent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = &self.0.plan;
        let traced = plan.functions.iter().filter(|function| function.traced).count();
        let witnesses = plan.functions.iter().filter(|function| function.witness.is_some()).count();
        write!(
            f,
            "planned {} ({}): traced {traced}, excluded {}, refused {}, watched of the runtime \
             {witnesses}; sites {}, ops {}",
            plan.image.path,
            plan.image.go_version,
            self.0.excluded,
            plan.refused.len(),
            plan.sites.len(),
            plan.ops.len()
        )
    }
}

/// Which backend captures, and why that one: asked for when `why` says nothing.
pub fn choice(backend: &str, why: &str) -> String {
    match why {
        "" => format!("attached by the {backend} backend (asked for with --backend)"),
        why => format!("attached by the {backend} backend (--backend auto: {why})"),
    }
}
