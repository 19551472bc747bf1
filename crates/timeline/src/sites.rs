//! What pairing asks about a site, close together: it asks at every record.

use probe::{Plan, Witness};
use wire::SiteKind;

/// A site of the plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SiteFacts {
    /// Index into `Plan::functions`; there is one.
    pub function: u32,
    pub kind: SiteKind,
    /// Whether the function is traced.
    pub traced: bool,
    /// What its entry tells, at an entry.
    pub witness: Option<Witness>,
}

/// The facts of each site of `plan`; `None` for one that names no function.
pub(crate) fn of(plan: &Plan) -> Vec<Option<SiteFacts>> {
    let facts = |site: &probe::Site| {
        let function = plan.functions.get(site.function as usize)?;
        Some(SiteFacts {
            function: site.function,
            kind: site.kind,
            traced: function.traced,
            witness: function.witness.filter(|_| site.kind == SiteKind::Entry),
        })
    };
    plan.sites.iter().map(facts).collect()
}
