//! Goroutine states against what the program's own runtime says: its execution trace (runtime/trace) -
//! for every goroutine the same blocks, wakes with the same wakers, starts, yields and system
//! calls - and its metrics (runtime/metrics).
//!
//! The differences that are right, which the comparison takes into account (docs/states.md):
//! - a coroutine switch is a wake and a start there, one change here;
//! - a system call whose processor was taken ends runnable there, whatever the runtime does: there
//!   it is started again, here only if it had to wait (Go 1.26 and later: it always runs first);
//! - stopping by the collector (`preempted`) is a block there;
//! - the main goroutine and the runtime's own begin before the trace does.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testkit::{Fixture, Gospect, Mode, Toolchain, newest, toolchains};

const LIMIT: Duration = Duration::from_secs(120);

/// What happened to a goroutine, and how often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts {
    made: u64,
    ended: u64,
    blocks: u64,
    /// By the goroutine that woke it, 0 for none.
    wakes: BTreeMap<u64, u64>,
    starts: u64,
    yields: u64,
    syscalls: u64,
    /// System calls that ended runnable.
    slow_exits: u64,
}

impl Counts {
    fn wake(&mut self, by: Option<u64>) {
        *self.wakes.entry(by.unwrap_or(0)).or_default() += 1;
    }

    /// What has to be equal.
    fn core(&self) -> Self {
        Self { starts: 0, yields: 0, slow_exits: 0, ..self.clone() }
    }
}

#[derive(Debug, Deserialize)]
struct Line {
    r#type: String,
    #[serde(default)]
    goid: u64,
    #[serde(default)]
    from: String,
    #[serde(default)]
    to: String,
    by: Option<u64>,
    #[serde(default)]
    lost: u64,
}

fn ours(path: &Path) -> BTreeMap<u64, Counts> {
    let mut all: BTreeMap<u64, Counts> = BTreeMap::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let line: Line = serde_json::from_str(line).unwrap();
        if line.r#type == "summary" {
            assert_eq!(line.lost, 0);
        }
        if line.r#type != "state" {
            continue;
        }
        let counts = all.entry(line.goid).or_default();
        match (line.from.as_str(), line.to.as_str()) {
            ("dead", _) => counts.made += 1,
            (_, "dead") => counts.ended += 1,
            ("running", "waiting" | "preempted") => counts.blocks += 1,
            ("waiting", "runnable") => counts.wake(line.by),
            ("waiting", "running") => {
                counts.wake(line.by);
                counts.starts += 1;
            }
            ("runnable", "running") => counts.starts += 1,
            ("syscall", "runnable") => counts.slow_exits += 1,
            ("running", "runnable") => counts.yields += 1,
            (_, "syscall") => counts.syscalls += 1,
            _ => {}
        }
    }
    all
}

/// `M=1 P=0 G=7 StateTransition Time=1 GoID=8 Waiting->Runnable Reason=""`
fn theirs(text: &str) -> BTreeMap<u64, Counts> {
    let mut all: BTreeMap<u64, Counts> = BTreeMap::new();
    for line in text.lines().filter(|line| line.contains(" StateTransition ")) {
        let field = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name));
        let (Some(goid), Some(by)) = (field("GoID="), field("G=")) else { continue };
        let arrow = line.split(' ').find_map(|word| word.split_once("->")).unwrap();
        let counts = all.entry(goid.parse().unwrap()).or_default();
        match arrow {
            ("Undetermined", _) => {}
            // A new generation of the trace says again what each is in.
            (from, to) if from == to => {}
            ("NotExist", _) => counts.made += 1,
            (_, "NotExist") => counts.ended += 1,
            (_, "Waiting") => counts.blocks += 1,
            ("Waiting", "Runnable") => counts.wake(by.parse().ok()),
            ("Syscall", "Runnable") => counts.slow_exits += 1,
            ("Runnable", "Running") => counts.starts += 1,
            (_, "Runnable") => counts.yields += 1,
            (_, "Syscall") => counts.syscalls += 1,
            _ => {}
        }
    }
    all
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()))
}

/// Goroutines compared, and wakes of theirs. The newest `go tool trace` reads the traces of all
/// versions.
fn compare(go: &Toolchain, backend: &str, args: &[&str]) -> (usize, u64) {
    let program = Fixture::build("states", go, Mode::Exe);
    let trace = file(&format!("trace-{}-{backend}", go.version));
    let result = file(&format!("sched-{}-{backend}", go.version));
    let [program, trace_, result_] = [&program, &trace, &result].map(|p| p.to_str().unwrap());
    // Room for what is not read while the machine is busy with other things.
    let how = ["sched", "--backend", backend, "--events", "--format", "json", "--ring", "64"];
    let mut command = how.to_vec();
    // Changing GOMAXPROCS makes up events in the trace, to keep it in order.
    command.extend(["-o", result_, "--", program, "-trace", trace_, "-resize=false"]);
    command.extend(args);
    Gospect::new(env!("CARGO_BIN_EXE_gospect")).limit(LIMIT).run(&command).expect_code(0);
    let parsed = Command::new(&newest().go)
        .args(["tool", "trace", "-d=parsed", trace_])
        .env("GOTOOLCHAIN", "local")
        .output()
        .unwrap();
    assert!(parsed.status.success(), "{}", String::from_utf8_lossy(&parsed.stderr));
    let (ours, theirs) = (ours(&result), theirs(&String::from_utf8(parsed.stdout).unwrap()));
    std::fs::remove_file(&trace).unwrap();
    std::fs::remove_file(&result).unwrap();
    let whole: Vec<_> = theirs.iter().filter(|(_, c)| (c.made, c.ended) == (1, 1)).collect();
    for (goid, counts) in &whole {
        let told = format!("go {} {backend} g{goid}", go.version);
        let own = ours.get(goid).unwrap_or_else(|| panic!("{told} is not known"));
        assert_eq!(own.core(), counts.core(), "{told}");
        let starts = counts.starts - counts.slow_exits..=counts.starts;
        assert!(starts.contains(&own.starts), "{told}: {own:?} {counts:?}");
        let left = own.yields + own.slow_exits;
        let yields = counts.yields..=counts.yields + counts.slow_exits;
        assert!(yields.contains(&left), "{told}: {own:?} {counts:?}");
    }
    let wakes = whole.iter().flat_map(|(_, counts)| counts.wakes.values()).sum();
    (whole.len(), wakes)
}

#[test]
fn root_counts_and_wakers_are_those_of_the_execution_trace() {
    for go in toolchains() {
        for backend in ["uprobe", "trampoline"] {
            let (goroutines, wakes) = compare(&go, backend, &["-n", "100", "-short", "300"]);
            assert!(goroutines > 1000 && wakes > 500, "{goroutines} goroutines, {wakes} wakes");
        }
    }
}

/// Of every so many times that a goroutine stops running the runtime takes note of how long it
/// is runnable next (`gTrackingPeriod`, runtime/runtime2.go, Go 1.19 to 1.27).
const PERIOD: f64 = 8.0;

#[test]
fn root_counts_and_latencies_are_those_of_the_runtimes_metrics() {
    for go in toolchains() {
        for backend in ["uprobe", "trampoline"] {
            compare_metrics(&go, backend);
        }
    }
}

fn compare_metrics(go: &Toolchain, backend: &str) {
    let told = format!("go {} {backend}", go.version);
    let program = Fixture::build("states", go, Mode::Exe);
    let result = file(&format!("metrics-{}-{backend}", go.version));
    let [program, result_] = [&program, &result].map(|p| p.to_str().unwrap());
    let command = ["sched", "--backend", backend, "--events", "--format", "json", "-o", result_];
    let work = ["-work", "chan", "-n", "1500", "-gogc", "100", "-resize=false", "-metrics"];
    let output = Gospect::new(env!("CARGO_BIN_EXE_gospect"))
        .limit(LIMIT)
        .run(&[&command[..], &["--ring", "64", "--", program], &work].concat());
    output.expect_code(0);
    let metrics = output.of_type("metrics").remove(0);
    let text = std::fs::read_to_string(&result).unwrap();
    std::fs::remove_file(&result).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = lines.last().unwrap();
    assert_eq!(summary["lost"], 0, "{told}: {summary}");

    // What lives at the end and is not of the runtime's own. Those that run finalizers and cleanups
    // it counts sometimes: while they do, and in Go 1.25 when they do not.
    let is_live =
        |line: &&serde_json::Value| line["type"] == "goroutine" && line["ended_ns"].is_null();
    let starts: Vec<&str> =
        lines.iter().filter(is_live).filter_map(|line| line["start"].as_str()).collect();
    let calls_back = |start: &&&str| {
        ["runtime.runFinalizers", "runtime.runfinq", "runtime.runCleanups"].contains(*start)
    };
    let is_own = |start: &&&str| **start == "runtime.main" || !start.starts_with("runtime.");
    let least = starts.iter().filter(is_own).count() as u64;
    let most = least + starts.iter().filter(calls_back).count() as u64;
    // From Go 1.26 on it counts the runtime's own too, and a few that have ended.
    let all = starts.len() as u64;
    let (least, most) = if go.minor < 26 { (least, most) } else { (all, all + 4) };
    let told_of = metrics["goroutines"].as_u64().unwrap();
    assert!((least..=most).contains(&told_of), "{told}: {metrics}, {starts:?}");
    if let Some(created) = metrics["created"].as_u64() {
        // The runtime may make a few of its own between the metrics and the end.
        let made = summary["made"].as_u64().unwrap();
        assert!((created..created + 4).contains(&made), "{told}: {made}, {metrics}");
    }
    assert!(go.minor < 26 || metrics["created"].is_u64(), "{told}: {metrics}");

    let runs = lines.iter().filter(|line| line["type"] == "state" && line["to"] == "running");
    let expected = runs.count() as f64 / PERIOD;
    let noted = metrics["latencies"].as_u64().unwrap() as f64;
    assert!((expected * 0.7..expected * 1.35).contains(&noted), "{told}: {expected}, {metrics}");
    let mut stays: Vec<f64> = lines
        .iter()
        .filter(|line| line["from"] == "runnable" && line["to"] == "running")
        .map(|line| line["held_ns"].as_f64().unwrap())
        .collect();
    stays.sort_by(f64::total_cmp);
    let below = |ns: f64| stays.partition_point(|stay| *stay < ns) as f64 / stays.len() as f64;
    for (key, share) in [("p50_ns", 0.5), ("p90_ns", 0.9)] {
        let [from, to] = [0, 1].map(|at| metrics[key][at].as_f64().unwrap());
        // One of eight was looked at, and a bucket is what it was in.
        let (least, most) = (below(from / 2.0), below(to * 2.0));
        assert!(least <= share + 0.05 && most >= share - 0.05, "{told}: {least} {most}, {metrics}");
    }
}
