//! Runtime metrics of programs that others built - Debian's prometheus and caddy, stripped, Go
//! 1.19 - against what these serve on their own `/metrics`.

mod subject;

use binary::Executable;
use binary::layout::RuntimeLayouts;
use inspect::metrics::{Confirmed, MetricsPlan, Options, RuntimeMetrics};
use process::{Process, ProcessMemory};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::Running;

/// Rounds in which no collection may happen between; others are done again.
const ROUNDS: usize = 5;

/// Goroutines that a server has only while it answers us.
const ANSWERING: f64 = 16.0;

type Served = BTreeMap<String, f64>;

/// A server, its own account of itself, and ours.
struct Server {
    _running: Running,
    connection: BufReader<TcpStream>,
    memory: ProcessMemory,
    plan: MetricsPlan,
    confirmed: Confirmed,
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn directory(name: &str) -> PathBuf {
    let place = format!("gospect-test-{name}-{}", std::process::id());
    let directory = std::env::temp_dir().join(place);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

impl Server {
    fn start(program: &str, command: Command, address: &str) -> Self {
        let path = Path::new(program);
        assert!(path.exists(), "no {program}: run scripts/setup test");
        let running = Running::spawn(command);
        let connection = connect(address, &running);
        let process = Process::open(running.pid()).unwrap();
        let executable = Executable::open(Arc::new(process.executable().unwrap())).unwrap();
        assert!(executable.is_stripped(), "{program} has symbols");
        let layouts = RuntimeLayouts::new(executable.go_version(), None);
        let plan = MetricsPlan::prepare(&executable, &layouts).unwrap();
        let memory = process.memory().unwrap();
        let bias = process.bias(executable.image().base()).unwrap();
        let confirmed = plan.confirm(&memory, bias);
        assert!(confirmed.is_whole(), "{program}: {:x?}", confirmed.globals());
        Self { _running: running, connection, memory, plan, confirmed }
    }

    /// What it serves, over one connection, so that the goroutines of that are always there.
    fn served(&mut self) -> Served {
        let stream = self.connection.get_mut();
        let host = stream.peer_addr().unwrap();
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let body = read_body(&mut self.connection);
        let lines = body.lines().filter(|line| line.starts_with("go_"));
        let mut served = Served::new();
        for line in lines {
            let (name, value) = line.rsplit_once(' ').unwrap();
            served.insert(name.to_owned(), value.parse().unwrap());
        }
        served
    }

    fn sample(&self) -> RuntimeMetrics {
        self.plan.sample(&self.memory, &self.confirmed, Options::default()).unwrap()
    }
}

fn connect(address: &str, running: &Running) -> BufReader<TcpStream> {
    let begun = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => {
                stream.set_read_timeout(Some(subject::LIMIT)).unwrap();
                return BufReader::new(stream);
            }
            Err(error) if begun.elapsed() > subject::LIMIT => {
                panic!("{address}: {error}; {}", running.stderr());
            }
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// The body of an HTTP/1.1 response, with a length or in chunks.
fn read_body(from: &mut BufReader<TcpStream>) -> String {
    let line = |from: &mut BufReader<TcpStream>| {
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    let status = line(from);
    assert!(status.contains(" 200 "), "{status}");
    let mut length = None;
    loop {
        let header = line(from).to_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse::<usize>().ok();
        }
    }
    let mut body = Vec::new();
    let mut take = |from: &mut BufReader<TcpStream>, count: usize| {
        let mut piece = vec![0; count];
        from.read_exact(&mut piece).unwrap();
        body.extend(piece);
    };
    match length {
        Some(length) => take(from, length),
        None => loop {
            let size = usize::from_str_radix(&line(from), 16).unwrap();
            take(from, size);
            line(from);
            if size == 0 {
                break;
            }
        },
    }
    String::from_utf8(body).unwrap()
}

/// Our figures under the names of the Prometheus client for Go.
fn named(ours: &RuntimeMetrics) -> Served {
    let (m, c, s) = (&ours.memory, &ours.collector, &ours.scheduler);
    let mut all = Served::new();
    for (name, value) in [
        ("goroutines", &s.goroutines),
        ("threads", &s.threads),
        ("memstats_alloc_bytes", &m.heap_alloc),
        ("memstats_alloc_bytes_total", &m.total_alloc),
        ("memstats_sys_bytes", &m.sys),
        ("memstats_mallocs_total", &m.mallocs),
        ("memstats_frees_total", &m.frees),
        ("memstats_heap_alloc_bytes", &m.heap_alloc),
        ("memstats_heap_sys_bytes", &m.heap_sys),
        ("memstats_heap_idle_bytes", &m.heap_idle),
        ("memstats_heap_inuse_bytes", &m.heap_inuse),
        ("memstats_heap_released_bytes", &m.heap_released),
        ("memstats_heap_objects", &m.heap_objects),
        ("memstats_stack_inuse_bytes", &m.stack_inuse),
        ("memstats_stack_sys_bytes", &m.stack_sys),
        ("memstats_mspan_inuse_bytes", &m.mspan_inuse),
        ("memstats_mspan_sys_bytes", &m.mspan_sys),
        ("memstats_mcache_inuse_bytes", &m.mcache_inuse),
        ("memstats_mcache_sys_bytes", &m.mcache_sys),
        ("memstats_buck_hash_sys_bytes", &m.buckhash_sys),
        ("memstats_gc_sys_bytes", &m.gc_sys),
        ("memstats_other_sys_bytes", &m.other_sys),
        ("memstats_next_gc_bytes", &c.heap_goal),
        ("gc_duration_seconds_count", &c.cycles),
    ] {
        let value = value.as_ref().unwrap_or_else(|why| panic!("go_{name}: {why}"));
        all.insert(format!("go_{name}"), *value as f64);
    }
    let seconds = |ns: u64| ns as f64 / 1e9;
    let last = seconds(c.last_ns.clone().unwrap());
    all.insert("go_memstats_last_gc_time_seconds".to_owned(), last);
    let sum = seconds(c.pause_total_ns.clone().unwrap());
    all.insert("go_gc_duration_seconds_sum".to_owned(), sum);
    let quantiles = c.pauses.as_ref().unwrap().quantiles();
    for (share, ns) in ["0", "0.25", "0.5", "0.75", "1"].iter().zip(quantiles) {
        all.insert(format!("go_gc_duration_seconds{{quantile=\"{share}\"}}"), seconds(ns));
    }
    all
}

/// What is outside of what was served before and after.
fn outside(before: &Served, ours: &Served, after: &Served) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, value) in ours {
        // Each client leaves out what it has not.
        let (Some(before), Some(after)) = (before.get(name), after.get(name)) else {
            wrong.push(format!("{name} is not served"));
            continue;
        };
        let slack = if name == "go_goroutines" { ANSWERING } else { value.abs() * 1e-12 };
        let (low, high) = (before.min(*after) - slack, before.max(*after) + value.abs() * 1e-12);
        if !(low..=high).contains(value) {
            wrong.push(format!("{name}: {value} is not between {before} and {after}"));
        }
    }
    wrong
}

/// What only grows.
const COUNTERS: [&str; 4] =
    ["alloc_bytes_total", "mallocs_total", "frees_total", "gc_duration_seconds"];

fn check(mut server: Server, what: &str) {
    let mut whole = 0;
    let mut complaints = Vec::new();
    let mut before = server.served();
    for _ in 0..10 * ROUNDS {
        let ours = named(&server.sample());
        let after = server.served();
        let cycles = |served: &Served| served["go_gc_duration_seconds_count"];
        let collected = cycles(&before) != cycles(&after) || cycles(&ours) != cycles(&after);
        let wrong = outside(&before, &ours, &after);
        before = after;
        if collected {
            continue;
        }
        let counters: Vec<&String> =
            wrong.iter().filter(|w| COUNTERS.iter().any(|name| w.contains(name))).collect();
        assert!(counters.is_empty(), "{what}: {counters:#?}");
        // A gauge may rise and fall in between.
        whole += usize::from(wrong.is_empty());
        complaints.extend(wrong);
        if whole == ROUNDS {
            return;
        }
    }
    panic!("{what}: {whole} rounds without complaints; in others: {complaints:#?}");
}

#[test]
fn prometheus_serves_what_is_read() {
    let (address, place) = (free_address(), directory("prometheus"));
    let config = place.join("prometheus.yml");
    std::fs::write(&config, "global: {}\n").unwrap();
    let mut command = Command::new("/usr/bin/prometheus");
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", place.join("data").display()))
        .arg(format!("--web.listen-address={address}"));
    check(Server::start("/usr/bin/prometheus", command, &address), "prometheus");
    std::fs::remove_dir_all(place).unwrap();
}

#[test]
fn caddy_serves_what_is_read() {
    let (address, place) = (free_address(), directory("caddy"));
    let config = place.join("caddy.json");
    let text = format!("{{\"admin\":{{\"listen\":\"{address}\"}}}}");
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new("/usr/bin/caddy");
    command.arg("run").arg("--config").arg(&config).env("HOME", &place);
    check(Server::start("/usr/bin/caddy", command, &address), "caddy");
    std::fs::remove_dir_all(place).unwrap();
}
