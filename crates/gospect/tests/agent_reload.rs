//! `gospect agent` and another configuration: one that is being written, one that asks for a place that is taken.
//! Needs root.

mod common;
#[path = "common/service.rs"]
mod service;

use common::{Directory, fixture, path_text, until};
use serde_json::Value;
use service::{Agent, LIMIT, free_address, is_watched, listening};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use testkit::Running;

/// A program of ours by that name.
fn server(directory: &Directory) -> (std::path::PathBuf, Running, String) {
    let program = directory.copy(&fixture("httpserver"), "shop");
    let running = Running::start(&program, &[] as &[&str]);
    let address = listening(&running);
    (program, running, address)
}

fn shop(program: &Path, rest: &str) -> String {
    format!("[[service]]\nname = \"shop\"\nmatch = {{ exe = \"{}\" }}\n{rest}", path_text(program))
}

fn error(agent: &Agent) -> String {
    agent.status()["config"]["error"].as_str().unwrap_or_default().to_owned()
}

/// A file that is empty when the signal comes is about to be written: as it stands it would mean every program. It
/// changes nothing, and is followed when it is whole.
#[test]
fn root_a_file_that_is_being_written_is_waited_for() {
    let directory = Directory::new();
    let (program, running, _) = server(&directory);
    let config = directory.file("gospect.toml");
    let agent = Agent::start(&config, &shop(&program, ""), &[]);
    agent.wait(running.pid(), "watched", is_watched);

    std::fs::write(&config, "").expect("a file");
    agent.running.signal("HUP");
    until("the reason", || error(&agent).contains("it is empty"));
    let process = agent.process(running.pid());
    assert!(is_watched(&process), "{process:#}");
    assert_eq!(process["service"], "shop");

    // Written in place: it is empty when the signal comes.
    let whole = |rest: &str| format!("[agent]\nlisten = \"127.0.0.1:0\"\n{}", shop(&program, rest));
    std::fs::write(&config, whole("")).expect("a file");
    agent.running.signal("HUP");
    until("all to be well", || agent.status()["config"]["error"].is_null());
    std::fs::write(&config, "").expect("a file");
    agent.running.signal("HUP");
    std::fs::write(&config, whole("budget = 7\n")).expect("a file");
    until("the limit", || {
        // On a machine that is busy for seconds it was empty for too long.
        if error(&agent).contains("it is empty") {
            agent.running.signal("HUP");
        }
        agent.status()["processes"][0]["budget"]["limit_percent"] == 7.0
    });
    agent.stop();
}

/// A port or a socket that somebody else has is told, nothing else is lost by it, and it is taken when it is free.
#[test]
fn root_a_place_that_is_taken_is_tried_again() {
    let directory = Directory::new();
    let (program, running, _) = server(&directory);
    let socket = |name: &str| directory.file(name);
    let file = |listen: &str, name: &str, rest: &str| {
        let socket = path_text(&socket(name)).to_owned();
        let agent = format!("[agent]\nlisten = \"{listen}\"\nsocket = \"{socket}\"\n");
        agent + &shop(&program, rest)
    };
    let [own, others] = [free_address(), free_address()];
    let config = directory.file("gospect.toml");
    std::fs::write(&config, file(&own, "own", "")).expect("a file");
    let start = |config: &Path| {
        Running::start(
            Path::new(env!("CARGO_BIN_EXE_gospect")),
            &["agent", "--config", path_text(config)],
        )
    };
    let mut agent = Agent::of(start(&config));
    agent.wait(running.pid(), "watched", is_watched);

    // Another agent, which looks at nothing.
    let other_config = directory.file("other.toml");
    let nothing = "[[service]]\nmatch = { exe = \"/nothing\" }\n";
    let other_socket = path_text(&socket("other")).to_owned();
    let text = format!("[agent]\nlisten = \"{others}\"\nsocket = \"{other_socket}\"\n{nothing}");
    std::fs::write(&other_config, text).expect("a file");
    let other = Agent::of(start(&other_config));
    until("its socket", || socket("other").exists());

    std::fs::write(&config, file(&others, "other", "budget = 7\n")).expect("a file");
    agent.running.signal("HUP");
    until("the reason", || error(&agent).contains(&format!("failed to listen on {others}")));
    let status = agent.status();
    assert_eq!(status["preload"]["socket"], path_text(&socket("own")), "{status:#}");
    let why = status["preload"]["error"].as_str().expect("a reason");
    assert!(why.contains("in use"), "{why}");
    assert!(socket("own").exists());
    let is_followed = |it: &Value| is_watched(it) && it["budget"]["limit_percent"] == 7.0;
    agent.wait(running.pid(), "its budget", is_followed);

    other.stop();
    agent.running.signal("HUP");
    until("the other port", || TcpStream::connect(&others).is_ok());
    agent.address = others;
    until("all of it", || agent.status()["config"]["error"].is_null());
    let preload = agent.status()["preload"].clone();
    assert_eq!((&preload["socket"], &preload["error"]), (&other_socket.into(), &Value::Null));
    assert!(!socket("own").exists());
    agent.stop();
    assert!(!socket("other").exists());
}

/// Headers are told that the service asks for, and secrets in them are not.
#[test]
fn root_headers_are_told_where_a_service_asks_for_them() {
    let directory = Directory::new();
    let (program, running, address) = server(&directory);
    let config = directory.file("gospect.toml");
    let rest = "headers = [\"User-Agent\", \"X-Api-Token\"]\n";
    let agent = Agent::start(&config, &shop(&program, rest), &[]);
    agent.wait(running.pid(), "watched", is_watched);
    let mut stream = TcpStream::connect(&address).expect("a connection");
    stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
    let head = "Host: test\r\nUser-Agent: tester/1\r\nX-Api-Token: s3cret\r\nX-Other-Name: no\r\n";
    write!(stream, "GET /sum?n=3 HTTP/1.0\r\n{head}\r\n").expect("to ask");
    stream.read_to_end(&mut Vec::new()).expect("an answer");
    let process = agent.wait(running.pid(), "its request", |it| it["spans"]["made"] == 1);
    let attributes = &process["slowest"][0]["spans"][0]["attributes"];
    let headers: Vec<String> = attributes
        .as_object()
        .expect("attributes")
        .iter()
        .filter(|(name, _)| name.starts_with("http.request.header."))
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    let expected = [
        "http.request.header.user-agent \"tester/1\"",
        "http.request.header.x-api-token \"REDACTED\"",
    ];
    assert_eq!(headers, expected, "{attributes:#}");
    agent.stop();
}
