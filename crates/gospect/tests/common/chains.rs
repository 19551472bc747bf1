//! Chains of goroutine states as `gospect sched` tells them, and what is true of every one.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::{Fixture, Gospect, Mode, Toolchain};

/// How long one thing may take before a test gives up.
pub const LIMIT: Duration = Duration::from_secs(180);

/// What of a line of JSON the tests look at.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Line {
    pub r#type: String,
    pub ts_ns: i64,
    pub goid: u64,
    pub pid: u32,
    pub from: String,
    pub to: String,
    pub held_ns: i64,
    pub reason: Option<String>,
    pub born_ns: Option<i64>,
    pub ended_ns: Option<i64>,
    pub state: String,
    /// 0 for a gap that nothing came before.
    #[serde(deserialize_with = "zero_for_null")]
    pub from_ns: i64,
    pub to_ns: i64,
    pub running_ns: i64,
    pub runnable_ns: i64,
    pub syscall_ns: i64,
    pub other_ns: i64,
    pub unknown_ns: i64,
    pub waiting_ns: BTreeMap<String, i64>,
    pub made: u64,
    pub ended: u64,
    pub live: u64,
    pub found: u64,
    pub lost: u64,
    pub breaks: u64,
    pub mended: u64,
    pub vanished: u64,
    pub repairs: u64,
    pub invalid: u64,
    pub no_goroutine: u64,
    pub refused: u64,
    pub changes: u64,
    pub processes: u64,
    pub backend: String,
}

fn zero_for_null<'de, D: Deserializer<'de>>(text: D) -> Result<i64, D::Error> {
    Ok(Option::deserialize(text)?.unwrap_or_default())
}

impl Line {
    /// The time of all states.
    pub fn spent_ns(&self) -> i64 {
        let waited: i64 = self.waiting_ns.values().sum();
        self.running_ns + self.runnable_ns + self.syscall_ns + self.other_ns + waited
    }
}

/// The binary under test.
pub fn gospect() -> Gospect {
    Gospect::new(env!("CARGO_BIN_EXE_gospect")).limit(LIMIT)
}

/// Where a test's result goes.
pub fn result_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.json", std::process::id()))
}

/// The lines of a result, which is removed.
pub fn lines(path: &Path) -> Vec<Line> {
    let file = BufReader::new(File::open(path).unwrap());
    let line = |line: String| {
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"))
    };
    let lines = file.lines().map(|text| line(text.unwrap())).collect();
    std::fs::remove_file(path).unwrap();
    lines
}

/// What is true of every capture that lost nothing: each goroutine's changes follow from each
/// other, the times of its states add up to its life, and every goroutine is accounted for.
pub fn check(lines: &[Line], told: &str) {
    let mut last: BTreeMap<(u32, u64), (&str, i64)> = BTreeMap::new();
    for line in lines {
        let who = (line.pid, line.goid);
        if line.r#type == "goroutine" {
            // All is said of it. After execve another one may have its id.
            last.remove(&who);
        }
        if line.r#type != "state" {
            continue;
        }
        if let Some((state, ts_ns)) = last.insert(who, (&line.to, line.ts_ns)) {
            assert_eq!((line.from.as_str(), line.ts_ns - line.held_ns), (state, ts_ns), "{told}");
        }
        // Whoever waits becomes runnable first; what else there is only looks like waiting.
        let is_seeming = (line.from.as_str(), line.to.as_str()) == ("waiting", "running")
            && line.reason.as_deref() != Some("coroutine");
        assert!(!is_seeming, "{told}: {line:?}");
    }
    for line in lines.iter().filter(|line| line.r#type == "goroutine") {
        assert_eq!(line.spent_ns(), line.to_ns - line.from_ns, "{told}: {line:?}");
        assert_eq!(line.unknown_ns, 0, "{told}: {line:?}");
    }
    let summary = summary(lines);
    let wrong = [summary.lost, summary.mended, summary.breaks, summary.invalid, summary.refused];
    assert_eq!(wrong, [0; 5], "{told}: {summary:?}");
    assert_eq!(summary.no_goroutine, 0, "{told}: {summary:?}");
    let goroutines = lines.iter().filter(|line| line.r#type == "goroutine").count() as u64;
    assert_eq!(goroutines, summary.ended + summary.live, "{told}: {summary:?}");
}

/// The last line.
pub fn summary(lines: &[Line]) -> &Line {
    lines.iter().rfind(|line| line.r#type == "summary").expect("a summary")
}

/// Watches the fixture from its first instruction to its end.
pub fn watch(go: &Toolchain, mode: Mode, backend: &str, args: &[&str]) -> Vec<Line> {
    let program = Fixture::build("states", go, mode);
    let told = format!("go {} {mode} {backend} {args:?}", go.version);
    let path = result_file(&format!("sched-{}-{mode}-{backend}", go.version));
    let program = program.to_str().unwrap();
    let out = path.to_str().unwrap();
    // Room for what is not read while the machine is busy with other things.
    let how = ["sched", "--backend", backend, "--events", "--format", "json", "--ring", "64"];
    let mut command = how.to_vec();
    command.extend(["-o", out]);
    command.extend(["--", program]);
    command.extend(args);
    let output = gospect().run(&command);
    output.expect_code(0);
    let done = output.of_type("done").remove(0);
    let made: u64 = done["made"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    let lines = lines(&path);
    check(&lines, &told);
    let summary = summary(&lines);
    assert_eq!(summary.backend, backend, "{told}");
    // The runtime makes some of its own, among them up to one worker per processor.
    assert!((made..made + 60).contains(&summary.made), "{told}: {made} of {summary:?}");
    assert!(summary.ended >= made, "{told}: {made} of {summary:?}");
    lines
}
