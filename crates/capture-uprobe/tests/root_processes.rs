//! Scopes, execve and the end of processes, with children that are this same file. Needs root.

mod support;

use capture::{Capture as _, Request, Scope};
use capture_uprobe::{Options, UprobeCapture};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use support::{chain, count, counted_address, drain, plan};
use wire::{Record, RecordKind};

/// Makes this file the waiting child of a held start.
const HIDDEN: &str = "--held-for-test";

/// A child that waits for a line before it does what its arguments say.
struct Waiting(Child);

impl Waiting {
    fn start(arguments: &[&str]) -> Self {
        let child = Command::new("/proc/self/exe")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut child = Self(child);
        // Its byte says that it runs this file and not still the code between fork and exec.
        child.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        child
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn finish(mut self) {
        self.0.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

fn install(scope: Scope, options: Options) -> UprobeCapture {
    let plan = plan(&[counted_address()], &[]);
    let request =
        Request { plan: &plan, path: "/proc/self/exe".into(), scope, ring_bytes: 1 << 20 };
    UprobeCapture::install(&request, options)
        .unwrap_or_else(|e| panic!("these tests need root and BPF: {}", chain(&e)))
}

/// What each process did, in order, equal events in a row counted.
fn story(capture: &mut UprobeCapture) -> BTreeMap<u32, String> {
    let mut stories: BTreeMap<u32, Vec<(RecordKind, usize)>> = BTreeMap::new();
    for bytes in drain(capture) {
        let record = Record::parse(&bytes).unwrap();
        let story = stories.entry(record.pid).or_default();
        match story.last_mut() {
            Some((kind, n)) if *kind == record.kind => *n += 1,
            _ => story.push((record.kind, 1)),
        }
    }
    let text = |story: Vec<(RecordKind, usize)>| {
        story.iter().map(|(kind, n)| format!("{kind:?} {n}")).collect::<Vec<_>>().join(", ")
    };
    stories.into_iter().map(|(pid, story)| (pid, text(story))).collect()
}

fn one_process_only() {
    for perf_link in [false, true] {
        let (a, b) = (Waiting::start(&["hit", "30"]), Waiting::start(&["hit", "40"]));
        let options = Options { perf_link, ..Options::default() };
        let mut capture = install(Scope::Pids(vec![a.pid()]), options);
        let pid = a.pid();
        b.finish();
        a.finish();
        assert_eq!(
            story(&mut capture),
            [(pid, "Process 1, Hit 30, ProcessExit 1".to_owned())].into()
        );
        let counters = capture.counters().unwrap();
        assert_eq!((counters.produced, counters.lost), (32, 0));
    }
}

fn some_processes_and_the_rest_counted_as_foreign() {
    let children = [30, 40, 50].map(|n| Waiting::start(&["hit", &n.to_string()]));
    let pids = [children[0].pid(), children[1].pid()];
    let mut capture = install(Scope::Pids(pids.to_vec()), Options::default());
    children.into_iter().for_each(Waiting::finish);
    let story = story(&mut capture);
    assert_eq!(story.len(), 2);
    assert_eq!(story[&pids[0]], "Process 1, Hit 30, ProcessExit 1");
    assert_eq!(story[&pids[1]], "Process 1, Hit 40, ProcessExit 1");
    assert_eq!(capture.counters().unwrap().foreign, 50);
}

fn every_process_also_later_ones() {
    let early = Waiting::start(&["hit", "3"]);
    let mut capture = install(Scope::EveryProcess, Options::default());
    let late = Waiting::start(&["hit", "4"]);
    // One that runs the file and never hits, and one that does not run it.
    let idle = Waiting::start(&["hit", "0"]);
    assert!(Command::new("true").status().unwrap().success());
    let pids = [early.pid(), late.pid()];
    [early, late, idle].into_iter().for_each(Waiting::finish);
    let story = story(&mut capture);
    assert_eq!(story.len(), 2, "{story:?}");
    assert_eq!(story[&pids[0]], "Process 1, Hit 3, ProcessExit 1");
    assert_eq!(story[&pids[1]], "Process 1, Hit 4, ProcessExit 1");
}

fn execve_is_told_between_the_hits() {
    let child = Waiting::start(&["hit-exec", "10", "5"]);
    let pid = child.pid();
    let mut capture = install(Scope::Pids(vec![pid]), Options::default());
    child.finish();
    let expected = "Process 1, Hit 10, Exec 1, Process 1, Hit 5, ProcessExit 1".to_owned();
    assert_eq!(story(&mut capture), [(pid, expected)].into());
}

fn a_process_outlives_its_leader() {
    let child = Waiting::start(&["leaderless", "20"]);
    let pid = child.pid();
    let mut capture = install(Scope::Pids(vec![pid]), Options::default());
    child.finish();
    // All hits come after the leader's end, none after the process's.
    assert_eq!(story(&mut capture), [(pid, "Process 1, Hit 20, ProcessExit 1".to_owned())].into());
}

fn a_started_program_is_seen_from_its_first_instruction() {
    for perf_link in [false, true] {
        let program = std::env::temp_dir().join(format!("started-{}", std::process::id()));
        std::fs::copy("/proc/self/exe", &program).unwrap();
        let argv = [program.as_os_str().to_owned(), "hit-now".into(), "25".into()];
        let mut held = process::spawn_held("/proc/self/exe".as_ref(), HIDDEN, &argv, None).unwrap();
        let plan = plan(&[counted_address()], &[]);
        let request = Request {
            plan: &plan,
            path: program.clone(),
            scope: Scope::Pids(vec![held.pid()]),
            ring_bytes: 1 << 20,
        };
        let options = Options { perf_link, ..Options::default() };
        let mut capture = UprobeCapture::install(&request, options).unwrap();
        held.release().unwrap();
        assert!(held.wait().unwrap().success());
        let expected = "Exec 1, Process 1, Hit 25, ProcessExit 1".to_owned();
        assert_eq!(story(&mut capture), [(held.pid(), expected)].into());
        std::fs::remove_file(&program).unwrap();
    }
}

fn wait_for_line() {
    std::io::stdout().write_all(b"!").unwrap();
    std::io::stdout().flush().unwrap();
    std::io::stdin().read_exact(&mut [0]).unwrap();
}

fn hit(n: &str) {
    let n = n.parse().unwrap();
    if n > 0 {
        count(n, 0);
    }
}

fn leader_is_gone() -> bool {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
}

fn be_child(arguments: &[&str]) {
    match *arguments {
        ["hit", n] => {
            wait_for_line();
            hit(n);
        }
        ["hit-now", n] => hit(n),
        ["hit-exec", before, after] => {
            wait_for_line();
            hit(before);
            panic!("{}", Command::new("/proc/self/exe").args(["hit-now", after]).exec());
        }
        ["leaderless", n] => {
            wait_for_line();
            let n = n.to_owned();
            std::thread::spawn(move || {
                while !leader_is_gone() {
                    std::thread::yield_now();
                }
                hit(&n);
            });
            // SAFETY: ends this thread only; nothing it owns is used by the other one.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }
        _ => panic!("{arguments:?}"),
    }
}

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|first| first == HIDDEN) {
        let code = process::held_exec(std::env::args_os().skip(2));
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if arguments.first().is_some_and(|first| first.starts_with("hit") || *first == "leaderless") {
        be_child(&arguments);
        return ExitCode::SUCCESS;
    }
    one_process_only();
    some_processes_and_the_rest_counted_as_foreign();
    every_process_also_later_ones();
    execve_is_told_between_the_hits();
    a_process_outlives_its_leader();
    a_started_program_is_seen_from_its_first_instruction();
    ExitCode::SUCCESS
}
