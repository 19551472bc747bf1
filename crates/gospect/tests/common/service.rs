//! The agent as tests run it: its configuration, its port, and a collector to send to.
#![allow(dead_code, reason = "each test uses some of it")]

use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::{Fixture, Recipe, Running, signal_process, toolchain};

/// How long one thing may take before a test gives up.
pub const LIMIT: Duration = Duration::from_secs(120);

/// How many programs may wait for their plan in vain on a loaded machine.
const ATTEMPTS: usize = 10;

/// What the collector's modules are written for.
const GO: &str = "1.26.6";

/// `gospect agent`, with the address of its port.
pub struct Agent {
    /// The process.
    pub running: Running,
    /// Where it serves.
    pub address: String,
}

impl Agent {
    /// Starts one with a configuration file of this text, which is completed by where to listen.
    pub fn start(config: &Path, text: &str, command: &[&str]) -> Self {
        Self::with(config, text, command, &[])
    }

    /// The same with variables of the environment.
    pub fn with(config: &Path, text: &str, command: &[&str], variables: &[(&str, &str)]) -> Self {
        write(config, text);
        let mut line = Command::new(env!("CARGO_BIN_EXE_gospect"));
        line.arg("agent").arg("--config").arg(config);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OTEL_")) {
            line.env_remove(name);
        }
        line.envs(variables.iter().copied());
        if !command.is_empty() {
            line.arg("--").args(command);
        }
        Self::of(Running::spawn(line))
    }

    /// One that was started in another way.
    pub fn of(running: Running) -> Self {
        let said = running.wait_error_line(LIMIT, |line| line.contains("serving http://"));
        let address = said.split("http://").nth(1).and_then(|rest| rest.split('/').next());
        Self { address: address.expect("an address").to_owned(), running }
    }

    /// What `path` answers.
    pub fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("a connection");
        stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").expect("to ask");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.0 200"), "{path}: {head}");
        body.to_owned()
    }

    /// What it says of itself.
    pub fn status(&self) -> Value {
        serde_json::from_str(&self.get("/status")).expect("JSON")
    }

    /// What it says of the process `pid`; null when it knows none.
    pub fn process(&self, pid: u32) -> Value {
        let status = self.status();
        let processes = status["processes"].as_array().expect("a list");
        processes.iter().find(|process| process["pid"] == pid).cloned().unwrap_or_default()
    }

    /// Waits until it says of `pid` what is wanted, and gives it.
    #[track_caller]
    pub fn wait(&self, pid: u32, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let process = self.process(pid);
            if is_so(&process) {
                return process;
            }
            let said = self.running.stderr();
            assert!(start.elapsed() < LIMIT, "{what}: {process:#}\n{said}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The one process of a service, once it tells of it.
    pub fn pid_of(&self, service: &str) -> u32 {
        let start = Instant::now();
        loop {
            let status = self.status();
            let all = status["processes"].as_array().expect("a list");
            let found: Vec<_> = all.iter().filter(|one| one["service"] == service).collect();
            if let [process] = found[..] {
                return process["pid"].as_u64().and_then(|pid| pid.try_into().ok()).expect("a pid");
            }
            assert!(found.is_empty() && start.elapsed() < LIMIT, "{service}: {status:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Starts a program until it carries its plan by itself.
    pub fn carrying(&self, start: impl Fn() -> (Running, String)) -> (Running, String) {
        for _ in 0..ATTEMPTS {
            let (running, address) = start();
            let process = self.wait(running.pid(), "watched", is_watched);
            if process["capture"]["way"] == "preload" {
                return (running, address);
            }
        }
        panic!("no program carries its plan: {:#}\n{}", self.status(), self.running.stderr());
    }

    /// Ends it, and gives what it said.
    pub fn stop(mut self) -> String {
        self.running.signal("TERM");
        let status = self.running.wait(LIMIT);
        assert!(status.success(), "{status}: {}", self.running.stderr());
        self.running.stderr()
    }
}

/// Whether there is a capture of a process, by what the agent says of it.
pub fn is_watched(process: &Value) -> bool {
    process["capture"]["backend"].is_string()
}

/// What the agent has started, which goes on when the agent ends.
pub struct Started(pub u32);

impl Drop for Started {
    fn drop(&mut self) {
        if Path::new("/proc").join(self.0.to_string()).exists() {
            signal_process(self.0, "KILL");
        }
    }
}

/// Where a fixture says that it listens.
pub fn listening(running: &Running) -> String {
    let line = running.wait_for("listening", LIMIT);
    line["addr"].as_str().expect("an address").to_owned()
}

/// A program with the library in it, through the variable of its loader.
pub fn preloaded(program: &Path, socket: &Path) -> (Running, String) {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", gospect_preload::PATH).env("GOSPECT_AGENT_SOCKET", socket);
    let running = Running::spawn(command);
    let address = listening(&running);
    (running, address)
}

/// Writes a configuration that listens on a free port of loopback.
pub fn write(config: &Path, text: &str) {
    let head = if text.contains("[agent]") { "" } else { "[agent]\n" };
    let text =
        format!("{head}{text}").replacen("[agent]\n", "[agent]\nlisten = \"127.0.0.1:0\"\n", 1);
    std::fs::write(config, text).expect("a file");
}

/// Asks an HTTP server of the fixtures for a path.
pub fn ask(address: &str, path: &str) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: test\r\n\r\n").expect("to ask");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
}

/// OpenTelemetry's Collector: receives OTLP, writes JSON Lines.
pub struct Collector {
    running: Running,
    file: PathBuf,
    /// Where it listens.
    pub endpoint: String,
}

impl Collector {
    /// Starts one that takes HTTP on `address`, which may have port 0, and writes to `file`.
    pub fn start(file: &Path, address: &str) -> Self {
        Self::of("http", file, address)
    }

    /// The same for `grpc` or `http`.
    pub fn of(protocol: &str, file: &Path, address: &str) -> Self {
        let recipe = Recipe::new("exe").arg("-ldflags=-s -w");
        let program = Fixture::module("collector", &toolchain(GO), &recipe);
        let both = json!({"receivers": ["otlp"], "exporters": ["file"]});
        // JSON is YAML.
        let config = json!({
            "receivers": {"otlp": {"protocols": {protocol: {"endpoint": address}}}},
            "exporters": {"file": {"path": file, "append": true}},
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {"traces": both, "metrics": both},
            },
        });
        let started = format!("Starting {} server", protocol.to_uppercase());
        let running = Running::start(&program, &[format!("--config=yaml:{config}")]);
        let line = running.wait_error_line(LIMIT, |line| line.contains(&started));
        let (_, port) = line.rsplit_once("\"127.0.0.1:").unwrap_or_else(|| panic!("{line}"));
        let port = port.trim_end_matches(['"', '}']);
        running.wait_error_line(LIMIT, |line| line.contains("Everything is ready"));
        Self { running, file: file.to_owned(), endpoint: format!("http://127.0.0.1:{port}") }
    }

    /// Ends it, and gives what it wrote.
    pub fn stop(mut self) -> Vec<Value> {
        self.running.signal("TERM");
        assert!(self.running.wait(LIMIT).success(), "{}", self.running.stderr());
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

/// Debian's Prometheus, which scrapes one address.
pub struct Prometheus {
    _running: Running,
    address: String,
}

impl Prometheus {
    /// Starts one that keeps its files in `directory`.
    pub fn start(directory: &Path, target: &str) -> Self {
        let config = directory.join("prometheus.yml");
        let jobs = json!([{"job_name": "gospect", "static_configs": [{"targets": [target]}]}]);
        // JSON is YAML.
        let text = json!({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs});
        std::fs::write(&config, text.to_string()).expect("a file");
        let address = free_address();
        let options = [
            format!("--config.file={}", config.display()),
            format!("--storage.tsdb.path={}", directory.join("prometheus").display()),
            format!("--web.listen-address={address}"),
        ];
        let running = Running::start(Path::new("/usr/bin/prometheus"), &options);
        running.wait_error_line(LIMIT, |line| line.contains("Server is ready"));
        Self { _running: running, address }
    }

    /// The series that a query gives now: labels and value.
    pub fn query(&self, query: &str) -> Vec<(Value, String)> {
        let escape = |byte: u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        };
        let query: String = query.bytes().map(escape).collect();
        let mut stream = TcpStream::connect(&self.address).expect("a connection");
        stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
        write!(stream, "GET /api/v1/query?query={query} HTTP/1.0\r\n\r\n").expect("to ask");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let body: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"));
        let series = body["data"]["result"].as_array().unwrap_or_else(|| panic!("{body}"));
        let value = |one: &Value| one["value"][1].as_str().expect("a value").to_owned();
        series.iter().map(|one| (one["metric"].clone(), value(one))).collect()
    }
}

/// An address of loopback that nobody listens on.
pub fn free_address() -> String {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    free.local_addr().expect("an address").to_string()
}
