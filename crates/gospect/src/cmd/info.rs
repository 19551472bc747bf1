use crate::{args::InfoArgs, failure::Outcome};
pub fn run(_: &InfoArgs) -> anyhow::Result<Outcome> { anyhow::bail!("soon") }
