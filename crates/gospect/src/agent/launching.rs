//! Starting a command as a service.

use super::prepared::{Begun, Prepared};
use crate::args::Backend;
use crate::failure::usage;
use crate::target::Target;
use agent::{Candidate, Config, Service, Way, command_of};
use output::Clock;
use process::Held;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::Arc;

/// A command that runs.
pub struct Launched {
    /// The child.
    pub child: Held,
    /// Its service.
    pub service: Arc<Service>,
    /// Its plan and its capture, or why there are none.
    pub begun: Result<(Arc<Prepared>, Begun), String>,
}

/// Starts `argv`, watched from its first instruction on where that is possible; else it runs all the same.
pub fn launch(argv: &[OsString], config: &Config, clock: Clock) -> anyhow::Result<Launched> {
    let Some(name) = argv.first() else {
        return Err(usage("nothing after `--`: name the command to start"));
    };
    let program = process::find_program(name, std::env::var_os("PATH").as_deref())?;
    let path = std::fs::canonicalize(&program).unwrap_or_else(|_| program.clone());
    let own = process::Process::open(std::process::id())?;
    let candidate = Candidate {
        exe: path.display().to_string(),
        command: command_of(argv.iter().map(|arg| arg.to_string_lossy())),
        ports: Vec::new(),
        cgroup: own.cgroup().unwrap_or_default(),
    };
    // What is started is meant, whatever the file says of others.
    let service = config.service_of(&candidate).and_then(|at| config.services.get(at));
    let service = Arc::new(service.cloned().unwrap_or_else(Service::all));
    let mut child = crate::launch::hold(&program, argv, None)?;
    let begun = begin(&program, &service, clock, &mut child).map_err(|error| format!("{error:#}"));
    // It has begun already where trampolines were put into it.
    child.release()?;
    if let Ok((_, begun)) = &begun {
        begun.session.symbols().learn(child.pid());
    }
    Ok(Launched { child, service, begun })
}

fn begin(
    program: &std::path::Path,
    service: &Service,
    clock: Clock,
    child: &mut Held,
) -> anyhow::Result<(Arc<Prepared>, Begun)> {
    anyhow::ensure!(service.is_instrumented(), "the configuration wants metrics only");
    anyhow::ensure!(
        service.inject.contains(&Way::Launch),
        "the configuration leaves out what is started"
    );
    let backend = match service.backend {
        agent::Backend::Auto | agent::Backend::None => Backend::Auto,
        agent::Backend::Uprobe => Backend::Uprobe,
        agent::Backend::Trampoline => Backend::Trampoline,
    };
    let prepared = Arc::new(Prepared::new(Target::of_path(program, None)?, service)?);
    let pid = child.pid();
    let begun = prepared.install(pid, backend, &BTreeSet::new(), clock, Some(child))?;
    Ok((prepared, begun))
}
