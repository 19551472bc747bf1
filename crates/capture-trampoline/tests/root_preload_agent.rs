//! An agent that is a process of its own: without any privilege, and killed.
#![allow(clippy::print_stdout, reason = "the agent tells its test what it sees")]

#[path = "support/agent.rs"]
mod agent;
mod support;

use agent::{Directory, Stage, library, preloaded, read_to_end};
use capture::Capture as _;
use capture_trampoline::{has_leftovers, remove_leftovers};
use std::io::Read as _;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use support::Subject;
use testkit::{Fixture, Mode, Running, newest, oldest};
use wire::SiteKind;

const AGENT: &str = "--agent-for-test";
const LIMIT: Duration = Duration::from_secs(60);
const NOBODY: u32 = 65534;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [AGENT, socket, program] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        play(Path::new(socket), Path::new(program));
        return ExitCode::SUCCESS;
    }
    let tests: [(&str, fn()); 3] = [
        ("root_neither_side_needs_a_privilege", root_neither_side_needs_a_privilege),
        ("root_a_killed_agent_leaves_programs_that_run_on", root_a_killed_agent_leaves_programs),
        ("root_a_name_of_a_dead_agent_is_taken_over", root_a_name_of_a_dead_agent),
    ];
    let wanted = |name: &str| {
        let words = arguments.iter().filter(|word| !word.starts_with('-')).collect::<Vec<_>>();
        words.is_empty() || words.iter().any(|word| name.contains(&**word))
    };
    if arguments.iter().any(|word| word == "--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let mut count = 0;
    for (name, test) in tests.into_iter().filter(|(name, _)| wanted(name)) {
        // A panic is the end of all, with its message.
        test();
        println!("test {name} ... ok");
        count += 1;
    }
    println!("\ntest result: ok. {count} passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
    ExitCode::SUCCESS
}

/// The agent: says what it may, serves one program, and says what that called.
fn play(socket: &Path, program: &Path) {
    let subject = Subject::new(program, &["main.fib", "main.mix"]);
    let stage = Stage::at(Directory::borrowed(socket.parent().unwrap()), Some(&subject), 16 << 20);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().next().unwrap_or_default().to_owned()
    };
    let rights = (line("Uid:"), line("CapEff:"), line("CapBnd:"), line("NoNewPrivs:"));
    println!("listening {rights:?}");
    let mut injected = stage.injected();
    println!("injected {}", injected.program.pid());
    let seen = read_to_end(&mut injected, LIMIT);
    let lost = injected.capture.counters().unwrap().lost;
    let count = |name| (seen.count(name, SiteKind::Entry), seen.count(name, SiteKind::Return));
    println!("seen {:?} {:?} lost {lost}", count("main.fib"), count("main.mix"));
    // Until it is told to end.
    let _ = std::io::stdin().read(&mut [0]);
}

/// Copies in a directory that everybody can read.
struct Set {
    directory: Directory,
    agent: PathBuf,
    program: PathBuf,
    library: PathBuf,
}

impl Set {
    fn new(program: &Path) -> Self {
        let directory = Directory::new();
        let copy = |from: &Path, name: &str| {
            let to = directory.path().join(name);
            std::fs::copy(from, &to).unwrap();
            to
        };
        let agent = copy(&std::env::current_exe().unwrap(), "agent");
        let (program, library) = (copy(program, "program"), copy(library(), "library.so"));
        Self { directory, agent, program, library }
    }

    fn agent(&self, prefix: &[&str]) -> Running {
        let mut words: Vec<&std::ffi::OsStr> = prefix.iter().map(std::ffi::OsStr::new).collect();
        let socket = self.directory.socket();
        words.extend([
            self.agent.as_os_str(),
            AGENT.as_ref(),
            socket.as_ref(),
            self.program.as_ref(),
        ]);
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        Running::spawn(command)
    }
}

/// Starts a program until it has its code: on a loaded machine it may have waited in vain.
fn start(agent: &Running, command: impl Fn() -> Command) -> Running {
    for _ in 0..20 {
        let program = Running::spawn(command());
        let line = format!("injected {}\n", program.pid());
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            if agent.stdout().contains(&line) {
                return program;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    panic!("no program got its code; {}", agent.stderr());
}

/// Another user with no capability, who can get none.
const POWERLESS: [&str; 7] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--no-new-privs",
    "--inh-caps=-all",
    "--bounding-set=-all",
];

fn root_neither_side_needs_a_privilege() {
    for (toolchain, mode) in
        [(oldest(), Mode::Cgo), (newest(), Mode::Pie), (newest(), Mode::CgoPie)]
    {
        let set = Set::new(&Fixture::build("spin", &toolchain, mode));
        chown(set.directory.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        let agent = set.agent(&POWERLESS);
        let listening = agent.wait_line(LIMIT, |line| line.starts_with("listening"));
        let none = "0000000000000000";
        assert_eq!(listening, format!("listening {:?}", ("65534", none, none, "1")));
        let command = || {
            let mut command = Command::new(POWERLESS[0]);
            command.args(&POWERLESS[1..]).arg(&set.program).args(["-rounds", "4"]);
            command.env("LD_PRELOAD", &set.library);
            command.env("GOSPECT_AGENT_SOCKET", set.directory.socket());
            command
        };
        let mut program = start(&agent, command);
        let done = program.wait_for("done", LIMIT);
        assert!(program.wait(LIMIT).success());
        assert_eq!(done["wrong"], 0);
        let seen = agent.wait_line(LIMIT, |line| line.starts_with("seen"));
        let calls = |name: &str| done["calls"][name].as_u64().unwrap();
        let (fib, mix) = (calls("main.fib"), calls("main.mix"));
        // Both of fib's ways out are returns.
        assert_eq!(seen, format!("seen {:?} {:?} lost 0", (fib, fib), (mix, mix)), "{mode}");
    }
}

fn root_a_killed_agent_leaves_programs() {
    for mode in [Mode::Pie, Mode::Cgo] {
        let set = Set::new(&Fixture::build("spin", &newest(), mode));
        let subject = Subject::new(&set.program, &["main.fib", "main.mix"]);
        let mut agent = set.agent(&["env"]);
        agent.wait_line(LIMIT, |line| line.starts_with("listening"));
        let socket = set.directory.socket();
        let mut program = start(&agent, || preloaded(&set.program, &["-for", "0"], &socket));
        // While it lives nobody takes that out.
        let refused = remove_leftovers(program.pid()).unwrap_err().to_string();
        assert!(refused.contains("trace process"), "{refused}");
        agent.signal("KILL");
        agent.wait(LIMIT);
        // It runs on, drops what it would record, and can be cleaned.
        std::thread::sleep(Duration::from_millis(100));
        assert!(program.is_running());
        assert!(has_leftovers(program.pid()));
        assert!(!subject.different_bytes(program.pid()).is_empty());
        let removal = remove_leftovers(program.pid()).unwrap().unwrap();
        assert_eq!((removal.foreign, removal.left_bytes), (0, 0), "{removal:?}");
        subject.assert_clean(program.pid());
        // The next agent's attach finds nothing in its way.
        drop(subject.attach(program.pid()).unwrap());
        program.close_stdin();
        assert_eq!(program.wait_for("done", LIMIT)["wrong"], 0);
        assert!(program.wait(LIMIT).success());
    }
}

fn root_a_name_of_a_dead_agent() {
    let set = Set::new(&Fixture::build("spin", &newest(), Mode::Pie));
    let mut first = set.agent(&["env"]);
    first.wait_line(LIMIT, |line| line.starts_with("listening"));
    first.signal("KILL");
    first.wait(LIMIT);
    assert!(set.directory.socket().exists());
    let second = set.agent(&["env"]);
    second.wait_line(LIMIT, |line| line.starts_with("listening"));
    // But not that of a living one.
    let mut third = set.agent(&["env"]);
    assert!(!third.wait(LIMIT).success());
    assert!(third.stderr().contains("listen at"), "{}", third.stderr());
    let socket = set.directory.socket();
    let mut program = start(&second, || preloaded(&set.program, &["-rounds", "1"], &socket));
    assert!(program.wait(LIMIT).success());
}
