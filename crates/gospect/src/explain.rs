//! Why nothing, or less than asked, is traced.

use binary::Executable;
use probe::nearest::nearest;
use probe::planner::Planned;
use probe::selection::{Selection, Wanted};
use probe::{Plan, Refusal, RefusalReason};
use process::Process;
use std::collections::{BTreeMap, BTreeSet};

/// Places and names listed in a message.
const SHOWN: usize = 5;
/// Patterns that are named of those that match nothing.
const LISTED: usize = 10;

/// The reason why a plan traces no function.
pub fn why_nothing(
    executable: &Executable,
    selection: &Selection,
    planned: &Planned,
) -> anyhow::Result<String> {
    if planned.matched > 0 {
        let reasons: Vec<String> = planned
            .plan
            .refused
            .iter()
            .take(SHOWN)
            .map(|refusal| format!("{} {}", refusal.function, refusal.reason.0))
            .collect();
        let count = planned.plan.refused.len();
        return Ok(format!(
            "none of {count} matching functions can be traced: {}",
            reasons.join("; ")
        ));
    }
    if planned.excluded > 0 {
        return Ok(format!(
            "all {} matching functions are excluded (--exclude, --exclude-vendor, --main-module)",
            planned.excluded
        ));
    }
    not_there(executable, selection, &planned.unmatched)
}

/// The reason why some of the patterns match nothing, when others do.
pub fn why_less(
    executable: &Executable,
    selection: &Selection,
    planned: &Planned,
) -> anyhow::Result<Option<String>> {
    if planned.unmatched.is_empty() {
        return Ok(None);
    }
    not_there(executable, selection, &planned.unmatched).map(Some)
}

/// Where the functions that `patterns` mean are inlined, or that there are none.
fn not_there(
    executable: &Executable,
    selection: &Selection,
    patterns: &[String],
) -> anyhow::Result<String> {
    let (inlined, found) = only_inlined(executable, selection, patterns)?;
    let missing: Vec<String> =
        patterns.iter().filter(|text| !found.contains(*text)).cloned().collect();
    let missing = match missing.is_empty() {
        true => None,
        false => Some(unmatched(executable, &missing)?),
    };
    Ok(inlined.into_iter().chain(missing).collect::<Vec<_>>().join("; "))
}

/// That no function matches the patterns, with the nearest names.
pub fn unmatched(executable: &Executable, patterns: &[String]) -> anyhow::Result<String> {
    let table = executable.functions()?;
    let names: Vec<String> = table.iter().map(|function| function.name).collect();
    let mut near: Vec<&str> = Vec::new();
    for text in patterns.iter().take(LISTED) {
        for name in nearest(text, names.iter().map(String::as_str), SHOWN) {
            if !near.contains(&name) {
                near.push(name);
            }
        }
    }
    near.truncate(SHOWN);
    let wanted = listed(patterns);
    let hint = if near.is_empty() {
        "`gospect funcs BIN` lists what there is".to_owned()
    } else {
        format!("nearest: {}", near.join(", "))
    };
    Ok(format!("no function matches {wanted}; {hint}"))
}

/// The first of many patterns, and how many more there are: a file of rules for another program may have
/// thousands.
fn listed(patterns: &[String]) -> String {
    let shown = patterns.iter().take(LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match patterns.len().saturating_sub(LISTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Where the functions that `patterns` mean are inlined, and which of the patterns have such.
fn only_inlined(
    executable: &Executable,
    selection: &Selection,
    patterns: &[String],
) -> anyhow::Result<(Vec<String>, BTreeSet<String>)> {
    let wanted: Vec<&Wanted> =
        selection.wanted.iter().filter(|wanted| patterns.contains(&wanted.text)).collect();
    let means = |name: &str| wanted.iter().any(|wanted| wanted.pattern.matches(name));
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, call) in executable.functions()?.inlined_copies(&means) {
        let place = format!("{} ({}:{})", call.caller, short(&call.file), call.line);
        let known = places.entry(call.name).or_default();
        if !known.contains(&place) {
            known.push(place);
        }
    }
    let found = wanted
        .iter()
        .filter(|wanted| places.keys().any(|name| wanted.pattern.matches(name)))
        .map(|wanted| wanted.text.clone())
        .collect();
    let unsaid = places.len().saturating_sub(SHOWN);
    let unsaid = (unsaid > 0).then(|| format!("{unsaid} more functions exist only inlined"));
    let each = places.iter().take(SHOWN).map(|(name, places)| {
        let more = places.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let shown: Vec<&str> = places.iter().take(SHOWN).map(String::as_str).collect();
        format!("{name} exists only inlined, into {}{more}", shown.join(", "))
    });
    Ok((each.chain(unsaid).collect(), found))
}

/// What a person should know of traced functions that are inlined elsewhere too.
pub fn inlined_too(planned: &Planned) -> Option<String> {
    let places: usize = planned.inlined.iter().map(|(_, copies)| copies).sum();
    let mut most: Vec<&(String, usize)> = planned.inlined.iter().collect();
    most.sort_by_key(|(_, copies)| std::cmp::Reverse(*copies));
    let (first, _) = most.first()?;
    let which = match planned.inlined.len() {
        1 => format!("{first} is"),
        count => format!("{count} traced functions ({first}, …) are"),
    };
    let copies = if places == 1 { "1 place".to_owned() } else { format!("{places} places") };
    Some(format!(
        "{which} also inlined at {copies}: those calls are not seen (`gospect funcs` lists them)"
    ))
}

fn short(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Moves functions that the backend left out from the traced to the refused. Gives what a
/// person should know when one of them tells how calls end.
pub fn add_refused(plan: &mut Plan, refused: &BTreeMap<u32, String>) -> Vec<String> {
    let mut notes = Vec::new();
    for (index, reason) in refused {
        let Some(function) = plan.functions.get_mut(*index as usize) else { continue };
        if function.witness.is_some() {
            notes.push(format!(
                "{} is not watched: {reason}; calls that it tells of end as lost",
                function.name
            ));
        }
        if std::mem::take(&mut function.traced) {
            let (function, reason) = (function.name.clone(), RefusalReason(reason.clone()));
            plan.refused.push(Refusal { function, reason });
        }
    }
    notes
}

/// What a person should know of processes that trampolines could not be taken out of.
pub fn leftovers(processes: &[Process]) -> impl Iterator<Item = String> {
    let carriers = processes.iter().map(Process::pid);
    carriers.filter(|&pid| capture_trampoline::is_carrier(pid)).map(|pid| {
        format!(
            "process {pid} keeps code of gospect, since something may still return into it, or \
             another tool has changed a jump that leads there: `gospect detach -p {pid}` takes it out later"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_patterns_the_first_are_named_and_the_rest_counted() {
        let patterns = |count: usize| (0..count).map(|n| format!("p{n}")).collect::<Vec<_>>();
        assert_eq!(listed(&patterns(2)), "p0, p1");
        assert_eq!(listed(&patterns(10)), "p0, p1, p2, p3, p4, p5, p6, p7, p8, p9");
        assert_eq!(listed(&patterns(450)), "p0, p1, p2, p3, p4, p5, p6, p7, p8, p9 and 440 more");
    }
}
