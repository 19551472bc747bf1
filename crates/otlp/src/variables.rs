//! The OTEL_* variables, as the specification reads them: an empty one is none.

/// What is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signal {
    /// Spans.
    #[default]
    Traces,
    /// Figures.
    Metrics,
}

impl Signal {
    /// As it stands in names of variables.
    const fn variable(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
        }
    }

    /// What is added to a base URL.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Traces => "/v1/traces",
            Self::Metrics => "/v1/metrics",
        }
    }

    /// Whether the environment wants it sent to a collector: an endpoint is named, and no other exporter.
    pub fn is_wanted(self, variable: &dyn Fn(&str) -> Option<String>) -> bool {
        let variables = Variables::new(self, variable);
        let exporter = variables.get(&format!("OTEL_{}_EXPORTER", self.variable()));
        variables.exporter("ENDPOINT").is_some() && exporter.is_none_or(|name| name == "otlp")
    }
}

/// Looks up variables.
pub(crate) struct Variables<'a> {
    signal: Signal,
    look_up: &'a dyn Fn(&str) -> Option<String>,
}

impl<'a> Variables<'a> {
    pub(crate) fn new(signal: Signal, look_up: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { signal, look_up }
    }

    pub(crate) fn get(&self, name: &str) -> Option<String> {
        (self.look_up)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// Of the exporter, what is said of its signal alone.
    pub(crate) fn own(&self, name: &str) -> Option<String> {
        self.get(&format!("OTEL_EXPORTER_OTLP_{}_{name}", self.signal.variable()))
    }

    /// Of the exporter: what is said of its signal, else what is said of all signals.
    pub(crate) fn exporter(&self, name: &str) -> Option<String> {
        self.own(name).or_else(|| self.get(&format!("OTEL_EXPORTER_OTLP_{name}")))
    }
}

/// `key=value,key=value`, percent-encoded (W3C Baggage). What is malformed is left out.
pub(crate) fn pairs(text: &str) -> Vec<(String, String)> {
    let pair = |item: &str| {
        let (key, value) = item.split_once('=')?;
        let (key, value) = (decoded(key.trim())?, decoded(value.trim())?);
        (!key.is_empty()).then_some((key, value))
    };
    text.split(',').filter_map(pair).collect()
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_percent_encoded_and_malformed_ones_are_left_out() {
        let found = pairs("api-key=a%20b, x = y,malformed,bad=%zz,=none,cut=%4");
        let expected = [("api-key", "a b"), ("x", "y")];
        let found: Vec<(&str, &str)> = found.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(found, expected);
    }
}
