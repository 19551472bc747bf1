//! The thread that reads metrics, when they are asked for and by the clock.

use super::board::{Board, Row};
use super::export::Exporters;
use crate::clock;
use crate::monitor::{Images, Read, Seen, Wants, Watched, rows};
use agent::status::{GroupStatus, SeriesStatus, Status, own_figures};
use metrics::{Figure, Tag, Value};
use otlp::Measured;
use output::ProcessMetrics;
use process::{Process, UsageReader};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Goroutines are counted by state where there are at most so many.
const STATES: u64 = 10_000;
/// Between two points of charts.
const POINTS: Duration = Duration::from_secs(5);
/// Points kept of each.
const KEPT: usize = 120;
/// How often the clock is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// What charts show.
const CHARTS: [&str; 8] = [
    "go.memory.used",
    "go.memory.gc.goal",
    "go.goroutine.count",
    "go.memory.allocated",
    "go.memory.gc.cycles",
    "process.cpu.time",
    "process.memory.usage",
    "process.thread.count",
];

/// Reads metrics of the processes on the board.
#[derive(Clone)]
pub struct Monitor {
    board: Board,
    exporters: Exporters,
    reading: Arc<Mutex<Reading>>,
    /// Between two rounds that are sent, milliseconds.
    interval_ms: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

#[derive(Default)]
struct Reading {
    watched: BTreeMap<u32, Watched>,
    images: Images,
    usages: UsageReader,
}

/// What was read of one process, with what is counted of it.
struct Told {
    process: ProcessMetrics,
    read: Read,
    /// Of requests, and of what watching costs.
    figures: Vec<Figure>,
    resource: Vec<(String, Tag)>,
    started_unix_ns: u64,
    since_unix_ns: u64,
}

impl Monitor {
    /// One with its thread.
    pub fn start(board: Board, exporters: Exporters, interval: Duration) -> std::io::Result<Self> {
        let monitor = Self {
            board,
            exporters,
            reading: Arc::default(),
            interval_ms: Arc::new(AtomicU64::new(millis(interval))),
            over: Arc::default(),
        };
        let own = monitor.clone();
        std::thread::Builder::new().name("monitor".to_owned()).spawn(move || own.run())?;
        Ok(monitor)
    }

    /// Another interval from now on.
    pub fn set_interval(&self, interval: Duration) {
        self.interval_ms.store(millis(interval), Ordering::Relaxed);
    }

    /// Sends a last round and ends the thread.
    pub fn finish(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.send();
    }

    fn run(&self) {
        let (mut sent, mut charted) = (Instant::now(), Instant::now());
        while !self.over.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
            let interval = Duration::from_millis(self.interval_ms.load(Ordering::Relaxed));
            if self.exporters.has_metrics() && sent.elapsed() >= interval {
                sent = Instant::now();
                self.send();
            }
            if charted.elapsed() >= POINTS {
                charted = Instant::now();
                self.chart();
            }
        }
    }

    /// Prometheus's text of all there is.
    pub fn exposition(&self) -> Vec<u8> {
        let told = self.read();
        let status = self.status(false);
        let mut text = Vec::new();
        let mut groups: Vec<(String, Vec<Figure>)> = Vec::new();
        let mut processes = Vec::with_capacity(told.len());
        for one in told {
            groups.push((output::process_labels(&one.process), one.figures));
            processes.push(one.process);
        }
        groups.push((String::new(), own_figures(&status)));
        // Writing to memory does not fail.
        _ = output::write_exposition(&processes, &mut text);
        _ = output::write_figures(&groups, &mut text);
        text
    }

    /// What is said of the agent now.
    pub fn status(&self, whole: bool) -> Status {
        let exports = self.exporters.statuses();
        let mut board = self.board.lock();
        board.exports = exports;
        board.status(clock::monotonic_ns(), whole)
    }

    fn send(&self) {
        let now = unix_ns();
        let mut round = Vec::new();
        for one in self.read() {
            let resource = one.resource;
            round.push(Measured {
                resource: resource.clone(),
                start_unix_ns: one.started_unix_ns,
                unix_ns: now,
                figures: metrics::figures(&one.process.samples),
            });
            let (start_unix_ns, figures) = (one.since_unix_ns, one.figures);
            round.push(Measured { resource, start_unix_ns, unix_ns: now, figures });
        }
        for row in std::mem::take(&mut self.board.lock().ended) {
            round.push(Measured {
                resource: resource(&row),
                start_unix_ns: row.since_unix_ns,
                unix_ns: now,
                figures: row.requests.figures(),
            });
        }
        let status = self.status(false);
        let text = |text: &str| Tag::Text(text.to_owned());
        round.push(Measured {
            resource: vec![
                ("service.name".to_owned(), text("gospect-agent")),
                ("service.version".to_owned(), text(env!("CARGO_PKG_VERSION"))),
                ("process.pid".to_owned(), Tag::Int(i64::from(std::process::id()))),
            ],
            start_unix_ns: status.started_unix_ns,
            unix_ns: now,
            figures: own_figures(&status),
        });
        round.retain(|measured| !measured.figures.is_empty());
        self.exporters.round(round);
    }

    /// Reads all processes of the board, and puts there what was found out of them.
    fn read(&self) -> Vec<Told> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted: Vec<(u32, u64, bool)> = {
            let board = self.board.lock();
            let rows = board.rows.iter();
            rows.map(|(pid, row)| (*pid, row.start_ticks, row.metrics)).collect()
        };
        reading.watch(&wanted);
        let Reading { watched, images, usages } = &mut *reading;
        usages.begin();
        let mut told = Vec::with_capacity(watched.len());
        for (pid, process) in watched.iter_mut() {
            let wants = Wants { states_up_to: STATES };
            let Seen::Read { read, .. } = process.read(wants, images, usages) else { continue };
            let mut metrics = rows(process, &read);
            let mut board = self.board.lock();
            let Some(row) = board.rows.get_mut(pid) else { continue };
            row.status.go_version.clone_from(&metrics.go_version);
            row.status.restricted.clone_from(&metrics.restricted);
            metrics.service.clone_from(&row.status.service);
            if !row.metrics {
                metrics.samples.clear();
            }
            told.push(Told::new(metrics, *read, row));
        }
        told
    }

    /// Adds a point to each chart.
    fn chart(&self) {
        let now = unix_ns();
        for one in self.read() {
            let figures = metrics::figures(&one.process.samples);
            let mut board = self.board.lock();
            let Some(row) = board.rows.get_mut(&one.process.pid) else { continue };
            row.status.goroutines = groups(&one.read);
            for figure in figures.iter().filter(|figure| CHARTS.contains(&&*figure.name)) {
                let sum: f64 = figure.points.iter().filter_map(number).sum();
                add_point(&mut row.series, figure, (now, sum));
            }
        }
    }
}

impl Reading {
    /// Has these processes open, by id, start and whether metrics are wanted.
    fn watch(&mut self, wanted: &[(u32, u64, bool)]) {
        let is_wanted = |pid: &u32, watched: &mut Watched| {
            let found = wanted.iter().find(|(wanted, ..)| wanted == pid);
            found.is_some_and(|(_, start, _)| *start == watched.process.start_ticks())
        };
        self.watched.retain(is_wanted);
        for (pid, start, _) in wanted {
            if self.watched.contains_key(pid) {
                continue;
            }
            let Ok(process) = Process::open(*pid) else { continue };
            if process.start_ticks() != *start {
                continue;
            }
            if let Ok(watched) = Watched::open(process, &mut self.images) {
                self.watched.insert(*pid, watched);
            }
        }
    }
}

impl Told {
    fn new(process: ProcessMetrics, read: Read, row: &Row) -> Self {
        let mut figures = row.requests.figures();
        figures.extend(row.status.figures());
        Self {
            started_unix_ns: (read.usage.start_unix_seconds * 1e9) as u64,
            since_unix_ns: row.since_unix_ns,
            process,
            read,
            figures,
            resource: resource(row),
        }
    }
}

/// What metrics of a process are told to come from.
fn resource(row: &Row) -> Vec<(String, Tag)> {
    let text = |text: &str| Tag::Text(text.to_owned());
    let mut resource: Vec<(String, Tag)> =
        row.origin.resource.iter().map(|(key, value)| (key.clone(), text(value))).collect();
    resource.push(("process.executable.path".to_owned(), text(&row.status.exe)));
    resource.push(("process.pid".to_owned(), Tag::Int(i64::from(row.status.pid))));
    if let Some(version) = &row.status.go_version {
        resource.push(("process.runtime.name".to_owned(), text("go")));
        resource.push(("process.runtime.version".to_owned(), text(version)));
    }
    resource
}

fn groups(read: &Read) -> Option<Vec<GroupStatus>> {
    let Some(Ok(states)) = &read.states else { return None };
    let fixed = [
        ("running", states.running),
        ("runnable", states.runnable),
        ("syscall", states.syscall),
        ("other", states.other),
    ];
    let fixed = fixed.into_iter().map(|(state, count)| (state.to_owned(), count));
    let waiting = states.waiting_by_reason.iter();
    let waiting = waiting.map(|(reason, count)| (format!("waiting: {reason}"), *count));
    let mut groups: Vec<GroupStatus> = fixed
        .chain(waiting)
        .filter(|(_, count)| *count > 0)
        .map(|(state, count)| GroupStatus { state, count })
        .collect();
    groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.state.cmp(&b.state)));
    Some(groups)
}

fn number(point: &metrics::FigurePoint) -> Option<f64> {
    match &point.value {
        Value::Number(number) => Some(number.as_f64()),
        Value::Summary(_) | Value::Histogram(_) => None,
    }
}

fn add_point(series: &mut Vec<SeriesStatus>, figure: &Figure, point: (u64, f64)) {
    let at = series.iter().position(|series| series.name == figure.name).unwrap_or_else(|| {
        series.push(SeriesStatus {
            name: figure.name.to_string(),
            unit: figure.unit.to_owned(),
            points: Vec::new(),
        });
        series.len() - 1
    });
    let points = &mut series[at].points;
    if points.len() >= KEPT {
        points.remove(0);
    }
    points.push(point);
}

fn millis(interval: Duration) -> u64 {
    u64::try_from(interval.as_millis()).unwrap_or(u64::MAX)
}

fn unix_ns() -> u64 {
    clock::monotonic_ns().saturating_add_signed(clock::unix_offset_ns())
}
