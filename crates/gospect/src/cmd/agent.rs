//! `gospect agent`: metrics and requests of many services.

use crate::agent::{Loaded, Supervisor};
use crate::args::AgentArgs;
use crate::failure::{Outcome, usage};
use crate::sink;
use std::io::Write as _;

/// Checks the configuration, or watches until a signal.
pub fn run(args: AgentArgs) -> anyhow::Result<Outcome> {
    if args.command.is_none() && std::env::args_os().any(|arg| arg == "--") {
        return Err(usage("nothing after `--`: name the command to start"));
    }
    let loaded = Loaded::read(args.config.as_deref())?;
    if args.check {
        return check(&loaded);
    }
    if !args.quiet {
        loaded.warnings.iter().for_each(sink::say);
    }
    Supervisor::open(args, loaded)?.run()
}

fn check(loaded: &Loaded) -> anyhow::Result<Outcome> {
    let mut out = sink::open(None)?;
    let services = loaded.config.services.len();
    let plural = if services == 1 { "" } else { "s" };
    match &loaded.path {
        Some(path) => writeln!(out, "{}: right: {services} service{plural}", path.display())?,
        None => writeln!(out, "no configuration: every Go program is watched")?,
    }
    for (number, service) in (1..).zip(&loaded.config.services) {
        let name = service.name.as_deref().unwrap_or("named by its processes");
        let sensors = match service.is_instrumented() {
            true => service.sensors.join(", "),
            false => "metrics only".to_owned(),
        };
        let asked = asked(service);
        writeln!(out, "  {number}. {name}: {}; {sensors}{asked}", service.backend.name())?;
    }
    for (what, to) in [("spans", &loaded.spans), ("metrics", &loaded.metrics)] {
        match to {
            Some(settings) => writeln!(out, "  {what} are sent to {settings}")?,
            None => writeln!(out, "  {what} are not sent")?,
        }
    }
    for warning in &loaded.warnings {
        writeln!(out, "  {warning}")?;
    }
    out.flush()?;
    Ok(Outcome::Done)
}

/// What of requests is told because the service asks for it.
fn asked(service: &agent::Service) -> String {
    let mut asked = Vec::new();
    let flags = [(service.sql, "statements"), (service.queries, "queries"), (service.time, "time")];
    asked.extend(flags.iter().filter(|(is_on, _)| *is_on).map(|(_, name)| (*name).to_owned()));
    asked.extend(service.headers.iter().map(|name| format!("header {name}")));
    match asked.is_empty() || !service.is_instrumented() {
        true => String::new(),
        false => format!("; with {}", asked.join(", ")),
    }
}
