//! `gospect funcs`: the functions of an executable.

mod describe;

use crate::args::{Format, FuncsArgs};
use crate::explain;
use crate::failure::{Outcome, nothing, usage};
use crate::sink;
use crate::target::Target;
use address::Svma;
use binary::{Executable, Function, FunctionTable};
use capture_trampoline::refusals;
use describe::{Describer, Inlined};
use output::ListedFunction;
use probe::pattern::Pattern;
use probe::planner::bare_plan;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io::Write as _;

/// Lists them in the order of their addresses, those that exist only inlined last.
pub fn run(args: &FuncsArgs) -> anyhow::Result<Outcome> {
    let wanted = Wanted::parse(&args.binary.further(&args.patterns)?)?;
    let target = Target::of_args(&args.binary)?;
    let table = target.executable.functions()?;
    let debug = target.debug_info()?;
    let chosen = wanted.choose(table);
    let inlined = Inlined::collect(table, &|name| wanted.matches(name));
    let only_inlined = inlined.without(table, &chosen);
    if chosen.is_empty() && only_inlined.is_empty() {
        return Err(nothing(explain::unmatched(&target.executable, &wanted.unmatched())?));
    }
    let functions: Vec<_> = chosen.iter().filter_map(|index| table.get(*index)).collect();
    let trampolines = refusals_of(&target.executable, &functions);
    let describer = Describer {
        executable: &target.executable,
        trampolines: &trampolines,
        table,
        debug: debug.as_ref(),
        inlined: &inlined,
        callees: args.callees,
    };
    let mut out = sink::open(args.binary.output.as_deref())?;
    if args.binary.format == Format::Text {
        ListedFunction::write_head(&mut out)?;
    }
    let standing = functions.iter().map(|function| describer.standing(function));
    let gone = only_inlined.iter().filter_map(|name| describer.only_inlined(name));
    for function in standing.chain(gone) {
        match args.binary.format {
            Format::Text => function.write_text(&mut out)?,
            Format::Json => function.write_json(&mut out)?,
        }
    }
    out.flush()?;
    let unmatched = wanted.unmatched();
    if !unmatched.is_empty() {
        sink::say(explain::unmatched(&target.executable, &unmatched)?);
    }
    Ok(Outcome::Done)
}

/// Why functions, by their entry, can carry no trampolines; the reason for all of them when
/// none can.
fn refusals_of(
    executable: &Executable,
    functions: &[Function],
) -> Result<HashMap<Svma, String>, String> {
    let plan = bare_plan(executable, functions).map_err(|error| error.to_string())?;
    let refused = refusals(executable, &plan).map_err(|error| error.to_string())?;
    let planned = (0..).zip(&plan.functions);
    let mut reasons: HashMap<Svma, String> = planned
        .filter_map(|(index, function)| Some((function.entry, refused.get(&index)?.clone())))
        .collect();
    let planned: HashSet<Svma> = plan.functions.iter().map(|function| function.entry).collect();
    for function in functions.iter().filter(|function| !planned.contains(&function.entry)) {
        let refusal = plan.refused.iter().find(|refusal| refusal.function == function.name);
        let reason = refusal.map_or("it has no sites".to_owned(), |found| found.reason.0.clone());
        reasons.insert(function.entry, reason);
    }
    Ok(reasons)
}

/// The patterns, and which of them matched something; none means all functions.
struct Wanted {
    patterns: Vec<Pattern>,
    matched: RefCell<Vec<bool>>,
}

impl Wanted {
    fn parse(texts: &[String]) -> anyhow::Result<Self> {
        let patterns: Vec<Pattern> = texts
            .iter()
            .map(|text| {
                Pattern::parse(text)
                    .map_err(|error| usage(format!("malformed pattern `{text}`: {error}")))
            })
            .collect::<Result<_, _>>()?;
        let matched = RefCell::new(vec![false; patterns.len()]);
        Ok(Self { patterns, matched })
    }

    fn matches(&self, name: &str) -> bool {
        let mut any = self.patterns.is_empty();
        let mut matched = self.matched.borrow_mut();
        for (pattern, matched) in self.patterns.iter().zip(matched.iter_mut()) {
            if pattern.matches(name) {
                *matched = true;
                any = true;
            }
        }
        any
    }

    /// Places in the table of the functions that match.
    fn choose(&self, table: &FunctionTable) -> Vec<usize> {
        let matches = |index: &usize| table.name(*index).is_some_and(|name| self.matches(&name));
        (0..table.len()).filter(matches).collect()
    }

    fn unmatched(&self) -> Vec<String> {
        let matched = self.matched.borrow();
        let pairs = self.patterns.iter().zip(matched.iter());
        pairs.filter(|(_, hit)| !**hit).map(|(pattern, _)| pattern.text().to_owned()).collect()
    }
}
