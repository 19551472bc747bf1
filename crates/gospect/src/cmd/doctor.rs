//! `gospect doctor`: what works on this machine and process, and why not.

mod sensed;
mod watched;

use crate::args::{DoctorArgs, Format};
use crate::facts;
use crate::failure::Outcome;
use crate::sink;
use crate::target::Target;
use capture_uprobe::{foreign_uprobes, probe_features};
use output::printable;
use process::{Capabilities, Capability, Process, Restrictions};
use serde::Serialize;
use std::io::Write as _;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    /// Works.
    Ok,
    /// Works with a restriction, or is worth knowing.
    Note,
    /// Does not work.
    Fail,
}

/// One line of the report.
#[derive(Debug, Serialize)]
struct Check {
    r#type: &'static str,
    area: &'static str,
    name: String,
    status: Status,
    detail: String,
}

#[derive(Default)]
struct Report(Vec<Check>);

impl Report {
    fn add(&mut self, area: &'static str, name: &str, status: Status, detail: impl Into<String>) {
        let check =
            Check { r#type: "check", area, name: name.to_owned(), status, detail: detail.into() };
        self.0.push(check);
    }

    fn outcome(&mut self, area: &'static str, name: &str, outcome: Result<String, String>) {
        match outcome {
            Ok(detail) => self.add(area, name, Status::Ok, detail),
            Err(reason) => self.add(area, name, Status::Fail, reason),
        }
    }

    fn failures(&self) -> usize {
        self.0.iter().filter(|check| check.status == Status::Fail).count()
    }
}

/// Examines and reports. What does not work makes the exit code 1 only where it keeps
/// every backend from working.
pub fn run(args: &DoctorArgs) -> anyhow::Result<Outcome> {
    let mut report = Report::default();
    kernel(&mut report);
    rights(&mut report);
    clock(&mut report);
    if let Some(pid) = args.pid {
        let process = Process::open(pid)?;
        process_checks(&mut report, &process);
        match Target::of_process(&process, None) {
            Ok(target) => executable(&mut report, &target),
            Err(error) => report.add("executable", "go", Status::Fail, format!("{error:#}")),
        }
        watched::watched(&mut report, &process);
    }
    if let Some(path) = &args.binary {
        match Target::of_path(path, None) {
            Ok(target) => executable(&mut report, &target),
            Err(error) => report.add("executable", "go", Status::Fail, format!("{error:#}")),
        }
    }
    print(&report, args.format)?;
    match report.failures() {
        0 => Ok(Outcome::Done),
        1 => anyhow::bail!("1 check failed"),
        failures => anyhow::bail!("{failures} checks failed"),
    }
}

fn kernel(report: &mut Report) {
    let features = probe_features();
    report.add("kernel", "release", Status::Ok, features.kernel.to_string());
    for (name, outcome) in features.list() {
        let outcome = outcome.as_ref().map(|()| "works".to_owned()).map_err(Clone::clone);
        report.outcome("kernel", name, outcome);
    }
    match capture_trampoline::why_unusable() {
        None => report.add(
            "machine",
            "trampoline backend",
            Status::Ok,
            "usable on processes that may be traced (ptrace); taken for programs that gospect starts, \
             for others when asked for",
        ),
        Some(reason) => report.add("machine", "trampoline backend", Status::Note, reason),
    }
}

fn rights(report: &mut Report) {
    let own = Capabilities::own();
    let needed = [
        (Capability::Bpf, "CAP_BPF", "load BPF programs"),
        (Capability::Perfmon, "CAP_PERFMON", "attach probes"),
        (Capability::SysPtrace, "CAP_SYS_PTRACE", "look into processes of other users"),
        (Capability::DacReadSearch, "CAP_DAC_READ_SEARCH", "read memory of other users' processes"),
        (Capability::DacOverride, "CAP_DAC_OVERRIDE", "put trampolines into those"),
    ];
    for (capability, name, purpose) in needed {
        let implied = match capability {
            // CAP_SYS_ADMIN still includes these (kernel/bpf/token.c, bpf_capable).
            Capability::Bpf | Capability::Perfmon => own.has(Capability::SysAdmin),
            // Whoever may write may read (fs/namei.c, generic_permission).
            Capability::DacReadSearch => own.has(Capability::DacOverride),
            _ => false,
        };
        if own.has(capability) || implied {
            report.add("rights", name, Status::Ok, format!("held: may {purpose}"));
        } else {
            // These are asked for by some features only (SECURITY.md).
            let is_needed =
                !matches!(capability, Capability::DacReadSearch | Capability::DacOverride);
            let status = if is_needed { Status::Fail } else { Status::Note };
            report.add("rights", name, status, format!("missing: cannot {purpose}; run as root"));
        }
    }
    let limits = Restrictions::now();
    let yama = match limits.yama_ptrace_scope {
        None => (Status::Ok, "not present".to_owned()),
        Some(scope @ (0 | 1)) => (Status::Ok, format!("ptrace_scope {scope}")),
        Some(scope) => {
            (Status::Note, format!("ptrace_scope {scope}: memory of others needs CAP_SYS_PTRACE"))
        }
    };
    report.add("rights", "yama", yama.0, yama.1);
    let lockdown = limits.lockdown.as_deref().unwrap_or("none");
    let forbids = lockdown == "confidentiality";
    let status = if forbids { Status::Fail } else { Status::Ok };
    let detail = if forbids { " forbids BPF programs to read memory" } else { "" };
    report.add("rights", "lockdown", status, format!("{lockdown}{detail}"));
    let seccomp = match limits.seccomp {
        None | Some(0) => (Status::Ok, "no filter"),
        Some(_) => (Status::Note, "a filter is active and may refuse bpf(2) or perf_event_open(2)"),
    };
    report.add("rights", "seccomp", seccomp.0, seccomp.1);
    if let Some(level) = limits.perf_event_paranoid {
        report.add("rights", "perf_event_paranoid", Status::Ok, level.to_string());
    }
    if let Some(value) = limits.unprivileged_bpf_disabled {
        report.add("rights", "unprivileged_bpf_disabled", Status::Ok, value.to_string());
    }
}

fn clock(report: &mut Report) {
    match process::clock_source() {
        Some(source) if source == "tsc" => {
            report.add("machine", "clock source", Status::Ok, source)
        }
        Some(source) => report.add(
            "machine",
            "clock source",
            Status::Note,
            format!("{source}: reading the time costs more than with tsc"),
        ),
        None => report.add("machine", "clock source", Status::Note, "not known"),
    }
}

fn process_checks(report: &mut Report, process: &Process) {
    let pid = process.pid();
    let access = process.memory().map(|_| format!("memory of {pid} can be read"));
    report.outcome("process", "memory", access.map_err(|error| error.to_string()));
    let trampolines = match capture_trampoline::check(pid) {
        Ok(()) => (Status::Ok, "can be put into it".to_owned()),
        Err(error) => (Status::Note, format!("{:#}", anyhow::Error::from(error))),
    };
    report.add("process", "trampolines", trampolines.0, trampolines.1);
    if capture_trampoline::is_carrier(pid) {
        let detail = "code of gospect is in it: `gospect detach` removes what a killed one left";
        report.add("process", "trampolines", Status::Note, detail);
    }
    match process.exe_path() {
        Ok(path) if path.to_string_lossy().ends_with(" (deleted)") => report.add(
            "process",
            "executable",
            Status::Note,
            format!("{}: still traceable through /proc/{pid}/exe", path.display()),
        ),
        Ok(path) => report.add("process", "executable", Status::Ok, path.display().to_string()),
        Err(error) => report.add("process", "executable", Status::Fail, error.to_string()),
    }
    match process.namespaced_pids() {
        Ok(pids) if pids.len() > 1 => report.add(
            "process",
            "pid namespace",
            Status::Note,
            format!("its own: it knows itself as {}", pids.last().copied().unwrap_or(pid)),
        ),
        Ok(_) => report.add("process", "pid namespace", Status::Ok, "shared with ours"),
        Err(error) => report.add("process", "pid namespace", Status::Note, error.to_string()),
    }
}

fn executable(report: &mut Report, target: &Target) {
    let executable = &target.executable;
    report.add("executable", "go", Status::Ok, executable.go_version().text.clone());
    let count = executable.functions().map(|table| format!("{} functions", table.len()));
    report.outcome("executable", "function table", count.map_err(|error| error.to_string()));
    let debug = match target.debug_info() {
        Ok(Some(debug)) => {
            report.add(
                "executable",
                "debug information",
                Status::Ok,
                format!("DWARF {}", debug.version()),
            );
            Some(debug)
        }
        Ok(None) => {
            report.add(
                "executable",
                "debug information",
                Status::Note,
                "none: names, lines, durations and rules work, arguments and results do not",
            );
            None
        }
        Err(error) => {
            report.add("executable", "debug information", Status::Fail, format!("{error:#}"));
            None
        }
    };
    let layout = facts::runtime_facts(executable, debug.as_ref()).map(|facts| {
        format!("goid at g{:+}, g at fs:{:+}", facts.layout.g_goid, facts.layout.tls_g)
    });
    report.outcome("executable", "runtime layout", layout.map_err(|error| format!("{error:#}")));
    sensed::sensors(report, target, debug.as_ref());
    let foreign = foreign_uprobes(&target.path);
    if foreign.is_empty() {
        report.add("executable", "foreign uprobes", Status::Ok, "none seen");
    }
    for probe in foreign {
        let place =
            probe.offset.map_or("unknown place".to_owned(), |at| format!("offset 0x{at:x}"));
        report.add(
            "executable",
            "foreign uprobes",
            Status::Note,
            format!("{place}, by {}", probe.owner),
        );
    }
}

fn print(report: &Report, format: Format) -> anyhow::Result<()> {
    let mut out = sink::open(None)?;
    for check in &report.0 {
        match format {
            Format::Json => writeln!(out, "{}", serde_json::to_string(check)?)?,
            Format::Text => {
                let mark = match check.status {
                    Status::Ok => "ok  ",
                    Status::Note => "note",
                    Status::Fail => "FAIL",
                };
                let Check { area, .. } = check;
                // A program says what its path and its functions are called, and who answers as an agent what it likes.
                let (name, detail) = (printable(&check.name), printable(&check.detail));
                writeln!(out, "{mark}  {area:<10}  {name:<26}  {detail}")?;
            }
        }
    }
    Ok(out.flush()?)
}
