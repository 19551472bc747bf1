//! `gospect agent`: which processes it takes, what it leaves in them, and gRPC to a collector.

mod common;
#[path = "common/service.rs"]
mod service;

use capture_trampoline::has_leftovers;
use common::{Directory, fixture, path_text, text};
use serde_json::Value;
use service::{Agent, Collector, LIMIT, ask};
use std::path::Path;
use testkit::Running;

/// A server of our own, and where it listens.
fn server(program: &Path) -> (Running, String) {
    let running = Running::start(program, &[] as &[&str]);
    let address = text(&running.wait_for("listening", LIMIT)["addr"]);
    (running, address)
}

fn is_watched(process: &Value) -> bool {
    process["capture"]["backend"].is_string()
}

/// Of two processes of one file each belongs to the service that names its port; a third one to none.
#[test]
fn root_services_are_told_apart_by_port() {
    let directory = Directory::new();
    let program = directory.copy(&fixture("httpserver"), "shop");
    let servers = [server(&program), server(&program), server(&program)];
    let port = |at: usize| servers[at].1.rsplit_once(':').expect("a port").1.to_owned();
    let file = format!(
        "[[service]]\nname = \"one\"\nmatch = {{ port = {} }}\n\
         [[service]]\nname = \"two\"\nmatch = {{ port = {}, exe = \"{}\" }}\n",
        port(1),
        port(0),
        path_text(&program)
    );
    let agent = Agent::start(&directory.file("gospect.toml"), &file, &[]);
    for (at, name) in [(0, "two"), (1, "one")] {
        let process = agent.wait(servers[at].0.pid(), "watched", is_watched);
        assert_eq!(process["service"], name, "{process:#}");
    }
    assert_eq!(agent.status()["processes"].as_array().map(Vec::len), Some(2));
    agent.stop();
}

/// What an agent that was killed has put into a program does not disturb it, and the next agent takes it out, whether it
/// puts something of the same kind in or not.
#[test]
fn root_code_of_a_killed_agent_is_taken_out() {
    let directory = Directory::new();
    let program = directory.copy(&fixture("httpserver"), "shop");
    let (shop, address) = server(&program);
    let pid = shop.pid();
    let config = directory.file("gospect.toml");
    let start = |backend: &str| {
        let exe = path_text(&program);
        let file = format!("[[service]]\nmatch = {{ exe = \"{exe}\" }}\nbackend = \"{backend}\"\n");
        let agent = Agent::start(&config, &file, &[]);
        let process = agent.wait(pid, "watched", is_watched);
        assert_eq!(process["capture"]["backend"], backend, "{process:#}");
        ask(&address, "/sum?n=3");
        agent.wait(pid, "its request", |process| process["spans"]["made"] == 1);
        agent
    };
    for next in ["trampoline", "uprobe"] {
        let mut agent = start("trampoline");
        agent.running.signal("KILL");
        agent.running.wait(LIMIT);
        assert!(has_leftovers(pid));
        ask(&address, "/sum?n=3");
        let agent = start(next);
        assert_eq!(has_leftovers(pid), next == "trampoline");
        agent.stop();
        assert!(!has_leftovers(pid));
        ask(&address, "/sum?n=3");
    }
}

/// Metrics and spans over gRPC, as over HTTP.
#[test]
fn root_a_collector_is_told_over_grpc() {
    let directory = Directory::new();
    let collector = Collector::of("grpc", &directory.file("got.json"), "127.0.0.1:0");
    let program = directory.copy(&fixture("httpserver"), "shop");
    let (shop, address) = server(&program);
    let file = format!(
        "[agent]\nexport = \"{}\"\nprotocol = \"grpc\"\ninterval = \"1s\"\n\
         [[service]]\nmatch = {{ exe = \"{}\" }}\n",
        collector.endpoint,
        path_text(&program)
    );
    let agent = Agent::start(&directory.file("gospect.toml"), &file, &[]);
    agent.wait(shop.pid(), "watched", is_watched);
    ask(&address, "/sum?n=3");
    agent.wait(shop.pid(), "its request", |process| process["spans"]["made"] == 1);
    agent.stop();
    let received: Vec<String> = collector.stop().iter().map(Value::to_string).collect();
    for name in ["http.server.request.duration", "go.memory.used", "gospect.agent.cpu.time"] {
        let name = format!("\"name\":\"{name}\"");
        assert!(received.iter().any(|line| line.contains(&name)), "{name}: {received:?}");
    }
    let spans: Vec<_> = received.iter().filter(|line| line.contains("resourceSpans")).collect();
    assert_eq!(spans.len(), 1);
    assert!(spans[0].contains("\"name\":\"GET /sum\""), "{spans:?}");
}
