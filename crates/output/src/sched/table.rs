//! Tables of what goroutines' time went to.

use super::names::Origins;
use crate::duration::short_duration;
use crate::printable::{push_printable, width};
use std::cmp::Reverse;
use std::io::{self, Write};
use std::sync::Arc;
use timeline::Symbolizer;
use timeline::states::{Lifetime, Reasons, Tally, Times};

/// Reasons of waits named in a row.
const NAMED_REASONS: usize = 3;

/// Ended goroutines that are kept for a table.
const MAX_ENDED: usize = 10_000;

/// A table whose last column has any width.
struct Table {
    rows: Vec<(Vec<String>, String)>,
}

impl Table {
    fn new(head: &[&str], last: &str) -> Self {
        let head = head.iter().map(|&name| name.to_owned()).collect();
        Self { rows: vec![(head, last.to_owned())] }
    }

    fn row(&mut self, cells: Vec<String>, last: String) {
        self.rows.push((cells, last));
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let columns = self.rows.first().map_or(0, |(cells, _)| cells.len());
        let mut widths = vec![0; columns];
        for (cells, _) in &self.rows {
            for (column, cell) in widths.iter_mut().zip(cells) {
                *column = width(cell).max(*column);
            }
        }
        for (cells, last) in &self.rows {
            let mut line = String::new();
            for (column, cell) in widths.iter().zip(cells) {
                line.push_str(&" ".repeat(column.saturating_sub(width(cell))));
                line.push_str(cell);
                line.push_str("  ");
            }
            writeln!(out, "{line}{last}")?;
        }
        Ok(())
    }
}

/// Running, runnable, syscall, waiting.
fn columns(times: &Times) -> impl Iterator<Item = String> {
    let all = [times.running_ns, times.runnable_ns, times.syscall_ns, times.waiting_ns()];
    all.into_iter().map(short_duration)
}

/// ` (chan receive 1.000s, sleep 2.000ms)`: what most of the waiting was for.
fn waits(times: &Times, reasons: &Reasons) -> String {
    let mut waiting = times.waiting.clone();
    waiting.sort_by_key(|&(reason, ns)| (Reverse(ns), reason));
    let named = waiting.iter().take(NAMED_REASONS).map(|(number, ns)| {
        let name = reasons.name(*number).unwrap_or_else(|| Arc::from("unknown"));
        let mut text = String::new();
        push_printable(&mut text, &name);
        format!("{text} {}", short_duration(*ns))
    });
    let named: Vec<String> = named.collect();
    if named.is_empty() { String::new() } else { format!("  ({})", named.join(", ")) }
}

/// A row per statement that made goroutines, the most time first; `most` rows.
pub fn write_site_table(
    tally: &Tally,
    reasons: &Reasons,
    most: usize,
    symbols: &dyn Symbolizer,
    out: &mut dyn Write,
) -> io::Result<()> {
    let head = ["RUNNING", "RUNNABLE", "SYSCALL", "WAITING", "MADE", "ENDED", "LIVE"];
    let mut table = Table::new(&head, "GOROUTINES OF");
    let mut sites: Vec<_> = tally.sites().collect();
    sites.sort_by_key(|(_, sum)| Reverse((sum.times.running_ns, sum.times.total_ns())));
    let mut origins = Origins::default();
    for (pid, sum) in sites.iter().take(most) {
        let mut cells: Vec<String> = columns(&sum.times).collect();
        cells.extend([sum.made, sum.ended, sum.live].map(|count| count.to_string()));
        let mut last = origins.text(*pid, &sum.origin, symbols);
        last.push_str(&waits(&sum.times, reasons));
        table.row(cells, last);
    }
    table.write(out)?;
    write_more(sites.len(), most, out)
}

/// A row per wait reason, the most time first.
pub fn write_reason_table(tally: &Tally, reasons: &Reasons, out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(&["WAITS", "NOW", "TOTAL", "MEAN", "MAX"], "REASON");
    let mut waits: Vec<_> = tally.waits().collect();
    waits.sort_by_key(|(_, sum)| Reverse(sum.total_ns));
    for (number, sum) in waits {
        let name = reasons.name(number).unwrap_or_else(|| Arc::from("unknown"));
        let mean = sum.total_ns / sum.count.saturating_add(sum.open).max(1);
        let times = [sum.total_ns, mean, sum.max_ns].map(short_duration);
        let mut last = String::new();
        push_printable(&mut last, &name);
        let counts = [sum.count, sum.open].map(|count| count.to_string());
        table.row(counts.into_iter().chain(times).collect(), last);
    }
    table.write(out)
}

/// Goroutines for a table, of the ended ones as many as there is room for.
#[derive(Debug, Default)]
pub struct GoroutineRows {
    ended: Vec<Lifetime>,
    left_out: usize,
}

impl GoroutineRows {
    /// Keeps one that ended.
    pub fn push(&mut self, lifetime: &Lifetime) {
        if self.ended.len() < MAX_ENDED {
            self.ended.push(lifetime.clone());
        } else {
            self.left_out += 1;
        }
    }
}

/// A row per goroutine, the most running time first; `most` rows.
pub fn write_goroutine_table(
    rows: &GoroutineRows,
    living: &[Lifetime],
    reasons: &Reasons,
    most: usize,
    symbols: &dyn Symbolizer,
    out: &mut dyn Write,
) -> io::Result<()> {
    let head = ["GOID", "STATE", "RUNNING", "RUNNABLE", "SYSCALL", "WAITING", "CHANGES"];
    let mut table = Table::new(&head, "GOROUTINE OF");
    let mut all: Vec<&Lifetime> = rows.ended.iter().chain(living).collect();
    all.sort_by_key(|one| Reverse((one.times.running_ns, one.times.total_ns())));
    let mut origins = Origins::default();
    for one in all.iter().take(most) {
        let mut cells = vec![one.who.goid.to_string(), one.state.name().to_owned()];
        cells.extend(columns(&one.times));
        cells.push(one.changes.to_string());
        let mut last = origins.text(one.who.pid, &one.origin, symbols);
        last.push_str(&waits(&one.times, reasons));
        table.row(cells, last);
    }
    table.write(out)?;
    write_more(all.len().saturating_add(rows.left_out), most, out)
}

fn write_more(all: usize, shown: usize, out: &mut dyn Write) -> io::Result<()> {
    match all.checked_sub(shown).filter(|&more| more > 0) {
        Some(more) => writeln!(out, "and {more} more (--format json has all)"),
        None => Ok(()),
    }
}
