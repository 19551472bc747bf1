//! `--stat`: a line per function.

use crate::duration::short_duration;
use crate::printable::{push_printable, width};
use probe::Plan;
use serde::Serialize;
use std::io::{self, Write};
use timeline::{EndCounts, FunctionStat};

#[derive(Serialize)]
struct Row<'a> {
    r#type: &'static str,
    func: &'a str,
    #[serde(flatten)]
    figures: Figures,
}

/// What stands behind the name in JSON.
#[derive(Serialize)]
pub(crate) struct Figures {
    calls: u64,
    total_ns: u64,
    self_ns: u64,
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    ends: EndCounts,
}

impl Figures {
    pub(crate) fn of(stat: &FunctionStat) -> Self {
        let &FunctionStat { calls, total_ns, self_ns, p50_ns, p99_ns, max_ns, ends, .. } = stat;
        Self { calls, total_ns, self_ns, p50_ns, p99_ns, max_ns, ends }
    }
}

/// The function's name; empty for an index that the plan does not have.
pub(crate) fn function_name(plan: &Plan, function: u32) -> &str {
    plan.functions.get(function as usize).map_or("", |function| &function.name)
}

/// Writes one `{"type":"stat"}` line per function.
pub fn write_stat_json(plan: &Plan, table: &[FunctionStat], out: &mut dyn Write) -> io::Result<()> {
    for stat in table {
        let func = function_name(plan, stat.function);
        let row = Row { r#type: "stat", func, figures: Figures::of(stat) };
        let mut line = serde_json::to_vec(&row)?;
        line.push(b'\n');
        out.write_all(&line)?;
    }
    Ok(())
}

/// Writes the table for people, columns aligned; names come last, whatever their length.
pub fn write_stat_table(
    plan: &Plan,
    table: &[FunctionStat],
    out: &mut dyn Write,
) -> io::Result<()> {
    let rows = table.iter().map(|stat| {
        let mut name = String::new();
        let function = plan.functions.get(stat.function as usize);
        push_printable(&mut name, function.map_or("?", |function| &function.name));
        (stat, name)
    });
    write_aligned("FUNCTION".to_owned(), rows, out)
}

/// Writes figures in columns with a name behind each line of them.
pub(crate) fn write_aligned<'a>(
    head: String,
    table: impl Iterator<Item = (&'a FunctionStat, String)>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let columns = ["CALLS", "TOTAL", "SELF", "P50", "P99", "MAX"].map(str::to_owned);
    let mut rows = vec![(columns, head)];
    for (stat, mut name) in table {
        let times = [stat.total_ns, stat.self_ns, stat.p50_ns, stat.p99_ns, stat.max_ns];
        let [total, own, p50, p99, max] = times.map(short_duration);
        let unusual: Vec<String> = stat
            .ends
            .named()
            .filter(|(end, _)| *end != "return")
            .map(|(end, count)| format!("{end} {count}"))
            .collect();
        if !unusual.is_empty() {
            name.push_str(&format!("  ({})", unusual.join(", ")));
        }
        rows.push(([stat.calls.to_string(), total, own, p50, p99, max], name));
    }
    let mut widths = [0; 6];
    for (cells, _) in &rows {
        for (column, cell) in widths.iter_mut().zip(cells) {
            *column = width(cell).max(*column);
        }
    }
    for (cells, name) in &rows {
        let mut line = String::new();
        for (column, cell) in widths.iter().zip(cells) {
            line.push_str(&" ".repeat(column - width(cell)));
            line.push_str(cell);
            line.push_str("  ");
        }
        writeln!(out, "{line}{name}")?;
    }
    Ok(())
}
