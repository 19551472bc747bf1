//! Starting a command under a trace: users, what cannot be started or traced, and what a
//! person without rights is told. Needs root.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use common::{
    Backend, Directory, Trace, as_nobody, expect_line, fixture, gospect, number, path_text,
};
use testkit::Running;

#[test]
fn root_a_command_runs_as_the_user_named() {
    let dir = Directory::new();
    let program = dir.copy(&fixture("identity"), "identity");
    let trace = Trace::launch(&["--user", "nobody", "-u", "main.work"], &program, &[]);
    trace.output.expect_code(0);
    trace.expect_returned();
    let done = trace.done();
    let id = |option: &str| -> u64 {
        let output = Command::new("id").args([option, "nobody"]).output().expect("id");
        String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
    };
    let home = {
        let passwd = fs::read_to_string("/etc/passwd").expect("passwd");
        let line = passwd.lines().find(|line| line.starts_with("nobody:")).expect("nobody");
        line.split(':').nth(5).expect("a home").to_owned()
    };
    for key in ["uid", "euid"] {
        assert_eq!(number(&done[key]), id("-u"), "{done}");
    }
    assert_eq!(number(&done["gid"]), id("-g"), "{done}");
    assert_eq!(done["groups"], serde_json::json!([id("-g")]), "{done}");
    assert_eq!((&done["home"], &done["user"]), (&home.into(), &"nobody".into()));
}

#[test]
fn root_commands_that_cannot_be_traced_are_refused() {
    let dir = Directory::new();
    let script = dir.file("script");
    fs::write(&script, "#!/bin/sh\necho ran\n").expect("a script");
    let not_executable = dir.copy(&fixture("counts"), "plain");
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    mode(&script, 0o755).expect("its mode");
    mode(&not_executable, 0o644).expect("its mode");
    let counts = fixture("counts");
    let launch = |options: &[&str], program: &str| {
        let line = [&["trace", "-u", "main.*"], options, &["--", program]].concat();
        gospect().run(&line)
    };
    expect_line(&launch(&[], "no-such-command"), 1, &["no-such-command", "not found"]);
    expect_line(&launch(&[], "./no-such-file"), 1, &["./no-such-file", "no such file"]);
    expect_line(&launch(&[], "/tmp"), 1, &["/tmp", "directory"]);
    expect_line(&launch(&[], path_text(&not_executable)), 1, &["not executable"]);
    expect_line(&launch(&[], path_text(&script)), 1, &[path_text(&script), "not an ELF"]);
    expect_line(&launch(&[], "/bin/true"), 1, &["/bin/true", "Go"]);
    let unknown = launch(&["--user", "no-such-user"], path_text(&counts));
    expect_line(&unknown, 1, &["no-such-user"]);
    let line = ["trace", "--user", "nobody", "-u", "main.*", "--exe", path_text(&counts)];
    expect_line(&gospect().run(&line), 2, &["--user"]);
}

#[test]
fn root_a_command_its_user_may_not_start_is_a_failure() {
    let dir = Directory::new();
    let program = dir.copy(&fixture("counts"), "mine");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("its mode");
    let line = ["trace", "--user", "nobody", "-u", "main.*", "--", path_text(&program)];
    expect_line(&gospect().run(&line), 1, &[path_text(&program), "permission"]);
}

#[test]
fn root_without_the_rights_one_line_says_so() {
    let dir = Directory::new();
    let program = dir.copy(&fixture("counts"), "counts");
    let path = path_text(&program);
    let target = Running::held(&program, &[]);
    let pid = target.pid().to_string();
    let select = ["trace", "-u", "main.*"];
    let attach = as_nobody(&dir, &[&select[..], &["-p", &pid]].concat());
    expect_line(&attach, 1, &["no permission", &pid, "root"]);
    let launch = as_nobody(&dir, &[&select[..], &["--", path]].concat());
    match Backend::selected() {
        Backend::Uprobe => expect_line(&launch, 1, &["no permission", "root"]),
        // Whoever starts a program may write into it.
        Backend::Trampoline => {
            launch.expect_code(0);
            assert!(launch.stdout.contains("main.leaf(i=3) = 3"), "{}", launch.story());
        }
    }
    // What needs no rights works.
    as_nobody(&dir, &["info", path]).expect_code(0);
    let plan = as_nobody(&dir, &["trace", "--dry-run", "-u", "main.*", "--", path]);
    plan.expect_code(0);
    assert!(plan.stdout.contains("main.work"), "{}", plan.story());
    drop(target);
}
