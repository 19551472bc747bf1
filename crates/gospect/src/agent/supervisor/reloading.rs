//! Another configuration, and where the agent is to be found by it.

use super::Supervisor;
use crate::agent::loaded::Loaded;
use crate::agent::serve::Server;
use crate::sink;
use agent::status::ConfigStatus;
use std::net::SocketAddr;
use std::time::{Instant, SystemTime};

impl Supervisor {
    /// Reads the configuration again where that was asked for; a wrong one changes nothing.
    pub(super) fn reload(&mut self) {
        let now = Instant::now();
        let Some(rereading) = self.rereading.as_mut().filter(|it| it.is_due(now)) else { return };
        let named = self.loaded.path.as_deref().or(self.args.config.as_deref());
        let path = Loaded::place(named);
        let found = match &path {
            Some(path) => rereading.look(path, now, SystemTime::now()),
            None => Some(Ok(String::new())),
        };
        // It is being written.
        let Some(found) = found else { return };
        self.rereading = None;
        let shown = path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let loaded = match found {
            Ok(text) => Loaded::of(path, &text).map_err(|error| format!("{error:#}")),
            Err(reason) => Err(format!("failed to read {shown}: {reason}")),
        };
        match loaded {
            Ok(loaded) => self.follow(loaded),
            Err(reason) => {
                sink::say(format_args!("the configuration stays as it was: {reason}"));
                self.tell_config(Some(reason));
            }
        }
    }

    /// Does as another configuration says from now on.
    fn follow(&mut self, loaded: Loaded) {
        let old = std::mem::replace(&mut self.loaded, loaded);
        if old.spans != self.loaded.spans || old.metrics != self.loaded.metrics {
            self.exporters.set(&self.loaded, self.clock);
        }
        self.monitor.set_interval(self.loaded.interval);
        let error = self.serve().err().map(|reason| format!("{reason:#}"));
        self.open_door();
        self.match_anew();
        self.expect();
        if !self.args.quiet {
            sink::say("the configuration was read again");
            for warning in self.loaded.warnings.iter().filter(|it| !old.warnings.contains(it)) {
                sink::say(warning);
            }
        }
        if let Some(reason) = &error {
            sink::say(reason);
        }
        self.tell_config(error);
    }

    /// Puts on the board what the configuration is, and what is wrong with it.
    pub(super) fn tell_config(&self, error: Option<String>) {
        let services = (1..).zip(&self.loaded.config.services);
        let name = |(number, service): (usize, &agent::Service)| {
            service.name.clone().unwrap_or_else(|| number.to_string())
        };
        let mut board = self.board.lock();
        let loaded_unix_ns = match &error {
            Some(_) => board.config.loaded_unix_ns,
            None => self.unix_ns(),
        };
        board.config = ConfigStatus {
            path: self.loaded.path.as_ref().map(|path| path.display().to_string()),
            loaded_unix_ns,
            error,
            services: services.map(name).collect(),
        };
    }

    /// Listens where the configuration says, unless it does; where that fails, where it did before.
    pub(super) fn serve(&mut self) -> anyhow::Result<()> {
        let wanted = self.loaded.config.agent.listen;
        if wanted == self.served {
            return Ok(());
        }
        let Some(address) = wanted else {
            (self.server, self.served) = (None, None);
            return Ok(());
        };
        let mut started = Server::start(address, self.monitor.clone());
        let before = self.served.filter(|before| before.port() == address.port());
        if let (Err(_), Some(before)) = (&started, before) {
            // A port of all addresses and the same of one of them are in each other's way.
            (self.server, self.served) = (None, None);
            started = Server::start(address, self.monitor.clone());
            if started.is_err() {
                self.take_server(before, Server::start(before, self.monitor.clone())?);
            }
        }
        self.take_server(address, started?);
        Ok(())
    }

    fn take_server(&mut self, address: SocketAddr, server: Server) {
        if !self.args.quiet {
            let note =
                if address.ip().is_loopback() { "" } else { " (for everybody who reaches it)" };
            sink::say(format_args!("serving http://{}/{note}", server.address));
        }
        (self.server, self.served) = (Some(server), Some(address));
    }
}
