//! Services that are told apart by where their processes are: ports, control groups, containers.

mod common;
#[path = "common/service.rs"]
mod service;

use common::{Directory, fixture, path_text};
use serde_json::Value;
use service::{Agent, LIMIT, ask, free_address, is_watched, listening};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::Running;

/// A program that began to listen after it was found is another service's from then on, soon: when that wants the
/// same of it what watches it stays, else it is watched anew; and one that no service took before is taken.
#[test]
fn root_who_begins_to_listen_later_is_found() {
    let directory = Directory::new();
    let program = directory.copy(&fixture("httpserver"), "shop");
    let stranger = directory.copy(&fixture("httpserver"), "stranger");
    let [same, other, third] = [free_address(), free_address(), free_address()];
    let port = |address: &str| address.rsplit_once(':').expect("a port").1.to_owned();
    let file = format!(
        "[[service]]\nname = \"same\"\nmatch = {{ port = {} }}\n\
         [[service]]\nname = \"other\"\nmatch = {{ port = {} }}\nfunctions = [\"main.addUp\"]\n\
         [[service]]\nname = \"third\"\nmatch = {{ port = {}, exe = \"*/stranger\" }}\n\
         [[service]]\nname = \"rest\"\nmatch = {{ exe = \"{}\" }}\n",
        port(&same),
        port(&other),
        port(&third),
        path_text(&program)
    );
    let agent = Agent::start(&directory.file("gospect.toml"), &file, &[]);
    let held = |program: &Path, address: &str| Running::held(program, &["-addr", address]);
    let mut all = [held(&program, &same), held(&program, &other), held(&stranger, &third)];
    let whys = |pid| agent.process(pid)["capture"]["reason"].clone();
    for running in &all[..2] {
        let process = agent.wait(running.pid(), "watched", is_watched);
        assert_eq!(process["service"], "rest", "{process:#}");
    }
    assert_eq!(agent.process(all[2].pid()), Value::Null);
    let kept = whys(all[0].pid());
    let begun = Instant::now();
    for (running, (name, address)) in
        all.iter_mut().zip([("same", &same), ("other", &other), ("third", &third)])
    {
        running.go();
        listening(running);
        let is_its = |process: &Value| process["service"] == name && is_watched(process);
        agent.wait(running.pid(), name, is_its);
        ask(address, "/sum?n=3");
        agent.wait(running.pid(), "its request", |process| process["spans"]["made"] == 1);
    }
    // All processes are looked at twice a minute: this is not how they were found.
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    assert_eq!(whys(all[0].pid()), kept);
    let functions = |process: &Value| {
        let sensors = process["sensors"].as_array().expect("a list");
        sensors
            .iter()
            .any(|sensor| sensor["kind"] == "function" && sensor["hits"].as_u64() > Some(0))
    };
    agent.wait(all[1].pid(), "its function", functions);
    agent.stop();
}

/// A control group of our own, in a hierarchy of whichever version is mounted.
struct Group(PathBuf);

impl Group {
    fn new() -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        // Fields of proc_pid_mountinfo(5): the fifth is where, those behind ` - ` what.
        let places = mounts.lines().filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let place = before.split(' ').nth(4)?;
            let (kind, rest) = after.split_once(' ')?;
            let rank = match kind {
                "cgroup2" => 0,
                "cgroup" if rest.contains("name=systemd") => 1,
                _ => return None,
            };
            Some((rank, PathBuf::from(place)))
        });
        let (_, mount) = places.min().expect("no hierarchy of control groups is mounted");
        let own = mount.join(format!("gospect-test-{}", std::process::id()));
        std::fs::create_dir(&own)
            .unwrap_or_else(|error| panic!("{}: {error}: run as root", own.display()));
        Self(own)
    }

    /// Starts a program in a group below it, as container runtimes do: what moves there becomes it.
    fn start(&self, name: &str, program: &Path) -> Running {
        let group = self.0.join(name);
        std::fs::create_dir_all(&group).expect("a group");
        let script = "echo $$ >\"$GROUP/cgroup.procs\" && exec \"$PROGRAM\"";
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("GROUP", group).env("PROGRAM", program);
        let running = Running::spawn(command);
        listening(&running);
        running
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Deepest first. A process that has just ended is in its group for a moment.
        let begun = Instant::now();
        let remove = |own: &Path| {
            Command::new("find").arg(own).args(["-depth", "-type", "d", "-delete"]).output()
        };
        while self.0.exists() && begun.elapsed() < LIMIT {
            _ = remove(&self.0);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Processes in groups as Docker, containerd, CRI-O, Podman, Kubernetes, LXC and systemd make them, each by what a
/// service says of its container or of its group.
#[test]
fn root_services_are_told_apart_by_container_and_control_group() {
    let directory = Directory::new();
    let program = directory.copy(&fixture("httpserver"), "shop");
    let group = Group::new();
    let id = |digit: char| digit.to_string().repeat(64);
    let (pod, whole) = ("kubepods/burstable/pod7a-1", id('e'));
    // The group, what the service asks for, and what is told of the container.
    let cases = [
        (
            "docker",
            format!("docker-{}.scope", id('a')),
            format!("container = \"{}\"", id('a')),
            Some(id('a')),
        ),
        (
            "containerd",
            format!("cri-containerd-{}.scope", id('b')),
            "container = \"bbbbbbbbbbbb\"".to_owned(),
            Some(id('b')),
        ),
        (
            "crio",
            format!("crio-{}.scope", id('c')),
            "container = \"cccc*\"".to_owned(),
            Some(id('c')),
        ),
        (
            "podman",
            format!("libpod-{}.scope/container", id('d')),
            format!("container = \"{}\"", id('d')),
            Some(id('d')),
        ),
        (
            "kubelet",
            format!("{pod}/{whole}"),
            "cgroup = \"*/kubepods/burstable/pod7a-1/*\"".to_owned(),
            Some(whole),
        ),
        (
            "lxc",
            "lxc.payload.web".to_owned(),
            "container = \"web\"".to_owned(),
            Some("web".to_owned()),
        ),
        (
            "nspawn",
            "systemd-nspawn@box.service".to_owned(),
            "container = \"box\"".to_owned(),
            Some("box".to_owned()),
        ),
        (
            "unit",
            "system.slice/shop.service".to_owned(),
            "cgroup = \"*/shop.service\"".to_owned(),
            None,
        ),
    ];
    let exe = path_text(&program);
    let services = cases.iter().map(|(name, _, asks, _)| {
        format!("[[service]]\nname = \"{name}\"\nmatch = {{ exe = \"{exe}\", {asks} }}\n")
    });
    let rest = format!("[[service]]\nname = \"rest\"\nmatch = {{ exe = \"{exe}\" }}\n");
    let file = services.collect::<String>() + &rest;
    let agent = Agent::start(&directory.file("gospect.toml"), &file, &[]);
    let mut all: Vec<Running> = Vec::new();
    for (name, place, _, container) in &cases {
        let running = group.start(place, &program);
        let process = agent.wait(running.pid(), name, is_watched);
        assert_eq!(process["service"], *name, "{process:#}");
        assert_eq!(process["container"].as_str(), container.as_deref(), "{process:#}");
        let own = process["cgroup"].as_str().expect("its group");
        assert!(own.ends_with(place.as_str()), "{own}");
        all.push(running);
    }
    // Of another container nobody has heard.
    let running = group.start(&format!("docker-{}.scope", id('f')), &program);
    let process = agent.wait(running.pid(), "the rest", is_watched);
    assert_eq!((&process["service"], &process["container"]), (&"rest".into(), &id('f').into()));
    agent.stop();
    drop((all, running));
}
