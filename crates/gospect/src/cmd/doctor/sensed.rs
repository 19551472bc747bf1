//! What `gospect spans` has of an executable: a line for each sensor, and one for each field that can not be had.

use super::{Report, Status};
use crate::facts;
use crate::target::Target;
use anyhow::Context as _;
use binary::DebugInfo;
use probe::planner::{Question, ValueOptions, plan};
use sensors::{Diagnosis, Finding, Role, Sensor, SensorOptions, diagnose, selection};
use std::collections::{BTreeMap, BTreeSet};

const AREA: &str = "sensor";

/// Reports on all sensors. Of packages that the executable does not have there is one line each.
pub(super) fn sensors(report: &mut Report, target: &Target, debug: Option<&DebugInfo>) {
    if let Err(error) = each(report, target, debug) {
        report.add(AREA, "spans", Status::Note, format!("no requests can be seen: {error:#}"));
    }
}

fn each(report: &mut Report, target: &Target, debug: Option<&DebugInfo>) -> anyhow::Result<()> {
    let executable = &target.executable;
    let selection = selection(&SensorOptions { queries: true, ..SensorOptions::default() });
    let question = Question {
        executable,
        debug,
        selection: &selection,
        values: ValueOptions {
            arguments: true,
            results: true,
            limits: probe::Limits {
                string_bytes: crate::cmd::spans::TEXT_BYTES,
                ..probe::Limits::default()
            },
        },
        runtime: facts::runtime_facts(executable, debug)?,
        fips: None,
    };
    let planned = plan(&question).context("failed to plan")?;
    let bare = capture_trampoline::refusals(executable, &planned.plan).unwrap_or_default();
    let mut functions = (0u32..).zip(&planned.plan.functions);
    let bare: BTreeMap<&str, &String> = bare
        .iter()
        .filter_map(|(index, why)| {
            Some((functions.find(|(i, _)| i == index)?.1.name.as_str(), why))
        })
        .collect();
    let there: BTreeSet<String> =
        executable.functions()?.iter().map(|function| package(&function.name).to_owned()).collect();
    let mut absent = BTreeSet::new();
    for Diagnosis { sensor, finding } in diagnose(&planned.plan) {
        let package = package(sensor.function);
        if finding != Finding::Missing || there.contains(package) {
            let bare = bare.get(sensor.function).map(|why| why.as_str());
            one(report, sensor, finding, bare);
        } else if absent.insert(package) {
            report.add(AREA, package, Status::Ok, "not in this executable");
        }
    }
    Ok(())
}

/// The sensor, then its fields that can not be had.
fn one(report: &mut Report, sensor: &Sensor, finding: Finding, bare: Option<&str>) {
    let name = sensor.function;
    let fields = match finding {
        Finding::Missing => {
            let why = "not in this executable: linked out, inlined, or of other versions only";
            return report.add(AREA, name, Status::Note, why);
        }
        Finding::Refused(why) => return report.add(AREA, name, Status::Note, why),
        Finding::Watched(fields) => fields,
    };
    let had = fields.iter().filter(|(_, reason)| reason.is_none()).count();
    let mut detail = match fields.len() {
        0 => "works".to_owned(),
        all => format!("works, with {had} of {all} fields"),
    };
    if let Some(why) = bare {
        detail.push_str(&format!("; by a uprobe only: {why}"));
    }
    if sensor.role == Role::Row {
        detail.push_str(
            "; called for every row: dear by uprobes (10 us and more each), cheap by trampolines",
        );
    }
    let status = if had < fields.len() { Status::Note } else { Status::Ok };
    report.add(AREA, name, status, detail);
    for (field, reason) in fields {
        if let Some(reason) = reason {
            let name = format!("{name}: {}", field.name());
            report.add("field", &name, Status::Note, format!("unavailable: {reason}"));
        }
    }
}

/// `net/http` of `net/http.(*Transport).roundTrip`.
fn package(function: &str) -> &str {
    let path = function.rfind('/').map_or(0, |slash| slash + 1);
    function[path..].find('.').map_or(function, |dot| &function[..path + dot])
}
