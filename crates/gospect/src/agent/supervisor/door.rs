//! Programs that ask by themselves.

use super::Supervisor;
use crate::agent::door::{Asking, Door, Visit};
use crate::agent::target::Stage;
use agent::Way;
use capture_trampoline::preload::{Injected, Planned};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a program that was told what to carry may take to say that it does.
const CARRYING: Duration = Duration::from_secs(3);

impl Supervisor {
    /// Opens the socket that the configuration names, unless it is open; where that fails the one before stays.
    pub(super) fn open_door(&mut self) {
        let wanted = self.loaded.config.agent.socket.clone();
        let mut error = None;
        match &wanted {
            None => self.door = None,
            Some(path) if self.door.as_ref().is_some_and(|door| door.path() == path) => {}
            Some(path) => match Door::open(path) {
                Ok(door) => self.door = Some(door),
                Err(reason) => {
                    let reason = format!("{reason:#}");
                    crate::sink::say(format_args!("no preloaded programs are served: {reason}"));
                    error = Some(reason);
                }
            },
        }
        let open = self.door.as_ref().map(|door| door.path().to_owned());
        let preload = &mut self.board.lock().preload;
        preload.socket = open.or(wanted).map(|path| path.display().to_string());
        preload.error = error;
    }

    /// Has plans ready for programs that will ask.
    pub(super) fn expect(&mut self) {
        self.last_expected = Instant::now();
        if self.door.is_some() {
            let ready = self.planner.expect(&self.loaded.config.services);
            self.board.lock().preload.ready = ready as u64;
        }
    }

    /// Answers whoever asks: at once where there is a plan, and after some patience not at all.
    pub(super) fn answer(&mut self) {
        let Some(door) = &self.door else { return };
        let (visits, counts) = (door.visits(), door.counts());
        for visit in visits {
            match visit {
                Visit::Asks(asking) => {
                    // One that has only just begun may not have been met.
                    self.meet(asking.pid);
                    // A program asks once, at its start; what asks on and on is not heard again.
                    let target = self.targets.get_mut(&asking.pid);
                    match target.filter(|target| !target.asked) {
                        Some(target) => {
                            target.asked = true;
                            self.waiting.push(asking);
                        }
                        None => asking.answer(None),
                    }
                }
                Visit::Carries(injected) => self.take_injected(*injected),
                Visit::Failed { pid, reason } => {
                    if let Some(target) = self.targets.get_mut(&pid) {
                        target.offered = None;
                        target.notes.push(format!("it was to carry code by itself: {reason}"));
                    }
                }
            }
        }
        for asking in std::mem::take(&mut self.waiting) {
            match self.planned_for(asking.pid) {
                Some(planned) => asking.answer(planned),
                None if asking.waits() => self.waiting.push(asking),
                None => asking.answer(None),
            }
        }
        let preload = &mut self.board.lock().preload;
        (preload.asked, preload.served, preload.refused) = counts;
    }

    /// Whether a process may still come by itself: nothing else is put into it meanwhile.
    pub(super) fn may_carry(&self, pid: u32) -> bool {
        let waits = self.waiting.iter().any(|asking: &Asking| asking.pid == pid);
        let offered = self.targets.get(&pid).and_then(|target| target.offered);
        waits || offered.is_some_and(|since| since.elapsed() < CARRYING)
    }

    /// What a process is to carry, or that it is nothing; `None` while that is not known.
    fn planned_for(&mut self, pid: u32) -> Option<Option<Arc<Planned>>> {
        let Some(target) = self.targets.get_mut(&pid) else { return Some(None) };
        let service = Arc::clone(&target.service);
        let is_wanted = service.is_instrumented() && service.inject.contains(&Way::Preload);
        // One that is not to be attached to is left alone by now, and may ask all the same.
        if !is_wanted || matches!(target.stage, Stage::Watched(_)) {
            return Some(None);
        }
        let process = &target.process;
        let open = || crate::target::Target::of_process(process, None);
        let Some(file) = target.file_stamp() else { return Some(None) };
        let outcome = self.planner.of(file, &service, open)?;
        let planned = outcome.and_then(|prepared| {
            let planned = prepared.carried();
            target.prepared = Some(prepared);
            planned
        });
        match planned {
            Ok(planned) => {
                target.offered = Some(Instant::now());
                Some(Some(planned))
            }
            Err(reason) => {
                target.notes.push(reason);
                Some(None)
            }
        }
    }

    fn take_injected(&mut self, injected: Injected) {
        let Injected { program, planned, capture } = injected;
        // Without a target the capture is dropped, which takes the code out.
        let Some(target) = self.targets.get_mut(&program.pid()) else { return };
        target.offered = None;
        let Some(prepared) = target.prepared.clone() else { return };
        // The configuration may have changed since it asked: then it carries what nobody would understand.
        let is_it = prepared.carried().is_ok_and(|carried| Arc::ptr_eq(&carried, &planned));
        if !is_it || matches!(target.stage, Stage::Watched(_)) {
            return;
        }
        match prepared.adopt(capture, self.clock) {
            Ok(begun) => {
                target.way = Way::Preload;
                target.begin(begun, crate::clock::monotonic_ns());
            }
            Err(error) => target.failed(format!("{error:#}")),
        }
    }
}
