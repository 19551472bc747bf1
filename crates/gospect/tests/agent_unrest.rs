//! `gospect agent` while everything changes under it: programs begin, end, stop, become others; the configuration
//! changes meanwhile. Needs root.

mod common;
#[path = "common/service.rs"]
mod service;

use common::{Directory, any_gospect, fixture, path_text, text, until};
use serde_json::Value;
use service::{Agent, LIMIT, ask, write};
use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::path::Path;
use testkit::Running;

/// A program by that name, and where it listens.
fn start(program: &Path, name: &str) -> (Running, String) {
    let running = Running::start(program, &["-name", name]);
    let address = text(&running.wait_for("listening", LIMIT)["addr"]);
    (running, address)
}

/// Where it listens now: it may have become itself anew.
fn address_of(running: &Running) -> String {
    let lines = running.stdout();
    let mut facts = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let last = facts.rfind(|fact| fact["type"] == "listening");
    text(&last.expect("an address")["addr"])
}

/// A service that takes programs by that name.
fn service_of(program: &Path, name: &str, rest: &str) -> String {
    format!(
        "[[service]]\nname = \"{name}\"\nmatch = {{ exe = \"{}\", command = \"*-name {name}*\" }}\n\
         backend = \"trampoline\"\nfunctions = [\"main.cheap\"]\n{rest}\n",
        path_text(program)
    )
}

fn is_watched(process: &Value) -> bool {
    process["capture"]["backend"].is_string()
}

/// Has the program become itself anew. It answers nothing, since it is gone by then.
fn become_another(address: &str, name: &str) {
    let (address, path) = (address.to_owned(), format!("/become?name={name}"));
    _ = catch_unwind(move || ask(&address, &path));
}

fn carries_code(pid: u32) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("its maps");
    maps.contains("/memfd:gospect")
}

/// A program that becomes itself anew with another command line is another service's; before that it was nobody's.
#[test]
fn root_a_process_is_looked_at_again_when_its_command_line_is_another() {
    let directory = Directory::new();
    let program = directory.copy(&fixture("hotloop"), "loop");
    let (running, address) = start(&program, "first");
    let config = directory.file("gospect.toml");
    let agent = Agent::start(&config, &service_of(&program, "second", ""), &[]);
    let way = || agent.status()["discovery"]["way"].clone();
    until("all processes to be looked at", || way() == "exec_events");
    assert!(agent.process(running.pid()).is_null());
    become_another(&address, "second");
    let process = agent.wait(running.pid(), "found as another", is_watched);
    assert_eq!(process["service"], "second");
    agent.stop();
}

/// A stopped program is let go as it stands, and goes on later as if nobody had been there. What only it could do,
/// to give back the memory, is done later.
#[test]
fn root_a_stopped_program_is_let_go() {
    let directory = Directory::new();
    let program = directory.copy(&fixture("hotloop"), "loop");
    let (running, address) = start(&program, "one");
    let config = directory.file("gospect.toml");
    let agent = Agent::start(&config, &service_of(&program, "one", ""), &[]);
    agent.wait(running.pid(), "watched", is_watched);
    ask(&address, "/hello");
    assert!(carries_code(running.pid()));
    running.signal("STOP");
    agent.stop();
    running.signal("CONT");
    ask(&address, "/hello");
    let output = any_gospect().run(&["detach", "-p", &running.pid().to_string()]);
    output.expect_code(0);
    assert!(!carries_code(running.pid()));
    ask(&address, "/hello");
}

/// A service that takes what runs already from now on takes it.
#[test]
fn root_a_way_that_is_allowed_later_is_taken() {
    let directory = Directory::new();
    let config = directory.file("gospect.toml");
    let program = directory.copy(&fixture("hotloop"), "loop");
    let (running, _) = start(&program, "a");
    let agent = Agent::start(&config, &service_of(&program, "a", "inject = [\"launch\"]"), &[]);
    let is_left = |process: &Value| {
        let reason = process["capture"]["reason"].as_str();
        reason == Some("the configuration leaves out what runs already")
    };
    agent.wait(running.pid(), "left out", is_left);
    write(&config, &service_of(&program, "a", ""));
    agent.running.signal("HUP");
    agent.wait(running.pid(), "watched", is_watched);
    agent.stop();
}

/// Whatever happens meanwhile: in the end those that live are watched as the last configuration wants it, and when the
/// agent has ended all are as they were.
#[test]
fn root_nothing_is_missed_or_left_behind_in_unrest() {
    let directory = Directory::new();
    let config = directory.file("gospect.toml");
    let program = directory.copy(&fixture("hotloop"), "loop");
    let of = |name: &str, rest: &str| service_of(&program, name, rest);
    let both = of("a", "budget = 5") + &of("b", "");
    let changes = [
        of("a", "sensors = [\"metrics\"]"),
        of("b", "budget = 1"),
        of("a", "time = true") + &of("b", "inject = [\"launch\"]"),
        "[[service]]\nmatch = { exe = \"/nothing/*\" }\n".to_owned(),
    ];
    let agent = Agent::start(&config, &both, &[]);
    let reload = |text: &str| {
        // At once: a file that is half written means something else.
        let new = directory.file("new.toml");
        write(&new, text);
        std::fs::rename(&new, &config).expect("to replace it");
        agent.running.signal("HUP");
    };
    let mut programs: Vec<(Running, String)> = Vec::new();
    for (round, change) in changes.iter().cycle().take(12).enumerate() {
        let (running, address) = start(&program, if round % 2 == 0 { "a" } else { "b" });
        reload(change);
        match round % 4 {
            // While its plan is made, or while it is being attached to.
            0 => become_another(&address, "b"),
            1 => running.signal("KILL"),
            2 => {
                running.signal("STOP");
                reload(&both);
                running.signal("CONT");
            }
            _ => drop(programs.pop()),
        }
        programs.push((running, address));
        reload(&both);
    }
    programs.retain_mut(|(running, _)| running.is_running());
    assert!(programs.len() >= 4, "{}", programs.len());
    let name = |pid: u32| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("a command line");
        line.trim_end_matches('\0').rsplit('\0').next().unwrap_or_default().to_owned()
    };
    let expected: BTreeMap<u64, String> =
        programs.iter().map(|(running, _)| (running.pid().into(), name(running.pid()))).collect();
    let mut last = Value::Null;
    let is_right = || {
        last = agent.status()["processes"].clone();
        let all = last.as_array().expect("a list");
        let found = all.iter().filter(|process| is_watched(process));
        let found: BTreeMap<u64, String> = found
            .map(|process| (process["pid"].as_u64().expect("a pid"), text(&process["service"])))
            .collect();
        found == expected && all.len() == expected.len()
    };
    let is_over =
        catch_unwind(std::panic::AssertUnwindSafe(|| until("all to be watched", is_right)));
    assert!(is_over.is_ok(), "{expected:?}: {last:#}\n{}", agent.running.stderr());
    for (running, _) in &programs {
        ask(&address_of(running), "/hello");
        let answered = |process: &Value| process["spans"]["made"].as_u64() >= Some(1);
        agent.wait(running.pid(), "its request", answered);
    }
    agent.stop();
    for (running, _) in &mut programs {
        assert!(!carries_code(running.pid()), "{}", running.pid());
        ask(&address_of(running), "/hello");
        assert!(running.is_running());
    }
}
