//! Programs that ask by themselves.

use super::Supervisor;
use crate::agent::door::{Knock, Offer, PATIENCE};
use crate::agent::target::Stage;
use agent::Way;
use agent::status::PreloadStatus;
use std::sync::Arc;
use std::time::Instant;

impl Supervisor {
    /// Opens the socket that the configuration names.
    pub(super) fn open_door(&mut self) {
        self.door = None;
        let Some(path) = &self.loaded.config.agent.socket else {
            return self.board.lock().preload = PreloadStatus::default();
        };
        self.board.lock().preload = PreloadStatus {
            socket: Some(path.display().to_string()),
            error: Some("this build takes no questions of preloaded programs".to_owned()),
            ..PreloadStatus::default()
        };
    }

    /// Answers whoever asks: at once where there is a plan, and after some patience not at all.
    pub(super) fn answer(&mut self) {
        let Some(door) = &mut self.door else { return };
        for knock in door.knocks() {
            self.board.lock().preload.asked += 1;
            self.waiting.push((knock, Instant::now()));
            // A process that has only just begun may not have been met.
            self.meet(knock.pid);
        }
        for (knock, since) in std::mem::take(&mut self.waiting) {
            match self.served(knock) {
                Ok(true) => self.board.lock().preload.served += 1,
                Ok(false) if since.elapsed() < PATIENCE => self.waiting.push((knock, since)),
                Ok(false) => self.send_away(knock, "its plan is not ready yet"),
                Err(reason) => self.send_away(knock, &reason),
            }
        }
    }

    fn send_away(&mut self, knock: Knock, reason: &str) {
        if let Some(door) = &mut self.door {
            door.refuse(knock, reason);
        }
        self.board.lock().preload.refused += 1;
    }

    /// Whether it carries its plan now. False while that is being made.
    fn served(&mut self, knock: Knock) -> Result<bool, String> {
        let Some(target) = self.targets.get_mut(&knock.pid) else {
            return Err("it belongs to no service".to_owned());
        };
        let service = Arc::clone(&target.service);
        if !service.is_instrumented() || !service.inject.contains(&Way::Preload) {
            return Err("the configuration leaves it out".to_owned());
        }
        match &target.stage {
            Stage::Planning => {}
            Stage::Watched(_) => return Err("it is watched already".to_owned()),
            Stage::Off(reason) => return Err(reason.clone()),
        }
        let process = &target.process;
        let open = || crate::target::Target::of_process(process, None);
        let prepared = match self.planner.of(target.file, &service, open) {
            None => return Ok(false),
            Some(prepared) => prepared?,
        };
        let Some(door) = &mut self.door else { return Ok(false) };
        let offer = Offer {
            plan: &prepared.planned.plan,
            executable: &prepared.target.executable,
            path: &prepared.target.path,
        };
        let told = |error: anyhow::Error| format!("{error:#}");
        let capture = door.open(knock, &offer).map_err(told)?;
        let begun = prepared.adopt(capture, self.clock).map_err(told)?;
        target.way = Way::Preload;
        target.prepared = Some(prepared);
        target.begin(begun);
        Ok(true)
    }
}
