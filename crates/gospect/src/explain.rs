//! Why nothing, or less than asked, is traced.

use binary::Executable;
use capture_uprobe::SkippedSite;
use probe::nearest::nearest;
use probe::planner::Planned;
use probe::selection::Selection;
use probe::{Plan, Refusal, RefusalReason};
use std::collections::BTreeMap;

/// Places and names listed in a message.
const SHOWN: usize = 5;

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
    if let Some(places) = only_inlined(executable, selection)? {
        return Ok(places);
    }
    unmatched(executable, &planned.unmatched)
}

/// That no function matches the patterns, with the nearest names.
pub fn unmatched(executable: &Executable, patterns: &[String]) -> anyhow::Result<String> {
    let table = executable.functions()?;
    let names: Vec<String> = table.iter().map(|function| function.name).collect();
    let mut near: Vec<&str> = Vec::new();
    for text in patterns {
        for name in nearest(text, names.iter().map(String::as_str), SHOWN) {
            if !near.contains(&name) {
                near.push(name);
            }
        }
    }
    near.truncate(SHOWN);
    let wanted = patterns.join(", ");
    let hint = if near.is_empty() {
        "`gospect funcs BIN` lists what there is".to_owned()
    } else {
        format!("nearest: {}", near.join(", "))
    };
    Ok(format!("no function matches {wanted}; {hint}"))
}

/// Where the wanted functions are inlined, when that is the only way they exist.
fn only_inlined(executable: &Executable, selection: &Selection) -> anyhow::Result<Option<String>> {
    let table = executable.functions()?;
    let wanted = |name: &str| selection.wanted.iter().any(|wanted| wanted.pattern.matches(name));
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, call) in table.inlined_copies(&wanted) {
        let place = format!("{} ({}:{})", call.caller, short(&call.file), call.line);
        let known = places.entry(call.name).or_default();
        if !known.contains(&place) {
            known.push(place);
        }
    }
    if places.is_empty() {
        return Ok(None);
    }
    let each = places.iter().take(SHOWN).map(|(name, places)| {
        let more = places.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let shown: Vec<&str> = places.iter().take(SHOWN).map(String::as_str).collect();
        format!("{name} exists only inlined, into {}{more}", shown.join(", "))
    });
    Ok(Some(each.collect::<Vec<_>>().join("; ")))
}

fn short(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Moves functions that the kernel would not probe from the traced to the refused.
pub fn add_skipped(plan: &mut Plan, skipped: &[SkippedSite]) {
    for skip in skipped {
        let Some(site) = plan.sites.get(skip.site as usize) else { continue };
        let Some(function) = plan.functions.get_mut(site.function as usize) else { continue };
        if !function.traced {
            continue;
        }
        function.traced = false;
        plan.refused.push(Refusal {
            function: function.name.clone(),
            reason: RefusalReason(format!("the kernel refused a probe: {}", skip.reason)),
        });
    }
}
