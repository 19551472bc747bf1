//! Processes that begin to listen later on: a service that asks for a port may take them then.

use super::Supervisor;
use agent::Service;
use process::{Listener, Process};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often what listens is looked at: two files of each network namespace.
const LOOK: Duration = Duration::from_secs(1);

/// A network namespace; `None` for those that we may not tell apart.
type Space = Option<u64>;

/// Processes that another service would take if they listened on its port.
#[derive(Default)]
pub struct Awaiting {
    pids: BTreeMap<u32, Space>,
    /// What listened on such ports when it was looked last.
    seen: BTreeMap<Space, BTreeSet<Listener>>,
    last: Option<Instant>,
}

impl Awaiting {
    /// From now on a process is one of them, or is not.
    pub fn note(&mut self, process: &Process, is_one: bool) {
        if is_one {
            self.pids.insert(process.pid(), process.network_namespace());
        } else {
            self.pids.remove(&process.pid());
        }
    }

    /// Forgets processes that are not among these.
    pub fn retain(&mut self, pids: &BTreeSet<u32>) {
        self.pids.retain(|pid, _| pids.contains(pid));
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Processes that share a network namespace in which others listen on `ports` than when this was asked last.
    fn changed(&mut self, ports: &BTreeSet<u16>) -> Vec<u32> {
        let mut spaces: BTreeMap<Space, Vec<u32>> = BTreeMap::new();
        for (&pid, &space) in &self.pids {
            spaces.entry(space).or_default().push(pid);
        }
        self.seen.retain(|space, _| spaces.contains_key(space));
        let mut changed = Vec::new();
        for (space, pids) in spaces {
            // Any of them that still lives shows what there is.
            let Some(one) = pids.iter().find_map(|&pid| Process::open(pid).ok()) else { continue };
            let mut now = one.listeners();
            now.retain(|listener| ports.contains(&listener.port));
            if self.seen.get(&space) != Some(&now) {
                self.seen.insert(space, now);
                changed.extend(pids);
            }
        }
        changed
    }
}

impl Supervisor {
    /// Looks whether processes have begun to listen on ports that services ask for.
    pub(super) fn follow_ports(&mut self) {
        let awaiting = &mut self.awaiting;
        let is_due = awaiting.last.is_none_or(|last| last.elapsed() >= LOOK);
        if awaiting.pids.is_empty() || !is_due {
            return;
        }
        awaiting.last = Some(Instant::now());
        let services = &self.loaded.config.services;
        let ports = services.iter().flat_map(|service| service.matching.port.iter().copied());
        for pid in awaiting.changed(&ports.collect()) {
            match self.targets.contains_key(&pid) {
                true => self.match_port(pid),
                false => self.meet(pid),
            }
        }
    }

    /// Another service may take a process that is watched already.
    fn match_port(&mut self, pid: u32) {
        let Some(target) = self.targets.get_mut(&pid) else { return };
        target.candidate.ports = target.process.listening_ports();
        let config = &self.loaded.config;
        let found = config.service_of(&target.candidate).and_then(|at| config.services.get(at));
        let Some(service) = found.filter(|service| **service != *target.service).cloned() else {
            return;
        };
        let is_child = self.child.as_ref().is_some_and(|child| child.pid() == pid);
        if service.is_put_in_as(&target.service) {
            self.rename(pid, service);
        } else if !is_child {
            // What was started is watched in a way that could not be had again.
            self.forget(pid, "it listens on the port of another service");
            self.strangers.forget(pid);
            self.meet(pid);
        }
    }

    /// What is watched of a process is another service's from now on.
    fn rename(&mut self, pid: u32, service: Service) {
        let Some(mut target) = self.targets.remove(&pid) else { return };
        let is_sent = self.exporters.has_metrics();
        self.board.lock().forget(pid, is_sent);
        target.budget.limit(service.budget);
        target.service = Arc::new(service);
        self.awaiting.note(&target.process, self.loaded.config.awaits_port(&target.candidate));
        self.add(target);
    }
}
