//! The columns of the table.

use crate::amount;
use crate::row::Row;
use std::cmp::Ordering;

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Process id, ascending.
    Pid,
    /// Service, ascending.
    Service,
    /// CPU.
    Cpu,
    /// Resident memory.
    Resident,
    /// Live heap.
    Heap,
    /// Goal of the heap.
    Goal,
    /// Collections per second.
    Gc,
    /// The last pause.
    Pause,
    /// Goroutines.
    Goroutines,
    /// Run queues.
    Queue,
    /// Allocation.
    Alloc,
}

/// A column.
pub(crate) struct Column {
    pub sort: Option<Sort>,
    pub title: &'static str,
    pub width: u16,
    /// Columns of a terminal from which on it is shown.
    pub from: u16,
    pub cell: fn(&Row, usize) -> String,
}

/// In place of what is not known.
const NONE: &str = "-";

fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| NONE.to_owned())
}

const fn column(
    sort: Sort,
    title: &'static str,
    width: u16,
    from: u16,
    cell: fn(&Row, usize) -> String,
) -> Column {
    Column { sort: Some(sort), title, width, from, cell }
}

/// Width 0 takes what is left.
pub(crate) static COLUMNS: [Column; 14] = [
    column(Sort::Pid, "PID", 7, 0, |row, _| row.now.pid.to_string()),
    column(Sort::Service, "SERVICE", 0, 0, |row, _| row.now.service.clone()),
    column(Sort::Cpu, "CPU%", 6, 0, |row, _| or_none(row.cpu.map(amount::percent))),
    column(Sort::Resident, "RSS", 6, 0, |row, _| amount::bytes(row.now.resident)),
    column(Sort::Heap, "HEAP", 6, 40, |row, _| {
        or_none(row.go(|go| go.heap_live).map(amount::bytes))
    }),
    column(Sort::Goal, "GOAL", 6, 60, |row, _| {
        or_none(row.go(|go| go.heap_goal).map(amount::bytes))
    }),
    Column {
        sort: None,
        title: "HEAP TREND",
        width: 24,
        from: 110,
        cell: |row, width| row.heap.line(width),
    },
    column(Sort::Gc, "GC/s", 5, 70, |row, _| or_none(row.gc_rate.map(amount::rate))),
    column(Sort::Pause, "PAUSE", 6, 100, |row, _| {
        or_none(row.go(|go| go.pauses.first().copied()).map(amount::time))
    }),
    column(Sort::Goroutines, "GOROUT", 6, 50, |row, _| {
        or_none(row.go(|go| go.goroutines).map(amount::count))
    }),
    column(Sort::Queue, "RUNQ", 5, 80, |row, _| {
        or_none(row.go(|go| go.run_queue).map(amount::count))
    }),
    column(Sort::Alloc, "ALLOC/s", 7, 75, |row, _| {
        or_none(row.alloc_rate.map(|rate| amount::bytes(rate as u64)))
    }),
    Column {
        sort: None,
        title: "THREADS",
        width: 7,
        from: 120,
        cell: |row, _| amount::count(row.now.threads),
    },
    Column {
        sort: None,
        title: "GO",
        width: 10,
        from: 130,
        cell: |row, _| or_none(row.now.go_version.clone()),
    },
];

/// The first comes first.
pub(crate) fn compare(sort: Sort, a: &Row, b: &Row) -> Ordering {
    let largest = |of: fn(&Row) -> Option<f64>| {
        // What is not known comes last.
        let value = |row| of(row).unwrap_or(-1.0);
        value(b).total_cmp(&value(a))
    };
    let order = match sort {
        Sort::Pid => Ordering::Equal,
        Sort::Service => a.now.service.cmp(&b.now.service),
        Sort::Cpu => largest(|row| row.cpu),
        Sort::Resident => largest(|row| Some(row.now.resident as f64)),
        Sort::Heap => largest(|row| row.go(|go| go.heap_live).map(|value| value as f64)),
        Sort::Goal => largest(|row| row.go(|go| go.heap_goal).map(|value| value as f64)),
        Sort::Gc => largest(|row| row.gc_rate),
        Sort::Pause => largest(|row| row.go(|go| go.pauses.first().map(|value| *value as f64))),
        Sort::Goroutines => largest(|row| row.go(|go| go.goroutines).map(|value| value as f64)),
        Sort::Queue => largest(|row| row.go(|go| go.run_queue).map(|value| value as f64)),
        Sort::Alloc => largest(|row| row.alloc_rate),
    };
    order.then(a.now.pid.cmp(&b.now.pid))
}

/// Columns that a terminal of this width shows.
pub(crate) fn shown(width: u16) -> impl Iterator<Item = &'static Column> {
    COLUMNS.iter().filter(move |column| width >= column.from)
}
