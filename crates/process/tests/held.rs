//! Starting a program in two steps. The test binary is its own hidden subcommand.

use process::{Process, held_exec, spawn_held};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

const ENOENT: i32 = 2;
const EACCES: i32 = 13;

const HIDDEN: &str = "--held-for-test";

fn argv(args: &[&str]) -> Vec<OsString> {
    args.iter().map(OsString::from).collect()
}

fn spawn(args: &[&str], user: Option<&str>) -> process::Held {
    spawn_held(Path::new("/proc/self/exe"), HIDDEN, &argv(args), user).unwrap()
}

fn the_pid_is_known_before_the_first_instruction() {
    let mut held = spawn(&["sh", "-c", "exit 7"], None);
    let process = Process::open(held.pid()).unwrap();
    assert!(process.is_alive());
    held.release().unwrap();
    assert_eq!(held.wait().unwrap().code(), Some(7));
    assert!(held.release().is_ok(), "a second release does nothing");
}

fn a_program_that_cannot_start_says_why() {
    let cases = [
        ("/nowhere/x", "no such file, or its interpreter is missing", ENOENT),
        ("no-such-program", "no such file, or its interpreter is missing", ENOENT),
        ("/etc/passwd", "not executable, or no permission", EACCES),
    ];
    for (program, reason, errno) in cases {
        let mut held = spawn(&[program], None);
        let error = held.release().unwrap_err();
        assert_eq!(error.to_string(), format!("failed to start `{program}`: {reason}"));
        assert_eq!(error.errno, errno);
    }
}

fn an_unreleased_child_exits_when_we_let_go() {
    let held = spawn(&["sleep", "60"], None);
    let process = Process::open(held.pid()).unwrap();
    drop(held);
    assert!(!process.is_alive());
}

fn no_descriptor_of_ours_reaches_the_program() {
    let out = std::env::temp_dir().join(format!("held-fds-{}", std::process::id()));
    let script = format!("ls /proc/self/fd > {}", out.display());
    let fds = || {
        let fds = std::fs::read_to_string(&out).unwrap();
        std::fs::remove_file(&out).unwrap();
        fds
    };
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
    let without_us = fds();
    let mut held = spawn(&["sh", "-c", &script], None);
    held.release().unwrap();
    assert!(held.wait().unwrap().success());
    assert_eq!(fds(), without_us);
}

fn root_a_user_is_dropped_to_whole() {
    let script = r#"[ "$(id -un)" = nobody ] && [ "$(id -Gn)" = nogroup ] && [ "$USER" = nobody ] &&
        [ "$HOME" = /nonexistent ] && grep -q '^CapEff:.0*$' /proc/self/status"#;
    let mut held = spawn(&["sh", "-c", script], Some("nobody"));
    held.release().unwrap();
    assert!(held.wait().unwrap().success());
    let missing = spawn_held(Path::new("/proc/self/exe"), HIDDEN, &argv(&["true"]), Some("no one"));
    assert_eq!(missing.unwrap_err().to_string(), "no user `no one` in /etc/passwd");
}

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|arg| arg == HIDDEN) {
        return ExitCode::from(u8::try_from(held_exec(args)).unwrap_or(1));
    }
    the_pid_is_known_before_the_first_instruction();
    a_program_that_cannot_start_says_why();
    an_unreleased_child_exits_when_we_let_go();
    no_descriptor_of_ours_reaches_the_program();
    root_a_user_is_dropped_to_whole();
    ExitCode::SUCCESS
}
