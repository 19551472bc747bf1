use crate::{args::TypesArgs, failure::Outcome};
pub fn run(_: &TypesArgs) -> anyhow::Result<Outcome> { anyhow::bail!("soon") }
