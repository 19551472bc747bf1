//! What of the sensors goes into a plan.

use crate::catalog::{Field, Role, SENSORS, Sensor};
use crate::header::HeaderName;
use probe::Plan;
use probe::expression::{Operand, Params};
use probe::pattern::Pattern;
use probe::selection::{Selection, Wanted};

/// What is read besides what is always read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SensorOptions {
    /// Queries of URLs.
    pub queries: bool,
    /// Headers of requests.
    pub headers: Vec<HeaderName>,
}

impl SensorOptions {
    fn wants(&self, field: Field) -> bool {
        field != Field::Query || self.queries
    }
}

/// The functions of all sensors, with what to read there.
pub fn selection(options: &SensorOptions) -> Selection {
    let operands = |expressions: Vec<String>| -> Vec<Operand> {
        expressions.iter().filter_map(|text| Operand::parse(text).ok()).collect()
    };
    let wanted = |sensor: &Sensor| {
        let expressions = |reads: &[(Field, String)]| -> Vec<String> {
            let wanted = reads.iter().filter(|(field, _)| options.wants(*field));
            wanted.map(|(_, expression)| expression.clone()).collect()
        };
        let pattern = Pattern::parse(sensor.function).ok()?;
        let text = sensor.function.to_owned();
        let mut stated = crate::signatures::stated(sensor.function);
        let headers = options.headers.iter().filter_map(|name| name.expression(sensor));
        let at_entry = expressions(&sensor.at_entry()).into_iter().chain(headers).collect();
        let first = Wanted {
            text: text.clone(),
            pattern: pattern.clone(),
            params: Some(Params::Values(operands(at_entry))),
            results: Some(operands(expressions(&sensor.at_return()))),
            declared: stated.next().unwrap_or_default(),
        };
        let others = stated.map(move |declared| Wanted {
            text: text.clone(),
            pattern: pattern.clone(),
            params: None,
            results: None,
            declared,
        });
        Some(std::iter::once(first).chain(others))
    };
    let wanted = SENSORS.iter().filter_map(wanted).flatten().collect::<Vec<_>>();
    Selection { always: wanted.len(), wanted, ..Selection::default() }
}

/// Whether a plan watches a function whose calls are spans.
pub fn is_sensed(plan: &Plan) -> bool {
    let is_span = |role| {
        matches!(
            role,
            Role::ServerRequest
                | Role::ServerRun
                | Role::ClientRequest
                | Role::RpcServer
                | Role::RpcClient
                | Role::Database(_)
        )
    };
    let mut traced = plan.functions.iter().filter(|function| function.traced);
    traced.any(|function| {
        SENSORS.iter().any(|sensor| sensor.function == function.name && is_span(sensor.role))
    })
}

/// Whether a plan traces functions that no sensor watches: their calls are shown within spans.
pub fn has_calls(plan: &Plan) -> bool {
    let is_sensor = |name: &str| SENSORS.iter().any(|sensor| sensor.function == name);
    plan.functions.iter().any(|function| function.traced && !is_sensor(&function.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_and_headers_are_read_only_when_asked_for() {
        let read = |options: &SensorOptions, text| {
            let selection = selection(options);
            let read = selection.wanted.iter().filter(|wanted| wanted.params.is_some());
            assert_eq!(read.count(), SENSORS.len());
            let params = selection.wanted.iter().map(|wanted| &wanted.params);
            let shown = params.flatten().map(|params| match params {
                Params::Values(values) => values.iter().filter(|it| it.to_string() == text).count(),
                _ => 0,
            });
            shown.sum::<usize>()
        };
        let (query, header) = ("req.URL.RawQuery", "req.Header[\"User-Agent\"]");
        let none = SensorOptions::default();
        assert_eq!((read(&none, query), read(&none, header)), (0, 0));
        let headers = vec!["user-agent".parse().unwrap()];
        let both = SensorOptions { queries: true, headers };
        let sending =
            |role| matches!(role, Role::ServerRequest | Role::ServerRun | Role::ClientRequest);
        let all = SENSORS.iter().filter(|sensor| sending(sensor.role)).count();
        assert_eq!((read(&both, query), read(&both, header)), (all, all));
    }
}
