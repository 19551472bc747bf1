use crate::{args::FuncsArgs, failure::Outcome};
pub fn run(_: &FuncsArgs) -> anyhow::Result<Outcome> { anyhow::bail!("soon") }
