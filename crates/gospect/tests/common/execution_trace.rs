//! What Go's own execution trace (runtime/trace) says of goroutines, against what `gospect sched` says:
//! for every goroutine the same blocks, wakes with the same wakers, starts, yields and system calls.
//!
//! The differences that are right, which the comparison takes into account (docs/states.md):
//! - a coroutine switch is a wake and a start there, one change here;
//! - a system call whose processor was taken ends runnable there, whatever the runtime does: there
//!   it is started again, here only if it had to wait (Go 1.26 and later: it always runs first);
//! - stopping by the collector (`preempted`) is a block there;
//! - the main goroutine and the runtime's own begin before the trace does.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testkit::{Fixture, Gospect, Mode, Toolchain, newest};

/// How long one thing may take before a test gives up.
pub const LIMIT: Duration = Duration::from_secs(120);

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

/// Where a test's result goes.
pub fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()))
}

/// How often a program is traced when Go's own tools do not take its execution trace.
const TRIES: usize = 3;

/// What both say of one run of a program. The newest `go tool trace` reads the traces of all versions.
fn run(
    go: &Toolchain,
    mode: Mode,
    backend: &str,
    args: &[&str],
) -> (BTreeMap<u64, Counts>, BTreeMap<u64, Counts>) {
    let program = Fixture::build("states", go, mode);
    let trace = file(&format!("trace-{}-{mode}-{backend}", go.version));
    let result = file(&format!("traced-{}-{mode}-{backend}", go.version));
    let [program, trace_, result_] = [&program, &trace, &result].map(|p| p.to_str().unwrap());
    // Room for what is not read while the machine is busy with other things.
    let how = ["sched", "--backend", backend, "--events", "--format", "json", "--ring", "64"];
    let mut command = how.to_vec();
    // Changing GOMAXPROCS makes up events in the trace, to keep it in order.
    command.extend(["-o", result_, "--", program, "-trace", trace_, "-resize=false"]);
    command.extend(args);
    for _ in 0..TRIES {
        Gospect::new(env!("CARGO_BIN_EXE_gospect")).limit(LIMIT).run(&command).expect_code(0);
        let parsed = Command::new(&newest().go)
            .args(["tool", "trace", "-d=parsed", trace_])
            .env("GOTOOLCHAIN", "local")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&parsed.stderr);
        // The traces of old versions are ordered by the raw counter, and those that come out wrong are
        // refused as a whole: there is nothing to compare with then.
        if go.minor < 22 && said.trim() == "time stamps out of order" {
            continue;
        }
        assert!(parsed.status.success(), "{said}");
        let both = (ours(&result), theirs(&String::from_utf8(parsed.stdout).unwrap()));
        std::fs::remove_file(&trace).unwrap();
        std::fs::remove_file(&result).unwrap();
        return both;
    }
    panic!("go {}: {TRIES} execution traces were out of order", go.version);
}

/// Goroutines compared, and wakes of theirs.
pub fn compare(go: &Toolchain, mode: Mode, backend: &str, args: &[&str]) -> (usize, u64) {
    let (ours, theirs) = run(go, mode, backend, args);
    let whole: Vec<_> = theirs.iter().filter(|(_, c)| (c.made, c.ended) == (1, 1)).collect();
    for (goid, counts) in &whole {
        let told = format!("go {} {mode} {backend} g{goid}", go.version);
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
