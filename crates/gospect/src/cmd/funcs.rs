//! `gospect funcs`: the functions of an executable.

mod describe;

use crate::args::{Format, FuncsArgs};
use crate::explain;
use crate::failure::{Outcome, nothing, usage};
use crate::sink;
use crate::target::Target;
use binary::FunctionTable;
use describe::{Describer, Inlined};
use output::ListedFunction;
use probe::pattern::Pattern;
use std::cell::RefCell;
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
    let describer = Describer {
        executable: &target.executable,
        table,
        debug: debug.as_ref(),
        inlined: &inlined,
        callees: args.callees,
    };
    let mut out = sink::open(args.binary.output.as_deref())?;
    if args.binary.format == Format::Text {
        ListedFunction::write_head(&mut out)?;
    }
    let standing = chosen.iter().filter_map(|index| table.get(*index));
    let standing = standing.map(|function| describer.standing(&function));
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
