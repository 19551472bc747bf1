//! What each feature needs, as SECURITY.md has it: root with just these capabilities watches a process of another
//! user, and with one of them less it is told which is missing. Needs root.

mod common;

use common::{Directory, LIMIT, expect_line, fixture, gospect};
use std::process::Command;
use testkit::{Output, Running};

const NOBODY: &str = "65534";

/// A program of another user's that computes until it is told to end.
struct Theirs {
    running: Running,
    _directory: Directory,
}

impl Theirs {
    fn start() -> Self {
        let directory = Directory::new();
        let program = directory.copy(&fixture("spin"), "spin");
        let mut command = Command::new("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"]);
        command.arg(program).args(["-for", "0"]).current_dir("/");
        let running = Running::spawn(command);
        running.wait_for("ready", LIMIT);
        Self { running, _directory: directory }
    }

    fn pid(&self) -> u32 {
        self.running.pid()
    }
}

/// Runs gospect as root with `capabilities` and no others.
fn with(capabilities: &[&str], line: &[&str], pid: u32) -> Output {
    let set = capabilities.iter().fold("-all".to_owned(), |set, name| format!("{set},+{name}"));
    let mut command = Command::new("setpriv");
    command.args([format!("--bounding-set={set}"), format!("--inh-caps={set}")]).arg("--");
    command.arg(env!("CARGO_BIN_EXE_gospect")).args(line).args(["-p", &pid.to_string()]);
    gospect().finish(&mut Running::spawn(command))
}

const UPROBES: [&str; 3] = ["bpf", "perfmon", "sys_ptrace"];
const TRAMPOLINES: [&str; 2] = ["sys_ptrace", "dac_override"];
const MEMORY: [&str; 2] = ["sys_ptrace", "dac_read_search"];

/// Until a call is seen: on a busy machine the target may not run at all for a while.
fn calls(capabilities: &[&str], backend: &str, pid: u32) {
    let line = ["trace", "--backend", backend, "--stat", "--format", "json", "-u", "main.*"];
    let line = [&line[..], &["--duration", "200ms"]].concat();
    for _ in 0..20 {
        let output = with(capabilities, &line, pid);
        if output.code != Some(3) {
            output.expect_code(0);
            assert!(output.summary()["calls"].as_u64() > Some(0), "{}", output.stdout);
            return;
        }
    }
    panic!("no call of process {pid} is seen");
}

#[test]
fn root_calls_are_traced_with_what_the_table_has() {
    let theirs = Theirs::start();
    calls(&UPROBES, "uprobe", theirs.pid());
    calls(&TRAMPOLINES, "trampoline", theirs.pid());
}

#[test]
fn root_what_is_missing_for_calls_is_named() {
    let theirs = Theirs::start();
    let cases: [(&str, &[&str], &str); 6] = [
        ("uprobe", &["perfmon", "sys_ptrace"], "CAP_BPF"),
        ("uprobe", &["bpf", "sys_ptrace"], "CAP_PERFMON"),
        ("uprobe", &["bpf", "perfmon"], "CAP_SYS_PTRACE is missing"),
        ("trampoline", &["dac_override"], "CAP_SYS_PTRACE is missing"),
        ("trampoline", &["sys_ptrace"], "CAP_DAC_OVERRIDE"),
        ("trampoline", &["sys_ptrace", "dac_read_search"], "CAP_DAC_OVERRIDE is missing"),
    ];
    for (backend, capabilities, missing) in cases {
        let line = ["trace", "--backend", backend, "--duration", "100ms", "-u", "main.*"];
        let output = with(capabilities, &line, theirs.pid());
        expect_line(&output, 1, &["no permission", missing]);
    }
}

#[test]
fn root_memory_is_read_with_what_the_table_has() {
    let theirs = Theirs::start();
    let goroutines = with(&MEMORY, &["goroutines", "--format", "json"], theirs.pid());
    goroutines.expect_code(0);
    assert!(!goroutines.of_type("goroutine").is_empty(), "{}", goroutines.stdout);
    let output = with(&["sys_ptrace"], &["goroutines"], theirs.pid());
    expect_line(&output, 1, &["no permission", "CAP_DAC_READ_SEARCH is missing"]);
    let output = with(&["dac_read_search"], &["goroutines"], theirs.pid());
    expect_line(&output, 1, &["no permission", "CAP_SYS_PTRACE is missing"]);
}

#[test]
fn root_metrics_of_the_kernel_need_nothing() {
    let theirs = Theirs::start();
    let names = |capabilities: &[&str]| {
        let output = with(capabilities, &["metrics", "--format", "json"], theirs.pid());
        output.expect_code(0);
        let metrics = output.of_type("metric");
        let names = metrics.iter().filter_map(|metric| metric["name"].as_str());
        names.map(ToOwned::to_owned).collect::<std::collections::BTreeSet<_>>()
    };
    let (none, all) = (names(&[]), names(&MEMORY));
    assert!(none.contains("process_resident_memory_bytes"), "{none:?}");
    assert!(!none.contains("go_goroutines"), "{none:?}");
    assert!(all.contains("go_goroutines") && all.is_superset(&none), "{all:?}");
}
