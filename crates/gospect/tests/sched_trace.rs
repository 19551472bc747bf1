//! Goroutine states against what the program's own runtime says: its execution trace
//! (runtime/trace) and its metrics (runtime/metrics).

#[path = "common/execution_trace.rs"]
mod execution_trace;

use execution_trace::{LIMIT, compare, file};
use testkit::{Fixture, Gospect, Mode, Toolchain, toolchains};

#[test]
fn root_counts_and_wakers_are_those_of_the_execution_trace() {
    for go in toolchains() {
        for backend in ["uprobe", "trampoline"] {
            let (goroutines, wakes) =
                compare(&go, Mode::Exe, backend, &["-n", "100", "-short", "300"]);
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
