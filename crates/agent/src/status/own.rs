//! The agent's own state as metrics.

use super::{ProcessStatus, SensorState, Status};
use metrics::{Figure, Instrument, Tag};

/// What of the agent is told as metrics, `gospect.agent.*`: what it costs, what it decided, what was lost.
pub fn own_figures(status: &Status) -> Vec<Figure> {
    let counter =
        |name: &'static str, unit, help| Figure::new(name, unit, help, Instrument::Counter);
    let gauge = |name: &'static str, unit, help| Figure::new(name, unit, help, Instrument::Gauge);
    let mut sent = counter(
        "gospect.agent.export.items",
        "{item}",
        "Spans and points of metrics by what became of them.",
    );
    for export in &status.exports {
        let outcomes = [
            ("delivered", export.delivered),
            ("dropped", export.dropped),
            ("failed", export.failed),
            ("unsampled", export.unsampled),
        ];
        for (outcome, count) in outcomes {
            sent = sent.with(vec![text("signal", &export.what), text("outcome", outcome)], count);
        }
    }
    let restricted =
        status.processes.iter().filter(|process| process.restricted.is_some()).count() as u64;
    let watched = status.processes.iter().filter(|process| process.capture.backend.is_some());
    let error = u64::from(status.config.error.is_some());
    let mut memory = gauge("gospect.agent.memory", "By", "Anonymous memory of the agent.");
    if let Some(bytes) = status.own.memory_bytes {
        memory = memory.with(Vec::new(), bytes);
    }
    vec![
        counter("gospect.agent.cpu.time", "s", "CPU time of the agent.")
            .with(Vec::new(), status.own.cpu_seconds),
        memory,
        gauge(
            "gospect.agent.processes",
            "{process}",
            "Processes that the agent watches, by how far.",
        )
        .with(vec![text("state", "all")], status.processes.len() as u64)
        .with(vec![text("state", "restricted")], restricted)
        .with(vec![text("state", "spans")], watched.count() as u64),
        counter(
            "gospect.agent.decisions",
            "{decision}",
            "Decisions of the agent for the sake of budgets.",
        )
        .with(Vec::new(), status.decisions_made),
        counter(
            "gospect.agent.processes.unsent",
            "{process}",
            "Processes whose last requests no metrics tell of, since too many ended at once.",
        )
        .with(Vec::new(), status.ended_unsent),
        counter("gospect.agent.discovery.events", "{event}", "Programs that were seen to begin.")
            .with(Vec::new(), status.discovery.events),
        gauge(
            "gospect.agent.config.rejected",
            "{active}",
            "Whether a newer configuration is not in force, being wrong.",
        )
        .with(Vec::new(), error),
        sent,
    ]
}

impl ProcessStatus {
    /// What watching it costs and gives, as metrics of the process.
    pub fn figures(&self) -> Vec<Figure> {
        let counter =
            |name: &'static str, unit, help| Figure::new(name, unit, help, Instrument::Counter);
        let gauge =
            |name: &'static str, unit, help| Figure::new(name, unit, help, Instrument::Gauge);
        let mut figures = Vec::new();
        let mut active =
            gauge("gospect.sensor.active", "{active}", "Whether a sensor watches (1) or not (0).");
        let mut cost = gauge("gospect.sensor.cost", "%", "Estimated cost of a sensor, of one CPU.");
        for sensor in &self.sensors {
            let is_active = sensor.state == SensorState::Active;
            let tags = vec![text("sensor", &sensor.name)];
            if let Some(percent) = sensor.cost_percent {
                cost = cost.with(tags.clone(), percent);
            }
            active = active.with(tags, u64::from(is_active));
        }
        figures.extend([active, cost]);
        if self.capture.backend.is_none() {
            return figures;
        }
        let spans = &self.spans;
        let outcomes = [
            ("made", spans.made),
            ("refused", spans.refused),
            ("truncated", spans.truncated),
            ("unfinished", spans.unfinished),
        ];
        let mut counted =
            counter("gospect.spans", "{span}", "Spans of a process, by what became of them.");
        for (outcome, count) in outcomes {
            counted = counted.with(vec![text("outcome", outcome)], count);
        }
        let changes = counter(
            "gospect.budget.changes",
            "{change}",
            "Sensors and functions that were given up for the sake of the budget, and brought back.",
        )
        .with(vec![text("change", "drop")], self.budget.drops)
        .with(vec![text("change", "restore")], self.budget.restores);
        figures.extend([
            counted,
            counter(
                "gospect.capture.records",
                "{record}",
                "Records of hits, by whether they came.",
            )
            .with(vec![text("outcome", "read")], self.capture.records)
            .with(vec![text("outcome", "lost")], self.capture.lost),
            counter(
                "gospect.capture.cost",
                "s",
                "Estimated CPU time that watching cost the process.",
            )
            .with(Vec::new(), self.budget.cost_ns as f64 / 1e9),
        ]);
        if let Some(percent) = self.budget.cost_percent {
            let help = "The same for the last second or so, of one CPU.";
            let overhead = gauge("gospect.capture.overhead", "%", help);
            figures.push(overhead.with(Vec::new(), percent));
        }
        figures.push(changes);
        if let Some(limit) = self.budget.limit_percent {
            figures.push(
                gauge(
                    "gospect.budget.limit",
                    "%",
                    "What watching may cost the process, of one CPU.",
                )
                .with(Vec::new(), limit),
            );
        }
        figures
    }
}

fn text(name: &'static str, value: &str) -> (&'static str, Tag) {
    (name, Tag::Text(value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;

    #[test]
    fn losses_and_decisions_are_metrics() {
        let sensor = SensorStatus {
            name: "http".to_owned(),
            kind: "sensor",
            state: SensorState::Dropped,
            cost_percent: Some(1.5),
            ..SensorStatus::default()
        };
        let backend = Some("uprobe".to_owned());
        let process = ProcessStatus {
            capture: CaptureStatus { backend, lost: 3, ..CaptureStatus::default() },
            sensors: vec![sensor],
            budget: BudgetStatus {
                limit_percent: Some(5.0),
                cost_percent: Some(1.5),
                drops: 1,
                ..BudgetStatus::default()
            },
            ..ProcessStatus::default()
        };
        let names: Vec<String> = process.figures().iter().map(Figure::prometheus_name).collect();
        assert_eq!(
            names,
            [
                "gospect_sensor_active",
                "gospect_sensor_cost_percent",
                "gospect_spans_total",
                "gospect_capture_records_total",
                "gospect_capture_cost_seconds_total",
                "gospect_capture_overhead_percent",
                "gospect_budget_changes_total",
                "gospect_budget_limit_percent",
            ]
        );
        let export =
            ExportStatus { what: "spans".to_owned(), dropped: 7, ..ExportStatus::default() };
        let status =
            Status { exports: vec![export], processes: vec![process], ..Status::default() };
        let figures = own_figures(&status);
        // What is not known is no figure.
        assert!(figures[1].points.is_empty(), "{figures:?}");
        let sent = figures.last().unwrap();
        assert_eq!(sent.points[1].value, metrics::Value::Number(7.into()));
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(json["processes"][0]["sensors"][0]["state"], "dropped");
    }
}
