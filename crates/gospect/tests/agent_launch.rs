//! `gospect agent -- CMD`: whose output it is, whose signals, and how it ends.

mod common;
#[path = "common/service.rs"]
mod service;

use common::{Directory, fixture, is_alive, own, path_text, until};
use service::{Agent, LIMIT, Started, ask, is_watched, listening, write};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};
use testkit::{Fixture, Mode, Running, newest, signal_process};

/// The agent with a command and without a file. Such an agent listens at the usual port, which is free in a network
/// namespace of its own.
fn agent(program: &Path, args: &[&str]) -> Running {
    // The name of the interface is 16 bytes, then its flags: IFF_UP (1).
    let up = "import fcntl, socket; fcntl.ioctl(socket.socket(), 0x8914, b'lo' + bytes(14) + b'\\1' + bytes(23))";
    let script = format!("python3 -c \"{up}\" && exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["-n", "sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_gospect"), "agent", "--"]);
    command.arg(program).args(args).process_group(0);
    let running = Running::spawn(command);
    running.wait_error_line(LIMIT, |line| line.contains("serving http://127.0.0.1:9463/"));
    running
}

fn end(mut running: Running) -> (ExitStatus, String, String) {
    let status = running.wait(LIMIT);
    (status, running.stdout(), running.stderr())
}

/// The agent writes nothing to standard output, which is the command's, and ends with it; its own exit code says
/// whether it has done its work, and 4 that the command was killed.
#[test]
fn root_the_output_is_the_commands_and_its_end_is_told() {
    let program = own(&Fixture::build("osexit", &newest(), Mode::Exe));
    let (status, out, said) = end(agent(&program, &["-code", "3"]));
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(out.lines().all(|line| line.starts_with('{') && line.contains("\"type\":")), "{out}");
    assert!(out.lines().next().is_some_and(|line| line.contains("\"ready\"")), "{out}");
    assert!(said.contains("the command has ended: exit status: 3"), "{said}");

    let program = own(&Fixture::build("spin", &newest(), Mode::Exe));
    let running = agent(&program, &["-rounds", "3"]);
    let (status, out, said) = end(running);
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(out.lines().last().is_some_and(|line| line.contains("\"wrong\":0")), "{out}");
    assert!(!said.contains("the command has ended"), "{said}");

    let running = agent(&program, &["-for", "0"]);
    running.wait_for("ready", LIMIT);
    let pid = child_of(running.pid());
    signal_process(pid, "KILL");
    let (status, _, said) = end(running);
    assert_eq!(status.code(), Some(4), "{said}");
    assert!(said.contains("the command has ended: signal: 9"), "{said}");
}

/// The one child of a process.
fn child_of(pid: u32) -> u32 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
    let children =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok());
    let children: Vec<u32> = children
        .flat_map(|text| {
            text.split_whitespace().filter_map(|it| it.parse().ok()).collect::<Vec<_>>()
        })
        .collect();
    let [child] = children[..] else { panic!("{children:?}") };
    child
}

/// Ctrl-C reaches the command, and the agent goes on until that has ended, or until the second time.
#[test]
fn root_the_first_interrupt_is_the_commands() {
    let program = own(&fixture("interrupted"));
    let mut running = agent(&program, &["-code", "7"]);
    running.wait_for("ready", LIMIT);
    running.signal_group("INT");
    running.wait_for("signal", LIMIT);
    assert!(running.is_running());
    running.close_stdin();
    let (status, _, said) = end(running);
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("the command has ended: exit status: 7"), "{said}");

    let mut running = agent(&program, &[]);
    running.wait_for("ready", LIMIT);
    let child = Started(child_of(running.pid()));
    running.signal_group("INT");
    running.wait_line(LIMIT, |line| line.contains("\"count\":1"));
    assert!(running.is_running());
    // Its output is the child's too, and stays open. The kernel makes one of two signals where a process is late.
    until("the agent to end", || {
        running.signal_group("INT");
        !running.is_running()
    });
    assert!(is_alive(child.0.into()));
    drop(child);
    let (status, _, said) = end(running);
    assert_eq!(status.code(), Some(0), "{said}");
}

/// SIGTERM ends the agent alone: the command runs on, with nothing of gospect in it.
#[test]
fn root_a_terminated_agent_leaves_the_command() {
    let directory = Directory::new();
    let program = directory.copy(&fixture("httpserver"), "shop");
    let config = directory.file("gospect.toml");
    let exe = path_text(&program);
    write(&config, &format!("[[service]]\nname = \"shop\"\nmatch = {{ exe = \"{exe}\" }}\n"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_gospect"));
    command.args(["agent", "--config", path_text(&config), "--", exe]);
    let mut agent = Agent::of(Running::spawn(command));
    let address = listening(&agent.running);
    let child = Started(agent.pid_of("shop"));
    let process = agent.wait(child.0, "watched", is_watched);
    assert_eq!(process["capture"]["way"], "launch", "{process:#}");
    ask(&address, "/sum?n=3");
    agent.wait(child.0, "its request", |process| process["spans"]["made"] == 1);
    agent.running.signal("TERM");
    // Its output is the child's too, and stays open.
    until("the agent to end", || !agent.running.is_running());
    assert!(is_alive(child.0.into()));
    assert!(!capture_trampoline::has_leftovers(child.0));
    ask(&address, "/sum?n=3");
}
