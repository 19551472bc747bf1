//! What a plan has of each sensor, and why not the rest.

use crate::catalog::{Field, Role, SENSORS, Sensor};
use probe::Plan;
use probe::value::{ValueKind, ValueSpec};

/// One sensor in one executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// Which.
    pub sensor: &'static Sensor,
    /// What became of it.
    pub finding: Finding,
}

/// What became of a sensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The executable has no such function.
    Missing,
    /// It has it, and it is not watched, for this reason.
    Refused(String),
    /// It is watched; what is read there, each field with the reason why it can not be had.
    Watched(Vec<(Field, Option<String>)>),
}

/// All sensors but those of which the executable has the sibling of another version.
pub fn diagnose(plan: &Plan) -> Vec<Diagnosis> {
    let all = SENSORS.iter().map(|sensor| Diagnosis { sensor, finding: finding(plan, sensor) });
    let all: Vec<Diagnosis> = all.collect();
    let is_there = |one: &Diagnosis| one.finding != Finding::Missing;
    let has_sibling = |one: &Diagnosis| {
        // Each of these asks a database for a thing of its own.
        let is_alone = matches!(one.sensor.role, Role::Database(_));
        let is_sibling = |other: &&Diagnosis| of_kind(other.sensor) == of_kind(one.sensor);
        !is_alone && all.iter().filter(is_sibling).any(is_there)
    };
    all.iter().filter(|one| is_there(one) || !has_sibling(one)).cloned().collect()
}

/// What a sensor is for.
fn of_kind(sensor: &Sensor) -> Role {
    match sensor.role {
        Role::ServerRun => Role::ServerRequest,
        role => role,
    }
}

fn finding(plan: &Plan, sensor: &Sensor) -> Finding {
    let mut functions = plan.functions.iter();
    let function = functions.find(|function| function.name == sensor.function && function.traced);
    if let Some(function) = function {
        let mut fields = Vec::new();
        add(&mut fields, &function.args, &sensor.at_entry());
        add(&mut fields, &function.results, &sensor.at_return());
        return Finding::Watched(fields);
    }
    let refused = plan.refused.iter().find(|refused| refused.function == sensor.function);
    refused.map_or(Finding::Missing, |refused| Finding::Refused(refused.reason.0.clone()))
}

/// Of several expressions for a field one is enough.
fn add(fields: &mut Vec<(Field, Option<String>)>, specs: &[ValueSpec], reads: &[(Field, String)]) {
    for spec in specs {
        let Some((field, _)) = reads.iter().find(|(_, text)| **text == *spec.name) else {
            continue;
        };
        let reason = match &spec.kind {
            ValueKind::Unavailable(reason) => Some(reason.clone()),
            _ => None,
        };
        match fields.iter_mut().find(|(known, _)| known == field) {
            Some((_, known)) if reason.is_none() => *known = None,
            Some(_) => {}
            None => fields.push((*field, reason)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SensorOptions, selection};
    use probe::{PlannedFunction, Refusal, RefusalReason};

    fn spec(name: &str, reason: Option<&str>) -> ValueSpec {
        let kind = match reason {
            Some(reason) => ValueKind::Unavailable(reason.to_owned()),
            None => ValueKind::Pointer,
        };
        ValueSpec { name: name.into(), type_name: "".into(), kind }
    }

    #[test]
    fn a_field_costs_itself_and_a_function_of_another_version_is_not_missed() {
        let traced = PlannedFunction {
            name: "net/http.(*ServeMux).findHandler".to_owned(),
            file: String::new(),
            line: 0,
            entry: Default::default(),
            size: 0,
            traced: true,
            witness: None,
            args: Vec::new(),
            results: vec![spec("patStr", Some("optimised away"))],
        };
        let client = PlannedFunction {
            name: "net/http.(*Transport).roundTrip".to_owned(),
            args: vec![spec("req.Method", None), spec("req.Host", None)],
            results: vec![
                spec("~r0.StatusCode", Some("no ~r0")),
                spec("_.StatusCode", None),
                spec("~r1", Some("no ~r1")),
                spec("err", Some("no err")),
            ],
            ..traced.clone()
        };
        let refused = Refusal {
            function: "net/http.(*response).Hijack".to_owned(),
            reason: RefusalReason("is too short".to_owned()),
        };
        let plan =
            Plan { functions: vec![traced, client], refused: vec![refused], ..Plan::default() };
        let diagnoses = diagnose(&plan);
        let of = |name: &str| diagnoses.iter().find(|one| one.sensor.function == name);
        let found = |name: &str| of(name).map(|one| one.finding.clone());
        let because = |reason: &str| Some(reason.to_owned());
        assert_eq!(
            found("net/http.(*ServeMux).findHandler"),
            Some(Finding::Watched(vec![(Field::Pattern, because("optimised away"))]))
        );
        assert_eq!(found("net/http.(*ServeMux).Handler"), None);
        let fields =
            vec![(Field::Method, None), (Field::Status, None), (Field::Error, because("no ~r1"))];
        assert_eq!(found("net/http.(*Transport).roundTrip"), Some(Finding::Watched(fields)));
        assert_eq!(
            found("net/http.(*response).Hijack"),
            Some(Finding::Refused("is too short".to_owned()))
        );
        assert_eq!(found("database/sql.(*DB).PingContext"), Some(Finding::Missing));
        assert!(diagnoses.len() <= selection(&SensorOptions::default()).wanted.len());
    }
}
