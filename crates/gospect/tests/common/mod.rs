//! What the integration tests share: one way to trace a fixture and to read the result.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use testkit::{
    Fixture, Gospect, Mode, Output, Running, Toolchain, newest, oldest, selected, toolchain,
};

/// How long one thing may take before a test gives up.
pub const LIMIT: Duration = Duration::from_secs(60);

/// How often each end was seen, by function.
pub type Ends = BTreeMap<String, BTreeMap<String, u64>>;

/// The backend under test: `make test` runs the suite for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Breakpoints of the kernel.
    Uprobe,
    /// Code in the process.
    Trampoline,
}

impl Backend {
    /// What `GOSPECT_TEST_BACKEND` says, else uprobes.
    pub fn selected() -> Self {
        match std::env::var("GOSPECT_TEST_BACKEND").as_deref() {
            Ok("trampoline") => Self::Trampoline,
            Ok("uprobe") | Err(_) => Self::Uprobe,
            Ok(other) => panic!("GOSPECT_TEST_BACKEND: no backend {other}"),
        }
    }

    /// As `--backend` and the summary name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uprobe => "uprobe",
            Self::Trampoline => "trampoline",
        }
    }
}

/// The binary under test, which captures by the backend under test unless a test names one.
pub fn gospect() -> Gospect {
    let backend = ["--backend", Backend::selected().name()];
    any_gospect().default("trace", &backend)
}

/// The binary under test, with nothing added to what a test says.
pub fn any_gospect() -> Gospect {
    Gospect::new(env!("CARGO_BIN_EXE_gospect")).limit(LIMIT)
}

/// The plain way, and those that are forced by `GOSPECT_FORCE`: there are such for uprobes only.
pub fn ways(forced: &[&'static str]) -> Vec<&'static str> {
    let forced = forced.iter().filter(|_| Backend::selected() == Backend::Uprobe);
    std::iter::once("").chain(forced.copied()).collect()
}

/// A fixture by the Go version and build mode under test (the matrix sets them), see [`own`].
pub fn fixture(name: &str) -> PathBuf {
    own(&Fixture::build(name, &selected(), Mode::selected()))
}

/// What a test is run with that is about values: the cell of the matrix, else the newest and the oldest Go, at a fixed
/// address and not, and two between, where debug information and maps changed.
pub fn cells() -> Vec<(Toolchain, Mode)> {
    if std::env::var_os("GOSPECT_TEST_GO").is_some() {
        return vec![(selected(), Mode::selected())];
    }
    let both = |toolchain: Toolchain| [Mode::Exe, Mode::Pie].map(|mode| (toolchain.clone(), mode));
    let between = ["1.21.13", "1.24.11"].map(|version| (toolchain(version), Mode::Exe));
    [newest(), oldest()].into_iter().flat_map(both).chain(between).collect()
}

/// A copy of `program` for this test alone. Uprobes are refused on a file while a process of it
/// carries trampolines, and the tests of one binary run at the same time.
pub fn own(program: &Path) -> PathBuf {
    thread_local! {
        static COPIES: RefCell<(Option<Directory>, HashMap<PathBuf, PathBuf>)> =
            RefCell::default();
    }
    COPIES.with_borrow_mut(|(directory, copies)| {
        let directory = directory.get_or_insert_with(Directory::new);
        let copy = |number: usize| {
            let folder = directory.file(&number.to_string());
            std::fs::create_dir(&folder).expect("a directory");
            let name = program.file_name().expect("a file").to_str().expect("a name of ours");
            directory.copy(program, &format!("{number}/{name}"))
        };
        let next = copies.len();
        copies.entry(program.to_owned()).or_insert_with(|| copy(next)).clone()
    })
}

/// A path nobody else uses.
pub fn temporary(kind: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("gospect-test-{}-{number}.{kind}", std::process::id()))
}

/// A directory of our own that everyone may read, removed in the end. What is copied into it
/// shares no file with what other tests run.
pub struct Directory(PathBuf);

impl Directory {
    /// A new one.
    pub fn new() -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let path = temporary("dir");
        std::fs::create_dir(&path).expect("a temporary directory");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its mode");
        Self(path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of `name` in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A copy of `program` as `name`, of an inode of its own.
    pub fn copy(&self, program: &Path, name: &str) -> PathBuf {
        let path = self.file(name);
        // By another process: a descriptor of ours open for writing, inherited by what other
        // tests fork at that moment, would keep the copy from being executed (ETXTBSY).
        let copied = Command::new("cp").arg(program).arg(&path).status().expect("cp");
        assert!(copied.success(), "{} is not copied", program.display());
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Waits until `is_so`.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a prepared command to its end.
pub fn run(command: Command) -> Output {
    let mut running = Running::spawn(command);
    running.close_stdin();
    gospect().finish(&mut running)
}

/// Whether there is such a process, and it is no zombie.
pub fn is_alive(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Nothing on stdout, one line on stderr with all of `words`.
#[track_caller]
pub fn expect_line(output: &Output, code: i32, words: &[&str]) {
    output.expect_code(code);
    assert_eq!(output.stdout, "", "{}", output.story());
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.story());
    for word in words {
        assert!(output.stderr.contains(word), "no {word:?} in {}", output.story());
    }
}

/// One line on stderr that holds all of `words`, nothing on stdout.
#[track_caller]
pub fn expect_refusal(output: &Output, code: i32, words: &[&str]) {
    output.expect_code(code);
    assert_eq!(output.stdout, "", "{}", output.story());
    let message = output.stderr.to_lowercase();
    for word in words {
        assert!(message.contains(&word.to_lowercase()), "no {word:?} in {}", output.story());
    }
    assert!(!message.contains("panicked") && !message.contains("backtrace"), "{message}");
}

/// Starts `gospect trace` with JSON into `file`.
pub fn start_trace(file: &Path, options: &[&str]) -> Running {
    let line = ["trace", "--format", "json", "-o", path_text(file)];
    gospect().start(&[&line[..], options].concat())
}

/// The calls in `lines`, as (pid, function).
pub fn calls(lines: &[Value]) -> Vec<(u64, String)> {
    let calls = lines.iter().filter(|line| line["type"] == "call");
    calls.map(|call| (number(&call["pid"]), text(&call["func"]))).collect()
}

/// Those of one function in one process.
pub fn count_of(lines: &[Value], pid: u32, func: &str) -> usize {
    calls(lines).iter().filter(|(p, f)| *p == u64::from(pid) && f == func).count()
}

/// Ends a capture by Ctrl-C and reads its output.
#[track_caller]
pub fn interrupt(tracer: &mut Running, file: &Path) -> (Output, Vec<Value>) {
    tracer.signal("INT");
    let output = gospect().finish(tracer);
    (output, json_lines(file))
}

/// `gospect args…` as nobody.
pub fn as_nobody(dir: &Directory, args: &[&str]) -> Output {
    let own = dir.file("gospect");
    if !own.exists() {
        dir.copy(Path::new(env!("CARGO_BIN_EXE_gospect")), "gospect");
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"])
        .arg(own)
        .args(gospect().line(args));
    command.current_dir("/");
    run(command)
}

/// A path as text.
pub fn path_text(path: &Path) -> &str {
    path.to_str().expect("a path of ours")
}

/// The JSON objects of a file.
#[track_caller]
pub fn json_lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).expect("an output file");
    let parsed = |line: &str| {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
    };
    text.lines().map(parsed).collect()
}

/// What a process has had of the CPUs, in ticks; 0 when it is gone.
pub fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    // utime and stime, fields 14 and 15 of proc_pid_stat(5).
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

/// `-u NAME` for each name.
pub fn functions<'a>(names: &[&'a str]) -> Vec<&'a str> {
    names.iter().flat_map(|name| ["-u", name]).collect()
}

/// A capture as JSON Lines.
pub struct Trace {
    /// Exit code, stderr, and what the target wrote to stdout.
    pub output: Output,
    /// What gospect wrote.
    pub lines: Vec<Value>,
}

impl Trace {
    /// Starts `program args…` under `gospect trace options…`.
    pub fn launch(options: &[&str], program: &Path, args: &[&str]) -> Self {
        let file = temporary("jsonl");
        let (file_text, program) = (file.to_string_lossy(), program.to_string_lossy());
        let mut line = vec!["trace", "--format", "json", "-o", &file_text];
        line.extend(options);
        line.extend(["--", &program]);
        line.extend(args);
        let output = gospect().run(&line);
        Self::read(output, &file)
    }

    /// Attaches to `pid`; once it is attached, lets `act` do what is to be seen and then ends
    /// the capture with SIGINT.
    pub fn attach(options: &[&str], pid: u32, act: impl FnOnce()) -> Self {
        let file = temporary("jsonl");
        let (file_text, pid) = (file.to_string_lossy(), pid.to_string());
        let mut line = vec!["trace", "--format", "json", "-o", &file_text, "-p", &pid];
        line.extend(options);
        let mut running = gospect().start(&line);
        wait_attached(&running);
        act();
        if running.is_running() {
            running.signal("INT");
        }
        Self::read(gospect().finish(&mut running), &file)
    }

    /// What gospect wrote to `file`, which goes.
    pub fn read(output: Output, file: &Path) -> Self {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        _ = std::fs::remove_file(file);
        let lines = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} in {line:?}")))
            .collect();
        Self { output, lines }
    }

    /// The objects of one type.
    pub fn of_type(&self, kind: &str) -> Vec<&Value> {
        self.lines.iter().filter(|line| line["type"] == kind).collect()
    }

    /// The calls of one function.
    pub fn calls_of(&self, func: &str) -> Vec<&Value> {
        self.of_type("call").into_iter().filter(|call| call["func"] == func).collect()
    }

    /// The last line.
    #[track_caller]
    pub fn summary(&self) -> &Value {
        let last =
            self.lines.last().unwrap_or_else(|| panic!("no output: {}", self.output.story()));
        assert_eq!(last["type"], "summary", "the last line; {}", self.output.story());
        last
    }

    /// What the fixture says it did.
    #[track_caller]
    pub fn done(&self) -> Value {
        let mut done = self.output.of_type("done");
        assert_eq!(done.len(), 1, "the fixture's last line in {}", self.output.story());
        done.remove(0)
    }

    /// How the calls ended.
    pub fn ends(&self) -> Ends {
        let mut ends = Ends::new();
        for call in self.of_type("call") {
            let (func, exit) = (text(&call["func"]), text(&call["exit"]));
            *ends.entry(func).or_default().entry(exit).or_default() += 1;
        }
        ends
    }

    /// Compares with the `calls` of the fixture: as many as it made, all returned.
    #[track_caller]
    pub fn expect_returned(&self) -> &Self {
        let mut want = Ends::new();
        for (func, count) in self.done()["calls"].as_object().expect("calls by function") {
            let count = count.as_u64().expect("a count");
            if self.is_refused_for_vectors(func) {
                continue;
            }
            want.insert(func.clone(), BTreeMap::from([("return".to_owned(), count)]));
        }
        assert_eq!(self.ends(), want, "{}", self.output.stderr);
        for call in self.of_type("call") {
            assert_eq!(call["end_exact"], true, "{call}");
        }
        self.expect_sound()
    }

    /// A leaf compiled for GOAMD64=v3 may begin with a VEX instruction, on which the kernel puts no
    /// uprobe. That has to be said, and of nothing else.
    fn is_refused_for_vectors(&self, func: &str) -> bool {
        let summary = self.summary();
        let refusals = summary["refusals"].as_array().expect("refusals");
        Mode::selected() == Mode::V3
            && refusals.iter().any(|refusal| {
                let reason = refusal["reason"].as_str().unwrap_or_default();
                refusal["func"] == func && reason.contains("a vector (VEX or EVEX) encoding")
            })
    }

    /// Compares with the `ends` of the fixture.
    #[track_caller]
    pub fn expect_ends(&self) -> &Self {
        let want: Ends = serde_json::from_value(self.done()["ends"].clone()).expect("ends");
        assert_eq!(self.ends(), want, "{}", self.output.stderr);
        self.expect_sound()
    }

    /// What holds for every capture without loss: trees are trees, and the counts agree.
    #[track_caller]
    pub fn expect_sound(&self) -> &Self {
        let summary = self.summary();
        for counter in ["lost", "evicted", "invalid", "no_goroutine"] {
            assert_eq!(summary[counter], 0, "{counter} in {summary}");
        }
        let calls = self.of_type("call");
        assert_eq!(summary["calls"], calls.len(), "{summary}");
        let by_id: HashMap<u64, &Value> =
            calls.iter().map(|call| (number(&call["id"]), *call)).collect();
        assert_eq!(by_id.len(), calls.len(), "ids are unique");
        for call in &calls {
            let Some(parent) = call["parent"].as_u64() else {
                assert_eq!(call["depth"], 0, "a root: {call}");
                continue;
            };
            let parent = by_id.get(&parent).unwrap_or_else(|| panic!("no parent of {call}"));
            assert_eq!(number(&call["depth"]), number(&parent["depth"]) + 1, "{call} {parent}");
            for same in ["pid", "goid"] {
                assert_eq!(call[same], parent[same], "{same} of {call} and {parent}");
            }
            assert!(number(&call["start_ns"]) >= number(&parent["start_ns"]), "{call} {parent}");
            assert!(end_ns(call) <= end_ns(parent), "{call} outlives {parent}");
        }
        self
    }
}

/// Returns when a started `gospect trace` says that its probes are in.
pub fn wait_attached(running: &Running) {
    running.wait_error_line(LIMIT, |line| line.contains("tracing "));
}

/// A JSON string.
#[track_caller]
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no string: {value}")).to_owned()
}

/// A JSON number.
#[track_caller]
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

fn end_ns(call: &Value) -> u64 {
    number(&call["start_ns"]) + number(&call["duration_ns"])
}

/// Prometheus's own check finds nothing to complain about.
#[track_caller]
pub fn promtool(exposition: &str) {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("promtool, of Debian's package prometheus");
    std::io::Write::write_all(&mut promtool.stdin.take().expect("a pipe"), exposition.as_bytes())
        .expect("it reads");
    let output = promtool.wait_with_output().expect("an end");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!((output.status.code(), said.as_str()), (Some(0), ""));
}
