//! Every fixture program builds with the oldest and the newest Go and does what it says.

use std::time::Duration;

use testkit::{Fixture, Mode, Running, newest, oldest};

const LIMIT: Duration = Duration::from_secs(30);

/// Runs a program to its end and gives its `done` line.
fn done(name: &str, mode: Mode, args: &[&str], code: i32) -> [serde_json::Value; 2] {
    [oldest(), newest()].map(|toolchain| {
        let program = Fixture::build(name, &toolchain, mode);
        let mut running = Running::start(&program, args);
        running.close_stdin();
        let status = running.wait(LIMIT);
        let story = format!("{name} by {}: {}", toolchain.version, running.stderr());
        assert_eq!(status.code(), Some(code), "{story}");
        running.wait_for("done", Duration::ZERO)
    })
}

#[test]
fn counting_programs_count_alike_on_every_go() {
    let runs: &[(&str, &[&str])] = &[
        ("growth", &[]),
        ("panics", &["-mode", "all", "-n", "10"]),
        ("goroutines", &["-n", "1000", "-at-once", "10"]),
        ("args", &[]),
        ("tail", &[]),
        ("ftrace_demo", &["-demo", "student"]),
        ("spin", &["-rounds", "10"]),
        ("inlined", &["-never"]),
        ("forkexec", &["-exec"]),
    ];
    for (name, args) in runs {
        let [old, new] = done(name, Mode::Exe, args, 0);
        assert_eq!(old, new, "{name}");
    }
    let [old, new] = done("migrate", Mode::Exe, &["-n", "5"], 0);
    assert_eq!(old["calls"], new["calls"]);
}

#[test]
fn programs_that_die_say_first_what_is_open() {
    for value in ["string", "error", "custom", "int", "runtime"] {
        let [old, new] = done("fatal", Mode::Exe, &["-value", value], 2);
        assert_eq!(old, new, "{value}");
    }
    let [old, new] = done("osexit", Mode::Exe, &["-code", "9"], 9);
    assert_eq!(old, new);
}

#[test]
fn cgo_programs_cross_the_border() {
    for name in ["cgo", "cgo_tls"] {
        let [old, new] = done(name, Mode::Cgo, &["-n", "10"], 0);
        assert_eq!(old, new, "{name}");
    }
}

#[test]
fn a_service_answers_its_load() {
    let server =
        Running::start(&Fixture::build("httpserver", &newest(), Mode::Exe), &["-wait=false"]);
    let listening = server.wait_for("listening", LIMIT);
    let addr = listening["addr"].as_str().expect("an address");
    let load = Fixture::build("httpload", &newest(), Mode::Exe);
    let mut client = Running::start(&load, &["-addr", addr, "-n", "200"]);
    assert!(client.wait(LIMIT).success());
    let done = client.wait_for("done", LIMIT);
    assert_eq!((&done["requests"], &done["failures"]), (&200.into(), &0.into()), "{done}");
    let mut quit = Running::start(&load, &["-addr", addr, "-n", "1", "-c", "1", "-paths", "/quit"]);
    assert!(quit.wait(LIMIT).success());
    assert_eq!(server.wait_for("done", LIMIT)["handled"]["/sum"], 50);
}

#[test]
fn large_programs_are_large() {
    let program = testkit::big_binary(&newest());
    let size = std::fs::metadata(&program).expect("it was built").len();
    assert!(size > 60_000_000, "{size} bytes");
    let mut running = Running::start::<&str>(&program, &[]);
    assert!(running.wait(LIMIT).success());
    let mut many = Running::start(&Fixture::build("big", &newest(), Mode::Exe), &["-for", "10ms"]);
    assert!(many.wait(LIMIT).success());
}
