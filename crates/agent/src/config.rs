//! The configuration file.

mod error;
mod parse;
#[cfg(test)]
mod tests;

pub use error::{ConfigError, WrongPlace};

use crate::glob::Glob;
use sensors::HeaderName;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// `gospect.toml`.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `[agent]`.
    pub agent: Agent,
    /// `[[service]]`, in the order in which they are tried. Without any in the file there is one that takes
    /// every Go program.
    pub services: Vec<Service>,
}

/// What concerns all services.
#[derive(Clone, Debug, PartialEq)]
pub struct Agent {
    /// Where metrics and the status are served; `None` for nowhere.
    pub listen: Option<SocketAddr>,
    /// Where programs with the preloaded library ask; `None` for nowhere.
    pub socket: Option<PathBuf>,
    /// Where metrics and spans are sent.
    pub export: Export,
    /// What is spoken there; by the environment where it is not given.
    pub protocol: Option<String>,
    /// Time between two readings of metrics that are sent (else OTEL_METRIC_EXPORT_INTERVAL).
    pub interval: Option<Duration>,
}

/// Where metrics and spans are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Export {
    /// Where OTEL_* variables say, if one of them names an endpoint.
    #[default]
    Environment,
    /// Nowhere.
    None,
    /// To a collector, by its base URL.
    To(String),
}

/// Processes that are one service, and what is done with them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Service {
    /// Its name; else as OTEL_* variables of the process say, else that of the executable.
    pub name: Option<String>,
    /// Which processes.
    pub matching: Match,
    /// What is watched: names of [`sensors::GROUPS`].
    pub sensors: Vec<String>,
    /// Whether metrics of the Go runtime and of the process are read.
    pub metrics: bool,
    /// Functions whose calls are counted and timed, as patterns.
    pub functions: Vec<String>,
    /// Which traces are sent.
    pub sampling: Option<Sampling>,
    /// How requests and functions are watched.
    pub backend: Backend,
    /// Which ways into a process are taken.
    pub inject: Vec<Way>,
    /// Share of a CPU that this may cost each process, percent.
    pub budget: Option<f64>,
    /// After which time what was given up for that is tried again for the first time.
    pub retry: Option<Duration>,
    /// Whether statements of databases are told, their literals masked.
    pub sql: bool,
    /// Whether queries of URLs are told, secrets in them masked.
    pub queries: bool,
    /// Headers of requests that are told, masked where they are secret by their name.
    pub headers: Vec<HeaderName>,
    /// Whether is watched what requests spend their time on.
    pub time: bool,
}

/// Which processes: all that is given has to be so; of several texts in one list, one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// Path of the executable.
    pub exe: Vec<Glob>,
    /// Command line.
    pub command: Vec<Glob>,
    /// TCP port that the process listens on.
    pub port: Vec<u16>,
    /// Id or name of the container.
    pub container: Vec<Glob>,
    /// Path of the control group.
    pub cgroup: Vec<Glob>,
}

/// A sampler of OTEL_TRACES_SAMPLER, and its argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// Name.
    pub name: String,
    /// OTEL_TRACES_SAMPLER_ARG.
    pub argument: Option<String>,
}

/// How requests and functions are watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Backend {
    /// Programs that the agent starts or that ask for it carry trampolines, running ones get uprobes.
    #[default]
    Auto,
    /// Uprobes.
    Uprobe,
    /// Trampolines, in running programs too.
    Trampoline,
    /// Not at all.
    None,
}

/// A way into a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// It is started by the agent.
    Launch,
    /// It runs already.
    Attach,
    /// It has the library preloaded, and asks.
    Preload,
}

impl Way {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Launch, Self::Attach, Self::Preload];

    /// As it stands in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::Attach => "attach",
            Self::Preload => "preload",
        }
    }
}

impl Backend {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Uprobe, Self::Trampoline, Self::None];

    /// As it stands in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Uprobe => "uprobe",
            Self::Trampoline => "trampoline",
            Self::None => "none",
        }
    }
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 9463))),
            socket: None,
            export: Export::Environment,
            protocol: None,
            interval: None,
        }
    }
}

impl Default for Config {
    /// Every Go program, on all defaults.
    fn default() -> Self {
        Self { agent: Agent::default(), services: vec![Service::all()] }
    }
}

impl Service {
    /// Takes every Go program, with all sensors.
    pub fn all() -> Self {
        Self {
            sensors: sensors::GROUPS.iter().map(|&name| name.to_owned()).collect(),
            metrics: true,
            inject: Way::ALL.to_vec(),
            ..Self::default()
        }
    }

    /// Whether there is anything to be watched by code or breakpoints in the process.
    pub fn is_instrumented(&self) -> bool {
        self.backend != Backend::None && !(self.sensors.is_empty() && self.functions.is_empty())
    }

    /// Whether a process that both take is watched alike: the same is planned, and put in by the same ways.
    pub fn is_put_in_as(&self, other: &Self) -> bool {
        self.plans_as(other) && (self.backend, &self.inject) == (other.backend, &other.inject)
    }

    /// Whether what is planned is the same by both.
    pub fn plans_as(&self, other: &Self) -> bool {
        let read = |service: &Self| (service.sql, service.queries, service.time);
        (&self.sensors, &self.functions, &self.headers, read(self))
            == (&other.sensors, &other.functions, &other.headers, read(other))
    }
}

impl Config {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place and what was expected.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        parse::parse(text)
    }

    /// The first service that takes a process, by its number.
    pub fn service_of(&self, candidate: &crate::Candidate) -> Option<usize> {
        self.services.iter().position(|service| service.matching.takes(candidate))
    }

    /// Whether another service would take a process, or one would that none takes, if that began to listen on the
    /// right port.
    pub fn awaits_port(&self, candidate: &crate::Candidate) -> bool {
        let before = self.services.iter().take_while(|service| !service.matching.takes(candidate));
        let mut asking = before.filter(|service| !service.matching.port.is_empty());
        asking.any(|service| service.matching.takes_but_for_ports(candidate))
    }

    /// Whether a port is asked for, which takes a while to find out.
    pub fn asks_for_ports(&self) -> bool {
        self.services.iter().any(|service| !service.matching.port.is_empty())
    }
}
