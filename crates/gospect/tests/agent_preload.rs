//! Preloaded programs of an agent that become other programs and start some.

mod common;
#[path = "common/service.rs"]
mod service;

use common::{Directory, path_text, until};
use serde_json::Value;
use service::{Agent, Collector, ask, is_watched, preloaded};
use std::net::TcpStream;
use std::path::Path;
use testkit::{Fixture, Mode, newest};

/// How often something is tried that a loaded machine may be too slow for.
const ATTEMPTS: usize = 10;

/// A target that replaces itself, by itself and by others, is followed: what has a loader carries its plan again,
/// what has none is attached to, each under its own service.
#[test]
fn root_a_preloaded_program_is_followed_through_execve() {
    let directory = Directory::new();
    let copy =
        |fixture: &str, mode, name| directory.copy(&Fixture::build(fixture, &newest(), mode), name);
    let relay = copy("relay", Mode::Pie, "relay");
    let other = copy("httpserver", Mode::Cgo, "other");
    let fixed = copy("httpserver", Mode::Exe, "fixed");
    let socket = directory.file("run/agent.sock");
    let service = |name: &str| {
        let path = directory.file(name);
        format!("[[service]]\nname = \"of {name}\"\nmatch = {{ exe = \"{}\" }}\n", path.display())
    };
    let file = format!("[agent]\nsocket = \"{}\"\n", path_text(&socket))
        + &["relay", "other", "fixed"].map(service).concat();
    let agent = Agent::start(&directory.file("gospect.toml"), &file, &[]);
    until("all plans", || agent.status()["preload"]["ready"] == 3);
    let (running, address) = agent.carrying(|| preloaded(&relay, &socket));
    let pid = running.pid();

    // Another program, once it is watched and answers: how it is watched.
    let becomes = |program: &Path, name: &str, service: &str| {
        ask(&address, &format!("/become?program={}&as={name}", path_text(program)));
        let called = format!("{name} -addr {address}");
        let is_it = |process: &Value| process["command"] == called.as_str() && is_watched(process);
        let process = agent.wait(pid, name, is_it);
        assert_eq!(process["service"], service, "{process:#}");
        until("its address", || TcpStream::connect(&address).is_ok());
        process["capture"]["way"].clone()
    };
    let asked = |path: &str, name: &str| {
        ask(&address, path);
        let process = agent.wait(pid, "its request", |process| process["spans"]["made"] == 1);
        assert_eq!(process["requests"][0]["name"], name, "{process:#}");
    };
    let carries = |turn| becomes(&relay, &format!("turn{turn}"), "of relay") == "preload";
    assert!((0..ATTEMPTS).any(carries));
    asked("/a", "GET /");
    assert_eq!(agent.status()["processes"].as_array().map(Vec::len), Some(1));
    // To another one that has a loader, and in the same way to one that has none.
    let way = becomes(&other, "other", "of other");
    assert!(way == "preload" || way == "attach", "{way}");
    asked("/sum", "GET /sum");
    drop(running);
    let (running, address) = agent.carrying(|| preloaded(&relay, &socket));
    let pid = running.pid();
    ask(&address, &format!("/become?program={}&as=fixed", path_text(&fixed)));
    let fixed = |process: &Value| process["service"] == "of fixed" && is_watched(process);
    let process = agent.wait(pid, "watched", fixed);
    assert_eq!(process["capture"]["way"], "attach", "{process:#}");
    ask(&address, "/sum");
    agent.wait(pid, "its request", |process| process["spans"]["made"] == 1);
    agent.stop();
    ask(&address, "/sum");
}

/// Programs that a preloaded one starts have the library too, ask for themselves, and are counted for themselves.
#[test]
fn root_children_of_a_preloaded_program_ask_for_themselves() {
    const CHILDREN: u64 = 5;
    let directory = Directory::new();
    let collector = Collector::start(&directory.file("got.json"), "127.0.0.1:0");
    let relay = directory.copy(&Fixture::build("relay", &newest(), Mode::Pie), "relay");
    let socket = directory.file("run/agent.sock");
    let file = format!(
        "[agent]\nsocket = \"{}\"\nexport = \"{}\"\ninterval = \"1s\"\n[[service]]\nname = \"relay\"\n\
         match = {{ exe = \"{}\" }}\nfunctions = [\"main.once\"]\nsensors = [\"http\"]\n",
        path_text(&socket),
        collector.endpoint,
        path_text(&relay)
    );
    let agent = Agent::start(&directory.file("gospect.toml"), &file, &[]);
    until("the plan", || agent.status()["preload"]["ready"] == 1);
    let (running, address) = agent.carrying(|| preloaded(&relay, &socket));
    let served = || agent.status()["preload"]["served"].as_u64().expect("a number");
    let first = served();
    let mut rounds = 0;
    loop {
        let before = served();
        ask(&address, &format!("/children?n={CHILDREN}"));
        rounds += 1;
        // The last word of the last conversation may be on its way.
        std::thread::sleep(std::time::Duration::from_millis(100));
        if served() - before == CHILDREN {
            break;
        }
        assert!(rounds < ATTEMPTS, "{}", agent.running.stderr());
    }
    let all = served() - first;
    let whole = |process: &Value| process["spans"]["made"] == rounds;
    let process = agent.wait(running.pid(), "its own requests", whole);
    assert_eq!(process["capture"]["way"], "preload");
    assert_eq!(process["spans"]["lost"], 0, "{process:#}");
    agent.stop();
    ask(&address, "/");
    let counted = once_calls(&collector.stop());
    // Those that waited in vain were attached to, if they lived so long.
    let most = CHILDREN * rounds as u64;
    assert!((all..=most).contains(&counted), "{counted} instead of {all} to {most}");
}

/// Calls of `main.once` in all processes, by the last sum of each.
fn once_calls(lines: &[Value]) -> u64 {
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let mut last = std::collections::BTreeMap::new();
    for resource in lines.iter().flat_map(|line| list(line, "resourceMetrics")) {
        let of = resource["resource"].to_string();
        let scopes = list(&resource, "scopeMetrics");
        for metric in scopes.iter().flat_map(|scope| list(scope, "metrics")) {
            if metric["name"] == "gospect.function.duration" {
                for point in list(&metric["histogram"], "dataPoints") {
                    let count = point["count"].as_str().and_then(|text| text.parse::<u64>().ok());
                    last.insert((of.clone(), point["attributes"].to_string()), count);
                }
            }
        }
    }
    last.values().map(|count| count.expect("a count")).sum()
}
