//! `gospect agent` with real programs, a real collector, Prometheus's own checks.

mod common;
#[path = "common/service.rs"]
mod service;

use common::{Directory, any_gospect, fixture, path_text, promtool, text, until};
use serde_json::Value;
use service::{Agent, Collector, LIMIT, ask, write};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::{Fixture, Mode, Running, newest};

/// A server of our own, and where it listens.
fn server(program: &Path) -> (Running, String) {
    let running = Running::start(program, &[] as &[&str]);
    let address = text(&running.wait_for("listening", LIMIT)["addr"]);
    (running, address)
}

fn matching(program: &Path, rest: &str) -> String {
    format!("[[service]]\nmatch = {{ exe = \"{}\" }}\n{rest}\n", path_text(program))
}

fn is_watched(process: &Value) -> bool {
    process["capture"]["backend"].is_string()
}

fn sensor<'a>(process: &'a Value, name: &str) -> &'a Value {
    let sensors = process["sensors"].as_array().expect("a list");
    sensors.iter().find(|sensor| sensor["name"] == name).unwrap_or_else(|| panic!("{process:#}"))
}

#[test]
fn a_configuration_is_checked_and_its_mistakes_are_named() {
    let directory = Directory::new();
    let file = directory.file("gospect.toml");
    let check = |text: &str| {
        std::fs::write(&file, text).expect("a file");
        any_gospect().run(&["agent", "--check", "--config", path_text(&file)])
    };
    let right = check(
        "[agent]\nexport = \"http://collector:4318\"\n[[service]]\nname = \"shop\"\nbackend = \"none\"\n",
    );
    right.expect_code(0);
    let expected = format!(
        "{}: right: 1 service\n  1. shop: none; metrics only\n  spans are sent to \
         http://collector:4318/v1/traces\n  metrics are sent to http://collector:4318/v1/metrics\n",
        file.display()
    );
    assert_eq!(right.stdout, expected);
    let told = check(
        "[agent]\nexport = \"none\"\n[[service]]\nsensors = \"http\"\nqueries = true\n\
         headers = [\"x-request-id\", \"User-Agent\"]\n",
    );
    let line = "  1. named by its processes: auto; http; with queries, header X-Request-Id, header User-Agent\n";
    assert!(told.stdout.contains(line), "{}", told.stdout);
    let wrong = check("[[service]]\nheaders = \"Cookie\"\n");
    wrong.expect_code(2);
    let place = format!("{}:2:11: `headers` has `Cookie`: only headers", file.display());
    assert!(wrong.stderr.contains(&place), "{}", wrong.stderr);
    let wrong = check("[[service]]\nname = \"shop\"\nbudgte = 5\n");
    wrong.expect_code(2);
    let place = format!("{}:3:1: unknown key `budgte` in [[service]]", file.display());
    assert!(wrong.stderr.contains(&place), "{}", wrong.stderr);
    let wrong = check("[agent]\nexport = \"collector\"\n");
    wrong.expect_code(2);
    assert!(wrong.stderr.contains("malformed endpoint `collector`"), "{}", wrong.stderr);
}

/// Found when it runs, when it starts, and when it starts again; measured; left alone when the file
/// says so; with all of it still there when the agent is killed and another one comes.
#[test]
fn root_services_are_found_followed_and_measured() {
    let directory = Directory::new();
    let config = directory.file("gospect.toml");
    let program = directory.copy(&fixture("httpserver"), "shop");
    let (old, old_address) = server(&program);
    let wanted = matching(&program, "name = \"shop\"");
    let mut agent = Agent::start(&config, &wanted, &[]);
    agent.wait(old.pid(), "found", is_watched);
    assert_eq!(agent.status()["discovery"]["way"], "exec_events");
    ask(&old_address, "/sum?n=3");
    let served = |process: &Value| process["spans"]["made"].as_u64().is_some_and(|made| made > 0);
    let seen = agent.wait(old.pid(), "its request", served);
    assert_eq!(
        (&seen["service"], &sensor(&seen, "http")["state"]),
        (&"shop".into(), &"active".into())
    );
    assert_eq!(sensor(&seen, "sql")["state"], "unavailable");
    assert_eq!(seen["requests"][0]["name"], "GET /sum", "{seen:#}");
    assert_eq!(seen["slowest"][0]["spans"][0]["attributes"]["url.path"], "/sum");
    let exposition = agent.get("/metrics");
    let of_old = format!("{{pid=\"{}\"", old.pid());
    for name in
        ["go_goroutines", "http_server_request_duration_seconds_count", "gospect_spans_total"]
    {
        assert!(exposition.contains(&format!("\n{name}{of_old}")), "{name}: {exposition}");
    }
    promtool(&exposition);
    assert_eq!(agent.get("/healthz"), "ok\n");

    // Another one that starts now is found by its execve.
    let (new, new_address) = server(&program);
    agent.wait(new.pid(), "found too", is_watched);
    drop(old);
    until("the old one to be forgotten", || {
        agent.status()["processes"].as_array().is_some_and(|all| all.len() == 1)
    });

    // A wrong file changes nothing and is told; a right one is followed.
    write(&config, &wanted.replace("name", "nmae"));
    agent.running.signal("HUP");
    until("the mistake", || agent.status()["config"]["error"].is_string());
    let status = agent.status();
    assert!(status["config"]["error"].as_str().unwrap().contains("unknown key `nmae`"), "{status}");
    assert!(is_watched(&agent.process(new.pid())));

    // Killed: the program goes on, and is found again.
    agent.running.signal("KILL");
    agent.running.wait(LIMIT);
    ask(&new_address, "/sum?n=3");
    let agent = Agent::start(&config, &wanted, &[]);
    agent.wait(new.pid(), "found again", is_watched);
    ask(&new_address, "/sum?n=3");
    agent.wait(new.pid(), "its request again", served);
    agent.stop();
    ask(&new_address, "/sum?n=3");
}

/// A function that is called all the time is given up within seconds, and that is told.
#[test]
fn root_a_hot_function_is_given_up_for_the_budget() {
    let directory = Directory::new();
    let program = directory.copy(&fixture("callcost"), "hot");
    let rest = "name = \"hot\"\nsensors = [\"metrics\"]\nfunctions = [\"main.leaf0\"]\nbudget = 5";
    let config = directory.file("gospect.toml");
    let agent = Agent::start(&config, &matching(&program, rest), &[]);
    let line = ["-n", "2000000000", "-rounds", "1000"];
    let running = Running::start(&program, &line);
    let pid = running.pid();
    agent.wait(pid, "watched", is_watched);
    let began = Instant::now();
    let dropped =
        |process: &Value| process["budget"]["drops"].as_u64().is_some_and(|drops| drops > 0);
    agent.wait(pid, "given up", dropped);
    let took = began.elapsed();
    let within = |process: &Value| {
        sensor(process, "main.leaf0")["state"] == "dropped"
            && process["budget"]["cost_percent"].as_f64().is_some_and(|cost| cost <= 5.0 * 1.2)
    };
    let process = agent.wait(pid, "within the budget", within);
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert!(text(&sensor(&process, "main.leaf0")["reason"]).contains("cost more"), "{process:#}");
    let status = agent.status();
    let decision = &status["decisions"][0];
    assert_eq!((&decision["change"], &decision["unit"]), (&"drop".into(), &"main.leaf0".into()));
    assert!(decision["total"].as_f64().unwrap() > 6.0, "{decision}");
    let exposition = agent.get("/metrics");
    assert!(exposition.contains("gospect_agent_decisions_total 1\n"), "{exposition}");
    let drops = "change=\"drop\"} 1\n";
    let line = exposition.lines().find(|line| format!("{line}\n").ends_with(drops));
    assert!(line.is_some_and(|line| line.starts_with("gospect_budget_changes_total")), "{line:?}");
    let said = agent.stop();
    assert!(said.contains("main.leaf0 is given up for 30 s"), "{said}");
}

/// A program with the library in it carries its plan by itself, once there is one, and goes on when the agent ends.
#[test]
fn root_a_preloaded_program_carries_its_plan() {
    let directory = Directory::new();
    let program = directory.copy(&Fixture::build("httpserver", &newest(), Mode::Pie), "shop");
    let socket = directory.file("run/agent.sock");
    let config = directory.file("gospect.toml");
    let file = format!(
        "[agent]\nsocket = \"{}\"\n{}",
        path_text(&socket),
        matching(&program, "name = \"shop\"")
    );
    let agent = Agent::start(&config, &file, &[]);
    let start = || {
        let mut command = Command::new(&program);
        command.env("LD_PRELOAD", gospect_preload::PATH).env("GOSPECT_AGENT_SOCKET", &socket);
        let running = Running::spawn(command);
        let address = text(&running.wait_for("listening", LIMIT)["addr"]);
        (running, address)
    };
    // The first one mostly comes before its plan, and is attached to.
    let (running, address) = (0..20)
        .find_map(|_| {
            let (running, address) = start();
            let process = agent.wait(running.pid(), "watched", is_watched);
            (process["capture"]["way"] == "preload").then_some((running, address))
        })
        .expect("one that carries its plan");
    ask(&address, "/sum?n=3");
    let process = agent.wait(running.pid(), "its request", |process| process["spans"]["made"] == 1);
    assert_eq!(process["capture"]["backend"], "trampoline");
    let preload = &agent.status()["preload"];
    assert!(preload["served"].as_u64() >= Some(1) && preload["error"].is_null(), "{preload}");
    agent.stop();
    ask(&address, "/sum?n=3");
}

/// `doctor` says of a process what the agent that watches it says.
#[test]
fn root_doctor_asks_the_agent_that_watches_a_process() {
    let directory = Directory::new();
    let program = directory.copy(&fixture("httpserver"), "shop");
    let (running, address) = server(&program);
    let rest = "name = \"shop\"\nsensors = [\"http\", \"sql\"]\nfunctions = [\"main.addUp\"]";
    let config = directory.file("gospect.toml");
    let agent = Agent::start(&config, &matching(&program, rest), &[]);
    agent.wait(running.pid(), "watched", is_watched);
    ask(&address, "/sum?n=3");
    let is_counted = |process: &Value| {
        let is_known = !sensor(process, "http")["cost_percent"].is_null();
        process["spans"]["made"] == 1 && is_known && sensor(process, "main.addUp")["hits"] == 2
    };
    agent.wait(running.pid(), "its request", is_counted);
    let pid = running.pid().to_string();
    let output = any_gospect().run(&["doctor", "-p", &pid, "--format", "json"]);
    output.expect_code(0);
    let checks = output.of_type("check");
    let ours = format!("gospect agent, process {}", agent.running.pid());
    let about = checks.iter().filter(|check| check["area"] == "agent");
    let line = |check: &Value| {
        let [status, name, detail] = ["status", "name", "detail"].map(|key| text(&check[key]));
        format!("{status} {name}: {detail}")
    };
    // Other tests have agents of their own, which do not watch it.
    let lines: Vec<String> = about.map(line).filter(|line| !line.contains("does not")).collect();
    let without_cost = |line: &String| match line.split_once("; 0.") {
        Some((head, rest)) => format!("{head}{}", rest.trim_start_matches(char::is_numeric)),
        None => line.clone(),
    };
    let lines: Vec<String> = lines.iter().map(without_cost).collect();
    let expected = [
        format!("ok watched by: {ours}, at http://{}/, as `shop`", agent.address),
        "ok http: active; 8 hits% of a CPU; spans: 1 made, 0 truncated, 0 unfinished".to_owned(),
        "ok http-client: off: the configuration leaves it out".to_owned(),
        "note sql: unavailable: the program has none of its functions, or none that can be watched"
            .to_owned(),
        "ok main.addUp: active; 2 hits% of a CPU".to_owned(),
        "ok spans: spans: 1 made, 0 truncated, 0 unfinished, 0 refused; 0 records lost".to_owned(),
    ];
    for line in &expected {
        assert!(lines.contains(line), "{line}: {lines:#?}");
    }
    agent.stop();
    let output = any_gospect().run(&["doctor", "-p", &pid, "--format", "json"]);
    assert!(!output.stdout.contains(&ours), "{}", output.stdout);
}

/// Names of all metrics, names of spans' services, and how many spans there are.
fn received(lines: &[Value]) -> (BTreeSet<String>, BTreeSet<String>, usize) {
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let (mut metrics, mut services, mut spans) = (BTreeSet::new(), BTreeSet::new(), 0);
    for line in lines {
        for resource in list(line, "resourceMetrics") {
            for scope in list(&resource, "scopeMetrics") {
                metrics.extend(list(&scope, "metrics").iter().map(|metric| text(&metric["name"])));
            }
        }
        for resource in list(line, "resourceSpans") {
            let attributes = list(&resource["resource"], "attributes");
            let name = attributes.iter().find(|pair| pair["key"] == "service.name").unwrap();
            services.insert(text(&name["value"]["stringValue"]));
            let scopes = list(&resource, "scopeSpans");
            spans += scopes.iter().map(|scope| list(scope, "spans").len()).sum::<usize>();
        }
    }
    (metrics, services, spans)
}

/// A command is a service from its first instruction on; a collector gets its metrics and all of its spans,
/// and those that a sampler leaves out are counted all the same.
#[test]
fn root_a_command_is_measured_and_sent_to_a_collector() {
    let directory = Directory::new();
    let collector = Collector::start(&directory.file("got.json"), "127.0.0.1:0");
    let program = fixture("requests");
    for sampling in [1.0, 0.0] {
        let config = directory.file("gospect.toml");
        let file = format!(
            "[agent]\nexport = \"{}\"\ninterval = \"1s\"\n{}",
            collector.endpoint,
            matching(&program, &format!("name = \"requests\"\nsampling = {sampling:?}"))
        );
        let command = [path_text(&program), "-n", "60", "-linger"];
        let mut agent = Agent::start(&config, &file, &command);
        // For longer than a round of metrics, however quick the machine is.
        until("the work to be done", || agent.running.stdout().contains("\"done\""));
        until("its metrics", || {
            let got = std::fs::read_to_string(directory.file("got.json"));
            got.is_ok_and(|got| got.contains("go.memory.used"))
        });
        // Others of this service may be found meanwhile; the agent goes on for them.
        agent.running.go();
        until("its spans", || {
            let status = agent.status();
            let exports = status["exports"].as_array().cloned().unwrap_or_default();
            let spans = exports.iter().find(|export| export["what"] == "spans");
            let key = if sampling > 0.0 { "delivered" } else { "unsampled" };
            spans.is_some_and(|spans| spans[key].as_u64() >= Some(1))
        });
        agent.running.signal("TERM");
        assert!(agent.running.wait(LIMIT).success());
    }
    let (metrics, services, spans) = received(&collector.stop());
    assert!(services.contains("requests"), "{services:?}");
    assert!(spans >= 10, "{spans}");
    for name in [
        "http.server.request.duration",
        "http.client.request.duration",
        "go.memory.used",
        "go.goroutine.count",
        "go.config.gogc",
        "process.cpu.time",
        "gospect.agent.cpu.time",
    ] {
        assert!(metrics.contains(name), "{name}: {metrics:?}");
    }
}

/// How long a collector is away, `GOSPECT_TEST_OUTAGE` (seconds): no longer than the queue takes to run over, unless
/// that says so.
fn outage() -> Duration {
    let text = std::env::var("GOSPECT_TEST_OUTAGE").unwrap_or_else(|_| "0".to_owned());
    Duration::from_secs(text.parse().expect("GOSPECT_TEST_OUTAGE: a number of seconds"))
}

/// Anonymous memory of a process, KiB.
fn anonymous(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its state");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("its memory");
    line.split_whitespace().next().and_then(|text| text.parse().ok()).expect("a number")
}

/// While nobody listens spans are counted as lost and memory stays small; later ones arrive.
#[test]
fn root_a_collector_that_is_away_costs_its_time_only() {
    const REQUESTS: u64 = 2700;
    let directory = Directory::new();
    let config = directory.file("gospect.toml");
    let program = directory.copy(&fixture("httpserver"), "shop");
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = free.local_addr().expect("an address").to_string();
    drop(free);
    let file = format!(
        "[agent]\nexport = \"http://{at}\"\ninterval = \"1s\"\n{}",
        matching(&program, "name = \"shop\"")
    );
    let first = Collector::start(&directory.file("first.json"), &at);
    let agent = Agent::start(&config, &file, &[]);
    let (shop, address) = server(&program);
    agent.wait(shop.pid(), "watched", is_watched);
    let spans = |agent: &Agent| {
        let status = agent.status();
        let exports = status["exports"].as_array().cloned().unwrap_or_default();
        let spans = exports.into_iter().find(|export| export["what"] == "spans").expect("spans");
        ["delivered", "dropped", "failed"].map(|key| spans[key].as_u64().expect("a number"))
    };
    let mut asked = 0;
    let mut answer = |path: &str| {
        ask(&address, path);
        asked += 1;
    };
    until("spans to arrive", || {
        answer("/sum?n=1");
        spans(&agent)[0] > 0
    });
    let own = agent.running.pid();
    let before = anonymous(own);
    let received_first = received(&first.stop()).2 as u64;

    let begun = Instant::now();
    let (mut requests, mut most) = (0, 0);
    while requests < REQUESTS || begun.elapsed() < outage() {
        answer("/sum?n=1");
        requests += 1;
        if requests % 100 == 0 {
            most = most.max(anonymous(own));
        }
    }
    let [delivered_before, ..] = spans(&agent);
    until("the queue to run over", || spans(&agent)[1] > 0);
    // What there may be in queues and heaps besides is no function of the time.
    assert!(most < before + (24 << 10), "{before} KiB, then {most} KiB");
    let collector = Collector::start(&directory.file("got.json"), &at);
    // What waited may have been given up by now.
    until("spans to arrive again", || {
        answer("/wait?ms=1");
        spans(&agent)[0] > delivered_before
    });
    let whole = |process: &Value| process["spans"]["made"] == asked;
    let seen = agent.wait(shop.pid(), "all requests", whole);
    assert_eq!(seen["spans"]["lost"], 0, "{seen:#}");
    until("the queue to be empty", || spans(&agent).iter().sum::<u64>() == asked);
    let ([delivered, dropped, failed], after) = (spans(&agent), anonymous(own));
    let said = agent.stop();
    let (_, services, count) = received(&collector.stop());
    assert_eq!(services.into_iter().collect::<Vec<_>>(), ["shop"]);
    // Sent or counted as lost: each is one of them.
    assert_eq!(count as u64 + received_first, delivered, "{said}");
    assert_eq!(delivered + dropped + failed, asked);
    let story = format!(
        "away for {:?}: {requests} requests; delivered {delivered}, dropped {dropped}, failed {failed}; \
         anonymous memory {before}, {most}, {after} KiB",
        begun.elapsed()
    );
    assert!(after < before + (24 << 10), "{story}");
}
