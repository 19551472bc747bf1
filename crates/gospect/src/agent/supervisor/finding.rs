//! Which service a process belongs to, and what follows from that.

use super::Supervisor;
use crate::agent::board::Row;
use crate::agent::export::origin;
use crate::agent::target::{Stage, Target, retry};
use crate::monitor::service_of;
use agent::status::{Activity, ProcessStatus};
use agent::{Candidate, Glob, Requests, Service, command_of, container_of};
use process::{FileIdentity, FileStamp, ImageStamp, Process};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Executables that are remembered to be none of Go.
const OTHERS: usize = 4096;

/// What a process is, and which of the programs that it runs one after the other: its command line may be another one
/// though it runs the same file, and its id another process's.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Running {
    start_ticks: u64,
    stamp: ImageStamp,
    file: Option<FileIdentity>,
}

/// What is known of processes that are not watched.
#[derive(Default)]
pub struct Strangers {
    /// What they run; they are looked at again when that is something else.
    seen: HashMap<u32, Running>,
    /// Files that are no Go programs.
    others: HashSet<FileStamp>,
}

impl Strangers {
    /// Forgets processes that are not among these.
    pub fn retain(&mut self, pids: &BTreeSet<u32>) {
        self.seen.retain(|pid, _| pids.contains(pid));
        // Inodes are used again.
        if self.others.len() > OTHERS || self.seen.is_empty() {
            self.others.clear();
        }
    }

    fn knows(&self, pid: u32, running: Running) -> bool {
        self.seen.get(&pid) == Some(&running)
    }

    fn pass(&mut self, pid: u32, running: Running) {
        self.seen.insert(pid, running);
    }

    /// Forgets a process.
    pub fn forget(&mut self, pid: u32) {
        self.seen.remove(&pid);
    }

    fn clear(&mut self) {
        self.seen.clear();
        self.others.clear();
    }
}

/// What is known of a process before it is decided about it.
pub fn candidate(process: &Process, with_ports: bool) -> Candidate {
    Candidate {
        exe: process.exe_path().map(|path| path.display().to_string()).unwrap_or_default(),
        command: command_of(process.command_line().unwrap_or_default()),
        ports: if with_ports { process.listening_ports() } else { Vec::new() },
        cgroup: process.cgroup().unwrap_or_else(|_| "/".to_owned()),
    }
}

impl Supervisor {
    /// Looks at a process that may be new, or run something else than before.
    pub(super) fn meet(&mut self, pid: u32) {
        let process = match Process::open(pid) {
            Ok(process) => process,
            Err(process::Error::NoProcess(_) | process::Error::Gone(_)) => {
                return self.forget(pid, "it has ended");
            }
            // Too many open files, mostly: that says nothing of the process.
            Err(_) => return,
        };
        let Ok(stamp) = process.image_stamp() else { return };
        let file = match process.exe_identity() {
            Ok(file) => Some(file),
            Err(process::Error::Permission { .. }) => None,
            Err(_) => return,
        };
        if let Some(known) = self.targets.get(&pid) {
            // The start is told in clock ticks: another process may have the number and the same start.
            let same =
                known.process.start_ticks() == process.start_ticks() && known.process.is_alive();
            if same && known.file == file && known.stamp == stamp {
                return;
            }
            self.forget(pid, "it runs another program now");
        }
        let ports = self.loaded.config.asks_for_ports();
        // With ports in the configuration a process may begin to listen later.
        let running = Running { start_ticks: process.start_ticks(), stamp, file };
        if self.strangers.knows(pid, running) && !ports {
            return;
        }
        let state = process.executable().ok().and_then(|file| file.stamp());
        if state.is_some_and(|state| self.strangers.others.contains(&state)) {
            return;
        }
        self.strangers.pass(pid, running);
        let found = candidate(&process, ports);
        self.awaiting.note(&process, ports && self.loaded.config.awaits_port(&found));
        let Some(service) = self.service_of(pid, &found) else { return };
        // What runs there nobody may know: then its command line has to be meant.
        if file.is_none() && service.matching.command.is_empty() {
            return;
        }
        let reason = match crate::target::Target::of_process(&process, None) {
            Ok(_) => None,
            Err(error) => {
                // Whoever names a file wants to hear what it is; a pattern takes what it can.
                let named = service.matching.exe.iter().any(Glob::is_literal);
                if is_no_go(&error) && !named {
                    self.strangers.others.extend(state);
                    return;
                }
                // It may be on its way to another program, or out of reach.
                Some(format!("{error:#}"))
            }
        };
        let mut target = Target::new(process, file, stamp, found, Arc::new(service));
        if let Some(reason) = reason {
            target.stage = Stage::Off(reason);
        }
        self.add(target);
    }

    /// The service that takes a process, if one does. The command of the agent is always watched.
    fn service_of(&self, pid: u32, candidate: &Candidate) -> Option<Service> {
        let config = &self.loaded.config;
        let at = config.service_of(candidate);
        let is_child = || self.child.as_ref().is_some_and(|child| child.pid() == pid);
        let service = at.and_then(|at| config.services.get(at)).cloned();
        service.or_else(|| is_child().then(Service::all))
    }

    /// Watches a process from now on.
    pub(super) fn add(&mut self, target: Target) {
        let pid = target.pid();
        let candidate = &target.candidate;
        let name = target.service.name.clone();
        let name = name.unwrap_or_else(|| service_of(&target.process, &candidate.exe));
        let status = ProcessStatus {
            pid,
            started_unix_ns: self
                .unix_ns()
                .saturating_sub(target.process.age().map_or(0, |age| age.as_nanos() as u64)),
            exe: candidate.exe.clone(),
            command: candidate.command.clone(),
            service: name.clone(),
            cgroup: candidate.cgroup.clone(),
            container: container_of(&candidate.cgroup).map(|container| container.id),
            ..ProcessStatus::default()
        };
        let row = Row {
            status,
            start_ticks: target.process.start_ticks(),
            metrics: target.service.metrics,
            origin: Arc::new(origin(&target.service, &name, &self.loaded)),
            since_unix_ns: self.unix_ns(),
            requests: Requests::default(),
            activity: Activity::default(),
            series: Vec::new(),
        };
        self.board.lock().rows.insert(pid, row);
        self.targets.insert(pid, target);
    }

    /// After the configuration has changed: processes whose service is the same stay as they are.
    pub(super) fn match_anew(&mut self) {
        self.strangers.clear();
        self.awaiting.clear();
        let config = self.loaded.config.clone();
        let mut changed = Vec::new();
        for pid in self.targets.keys().copied().collect::<Vec<_>>() {
            let Some(target) = self.targets.get_mut(&pid) else { continue };
            if config.asks_for_ports() {
                target.candidate.ports = target.process.listening_ports();
                self.awaiting.note(&target.process, config.awaits_port(&target.candidate));
            }
            let candidate = target.candidate.clone();
            let service = self.service_of(pid, &candidate);
            let Some(target) = self.targets.get_mut(&pid) else { continue };
            match service {
                Some(service) if service == *target.service => {
                    let mut board = self.board.lock();
                    if let Some(row) = board.rows.get_mut(&pid) {
                        let name = row.status.service.clone();
                        row.origin = Arc::new(origin(&service, &name, &self.loaded));
                    }
                }
                // What is to be watched is the same: only what is decided of it changes.
                Some(service)
                    if service.is_put_in_as(&target.service)
                        && service.name == target.service.name =>
                {
                    target.budget.limit(service.budget);
                    target.budget.retry(retry(&service));
                    let mut board = self.board.lock();
                    if let Some(row) = board.rows.get_mut(&pid) {
                        row.metrics = service.metrics;
                        let name = row.status.service.clone();
                        row.origin = Arc::new(origin(&service, &name, &self.loaded));
                    }
                    target.service = Arc::new(service);
                }
                Some(_) | None => {
                    changed.push((pid, target.process.start_ticks(), target.origin()));
                    self.forget(pid, "the configuration has changed");
                }
            }
        }
        // Nothing else would find the agent's own command again, or know how another one came.
        for (pid, start_ticks, origin) in changed {
            self.meet(pid);
            let target = self.targets.get_mut(&pid);
            if let Some(target) = target.filter(|it| it.process.start_ticks() == start_ticks) {
                target.comes_from(origin);
            }
        }
        if let Some(discovery) = &mut self.discovery {
            discovery.restart();
        }
    }
}

/// Whether it is certain that something is no Go program.
fn is_no_go(error: &anyhow::Error) -> bool {
    use binary::Error::{NotElf, NotGo, WrongMachine};
    matches!(error.downcast_ref(), Some(NotElf | NotGo(_) | WrongMachine(_)))
}
