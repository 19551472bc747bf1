//! `gospect metrics` against the Prometheus client, promtool and a Prometheus server.

mod common;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use serde_json::Value;
use testkit::{Fixture, Mode, Output, Running, newest, prometheus_client};

use common::{Directory, LIMIT, any_gospect, expect_refusal, path_text, promtool, text, until};

/// Go programs at once.
const MANY: usize = 200;

/// What gospect may have of its own in memory, whatever it watches, KiB.
const MEMORY: u64 = 20 << 10;

/// CPU time for a scrape of many, on a build without optimisation, seconds.
const SCRAPE: f64 = 1.5;

/// A program with the client in it, and where it serves.
fn client() -> (Running, String) {
    let running = Running::start(&prometheus_client(&newest()), &[] as &[&str]);
    let address = text(&running.wait_for("ready", LIMIT)["addr"]);
    (running, address)
}

/// A small Go program that waits.
fn waiting() -> Running {
    let program = Fixture::build("metrics", &newest(), Mode::Exe);
    let running = Running::start(&program, &["-parked", "3"]);
    running.wait_for("ready", LIMIT);
    running
}

/// Status code and body of what `address` answers. HTTP/1.0 answers come in one piece.
fn ask(address: &str, request: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
    write!(stream, "{request} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8(answer).expect("UTF-8");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).unwrap_or_default();
    Some((status.to_owned(), body.to_owned()))
}

fn get(address: &str, path: &str) -> String {
    let (status, body) = ask(address, &format!("GET {path}")).expect("an answer");
    assert_eq!(status, "200", "{body}");
    body
}

fn metrics(options: &[&str]) -> Output {
    let mut line = vec!["metrics"];
    line.extend(options);
    let output = any_gospect().run(&line);
    output.expect_code(0);
    output
}

/// `# HELP` and `# TYPE` lines.
fn heads(exposition: &str) -> Vec<&str> {
    let mut heads: Vec<&str> = exposition.lines().filter(|line| line.starts_with('#')).collect();
    heads.sort_unstable();
    heads
}

/// Values by name and labels, without those that say which process it is.
fn values(exposition: &str) -> BTreeMap<String, f64> {
    let lines = exposition.lines().filter(|line| !line.starts_with('#'));
    let value = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("a value");
        let own = name.find("pid=\"").map_or_else(
            || name.to_owned(),
            |at| {
                let rest = name[at..].splitn(4, "\",").nth(3).unwrap_or("}");
                format!("{}{rest}", &name[..at]).replace("{}", "")
            },
        );
        (own, value.parse().unwrap_or_else(|_| panic!("no value in {line}")))
    };
    lines.map(value).collect()
}

/// Serves metrics, and says where.
fn serve(options: &[&str]) -> (Running, String) {
    let mut line = vec!["metrics", "--listen", "127.0.0.1:0"];
    line.extend(options);
    let running = Running::start(Path::new(env!("CARGO_BIN_EXE_gospect")), &line);
    let said = running.wait_error_line(LIMIT, |line| line.contains("serving http://"));
    let address = said.split("http://").nth(1).and_then(|rest| rest.strip_suffix("/metrics"));
    (running, address.expect("an address").to_owned())
}

/// Counters that only grow: what is read between two of the program's own readings lies
/// between them.
const COUNTERS: [&str; 7] = [
    "go_memstats_alloc_bytes_total",
    "go_memstats_mallocs_total",
    "go_memstats_frees_total",
    "go_gc_duration_seconds_count",
    "go_gc_duration_seconds_sum",
    "process_cpu_seconds_total",
    "process_network_receive_bytes_total",
];

/// What does not change while a program only answers.
const CONSTANT: [&str; 7] = [
    "go_gc_gogc_percent",
    "go_gc_gomemlimit_bytes",
    "go_sched_gomaxprocs_threads",
    "process_max_fds",
    "process_virtual_memory_max_bytes",
    "process_start_time_seconds",
    "go_memstats_mcache_inuse_bytes",
];

#[track_caller]
fn assert_between(before: &str, ours: &str, after: &str) {
    let (before, ours, after) = (values(before), values(ours), values(after));
    for name in COUNTERS.iter().filter(|name| before.contains_key(**name)) {
        let (low, value, high) = (before[*name], ours[*name], after[*name]);
        assert!(low <= value && value <= high, "{name}: {low} {value} {high}");
    }
    for name in CONSTANT.iter().filter(|name| before.contains_key(**name)) {
        assert_eq!(ours[*name], before[*name], "{name}");
    }
    // Each value of the client is there, by name and labels.
    let missing: Vec<&String> = before.keys().filter(|name| !ours.contains_key(*name)).collect();
    let known = ["go_memstats_lookups_total", "go_info"];
    let unknown = |name: &&&String| {
        let own = ["go_", "process_"].iter().any(|prefix| name.starts_with(prefix));
        own && !known.iter().any(|known| name.starts_with(known))
    };
    assert_eq!(missing.iter().filter(unknown).collect::<Vec<_>>(), Vec::<&&String>::new());
}

#[test]
fn the_client_and_we_say_the_same_with_the_same_words() {
    let (program, address) = client();
    let pid = program.pid().to_string();
    let before = get(&address, "/metrics");
    let ours = metrics(&["-p", &pid, "--format", "prometheus"]).stdout;
    let after = get(&address, "/metrics");
    let all = heads(&ours);
    let missing: Vec<&str> =
        heads(&before).into_iter().filter(|head| !all.contains(head)).collect();
    assert_eq!(missing, Vec::<&str>::new());
    assert_between(&before, &ours, &after);
}

#[test]
fn promtool_finds_nothing_to_complain_about() {
    let (first, second) = (waiting(), waiting());
    let pids = format!("{},{}", first.pid(), second.pid());
    let ours = metrics(&["-p", &pids, "--format", "prometheus"]).stdout;
    promtool(&ours);
    // All of a metric stand together, both processes among them.
    let mut names: Vec<&str> =
        ours.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let count = names.len();
    names.dedup();
    assert!(names.len() == count && count > 60, "{count}");
    for pid in pids.split(',') {
        assert!(ours.contains(&format!("go_goroutines{{pid=\"{pid}\",exe=\"")), "{ours}");
    }
}

#[test]
fn a_prometheus_server_scrapes_us_and_is_read_itself() {
    let program = waiting();
    let pid = program.pid().to_string();
    let (_gospect, address) = serve(&["-p", &pid]);
    let directory = Directory::new();
    let config = directory.file("prometheus.yml");
    let text = format!(
        "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: gospect\n    static_configs:\n      - targets: ['{address}']\n"
    );
    std::fs::write(&config, text).expect("a file");
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
    let server = Running::start(
        Path::new("/usr/bin/prometheus"),
        &[
            format!("--config.file={}", path_text(&config)),
            format!("--storage.tsdb.path={}", path_text(&directory.file("data"))),
            format!("--web.listen-address={port}"),
        ],
    );
    let query = format!("GET /api/v1/query?query=go_goroutines%7Bpid%3D%22{pid}%22%7D");
    let mut found = Value::Null;
    until("an answer with our value", || {
        let Some((_, body)) = ask(&port.to_string(), &query) else { return false };
        found = serde_json::from_str(&body).unwrap_or_default();
        found["data"]["result"][0]["value"][1].is_string()
    });
    let result = &found["data"]["result"][0];
    let ours = values(&get(&address, "/metrics"));
    assert_eq!(result["value"][1], ours["go_goroutines"].to_string(), "{found}");
    assert_eq!(result["metric"]["service"], "metrics", "{found}");

    // The server is a Go program of 1.19, stripped, with cgo: it serves its own figures too.
    let own = server.pid().to_string();
    let port = port.to_string();
    let between = || {
        let before = get(&port, "/metrics");
        let ours = metrics(&["-p", &own, "--format", "prometheus"]).stdout;
        let after = get(&port, "/metrics");
        let collections = |text: &str| values(text)["go_gc_duration_seconds_count"];
        (collections(&before) == collections(&after)).then_some((before, ours, after))
    };
    let mut seen = None;
    until("no collection between two readings", || {
        seen = between();
        seen.is_some()
    });
    let (before, ours, after) = seen.expect("it was seen");
    assert_between(&before, &ours, &after);
    assert!(ours.contains(",version=\"go1.19.8\"} 1"), "{ours}");
}

#[test]
fn a_client_that_does_not_ask_keeps_nobody_out() {
    let program = waiting();
    let (mut gospect, address) = serve(&["-p", &program.pid().to_string()]);
    // More than are served at a time, without a request: each is cut off after a while.
    let idle: Vec<TcpStream> = (0..9).filter_map(|_| TcpStream::connect(&address).ok()).collect();
    assert!(get(&address, "/metrics").contains("go_goroutines{"));
    drop(idle);
    let answer = |request: &str| ask(&address, request).expect("an answer");
    assert_eq!(answer("GET /nothing").0, "404");
    assert_eq!(answer("POST /metrics").0, "405");
    assert_eq!(answer("HEAD /metrics"), ("200".to_owned(), String::new()));
    gospect.signal("TERM");
    assert_eq!(gospect.wait(LIMIT).code(), Some(0));
}

/// A field of `/proc/PID/status`, KiB.
fn status(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the field");
    line.trim_start_matches(':')
        .split_whitespace()
        .next()
        .and_then(|kib| kib.parse().ok())
        .expect("a number")
}

/// CPU time of a process, seconds.
fn cpu(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("its stat");
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    // Fields 14 and 15, of which the first two are cut off; Linux has 100 ticks a second here.
    let ticks = |index: usize| fields[index].parse::<f64>().expect("ticks");
    (ticks(11) + ticks(12)) / 100.0
}

#[test]
fn two_hundred_processes_take_little_time_and_memory() {
    let exe = Fixture::build("metrics", &newest(), Mode::Exe);
    let programs: Vec<Running> =
        (0..MANY).map(|_| Running::start(&exe, &["-parked", "3"])).collect();
    for program in &programs {
        program.wait_for("ready", LIMIT);
    }
    let pids: Vec<String> = programs.iter().map(|program| program.pid().to_string()).collect();
    let (gospect, address) = serve(&["-p", &pids.join(",")]);
    let first = get(&address, "/metrics");
    let start = cpu(gospect.pid());
    for _ in 0..5 {
        get(&address, "/metrics");
    }
    let scrape = (cpu(gospect.pid()) - start) / 5.0;
    let readable = first.lines().filter(|line| line.starts_with("gospect_runtime_readable{"));
    assert_eq!(readable.filter(|line| line.ends_with(" 1")).count(), MANY, "{}", exe.display());
    let memory = status(gospect.pid(), "RssAnon");
    assert!(scrape < SCRAPE, "{scrape} s for a scrape");
    assert!(memory < MEMORY, "{memory} KiB of anonymous memory");
}

#[test]
fn addresses_and_formats_that_do_not_go_together_are_refused() {
    let refused = |line: &[&str], words: &[&str]| {
        expect_refusal(&any_gospect().run(line), 2, words);
    };
    refused(&["metrics"], &["no process named"]);
    refused(&["metrics", "-p", "1", "--all"], &["one of"]);
    refused(&["metrics", "-p", "1", "--listen", "nowhere"], &["nowhere"]);
    refused(&["metrics", "-p", "1", "--listen", "127.0.0.1:0", "--format", "json"], &["--listen"]);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let own = std::process::id().to_string();
    let output = any_gospect().run(&["metrics", "-p", &own, "--listen", &address]);
    expect_refusal(&output, 1, &["failed to listen on", &address]);
}
