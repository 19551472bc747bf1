//! Programs that are hard to change from outside: captured all the same, or left as they were
//! with one line that says why. Needs root.

mod common;
#[path = "common/target.rs"]
mod target;

use common::{LIMIT, expect_line, fixture, gospect};
use std::path::Path;
use std::process::{Command, Stdio};
use target::Target;
use testkit::{Fixture, Mode, Output, Recipe, Running, newest};

const TRACE: [&str; 8] =
    ["trace", "--backend", "trampoline", "--stat", "--duration", "100ms", "-u", "main.*"];

fn trace(pid: u32, more: &[&str]) -> Output {
    let pid = pid.to_string();
    gospect().run(&[&TRACE[..], &["-p", &pid], more].concat())
}

/// Traces until a call is seen: on a busy machine the target may not run at all for a while.
fn trace_calls(pid: u32, more: &[&str]) -> Output {
    for _ in 0..20 {
        let output = trace(pid, more);
        if output.code != Some(3) {
            output.expect_code(0);
            return output;
        }
    }
    panic!("no call of process {pid} is seen");
}

fn odd(what: &str) -> Target {
    let target = Target::start(&fixture("odd"), &["-do", what]);
    target.running.wait_for("odd", LIMIT);
    target
}

#[test]
fn root_restrictions_that_do_not_concern_us_are_none() {
    // A filter that refuses executable memory, one that kills on memfd_create, memory that may not
    // become executable, code in parts of different protection, a thread of the kernel's.
    for what in ["seccomp-exec", "seccomp-kill", "mdwe", "protect", "uring"] {
        let target = odd(what);
        trace_calls(target.pid, &[]);
        target.assert_clean(what);
        target.finish();
    }
}

#[test]
fn root_a_function_that_the_program_has_replaced_is_left_alone() {
    let target = odd("write");
    let before = target.different();
    assert!(!before.is_empty());
    let output = trace_calls(target.pid, &["-v"]);
    // By neither backend. (Another one, where a goroutine was stopped just then, may get uprobes.)
    let untraced = output.stderr.split_once("not traced:").map_or("", |(_, listed)| listed);
    assert!(untraced.contains("main.victim: its code in memory differs"), "{}", output.stderr);
    assert_eq!(target.different(), before);
    target.assert_unmapped("write");
    target.finish();
}

#[test]
fn root_what_cannot_be_mapped_is_refused_with_the_limit() {
    let refused: [(&str, &[&str], &[&str]); 3] = [
        ("full", &[], &["free bytes within 2 GiB of its code: use --backend uprobe"]),
        ("limit-as", &["--ring", "16"], &["mmap in process", "RLIMIT_AS"]),
        ("limit-files", &[], &["memfd_create in process", "it has too many open files"]),
    ];
    for (what, more, words) in refused {
        let target = odd(what);
        let output = trace(target.pid, more);
        expect_line(&output, 1, &[&["failed to trace"], words].concat());
        target.assert_clean(what);
        target.finish();
    }
}

#[test]
fn root_without_privileges_nothing_is_touched() {
    let target = odd("nothing");
    let pid = target.pid.to_string();
    let ways: [(&[&str], &str); 2] = [
        (&["--bounding-set=-all", "--inh-caps=-all"], "run as root"),
        (&["--reuid=65534", "--clear-groups"], "belongs to user 0 and we are user 65534"),
    ];
    for (way, reason) in ways {
        let mut command = Command::new("setpriv");
        command.args(way).arg(env!("CARGO_BIN_EXE_gospect")).args(TRACE).args(["-p", &pid]);
        let output = gospect().finish(&mut Running::spawn(command));
        expect_line(&output, 1, &["no permission", reason]);
        target.assert_clean(reason);
    }
    target.finish();
}

#[test]
fn root_a_tracer_that_is_there_first_is_named() {
    let mut target = odd("nothing");
    let pid = target.pid.to_string();
    let mut strace = Command::new("strace")
        .args(["-f", "-o", "/dev/null", "-p", &pid])
        .stderr(Stdio::null())
        .spawn()
        .expect("strace");
    let id = strace.id();
    common::until("strace traces it", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
        status.is_ok_and(|status| status.contains(&format!("TracerPid:\t{id}\n")))
    });
    let output = trace(target.pid, &[]);
    let tracer = format!("process {id} (strace) traces it already; end that first");
    expect_line(&output, 1, &["no permission to trace process", &tracer]);
    target.assert_clean("strace");
    strace.kill().and_then(|()| strace.wait()).expect("our own child");
    assert!(target.running.is_running());
    trace_calls(target.pid, &[]);
    target.assert_clean("after strace");
    target.finish();
}

#[test]
fn root_a_program_for_32_bit_is_refused() {
    let mut recipe = Recipe { label: "386".to_owned(), ..Mode::Exe.recipe() };
    recipe.env.push(("GOARCH".to_owned(), "386".to_owned()));
    let path = Fixture::build_as("spin", &newest(), &recipe);
    let mut running = Running::held(&path, &["-for", "0"]);
    let output = trace(running.pid(), &[]);
    expect_line(&output, 1, &["not a 64-bit x86-64 executable"]);
    running.go();
    running.close_stdin();
    assert_eq!(running.wait_for("done", LIMIT)["wrong"], 0);
}

/// A FIPS build hashes its own code when its packages are initialized, and ends when it is not as
/// it was linked.
#[test]
fn root_code_that_checks_itself_is_left_alone_until_it_has() {
    let mut recipe = Recipe { label: "fips".to_owned(), ..Mode::Exe.recipe() };
    recipe.env.push(("GOFIPS140".to_owned(), "v1.0.0".to_owned()));
    let path = Fixture::build_as("httpload", &newest(), &recipe);
    let path = path.to_str().expect("a path");
    let select = ["-u", "crypto/internal/fips140/*", "-u", "main.main"];
    for backend in ["trampoline", "uprobe"] {
        let how = ["trace", "--backend", backend, "--stat", "-v"];
        let command = ["--", path, "-n", "1", "-addr", "127.0.0.1:1"];
        let output = gospect().run(&[&how[..], &select, &command].concat());
        output.expect_code(0);
        assert!(output.stdout.contains("\"requests\":1"), "{}", output.story());
        assert!(output.stderr.contains("FIPS"), "{}", output.story());
    }
    // One that has only just begun may still be at it.
    let mut target = Running::held(Path::new(path), &["-n", "1", "-addr", "127.0.0.1:1"]);
    let output = trace(target.pid(), &["-v", "-u", "crypto/internal/fips140/*"]);
    assert!(output.stderr.contains("FIPS"), "{}", output.story());
    target.go();
    assert!(target.wait(LIMIT).success(), "{}", target.stderr());
}

/// The first process of a pid namespace, in a mount namespace of its own, whose file is gone.
#[test]
fn root_the_init_of_a_container_without_its_file_is_captured() {
    let dir = common::Directory::new();
    let path = dir.copy(&fixture("odd"), "odd");
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]).arg(&path);
    let mut target = Target::spawn(command, &path);
    let ready = target.running.wait_for("odd", LIMIT);
    assert_eq!(ready["wrong"], 0);
    target.pid = child_of(target.pid);
    std::fs::remove_file(&path).expect("our own file");
    for _ in 0..2 {
        trace_calls(target.pid, &[]);
        target.assert_clean("container");
    }
    target.finish();
}

fn child_of(pid: u32) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.expect("it runs");
    children.split_whitespace().next().and_then(|child| child.parse().ok()).expect("a child")
}

/// A forked child keeps the jumps on the path that records nothing, until it is named itself,
/// also while its parent is captured.
#[test]
fn root_a_forked_child_is_freed_by_itself() {
    let path = Fixture::build("odd_cgo", &newest(), Mode::Cgo);
    let mut target = Target::start(&path, &["-do", "fork"]);
    target.running.wait_for("before", LIMIT);
    let pid = target.pid.to_string();
    let how = ["trace", "--backend", "trampoline", "--stat", "-u", "main.*", "-p", &pid];
    let mut tracer = gospect().start(&how);
    common::wait_attached(&tracer);
    target.running.go();
    let forked = target.running.wait_for("odd", LIMIT)["pid"].as_u64().expect("a pid");
    let mut child = Target::spawn(waiting(), Path::new(&path));
    child.pid = u32::try_from(forked).expect("a pid");
    assert!(!child.different().is_empty());
    let detach = |pid: u32| gospect().run(&["detach", "-p", &pid.to_string()]);
    detach(child.pid).expect_code(0);
    // Breakpoints of the uprobes that serve other functions stay until the capture ends.
    child.assert_unmapped("child");
    let busy = detach(target.pid);
    expect_line(&busy, 1, &["has trampolines in it already; end that first"]);
    tracer.signal("INT");
    let output = gospect().finish(&mut tracer);
    output.expect_code(0);
    target.assert_clean("parent");
    child.assert_clean("child");
    drop(child);
    let line = |line: &str| line.contains("\"child\"");
    target.running.go();
    let said = target.running.wait_line(LIMIT, line);
    assert!(said.contains("\"wrong\":0"), "{said}");
    target.finish();
}

/// Something to start in place of the child, which is there already.
fn waiting() -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "echo '{\"type\":\"ready\"}'; cat"]);
    command
}

#[test]
fn root_a_process_that_shares_its_memory_is_refused() {
    let path = Fixture::build("odd_cgo", &newest(), Mode::Cgo);
    let target = Target::start(&path, &["-do", "relative"]);
    let relative = target.running.wait_for("odd", LIMIT)["pid"].clone();
    let output = trace(target.pid, &[]);
    let words = format!("process {relative} shares its memory and would run patched code unseen");
    expect_line(&output, 1, &["cannot be patched", &words]);
    let doctor = gospect().run(&["doctor", "-p", &target.pid.to_string()]);
    assert!(doctor.stdout.contains(&words), "{}", doctor.story());
    target.assert_clean("relative");
    target.finish();
}

/// Faults of ours would end the program: nothing that can fault is put into it.
#[test]
fn root_a_handler_of_the_programs_own_gets_no_fault_of_ours() {
    let path = Fixture::build("odd_cgo", &newest(), Mode::Cgo);
    let target = Target::start(&path, &["-do", "handler"]);
    target.running.wait_for("odd", LIMIT);
    trace_calls(target.pid, &[]);
    target.assert_clean("handler");
    target.finish();
}

#[test]
fn root_a_thousand_threads_stand_and_go_on() {
    let target = Target::start(&fixture("odd"), &["-threads", "1100"]);
    target.running.wait_for("odd", LIMIT);
    let threads =
        || std::fs::read_dir(format!("/proc/{}/task", target.pid)).expect("it runs").count();
    common::until("all threads are there", || threads() > 1100);
    // On a busy machine none of those that compute may have its turn meanwhile.
    let output = trace(target.pid, &[]);
    assert!(matches!(output.code, Some(0 | 3)), "{}", output.story());
    target.assert_clean("many threads");
    target.finish();
}

#[test]
fn root_unusual_schedulers_are_none_to_us() {
    let path = fixture("odd");
    let ways: [&[(&str, &str)]; 3] = [
        &[("GODEBUG", "asyncpreemptoff=1")],
        &[("GOMAXPROCS", "1")],
        &[("GOMAXPROCS", "64"), ("GOGC", "5")],
    ];
    for way in ways {
        let mut command = Command::new(&path);
        command.args(["-g", "6"]).envs(way.iter().copied());
        let target = Target::spawn(command, &path);
        target.running.wait_for("odd", LIMIT);
        trace_calls(target.pid, &["-u", "fmt.*", "-u", "runtime.mallocgc*"]);
        target.assert_clean(way[0].0);
        target.finish();
    }
}

/// A release that no table knows: its debug info serves, or one line says what is missing.
#[test]
fn root_a_release_that_is_not_known_is_traced_by_its_debug_info() {
    let dir = common::Directory::new();
    let go = newest();
    let path = dir.copy(&Fixture::build("unrest", &go, Mode::Exe), "unrest");
    let (known, other) = (format!("go{}", go.version), format!("go9{}", &go.version[1..]));
    let change = format!("s/{known}/{other}/g");
    let changed = Command::new("sed").args(["-i", &change]).arg(&path).env("LC_ALL", "C").status();
    assert!(changed.expect("sed").success());
    let how = ["trace", "--backend", "trampoline", "--format", "json", "-u", "main.deep", "--"];
    let run = |path: &Path| {
        let command = [path.to_str().expect("a path"), "-do", "gc", "-n", "20"];
        gospect().run(&[&how[..], &command].concat())
    };
    let output = run(&path);
    output.expect_code(0);
    // Fields of the runtime that only the debug info can name: threads, and goroutines that end.
    let calls = output.calls_of("main.deep");
    assert_eq!(calls.len(), 20 * 31);
    assert!(calls.iter().all(|call| call["tid"].as_u64() > Some(0)), "{}", calls[0]);
    assert_eq!(output.of_type("summary")[0]["invalid"], 0);

    let stripped = Command::new("objcopy").arg("--strip-debug").arg(&path).status();
    assert!(stripped.expect("objcopy").success());
    let missing = format!("the layout of runtime.g in {other} is not known");
    expect_line(&run(&path), 1, &[&missing, "use a build with debug info"]);
}
