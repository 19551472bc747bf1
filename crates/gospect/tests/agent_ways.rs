//! `gospect agent`: which processes it takes, what it leaves in them, and gRPC to a collector.

mod common;
#[path = "common/service.rs"]
mod service;

use address::ReadMemory as _;
use capture_trampoline::has_leftovers;
use common::{Directory, fixture, path_text, until};
use process::{FileSource, Process};
use serde_json::Value;
use service::{Agent, Collector, LIMIT, Started, ask, is_watched, listening, preloaded};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use testkit::{Fixture, Mode, Running, newest};

/// An agent that begins takes out what others have left: while a test looks for that, no other test has one begin.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server of our own, and where it listens.
fn server(program: &Path) -> (Running, String) {
    let running = Running::start(program, &[] as &[&str]);
    let address = listening(&running);
    (running, address)
}

/// Of two processes of one file each belongs to the service that names its port; a third one to none.
#[test]
fn root_services_are_told_apart_by_port() {
    let _alone = alone();
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
    let _alone = alone();
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

/// A service in each of the three ways, with the agent that got it there killed.
struct Orphans {
    _started: Started,
    _running: [Running; 2],
    /// Process, address and file of each.
    all: [(u32, String, PathBuf); 3],
}

impl Orphans {
    /// The file names a service for each; what runs already carries trampolines too.
    fn new(directory: &Directory, config: &Path, file: &str) -> Self {
        let [started, running, asking] =
            ["started", "running", "asking"].map(|name| directory.file(name));
        let (shop, shop_address) = server(&running);
        let mut agent = Agent::start(config, file, &[path_text(&started)]);
        let started_address = listening(&agent.running);
        let child = Started(agent.pid_of("started"));
        until("the plans", || agent.status()["preload"]["ready"] == 3);
        let socket = directory.file("run/agent.sock");
        let (asked, asked_address) = agent.carrying(|| preloaded(&asking, &socket));
        let all = [
            (child.0, started_address, started),
            (shop.pid(), shop_address, running),
            (asked.pid(), asked_address, asking),
        ];
        for ((pid, address, _), way) in all.iter().zip(["launch", "attach", "preload"]) {
            let process = agent.wait(*pid, "watched", is_watched);
            let capture = &process["capture"];
            let found = (&capture["way"], &capture["backend"]);
            assert_eq!(found, (&way.into(), &"trampoline".into()), "{process:#}");
            ask(address, "/sum?n=3");
            agent.wait(*pid, "its request", |process| process["spans"]["made"] == 1);
        }
        agent.running.signal("KILL");
        // Its output is the child's too, and stays open.
        until("its end", || !agent.running.is_running());
        let orphans = Self { _started: child, _running: [shop, asked], all };
        for (pid, address, _) in &orphans.all {
            assert!(has_leftovers(*pid));
            ask(address, "/sum?n=3");
        }
        orphans
    }

    /// That nothing of gospect is left and each program answers.
    fn assert_clean(&self) {
        for (pid, address, program) in &self.all {
            until("nothing to be left", || !has_leftovers(*pid));
            assert_eq!(changed_code(*pid, program), 0, "{}", program.display());
            ask(address, "/sum?n=3");
        }
    }
}

/// Bytes of a process's code that are not its file's.
fn changed_code(pid: u32, program: &Path) -> usize {
    let source = FileSource::open(program).expect("the program");
    let executable = binary::Executable::open(Arc::new(source)).expect("an executable");
    let image = executable.image();
    let process = Process::open(pid).expect("the process");
    let bias = process.bias(image.base()).expect("where it lies");
    let code = image.segments().iter().find(|segment| segment.kind == 1 && segment.flags & 1 != 0);
    let code = code.expect("code");
    let file = image.read_vec(code.address, code.file_size).expect("its bytes");
    let mut live = vec![0; file.len()];
    let memory = process.memory().expect("its memory");
    memory.read_memory(bias.to_avma(code.address), &mut live).expect("its bytes in memory");
    file.iter().zip(&live).filter(|(a, b)| a != b).count()
}

/// However a program came to carry code: it runs on when the agent is killed, the next agent finds it, watches it
/// again, and leaves nothing in it; also when the next agent is to leave it alone.
#[test]
fn root_nothing_is_orphaned_by_a_killed_agent() {
    let _alone = alone();
    let directory = Directory::new();
    let (fixed, pie) = (fixture("httpserver"), Fixture::build("httpserver", &newest(), Mode::Pie));
    for (name, program) in [("started", &fixed), ("running", &fixed), ("asking", &pie)] {
        directory.copy(program, name);
    }
    let config = directory.file("gospect.toml");
    let head = format!("[agent]\nsocket = \"{}\"\n", directory.file("run/agent.sock").display());
    let service = |(name, rest): (&str, &str)| {
        let path = directory.file(name);
        format!(
            "[[service]]\nname = \"{name}\"\nmatch = {{ exe = \"{}\" }}\n{rest}\n",
            path.display()
        )
    };
    let file = head.clone()
        + &[("started", ""), ("running", "backend = \"trampoline\""), ("asking", "")]
            .map(service)
            .concat();

    let orphans = Orphans::new(&directory, &config, &file);
    let agent = Agent::start(&config, &file, &[]);
    for ((pid, address, _), backend) in orphans.all.iter().zip(["uprobe", "trampoline", "uprobe"]) {
        let process = agent.wait(*pid, "found again", is_watched);
        assert_eq!(process["capture"]["backend"], backend, "{process:#}");
        assert_eq!(has_leftovers(*pid), backend == "trampoline");
        ask(address, "/sum?n=3");
        agent.wait(*pid, "its request", |process| process["spans"]["made"] == 1);
    }
    agent.stop();
    orphans.assert_clean();
    drop(orphans);

    // One that is watched by metrics only, one that waits to be asked, one that is no service's.
    let orphans = Orphans::new(&directory, &config, &file);
    let file = head
        + &[("started", "backend = \"none\""), ("asking", "inject = [\"preload\"]")]
            .map(service)
            .concat();
    let agent = Agent::start(&config, &file, &[]);
    orphans.assert_clean();
    let (asked, running) = (orphans.all[2].0, orphans.all[1].0);
    let process = agent.wait(asked, "known", |process| process["capture"]["reason"].is_string());
    assert!(!is_watched(&process), "{process:#}");
    assert_eq!(agent.process(running), Value::Null);
    agent.stop();
}

/// Metrics and spans over gRPC, as over HTTP.
#[test]
fn root_a_collector_is_told_over_grpc() {
    let _alone = alone();
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
