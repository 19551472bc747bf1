//! Functions that trampolines cannot serve: which of them are worth a uprobe.
//!
//! A uprobe costs a call about a thousand times what a trampoline costs. In a function that was asked
//! for that is the price of seeing it; in `runtime.memmove`, met by `-u '*'`, it is minutes for a
//! program of seconds.

use crate::args::Fallback as Choice;
use binary::{Executable, flag};
use probe::package::{is_main_module, package_of};
use probe::selection::Selection;
use probe::{Plan, PlannedFunction};
use std::collections::{BTreeMap, BTreeSet};

/// Packages whose smallest functions everything else is made of. Those below `runtime/` and
/// `internal/runtime/` are among them.
const EVERYWHERE: [&str; 4] = ["runtime", "internal/bytealg", "internal/cpu", "sync/atomic"];

/// The choice, and what it is made by.
pub struct Fallback<'a> {
    /// `--fallback`.
    pub choice: Choice,
    /// How functions were asked for.
    pub selection: &'a Selection,
    /// The executable.
    pub executable: &'a Executable,
}

/// Refused functions by what becomes of them.
pub struct Split {
    /// To be probed by uprobes.
    pub probed: BTreeSet<u32>,
    /// To be left out, and why.
    pub withheld: BTreeMap<u32, String>,
}

impl Fallback<'_> {
    /// Splits `refused`; those that `may_be_probed` says no of are in neither part.
    pub fn split(
        &self,
        plan: &Plan,
        refused: &BTreeMap<u32, String>,
        may_be_probed: &dyn Fn(u32) -> bool,
    ) -> Split {
        let mut split = Split { probed: BTreeSet::new(), withheld: BTreeMap::new() };
        for (&index, reason) in refused.iter().filter(|(index, _)| may_be_probed(**index)) {
            let Some(function) = plan.functions.get(index as usize) else { continue };
            // What carries the backend's own jump must bear no breakpoint.
            if function.name == capture_trampoline::HOOKED {
                continue;
            }
            match self.why_withheld(function) {
                Some(why) => _ = split.withheld.insert(index, format!("{reason}; {why}")),
                None => _ = split.probed.insert(index),
            }
        }
        split
    }

    fn why_withheld(&self, function: &PlannedFunction) -> Option<&'static str> {
        match self.choice {
            Choice::None => Some("--fallback none leaves it out"),
            Choice::All => None,
            // What tells how calls end is rare.
            Choice::Auto if function.witness.is_some() || !self.is_busy(function) => None,
            Choice::Auto => Some(
                "a uprobe would cost its callers a thousand times as much: name it without \
                 wildcards, or use --fallback all",
            ),
        }
    }

    /// Whether only a pattern of many reached it, and much is likely to call it.
    fn is_busy(&self, function: &PlannedFunction) -> bool {
        let is_named = |wanted: &&probe::selection::Wanted| {
            wanted.pattern.matches(&function.name)
                && (wanted.pattern.literal().is_some()
                    || wanted.params.is_some()
                    || wanted.results.is_some())
        };
        let selection = self.selection;
        if selection.wanted.iter().any(|wanted| is_named(&wanted))
            || selection.calls_of.iter().any(|calls| calls.name == function.name)
        {
            return false;
        }
        let package = package_of(&function.name);
        let module = self.executable.build_info().ok().map(|info| info.main.path.as_str());
        if is_main_module(&package, module) {
            return false;
        }
        EVERYWHERE.contains(&&*package)
            || package.starts_with("runtime/")
            || package.starts_with("internal/runtime/")
            || self.is_assembly(function)
    }

    fn is_assembly(&self, function: &PlannedFunction) -> bool {
        let found = self.executable.functions().ok().and_then(|table| table.find(function.entry));
        found.is_some_and(|found| found.flags & flag::ASM != 0)
    }
}
