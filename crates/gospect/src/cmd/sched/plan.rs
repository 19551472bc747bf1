//! The plan that watches goroutine states in one executable.

use crate::facts;
use crate::failure::nothing;
use crate::target::Target;
use anyhow::Context as _;
use binary::layout::RuntimeLayouts;
use probe::planner::Planned;
use probe::states::{StateOffsets, plan_states};
use wire::SiteKind;

/// Without it most changes would be missing.
const CHANGING: &str = "runtime.casgstatus";

/// Plans one image. A plan without any site is an error that says why.
pub fn plan(target: &Target) -> anyhow::Result<Planned> {
    let context = || target.shown.display().to_string();
    // The layouts of plain releases are known; debug information takes memory and time to read.
    let version = target.executable.go_version();
    let known = StateOffsets::of(&RuntimeLayouts::new(version, None)).is_ok();
    let debug = if known { None } else { target.debug_info()? };
    let offsets =
        StateOffsets::of(&RuntimeLayouts::new(version, debug.as_ref())).with_context(context)?;
    let runtime = facts::runtime_facts(&target.executable, debug.as_ref()).with_context(context)?;
    let (mut plan, costs) =
        plan_states(&target.executable, runtime.layout, &offsets).with_context(context)?;
    plan.image.path = target.shown.display().to_string();
    // Creations alone tell of no state.
    let watches = plan.sites.iter().any(|site| site.kind == SiteKind::At);
    if !watches || plan.refused.iter().any(|refusal| refusal.function == CHANGING) {
        let reasons: Vec<String> = plan
            .refused
            .iter()
            .map(|refusal| format!("{}: {}", refusal.function, refusal.reason.0))
            .collect();
        let path = target.shown.display();
        return Err(nothing(format!(
            "{path}: the places where goroutines change their state cannot be watched ({})",
            if reasons.is_empty() { "none was found".to_owned() } else { reasons.join("; ") }
        )));
    }
    Ok(Planned { plan, costs, ..Planned::default() })
}
