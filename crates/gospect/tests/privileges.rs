//! What each feature needs, as SECURITY.md has it: root with just these capabilities watches a process of another
//! user, and with one of them less it is told which is missing. Needs root.

mod common;
#[path = "common/service.rs"]
mod service;

use common::{Directory, LIMIT, expect_line, fixture, gospect, path_text, text, until};
use serde_json::Value;
use service::{Agent, ask, write};
use std::process::Command;
use testkit::{Output, Running};

const NOBODY: &str = "65534";

/// A program of another user's.
struct Theirs {
    running: Running,
    directory: Directory,
}

impl Theirs {
    fn start(name: &str, arguments: &[&str]) -> Self {
        let directory = Directory::new();
        let program = directory.copy(&fixture(name), name);
        let mut command = Command::new("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"]);
        command.arg(program).args(arguments).current_dir("/");
        let running = Running::spawn(command);
        running.wait_for("ready", LIMIT);
        Self { running, directory }
    }

    fn spin() -> Self {
        Self::start("spin", &["-for", "0"])
    }

    fn pid(&self) -> u32 {
        self.running.pid()
    }
}

/// gospect as root with `capabilities` and no others.
fn line(capabilities: &[&str], line: &[&str]) -> Command {
    let set = capabilities.iter().fold("-all".to_owned(), |set, name| format!("{set},+{name}"));
    let mut command = Command::new("setpriv");
    command.args([format!("--bounding-set={set}"), format!("--inh-caps={set}")]).arg("--");
    command.arg(env!("CARGO_BIN_EXE_gospect")).args(line);
    command
}

fn with(capabilities: &[&str], own: &[&str], pid: u32) -> Output {
    let mut command = line(capabilities, own);
    command.args(["-p", &pid.to_string()]);
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
    let theirs = Theirs::spin();
    calls(&UPROBES, "uprobe", theirs.pid());
    calls(&TRAMPOLINES, "trampoline", theirs.pid());
}

#[test]
fn root_what_is_missing_for_calls_is_named() {
    let theirs = Theirs::spin();
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
    let theirs = Theirs::spin();
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
    let theirs = Theirs::spin();
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

/// Capabilities as a unit or a manifest names them.
fn packaged(file: &str, begin: &str, end: char) -> Vec<String> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file);
    let text = std::fs::read_to_string(path).expect("a package");
    let list =
        text.split_once(begin).expect("capabilities").1.split(end).next().unwrap_or_default();
    let words = list.split([',', ' ']).filter(|word| !word.is_empty());
    words.map(|word| word.trim_start_matches("CAP_").to_lowercase()).collect()
}

/// The agent as it is packaged, on a server of another user's, on both backends.
#[test]
fn root_the_agent_watches_with_what_its_packages_give_it() {
    let unit = packaged("systemd/gospect-agent.service", "CapabilityBoundingSet=", '\n');
    let pod = packaged("kubernetes/gospect-agent.yaml", "add: [", ']');
    for capabilities in [unit, pod] {
        for backend in ["uprobe", "trampoline"] {
            let server = Theirs::start("httpserver", &[]);
            let address = text(&server.running.wait_for("listening", LIMIT)["addr"]);
            let directory = Directory::new();
            let config = directory.file("gospect.toml");
            let program = server.directory.file("httpserver");
            write(
                &config,
                &format!(
                    "[[service]]\nmatch = {{ exe = \"{}\" }}\nbackend = \"{backend}\"\n",
                    path_text(&program)
                ),
            );
            let capabilities: Vec<&str> = capabilities.iter().map(String::as_str).collect();
            let own = ["agent", "--config", path_text(&config)];
            let agent = Agent::of(Running::spawn(line(&capabilities, &own)));
            until("requests are seen", || {
                ask(&address, "/sum?n=3");
                agent.process(server.pid())["spans"]["made"].as_u64() > Some(0)
            });
            let is_read = |process: &Value| process["go_version"].is_string();
            let process = agent.wait(server.pid(), "metrics of the runtime", is_read);
            assert_eq!(process["capture"]["backend"], backend);
            assert_eq!(process["restricted"], Value::Null);
            let discovery = &agent.status()["discovery"];
            assert_eq!(discovery["way"], "exec_events", "{discovery}");
            agent.stop();
        }
    }
}

#[test]
fn root_without_privileges_the_agent_says_what_is_missing() {
    let theirs = Theirs::spin();
    let directory = Directory::new();
    let config = directory.file("gospect.toml");
    let program = theirs.directory.file("spin");
    write(&config, &format!("[[service]]\nmatch = {{ command = \"{}*\" }}\n", path_text(&program)));
    let agent = Agent::of(Running::spawn(line(&[], &["agent", "--config", path_text(&config)])));
    let seen = |process: &Value| {
        process["restricted"].as_str().is_some_and(|why| why.contains("CAP_SYS_PTRACE is missing"))
    };
    agent.wait(theirs.pid(), "the reason", seen);
    agent.stop();
}
