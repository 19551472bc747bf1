//! The configuration as read: the file, and what the environment says besides.

use super::config_file;
use crate::failure::usage;
use agent::{Config, Export};
use anyhow::Context as _;
use otlp::{Protocol, Settings, Signal};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the file is when none is named.
const PATH: &str = "/etc/gospect/gospect.toml";

/// Between two rounds of metrics that are sent, when nothing says so (the SDKs have a minute).
const INTERVAL: Duration = Duration::from_secs(60);

/// What is in force.
pub struct Loaded {
    /// The file; `None` when there is none.
    pub path: Option<PathBuf>,
    /// What it says.
    pub config: Config,
    /// Where spans are sent.
    pub spans: Option<Settings>,
    /// Where metrics are sent.
    pub metrics: Option<Settings>,
    /// Between two rounds of metrics.
    pub interval: Duration,
    /// What was not understood of the environment.
    pub warnings: Vec<String>,
}

impl Loaded {
    /// Reads the file at `path`, else at the usual place.
    ///
    /// # Errors
    /// What is wrong with it, with its place; usage for what it says.
    pub fn read(path: Option<&Path>) -> anyhow::Result<Self> {
        let path = Self::place(path);
        let text = match &path {
            Some(path) => config_file::read(path)
                .with_context(|| format!("failed to read the configuration {}", path.display()))?,
            None => String::new(),
        };
        Self::of(path, &text)
    }

    /// Where the file is: at `path`, else at the usual place if there is one.
    pub fn place(path: Option<&Path>) -> Option<PathBuf> {
        match path {
            Some(path) => Some(path.to_owned()),
            None => Some(PathBuf::from(PATH)).filter(|path| path.exists()),
        }
    }

    /// The file at `path` says `text`.
    ///
    /// # Errors
    /// What is wrong with it, with its place.
    pub fn of(path: Option<PathBuf>, text: &str) -> anyhow::Result<Self> {
        let shown = path.as_deref().unwrap_or(Path::new("(no file)")).display().to_string();
        let config = Config::parse(text).map_err(|error| usage(format!("{shown}:{error}")))?;
        let mut loaded = Self {
            path,
            config,
            spans: None,
            metrics: None,
            interval: INTERVAL,
            warnings: Vec::new(),
        };
        loaded.read_environment().map_err(|error| usage(format!("{shown}: export: {error}")))?;
        Ok(loaded)
    }

    fn read_environment(&mut self) -> Result<(), otlp::Error> {
        let variable = |name: &str| std::env::var(name).ok();
        let agent = &self.config.agent;
        let protocol: Option<Protocol> = agent.protocol.as_deref().map(str::parse).transpose()?;
        let settings = |signal: Signal| {
            let url = match &agent.export {
                Export::None => return Ok(None),
                Export::Environment if !signal.is_wanted(&variable) => return Ok(None),
                Export::Environment => None,
                Export::To(url) => Some(url.as_str()),
            };
            let settings = Settings::of(signal, url, protocol, "gospect-agent", &variable)?;
            otlp::Exporter::check(&settings)?;
            Ok::<_, otlp::Error>(Some(settings))
        };
        (self.spans, self.metrics) = (settings(Signal::Traces)?, settings(Signal::Metrics)?);
        for settings in self.spans.iter().chain(&self.metrics) {
            for warning in &settings.warnings {
                if !self.warnings.contains(warning) {
                    self.warnings.push(warning.clone());
                }
            }
        }
        if let Some(interval) = agent.interval {
            self.interval = interval;
        } else if let Some(text) = variable("OTEL_METRIC_EXPORT_INTERVAL") {
            match text.trim().parse().map(Duration::from_millis) {
                Ok(interval) if interval >= Duration::from_millis(100) => self.interval = interval,
                _ => self.warnings.push(format!(
                    "OTEL_METRIC_EXPORT_INTERVAL is `{text}`, no number of milliseconds from 100 on: \
                     {INTERVAL:?} is taken"
                )),
            }
        }
        Ok(())
    }
}
