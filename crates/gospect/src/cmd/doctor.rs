use crate::{args::DoctorArgs, failure::Outcome};
pub fn run(_: &DoctorArgs) -> anyhow::Result<Outcome> { anyhow::bail!("soon") }
