//! `gospect agent` with everything that belongs to it: services that are started, attached to and preloaded, Debian's
//! caddy under `/etc/ld.so.preload`, OpenTelemetry's Collector and Prometheus.

mod common;
#[path = "common/service.rs"]
mod service;

use common::{Directory, fixture, path_text, text, until};
use serde_json::Value;
use service::{
    Agent, Collector, LIMIT, Prometheus, Started, ask, free_address, listening, preloaded,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use testkit::{Fixture, Mode, Running, newest, toolchain};

/// A service: its process, where it listens, what it is asked.
struct Service {
    name: &'static str,
    pid: u32,
    address: String,
    requests: usize,
}

/// Caddy in a mount namespace with an `/etc/ld.so.preload` of its own, where the agent's socket is where the library
/// looks by itself. It is the process that is started: all others before it become it.
fn caddy(directory: &Path, program: &Path) -> (Running, String) {
    let address = free_address();
    let over = directory.join("over");
    let script = r#"set -e
        mkdir -p "$OVER"; mount -t tmpfs none "$OVER"; mkdir "$OVER/upper" "$OVER/work"
        mount -t overlay none -o "lowerdir=/etc,upperdir=$OVER/upper,workdir=$OVER/work" /etc
        mount -t tmpfs -o mode=755 none /run
        mkdir /run/gospect; mount --bind "$SOCKETS" /run/gospect
        echo "$LIBRARY" >/etc/ld.so.preload
        exec "$PROGRAM" respond --listen "$ADDRESS" --body hello"#;
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", script]);
    command.env("OVER", &over).env("SOCKETS", directory.join("run")).env("PROGRAM", program);
    command.env("LIBRARY", gospect_preload::PATH).env("ADDRESS", &address);
    command.env("XDG_CONFIG_HOME", directory).env("XDG_DATA_HOME", directory);
    let mut running = Running::spawn(command);
    until("caddy to listen", || {
        assert!(running.is_running(), "{}", running.stderr());
        TcpStream::connect(&address).is_ok()
    });
    (running, address)
}

/// What a collector has received.
#[derive(Default)]
struct Received {
    /// Ids of server spans, by service and process.
    spans: BTreeMap<(String, u64), Vec<String>>,
    /// Spans of other kinds.
    others: Vec<Value>,
    /// Names of metrics by service.
    metrics: BTreeMap<String, BTreeSet<String>>,
    /// The last sum of requests of each process.
    requests: BTreeMap<(String, u64), u64>,
    /// Every point once: service, process, metric, attributes, time.
    points: BTreeSet<String>,
    twice: Vec<String>,
}

fn list(value: &Value, key: &str) -> Vec<Value> {
    value[key].as_array().cloned().unwrap_or_default()
}

/// Protobuf's JSON has 64-bit numbers in texts.
fn whole(value: &Value) -> u64 {
    let text = value.as_str().and_then(|text| text.parse().ok());
    text.or_else(|| value.as_u64()).unwrap_or_else(|| panic!("no number: {value}"))
}

/// Which service and process something comes from.
fn origin(of: &Value) -> (String, u64) {
    let attributes = list(&of["resource"], "attributes");
    let named = |key: &str| {
        let mut all = attributes.iter().filter(|pair| pair["key"] == key);
        let first = all.next().unwrap_or_else(|| panic!("no {key}: {of}"))["value"].clone();
        assert!(all.next().is_none(), "{key} twice: {of}");
        first
    };
    (text(&named("service.name")["stringValue"]), whole(&named("process.pid")["intValue"]))
}

impl Received {
    fn of(lines: &[Value]) -> Self {
        let mut received = Self::default();
        for line in lines {
            for resource in list(line, "resourceSpans") {
                let from = origin(&resource);
                let scopes = list(&resource, "scopeSpans");
                for span in scopes.iter().flat_map(|scope| list(scope, "spans")) {
                    match whole(&span["kind"]) {
                        2 => received.spans.entry(from.clone()).or_default().push(format!(
                            "{} {}",
                            text(&span["traceId"]),
                            text(&span["spanId"])
                        )),
                        _ => received.others.push(span),
                    }
                }
            }
            for resource in list(line, "resourceMetrics") {
                let from = origin(&resource);
                let scopes = list(&resource, "scopeMetrics");
                for metric in scopes.iter().flat_map(|scope| list(scope, "metrics")) {
                    received.metric(&from, &metric);
                }
            }
        }
        received
    }

    fn metric(&mut self, from: &(String, u64), metric: &Value) {
        let name = text(&metric["name"]);
        self.metrics.entry(from.0.clone()).or_default().insert(name.clone());
        let kinds = ["gauge", "sum", "histogram"];
        let points: Vec<_> =
            kinds.iter().flat_map(|kind| list(&metric[kind], "dataPoints")).collect();
        for point in &points {
            let (attributes, time) = (&point["attributes"], &point["timeUnixNano"]);
            let key = format!("{from:?} {name} {attributes} {time}");
            if !self.points.insert(key.clone()) {
                self.twice.push(key);
            }
        }
        if name == "http.server.request.duration" {
            let sum = points.iter().map(|point| whole(&point["count"])).sum();
            self.requests.insert(from.clone(), sum);
        }
    }
}

/// Every service's metrics and spans arrive, under its name, once, whichever way it is watched.
#[test]
fn root_services_of_every_kind_arrive_once() {
    let directory = Directory::new();
    let collector = Collector::start(&directory.file("got.json"), "127.0.0.1:0");
    let program = fixture("httpserver");
    let (started, running) =
        (directory.copy(&program, "started"), directory.copy(&program, "running"));
    let pie = Fixture::build("httpserver", &newest(), Mode::Pie);
    let asking = directory.copy(&pie, "asking");
    let debians = directory.copy(Path::new("/usr/bin/caddy"), "caddy");
    let socket = directory.file("run/agent.sock");
    let head = format!(
        "[agent]\nsocket = \"{}\"\nexport = \"{}\"\ninterval = \"1s\"\n",
        path_text(&socket),
        collector.endpoint
    );
    let services =
        [("started", &started), ("running", &running), ("asking", &asking), ("caddy", &debians)];
    let services = services.map(|(name, path)| {
        format!("[[service]]\nname = \"of {name}\"\nmatch = {{ exe = \"{}\" }}\n", path_text(path))
    });
    let file = head + &services.concat();

    let attached = Running::start(&running, &[] as &[&str]);
    let attached_address = listening(&attached);
    let config = directory.file("gospect.toml");
    let mut agent = Agent::start(&config, &file, &[path_text(&started)]);
    let started_address = listening(&agent.running);
    let started = Started(agent.pid_of("of started"));
    until("plans of all that the file names", || agent.status()["preload"]["ready"] == 4);
    let (asking, asking_address) = agent.carrying(|| preloaded(&asking, &socket));
    let (caddy, caddy_address) = agent.carrying(|| caddy(directory.path(), &debians));
    let prometheus = Prometheus::start(directory.path(), &agent.address);

    let made = |name, pid, address: &str, requests| {
        let address = address.to_owned();
        Service { name, pid, address, requests }
    };
    let all = [
        made("of started", started.0, &started_address, 30),
        made("of running", attached.pid(), &attached_address, 40),
        made("of asking", asking.pid(), &asking_address, 50),
        made("of caddy", caddy.pid(), &caddy_address, 60),
    ];
    let ways = [
        ("launch", "trampoline"),
        ("attach", "uprobe"),
        ("preload", "trampoline"),
        ("preload", "trampoline"),
    ];
    for (service, (way, backend)) in all.iter().zip(ways) {
        let is_watched = |process: &Value| process["capture"]["backend"].is_string();
        let process = agent.wait(service.pid, "watched", is_watched);
        let capture = &process["capture"];
        assert_eq!(process["service"], service.name);
        assert_eq!((&capture["way"], &capture["backend"]), (&way.into(), &backend.into()));
    }
    // All at the same time.
    std::thread::scope(|scope| {
        for service in &all {
            scope.spawn(|| (0..service.requests).for_each(|_| ask(&service.address, "/sum?n=3")));
        }
    });
    for service in &all {
        let whole = |process: &Value| process["spans"]["made"] == service.requests;
        let process = agent.wait(service.pid, "all of its requests", whole);
        assert_eq!(
            (&process["spans"]["lost"], &process["spans"]["truncated"]),
            (&0.into(), &0.into())
        );
    }
    in_prometheus(&prometheus, &all);

    let status = agent.status();
    let pids = list(&status, "processes").into_iter().map(|process| process["pid"].as_u64());
    let mut pids: Vec<_> = pids.map(Option::unwrap_or_default).collect();
    let mut expected: Vec<_> = all.iter().map(|service| u64::from(service.pid)).collect();
    pids.sort_unstable();
    expected.sort_unstable();
    assert_eq!(pids, expected, "{status:#}");
    agent.running.signal("TERM");
    until("the agent to end", || !agent.running.is_running());
    for service in &all {
        ask(&service.address, "/sum?n=3");
    }
    // The command was the agent's child and has its output.
    drop(started);
    let end = agent.running.wait(LIMIT);
    assert!(end.success(), "{end}: {}", agent.running.stderr());
    in_collector(&Received::of(&collector.stop()), &all);
}

/// What Prometheus has after some scrapes: one process of each service, with its requests.
fn in_prometheus(prometheus: &Prometheus, services: &[Service]) {
    let labelled = |query: &str| {
        let found = prometheus.query(query);
        let key = |labels: &Value| (text(&labels["service"]), text(&labels["pid"]));
        found.into_iter().map(|(labels, value)| (key(&labels), value)).collect::<Vec<_>>()
    };
    let requests = "sum by (service, pid) (http_server_request_duration_seconds_count)";
    let mut expected: Vec<_> = services
        .iter()
        .map(|service| {
            let key = (service.name.to_owned(), service.pid.to_string());
            (key, service.requests.to_string())
        })
        .collect();
    expected.sort();
    let mut found = Vec::new();
    let start = std::time::Instant::now();
    while found != expected {
        assert!(start.elapsed() < LIMIT, "{found:?} instead of {expected:?}");
        std::thread::sleep(std::time::Duration::from_millis(100));
        found = labelled(requests);
        found.sort();
    }
    let expected: Vec<_> = expected.into_iter().map(|(key, _)| key).collect();
    for name in ["go_goroutines", "go_memstats_heap_alloc_bytes", "process_cpu_seconds_total"] {
        let mut found = labelled(name);
        found.sort();
        assert!(
            found.iter().all(|(_, value)| value.parse::<f64>().is_ok_and(|value| value >= 0.0))
        );
        assert_eq!(found.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), expected, "{name}");
    }
}

/// What the collector has at the end: each request as one span and counted once, of the process that served it.
fn in_collector(received: &Received, services: &[Service]) {
    assert_eq!(received.others, Vec::<Value>::new());
    assert_eq!(received.twice, Vec::<String>::new());
    let key = |service: &Service| (service.name.to_owned(), u64::from(service.pid));
    let ids: Vec<&String> = received.spans.values().flatten().collect();
    assert_eq!(ids.len(), ids.iter().collect::<BTreeSet<_>>().len(), "a span came twice");
    let counts: BTreeMap<_, _> =
        received.spans.iter().map(|(from, ids)| (from.clone(), ids.len())).collect();
    let expected: BTreeMap<_, _> =
        services.iter().map(|service| (key(service), service.requests)).collect();
    assert_eq!(counts, expected);
    let expected: BTreeMap<_, _> =
        services.iter().map(|service| (key(service), service.requests as u64)).collect();
    assert_eq!(received.requests, expected);
    let names: BTreeSet<&str> = received.metrics.keys().map(String::as_str).collect();
    let own = std::iter::once("gospect-agent");
    assert_eq!(names, services.iter().map(|service| service.name).chain(own).collect());
    for service in services {
        let metrics = &received.metrics[service.name];
        for name in ["go.goroutine.count", "go.memory.used", "process.cpu.time"] {
            assert!(metrics.contains(name), "{name} of {}: {metrics:?}", service.name);
        }
    }
}

/// A plan is of what a file holds, not of its name or its number: one that is written over while nothing runs it has
/// both still.
#[test]
fn root_a_file_that_is_written_over_is_planned_anew() {
    let directory = Directory::new();
    let program = directory.file("shop");
    let file = format!("[[service]]\nmatch = {{ exe = \"{}\" }}\n", path_text(&program));
    let agent = Agent::start(&directory.file("gospect.toml"), &file, &[]);
    for version in ["1.26.6", "1.24.11"] {
        let built = Fixture::build("httpserver", &toolchain(version), Mode::Exe);
        std::fs::copy(built, &program).expect("a copy into the same file");
        let running = Running::start(&program, &[] as &[&str]);
        let address = listening(&running);
        let is_watched = |process: &Value| process["capture"]["backend"].is_string();
        agent.wait(running.pid(), "watched", is_watched);
        ask(&address, "/sum?n=3");
        let served = |process: &Value| process["spans"]["made"] == 1;
        let process = agent.wait(running.pid(), "its request", served);
        assert_eq!(process["requests"][0]["name"], "GET /sum", "{process:#}");
        let exposition = agent.get("/metrics");
        assert!(exposition.contains(&format!("version=\"go{version}\"")), "{exposition}");
        drop(running);
    }
    agent.stop();
}
