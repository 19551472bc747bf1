//! `gospect agent` and what it may cost: a function that is called ten million times a second, measured by the
//! program itself. Needs root.
#![allow(clippy::print_stderr, reason = "figures, for who asks for them")]

mod common;
#[path = "common/service.rs"]
mod service;

use common::{Directory, fixture, path_text, text, until};
use serde_json::Value;
use service::{Agent, Collector, LIMIT, ask, write};
use std::path::Path;
use std::process::Command;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::Duration;
use testkit::{Fixture, Mode, Running, newest};

/// How far above its budget a service may be.
const MOST: f64 = 1.2;
/// The hot function, and the one that is called rarely.
const FUNCTIONS: &str = "functions = [\"main.hot\", \"main.cheap\"]";

const SECOND: u64 = 1_000_000_000;

/// Tests that compare what the program measures with what is told run alone: beside another one's hot loop, on two
/// CPUs, a call has many prices.
static MACHINE: RwLock<()> = RwLock::new(());

fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

fn beside_others() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// A tenth of a second of the program, as it measured it.
#[derive(Clone, Copy, Debug)]
struct Slice {
    begin_ns: u64,
    end_ns: u64,
    calls: f64,
    hot_ns: f64,
    twin_ns: f64,
    /// Of the pieces of the loop in it, which a few that were disturbed do not move.
    hot_median_ns: f64,
    twin_median_ns: f64,
}

/// All slices so far.
fn slices(program: &Running) -> Vec<Slice> {
    let lines = program.stdout();
    let lines = lines.lines().filter(|line| line.starts_with('{'));
    let facts = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let number = |fact: &Value, key: &str| fact[key].as_f64().expect("a number");
    let slice = |fact: Value| Slice {
        begin_ns: fact["begin_ns"].as_u64().expect("a time"),
        end_ns: fact["end_ns"].as_u64().expect("a time"),
        calls: number(&fact, "calls"),
        hot_ns: number(&fact, "hot_ns"),
        twin_ns: number(&fact, "twin_ns"),
        hot_median_ns: number(&fact, "hot_median_ns"),
        twin_median_ns: number(&fact, "twin_median_ns"),
    };
    facts.filter(|fact| fact["type"] == "slice").map(slice).collect()
}

/// How much dearer a call of the hot function is than one of its twin while nobody watches.
fn ratio(slices: &[Slice]) -> f64 {
    median(slices.iter().map(|slice| slice.hot_ns / slice.twin_ns))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What the hot function cost more than it does by itself, percent of a CPU.
fn cost(slices: &[Slice], ratio: f64) -> f64 {
    let more = |slice: &Slice| slice.calls * (slice.hot_ns - slice.twin_ns * ratio);
    let whole = |slice: &Slice| (slice.end_ns - slice.begin_ns) as f64;
    slices.iter().map(more).sum::<f64>() * 100.0 / slices.iter().map(whole).sum::<f64>()
}

/// The program, hot and not watched yet, and the ratio then.
fn hot(program: &Path) -> (Running, f64) {
    let running = Running::start(program, &["-hot"]);
    until("slices that nobody watches", || slices(&running).len() >= 15);
    let ratio = ratio(&slices(&running)[5..]);
    (running, ratio)
}

/// `budget` is what a process may cost, percent of a CPU.
fn configuration(program: &Path, budget: f64, rest: &str) -> String {
    let exe = path_text(program);
    format!(
        "[[service]]\nname = \"hot\"\nmatch = {{ exe = \"{exe}\" }}\nbudget = \"{budget}%\"\n{rest}\n"
    )
}

fn sensor<'a>(process: &'a Value, name: &str) -> &'a Value {
    let sensors = process["sensors"].as_array().expect("a list");
    sensors.iter().find(|sensor| sensor["name"] == name).unwrap_or_else(|| panic!("{process:#}"))
}

/// The decisions on the hot function: `drop` or `restore`, when, and what all cost.
fn decisions(agent: &Agent) -> Vec<(String, u64, Option<f64>)> {
    let status = agent.status();
    let decisions = status["decisions"].as_array().expect("a list");
    let of_hot = decisions.iter().filter(|decision| decision["unit"] == "main.hot");
    let decision = |decision: &Value| {
        let at = decision["unix_ns"].as_u64().expect("a time");
        (text(&decision["change"]), at, decision["total"].as_f64())
    };
    of_hot.map(decision).collect()
}

/// Waits for the program to have told of the time until so many seconds after `unix_ns`.
fn wait_until(program: &Running, unix_ns: u64, seconds: u64) {
    let is_there =
        || slices(program).last().is_some_and(|it| it.end_ns > unix_ns + seconds * SECOND);
    until("time to pass", is_there);
}

/// What is told of a capture that costs more than it may: everywhere, and within ten seconds.
fn is_given_up(backend: &str, budget: f64) {
    let _alone = alone();
    let directory = Directory::new();
    let collector = Collector::start(&directory.file("got.json"), "127.0.0.1:0");
    let program = directory.copy(&fixture("hotloop"), "hotloop");
    let (running, ratio) = hot(&program);
    let rest = format!("sensors = [\"metrics\"]\n{FUNCTIONS}\nbackend = \"{backend}\"");
    let agent_part = format!("[agent]\nexport = \"{}\"\ninterval = \"1s\"\n", collector.endpoint);
    let file = agent_part + &configuration(&program, budget, &rest);
    let agent = Agent::start(&directory.file("gospect.toml"), &file, &[]);
    let pid = running.pid();
    let is_within = |process: &Value| {
        // Decisions are told at once, sensors from time to time.
        let sensors = process["sensors"].as_array();
        let is_hot = |sensor: &&Value| sensor["name"] == "main.hot";
        let hot = sensors.and_then(|sensors| sensors.iter().find(is_hot));
        hot.is_some_and(|hot| hot["state"] == "dropped")
            && process["budget"]["cost_percent"].as_f64().is_some_and(|cost| cost <= budget * MOST)
    };
    let process = agent.wait(pid, "within the budget", is_within);
    let told = decisions(&agent);
    let [(change, dropped_ns, Some(total))] = &told[..] else { panic!("{told:?}") };
    assert_eq!(change, "drop");
    wait_until(&running, *dropped_ns, 5);

    // By the program itself: dear for a while, and never again after that.
    let slices = slices(&running);
    let is_dear = |slice: &&Slice| {
        slice.hot_ns / slice.twin_ns > ratio * 1.04 && slice.begin_ns < *dropped_ns
    };
    let traced: Vec<Slice> = slices.iter().skip(15).filter(is_dear).copied().collect();
    let first = traced.first().expect("it was dear");
    let took = (dropped_ns - first.begin_ns) as f64 / 1e9;
    let after: Vec<Slice> =
        slices.iter().filter(|slice| slice.begin_ns > dropped_ns + SECOND / 2).copied().collect();
    let (measured, left) = (cost(&traced, ratio), cost(&after, ratio));
    let calls = |slices: &[Slice]| {
        slices.iter().map(|it| it.calls).sum::<f64>() / slices.len() as f64 * 10.0
    };
    eprintln!(
        "{backend}: {:.1} M calls/s untraced, {:.2} M traced; dear for {took:.2} s: {measured:.1}% of a CPU by the \
         program, {total:.1}% by the agent; then {left:.2}%",
        calls(&after) / 1e6,
        calls(&traced) / 1e6,
    );
    assert!(took < 10.0, "{took} s");
    assert!(left <= budget * MOST, "{left}%");
    assert!(*total > budget && measured > budget / 4.0, "{total} and {measured}");
    // All that it cost until then, by both.
    let until_ns = dropped_ns + SECOND / 2;
    let all = slices.iter().filter(|it| it.begin_ns >= first.begin_ns && it.begin_ns < until_ns);
    let more_ns: f64 = all.map(|it| it.calls * (it.hot_ns - it.twin_ns * ratio)).sum();
    let told_ns = agent.process(pid)["budget"]["cost_ns"].as_f64().expect("a number");
    eprintln!("{:.1} ms by the program, {:.1} ms by the agent", more_ns / 1e6, told_ns / 1e6);
    // A burst of half a second that loses most of its records, and the stops of the program are in it.
    assert!((0.5..4.0).contains(&(told_ns / more_ns)), "{told_ns} and {more_ns}");

    // What is cheap goes on.
    let hits = |process: &Value| sensor(process, "main.cheap")["hits"].as_u64().expect("a number");
    assert_eq!(sensor(&process, "main.cheap")["state"], "active", "{process:#}");
    let before = hits(&agent.process(pid));
    agent.wait(pid, "more calls of what is cheap", |process| hits(process) > before + 50);
    let reason = text(&sensor(&process, "main.hot")["reason"]);
    assert!(reason.contains("cost more than the budget: tried again in"), "{reason}");
    let exposition = agent.get("/metrics");
    let changes = "change=\"drop\"} 1\n";
    let line = exposition.lines().find(|line| format!("{line}\n").ends_with(changes));
    assert!(line.is_some_and(|line| line.starts_with("gospect_budget_changes_total")), "{line:?}");
    let said = agent.stop();
    let words = format!("{pid}: main.hot is given up for 30 s: it costs ");
    assert!(said.contains(&words), "{said}");
    assert_eq!(dropped_by_collector(&collector.stop()), Some(1));
}

/// The last count of units that were given up.
fn dropped_by_collector(lines: &[Value]) -> Option<u64> {
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let mut counts = Vec::new();
    for line in lines {
        for resource in list(line, "resourceMetrics") {
            for scope in list(&resource, "scopeMetrics") {
                let metrics = list(&scope, "metrics");
                let changes = metrics.iter().filter(|it| it["name"] == "gospect.budget.changes");
                counts.extend(changes.flat_map(|metric| list(&metric["sum"], "dataPoints")));
            }
        }
    }
    let is_drop = |point: &&Value| point["attributes"][0]["value"]["stringValue"] == "drop";
    text(&counts.iter().rfind(is_drop)?["asInt"]).parse().ok()
}

#[test]
fn root_a_hot_function_with_trampolines_is_given_up() {
    is_given_up("trampoline", 1.0);
}

#[test]
fn root_a_hot_function_with_uprobes_is_given_up() {
    is_given_up("uprobe", 5.0);
}

/// The estimate is near what the program measures, where nothing is lost, and not below it.
#[test]
fn root_the_estimate_of_trampolines_is_what_the_program_measures() {
    let _alone = alone();
    let directory = Directory::new();
    let program = directory.copy(&fixture("hotloop"), "hotloop");
    // Two million calls a second, which cost some percent of a CPU.
    let running = Running::start(&program, &["-hot", "-work", "400"]);
    until("slices that nobody watches", || slices(&running).len() >= 35);
    let unwatched = slices(&running).split_off(5);
    let rest = "sensors = [\"metrics\"]\nfunctions = [\"main.hot\"]\nbackend = \"trampoline\"";
    let exe = path_text(&program);
    let file = format!("[[service]]\nname = \"hot\"\nmatch = {{ exe = \"{exe}\" }}\n{rest}\n");
    let agent = Agent::start(&directory.file("gospect.toml"), &file, &[]);
    let cost_ns = |process: &Value| process["budget"]["cost_ns"].as_f64();
    let pid = running.pid();
    agent.wait(pid, "what it costs", |process| cost_ns(process) > Some(5e7));
    let now = || {
        let process = agent.process(pid);
        (unix_ns(), cost_ns(&process).expect("a number"))
    };
    let (begin_ns, before) = now();
    wait_until(&running, begin_ns, 6);
    let (end_ns, after) = now();
    let during: Vec<Slice> = slices(&running)
        .into_iter()
        .filter(|slice| slice.begin_ns >= begin_ns && slice.end_ns <= end_ns)
        .collect();
    // Medians of medians: the sum of all would be moved by what else the machine does at some moment.
    let ratio = median(unwatched.iter().map(|it| it.hot_median_ns / it.twin_median_ns));
    let hit_ns = median(during.iter().map(|it| it.hot_median_ns - it.twin_median_ns * ratio));
    let whole_ns = during.iter().map(|it| it.end_ns - it.begin_ns).sum::<u64>() as f64;
    let calls = during.iter().map(|it| it.calls).sum::<f64>();
    let measured = calls * hit_ns * 100.0 / whole_ns;
    let told = (after - before) * 100.0 / (end_ns - begin_ns) as f64;
    let figures = format!(
        "{:.2} M calls/s, {hit_ns:.1} ns each, {measured:.2}% of a CPU by the program, {told:.2}% by the agent",
        calls * 1e3 / whole_ns,
    );
    eprintln!("{figures}");
    // A CPU does part of what a hit takes beside the function's work: how much is the program's matter.
    assert!((0.6..4.0).contains(&(told / measured)), "{figures}");
    agent.stop();
}

/// Nanoseconds since 1970.
fn unix_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(now.expect("later than that").as_nanos()).expect("before 2554")
}

/// Tried again and again it is given up each time at once, and all in all it costs what it may.
#[test]
fn root_the_mean_over_all_attempts_is_within_the_budget() {
    let _alone = alone();
    let budget = 1.0;
    let directory = Directory::new();
    let program = directory.copy(&fixture("hotloop"), "hotloop");
    let (running, ratio) = hot(&program);
    let rest =
        format!("sensors = [\"metrics\"]\n{FUNCTIONS}\nbackend = \"trampoline\"\nretry = \"1s\"");
    let file = configuration(&program, budget, &rest);
    let agent = Agent::start(&directory.file("gospect.toml"), &file, &[]);
    until("a third attempt to be over", || decisions(&agent).len() >= 5);
    let told = decisions(&agent);
    let changes: Vec<&str> = told.iter().map(|(change, ..)| &**change).collect();
    assert_eq!(changes[..5], ["drop", "restore", "drop", "restore", "drop"]);
    for pair in told[1..5].chunks(2) {
        let [(_, restored_ns, _), (_, dropped_ns, _)] = pair else { panic!("{pair:?}") };
        let seconds = (dropped_ns - restored_ns) as f64 / 1e9;
        eprintln!("given up again after {seconds:.2} s");
        assert!(seconds < 10.0, "{told:?}");
    }
    // Until it is tried again, from the first time on that it was watched.
    until("a fourth attempt", || decisions(&agent).len() >= 6);
    let end_ns = decisions(&agent)[5].1;
    let mut slices = slices(&running);
    slices.retain(|slice| slice.end_ns < end_ns);
    let is_dear = |slice: &Slice| slice.hot_ns / slice.twin_ns > ratio * 1.04;
    let first = slices.iter().skip(15).position(is_dear).expect("it was dear") + 15;
    let mean = cost(&slices[first..], ratio);
    eprintln!("{mean:.2}% of a CPU in {:.1} s", (slices.len() - first) as f64 / 10.0);
    assert!(mean <= budget * MOST, "{mean}%");
    agent.stop();
}

/// How the program comes to carry trampolines.
enum By {
    Attach,
    Launch,
    Preload,
}

/// Some ten thousand calls a second: enough for a small budget, and nothing is lost, which would leave open how a
/// request ended.
const SLOW: [&str; 2] = ["-work", "20000"];

/// A program that is watched for requests and for its hot function, before that begins; the agent, and where the
/// program listens.
struct Watched {
    agent: Agent,
    /// Unless the agent started it.
    running: Option<Running>,
    pid: u32,
    address: String,
    _directory: Directory,
}

impl Watched {
    fn start(by: &By) -> Self {
        let directory = Directory::new();
        let source = match by {
            By::Preload => Fixture::build("hotloop", &newest(), Mode::Pie),
            By::Attach | By::Launch => fixture("hotloop"),
        };
        let program = directory.copy(&source, "hotloop");
        let (config, socket) = (directory.file("gospect.toml"), directory.file("run/agent.sock"));
        let backend = if matches!(by, By::Attach) { "trampoline" } else { "auto" };
        let rest = format!(
            "sensors = [\"http\", \"metrics\"]\n{FUNCTIONS}\nbackend = \"{backend}\"\nretry = \"1s\""
        );
        let file = format!("[agent]\nsocket = \"{}\"\n", path_text(&socket));
        let file = file + &configuration(&program, 0.01, &rest);
        match by {
            By::Launch => Self::launched(directory, &config, &file, &program),
            By::Attach => {
                let running = Running::start(&program, &SLOW);
                let agent = Agent::start(&config, &file, &[]);
                Self::of(directory, agent, running)
            }
            By::Preload => {
                let agent = Agent::start(&config, &file, &[]);
                until("its plan to be ready", || agent.status()["preload"]["ready"] == 1);
                let mut command = Command::new(&program);
                command.args(SLOW).env("LD_PRELOAD", gospect_preload::PATH);
                command.env("GOSPECT_AGENT_SOCKET", &socket);
                Self::of(directory, agent, Running::spawn(command))
            }
        }
    }

    fn of(directory: Directory, agent: Agent, running: Running) -> Self {
        let address = text(&running.wait_for("listening", LIMIT)["addr"]);
        let pid = running.pid();
        Self { agent, running: Some(running), pid, address, _directory: directory }
    }

    fn launched(directory: Directory, config: &Path, file: &str, program: &Path) -> Self {
        let agent = Agent::start(config, file, &[path_text(program), SLOW[0], SLOW[1]]);
        let (pid, address) = {
            let fact = |kind: &str| agent.running.wait_for(kind, LIMIT);
            let pid = fact("ready")["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
            (pid.expect("a pid"), text(&fact("listening")["addr"]))
        };
        Self { agent, running: None, pid, address, _directory: directory }
    }

    /// Waits for a decision of this kind on the hot function, after so many others.
    fn decided(&self, change: &str, before: usize) {
        until(change, || decisions(&self.agent).get(before).is_some_and(|it| it.0 == change));
    }
}

/// A request that is open while something is given up, and brought back, is seen to end.
fn a_request_stays_open(by: &By, way: &str) {
    let _others = beside_others();
    let watched = Watched::start(by);
    let pid = watched.pid;
    let is_watched = |process: &Value| process["capture"]["backend"] == "trampoline";
    watched.agent.wait(pid, "watched", is_watched);
    let address = watched.address.clone();
    let waiting: JoinHandle<()> = std::thread::spawn(move || ask(&address, "/hold"));
    let open = |process: &Value| sensor(process, "http")["hits"].as_u64() >= Some(1);
    watched.agent.wait(pid, "the request", open);
    ask(&watched.address, "/start");
    watched.decided("drop", 0);
    watched.decided("restore", 1);
    watched.decided("drop", 2);
    let process = watched.agent.process(pid);
    assert_eq!(process["capture"]["backend"], "trampoline", "{process:#}");
    assert_eq!(process["capture"]["way"], way);
    assert!(!waiting.is_finished(), "the request was open all the time");
    ask(&watched.address, "/release");
    waiting.join().expect("an answer");
    let all = |process: &Value| process["spans"]["made"] == 3;
    let process = watched.agent.wait(pid, "all requests", all);
    assert_eq!(process["spans"]["unfinished"], 0, "{process:#}");
    let longest = &process["slowest"][0]["spans"][0]["attributes"]["url.path"];
    assert_eq!(longest, "/hold", "{process:#}");
    let of_http = &sensor(&process, "http")["spans"];
    assert_eq!(of_http, &serde_json::json!({"made": 3, "unfinished": 0, "truncated": 0}));
    let Watched { mut agent, running, .. } = watched;
    if let Some(mut running) = running {
        agent.stop();
        assert!(running.is_running());
        return;
    }
    // It writes where the agent did, which is read to its end.
    agent.running.signal("TERM");
    let maps = format!("/proc/{pid}/maps");
    until("the code to be out", || {
        std::fs::read_to_string(&maps).is_ok_and(|maps| !maps.contains("/memfd:gospect"))
    });
    assert!(common::is_alive(pid.into()));
    testkit::signal_process(pid, "KILL");
    assert!(agent.running.wait(LIMIT).success());
}

#[test]
fn root_a_request_stays_open_in_a_program_that_was_attached_to() {
    a_request_stays_open(&By::Attach, "attach");
}

#[test]
fn root_a_request_stays_open_in_a_program_that_was_started() {
    a_request_stays_open(&By::Launch, "launch");
}

#[test]
fn root_a_request_stays_open_in_a_program_that_asked() {
    a_request_stays_open(&By::Preload, "preload");
}

/// Whoever allows more gets at once what was given up.
#[test]
fn root_a_larger_budget_brings_back_what_was_given_up() {
    let _others = beside_others();
    let directory = Directory::new();
    let config = directory.file("gospect.toml");
    let program = directory.copy(&fixture("hotloop"), "hotloop");
    let running = Running::start(&program, &["-hot"]);
    let rest = format!("sensors = [\"metrics\"]\n{FUNCTIONS}\nbackend = \"trampoline\"");
    let file = configuration(&program, 1.0, &rest);
    let agent = Agent::start(&config, &file, &[]);
    until("the drop", || decisions(&agent).len() == 1);
    write(&config, &file.replace("budget = \"1%\"\n", ""));
    agent.running.signal("HUP");
    let is_free = |process: &Value| {
        let is_dear = process["budget"]["cost_percent"].as_f64() > Some(1.0);
        is_dear && process["budget"]["limit_percent"].is_null()
    };
    let process = agent.wait(running.pid(), "watched again", is_free);
    assert_eq!(sensor(&process, "main.hot")["state"], "active", "{process:#}");
    agent.stop();
    // As dear as it is, it is not given up any more; the agent takes it out when it ends.
    let before = slices(&running).len();
    std::thread::sleep(Duration::from_millis(300));
    until("the program to go on", || slices(&running).len() > before);
}
