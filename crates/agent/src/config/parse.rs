//! From the text to [`Config`]: every key is known, or it is named.

use super::error::{ConfigError, WrongPlace};
use super::{Agent, Backend, Config, Export, Match, Sampling, Service, Way};
use crate::glob::Glob;
use probe::expression::Request;
use sensors::HeaderName;
use std::ops::Range;
use std::time::Duration;
use toml_edit::{Document, Item, Key, TableLike, Value};

/// Samplers that have no argument.
const PLAIN_SAMPLERS: [&str; 4] =
    ["always_on", "always_off", "parentbased_always_on", "parentbased_always_off"];
/// Samplers whose argument is a share of traces.
const RATIO_SAMPLERS: [&str; 2] = ["traceidratio", "parentbased_traceidratio"];
/// What is spoken to collectors.
const PROTOCOLS: [&str; 3] = ["grpc", "http/protobuf", "http/json"];
/// Sensors besides those of the catalogue.
const METRICS: &str = "metrics";

const AGENT_KEYS: &[&str] = &["listen", "socket", "export", "protocol", "interval"];
const SERVICE_KEYS: &[&str] = &[
    "name",
    "match",
    "sensors",
    "functions",
    "sampling",
    "backend",
    "inject",
    "budget",
    "retry",
    "sql",
    "queries",
    "headers",
    "time",
];
const MATCH_KEYS: &[&str] = &["exe", "command", "port", "container", "cgroup"];

type Parsed<T> = Result<T, ConfigError>;

pub(super) fn parse(text: &str) -> Parsed<Config> {
    let document = Document::parse(text).map_err(|error| ConfigError {
        place: WrongPlace::of(text, error.span()),
        what: error.message().lines().collect::<Vec<_>>().join("; "),
    })?;
    let file = Reader { text };
    let mut config = Config { agent: Agent::default(), services: Vec::new() };
    for (key, item) in file.entries(document.as_table(), "the file", &["agent", "service"])? {
        match key.get() {
            "agent" => config.agent = file.agent(file.table(item, "agent")?)?,
            _ => config.services = file.services(item)?,
        }
    }
    if config.services.is_empty() {
        config.services.push(Service::all());
    }
    Ok(config)
}

struct Reader<'t> {
    text: &'t str,
}

impl Reader<'_> {
    fn wrong<T>(&self, span: Option<Range<usize>>, what: impl Into<String>) -> Parsed<T> {
        Err(ConfigError { place: WrongPlace::of(self.text, span), what: what.into() })
    }

    /// The entries of a table, all of whose keys are among `known`.
    fn entries<'d>(
        &self,
        table: &'d dyn TableLike,
        name: &str,
        known: &[&str],
    ) -> Parsed<Vec<(&'d Key, &'d Item)>> {
        let mut entries = Vec::new();
        for (key, _) in table.iter() {
            let Some((key, item)) = table.get_key_value(key) else { continue };
            if !known.contains(&key.get()) {
                let what = format!(
                    "unknown key `{}` in {name}: expected one of {}",
                    key.get(),
                    known.join(", ")
                );
                return self.wrong(key.span(), what);
            }
            entries.push((key, item));
        }
        Ok(entries)
    }

    fn table<'d>(&self, item: &'d Item, key: &str) -> Parsed<&'d dyn TableLike> {
        match item.as_table_like() {
            Some(table) => Ok(table),
            None => self.mismatch(item, key, "a table"),
        }
    }

    fn mismatch<T>(&self, item: &Item, key: &str, wanted: &str) -> Parsed<T> {
        let what = format!("`{key}` is {}: expected {wanted}", kind(item));
        self.wrong(item.span(), what)
    }

    fn text(&self, item: &Item, key: &str, wanted: &str) -> Parsed<String> {
        match item.as_str() {
            Some("") | None => self.mismatch(item, key, wanted),
            Some(text) => Ok(text.to_owned()),
        }
    }

    fn flag(&self, item: &Item, key: &str) -> Parsed<bool> {
        item.as_bool().map_or_else(|| self.mismatch(item, key, "true or false"), Ok)
    }

    /// One value, or a list of them.
    fn values(&self, item: &Item, key: &str, wanted: &str) -> Parsed<Vec<Item>> {
        match item.as_value() {
            Some(Value::Array(list)) => Ok(list.iter().cloned().map(Item::Value).collect()),
            Some(value) => Ok(vec![Item::Value(value.clone())]),
            None => self.mismatch(item, key, wanted),
        }
    }

    /// One of `known`, by name.
    fn named<T: Copy>(&self, item: &Item, key: &str, known: &[(&str, T)]) -> Parsed<T> {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        let wanted = format!("one of {}", names.join(", "));
        let text = self.text(item, key, &wanted)?;
        match known.iter().find(|(name, _)| *name == text) {
            Some((_, value)) => Ok(*value),
            None => self.wrong(item.span(), format!("`{key}` is `{text}`: expected {wanted}")),
        }
    }

    fn agent(&self, table: &dyn TableLike) -> Parsed<Agent> {
        let mut agent = Agent::default();
        for (key, item) in self.entries(table, "[agent]", AGENT_KEYS)? {
            match key.get() {
                "listen" => agent.listen = self.listen(item)?,
                "socket" => {
                    let path = self.text(item, "socket", "a path")?;
                    if !path.starts_with('/') {
                        let what = format!("`socket` is `{path}`: expected an absolute path");
                        return self.wrong(item.span(), what);
                    }
                    agent.socket = Some(path.into());
                }
                "export" => {
                    let wanted = "the URL of a collector, or \"none\"";
                    agent.export = match self.text(item, "export", wanted)? {
                        none if none == "none" => Export::None,
                        url => Export::To(url),
                    };
                }
                "protocol" => {
                    let known = PROTOCOLS.map(|name| (name, name));
                    agent.protocol = Some(self.named(item, "protocol", &known)?.to_owned());
                }
                _ => agent.interval = Some(self.time(item, "interval")?),
            }
        }
        Ok(agent)
    }

    fn listen(&self, item: &Item) -> Parsed<Option<std::net::SocketAddr>> {
        let wanted = "ADDRESS:PORT, or \"none\"";
        let text = self.text(item, "listen", wanted)?;
        match (text.as_str(), text.parse()) {
            ("none", _) => Ok(None),
            (_, Ok(address)) => Ok(Some(address)),
            (_, Err(_)) => {
                self.wrong(item.span(), format!("`listen` is `{text}`: expected {wanted}"))
            }
        }
    }

    fn time(&self, item: &Item, key: &str) -> Parsed<Duration> {
        let wanted = "a time from a second to an hour, as \"15s\"";
        let text = self.text(item, key, wanted)?;
        let units = [("ms", 1), ("s", 1000), ("m", 60_000)];
        let found = units.iter().find_map(|(unit, ms)| {
            let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
            Some(Duration::from_millis(number.checked_mul(*ms)?))
        });
        let most = Duration::from_secs(3600);
        match found.filter(|span| (Duration::from_secs(1)..=most).contains(span)) {
            Some(span) => Ok(span),
            None => self.wrong(item.span(), format!("`{key}` is `{text}`: expected {wanted}")),
        }
    }

    fn services(&self, item: &Item) -> Parsed<Vec<Service>> {
        let mut services = Vec::new();
        match (item.as_array_of_tables(), item.as_array()) {
            (Some(tables), _) => {
                for table in tables {
                    services.push(self.service(table)?);
                }
            }
            (None, Some(list)) => {
                for value in list {
                    let one = Item::Value(value.clone());
                    services.push(self.service(self.table(&one, "service")?)?);
                }
            }
            (None, None) => return self.mismatch(item, "service", "[[service]]"),
        }
        Ok(services)
    }

    fn service(&self, table: &dyn TableLike) -> Parsed<Service> {
        let mut service = Service::all();
        for (key, item) in self.entries(table, "[[service]]", SERVICE_KEYS)? {
            match key.get() {
                "name" => service.name = Some(self.text(item, "name", "a name")?),
                "match" => service.matching = self.matching(self.table(item, "match")?)?,
                "sensors" => self.sensors(item, &mut service)?,
                "functions" => service.functions = self.functions(item)?,
                "sampling" => service.sampling = Some(self.sampling(item)?),
                "backend" => {
                    let known = Backend::ALL.map(|backend| (backend.name(), backend));
                    service.backend = self.named(item, "backend", &known)?;
                }
                "inject" => {
                    let known = Way::ALL.map(|way| (way.name(), way));
                    let ways = self.values(item, "inject", "a list of ways")?;
                    let named = ways.iter().map(|way| self.named(way, "inject", &known));
                    service.inject = named.collect::<Parsed<_>>()?;
                }
                "budget" => service.budget = Some(self.budget(item)?),
                "retry" => service.retry = Some(self.time(item, "retry")?),
                "sql" => service.sql = self.flag(item, "sql")?,
                "queries" => service.queries = self.flag(item, "queries")?,
                "headers" => service.headers = self.headers(item)?,
                _ => service.time = self.flag(item, "time")?,
            }
        }
        Ok(service)
    }

    fn matching(&self, table: &dyn TableLike) -> Parsed<Match> {
        let mut matching = Match::default();
        for (key, item) in self.entries(table, "match", MATCH_KEYS)? {
            let key = key.get();
            let list = self.values(item, key, "a text or a list of texts")?;
            if key == "port" {
                for port in &list {
                    let number = port.as_integer().and_then(|port| u16::try_from(port).ok());
                    match number.filter(|&port| port > 0) {
                        Some(port) => matching.port.push(port),
                        None => return self.mismatch(port, key, "a port, 1 to 65535"),
                    }
                }
                continue;
            }
            let texts = list.iter().map(|one| self.text(one, key, "a pattern of texts"));
            let globs = texts.map(|text| Ok(Glob::new(text?))).collect::<Parsed<Vec<_>>>()?;
            match key {
                "exe" => matching.exe = globs,
                "command" => matching.command = globs,
                "container" => matching.container = globs,
                _ => matching.cgroup = globs,
            }
        }
        Ok(matching)
    }

    fn sensors(&self, item: &Item, service: &mut Service) -> Parsed<()> {
        let known: Vec<(&str, &str)> =
            sensors::GROUPS.iter().chain(&[METRICS]).map(|&name| (name, name)).collect();
        (service.sensors, service.metrics) = (Vec::new(), false);
        for one in self.values(item, "sensors", "a list of sensors")? {
            match self.named(&one, "sensors", &known)? {
                METRICS => service.metrics = true,
                name => service.sensors.push(name.to_owned()),
            }
        }
        Ok(())
    }

    fn functions(&self, item: &Item) -> Parsed<Vec<String>> {
        let mut functions = Vec::new();
        for one in self.values(item, "functions", "a list of patterns")? {
            let text = self.text(&one, "functions", "a pattern of function names")?;
            if let Err(error) = Request::parse(&text) {
                let what = format!("`functions` has `{text}`: {error}");
                return self.wrong(one.span(), what);
            }
            functions.push(text);
        }
        Ok(functions)
    }

    fn headers(&self, item: &Item) -> Parsed<Vec<HeaderName>> {
        let mut headers = Vec::new();
        for one in self.values(item, "headers", "a list of names of headers")? {
            let text = self.text(&one, "headers", "the name of a header")?;
            match text.parse() {
                // One that stands there twice is read once.
                Ok(name) if headers.contains(&name) => {}
                Ok(name) => headers.push(name),
                Err(error) => {
                    let what = format!("`headers` has `{text}`: {error}");
                    return self.wrong(one.span(), what);
                }
            }
        }
        Ok(headers)
    }

    /// A share of traces, or a sampler by name.
    fn sampling(&self, item: &Item) -> Parsed<Sampling> {
        let wanted = format!(
            "a share of traces, 0 to 1, or one of {}, {}=SHARE",
            PLAIN_SAMPLERS.join(", "),
            RATIO_SAMPLERS.join("=SHARE, ")
        );
        if let Some(share) = number(item) {
            if !(0.0..=1.0).contains(&share) {
                return self
                    .wrong(item.span(), format!("`sampling` is {share}: expected {wanted}"));
            }
            let name = RATIO_SAMPLERS[1].to_owned();
            return Ok(Sampling { name, argument: Some(share.to_string()) });
        }
        let text = self.text(item, "sampling", &wanted)?;
        if PLAIN_SAMPLERS.contains(&&*text) {
            return Ok(Sampling { name: text, argument: None });
        }
        let ratio = text.split_once('=').filter(|(name, _)| RATIO_SAMPLERS.contains(name));
        let share = ratio.and_then(|(_, share)| share.parse().ok());
        match ratio.zip(share.filter(|share: &f64| (0.0..=1.0).contains(share))) {
            Some(((name, share), _)) => {
                Ok(Sampling { name: name.to_owned(), argument: Some(share.to_owned()) })
            }
            None => self.wrong(item.span(), format!("`sampling` is `{text}`: expected {wanted}")),
        }
    }

    /// A share of a CPU: a number of percent, or a text with the sign.
    fn budget(&self, item: &Item) -> Parsed<f64> {
        let wanted = "a share of a CPU in percent, as 5 or \"5%\"";
        let text = || item.as_str()?.strip_suffix('%')?.trim().parse().ok();
        match number(item).or_else(text).filter(|share: &f64| share.is_finite() && *share > 0.0) {
            Some(share) => Ok(share),
            None => self.mismatch(item, "budget", wanted),
        }
    }
}

fn number(item: &Item) -> Option<f64> {
    item.as_float().or_else(|| item.as_integer().map(|number| number as f64))
}

/// What a value is, as people say it.
fn kind(item: &Item) -> String {
    match item {
        Item::None => "nothing".to_owned(),
        Item::Table(_) => "a table".to_owned(),
        Item::ArrayOfTables(_) => "a list of tables".to_owned(),
        Item::Value(Value::String(text)) if text.value().is_empty() => "empty".to_owned(),
        Item::Value(value) => match value {
            Value::String(text) => format!("`{}`", text.value()),
            Value::Integer(number) => number.value().to_string(),
            Value::Float(number) => number.value().to_string(),
            Value::Boolean(flag) => flag.value().to_string(),
            Value::Datetime(time) => time.value().to_string(),
            Value::Array(_) => "a list".to_owned(),
            Value::InlineTable(_) => "a table".to_owned(),
        },
    }
}
