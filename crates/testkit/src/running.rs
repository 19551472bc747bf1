//! A process in the background: a fixture that a test attaches to, or gospect itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

/// How often an exit is looked for.
const POLL: Duration = Duration::from_millis(5);
/// Bound on what is kept of one stream; a test that prints more is wrong.
const MAX_OUTPUT: usize = 1 << 30;

/// Lines a stream has given so far.
#[derive(Default)]
struct Lines {
    lines: Mutex<(Vec<String>, bool)>,
    changed: Condvar,
}

/// A child with its output collected; killed on drop, and nothing else is.
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    out: Arc<Lines>,
    err: Arc<Lines>,
    readers: Vec<JoinHandle<()>>,
}

impl Running {
    /// Starts `program` with its three streams piped.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start<S: AsRef<std::ffi::OsStr>>(program: &Path, args: &[S]) -> Self {
        let mut command = Command::new(program);
        command.args(args);
        Self::spawn(command)
    }

    /// Starts a prepared command; its streams are piped here.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (out, err) = (Arc::new(Lines::default()), Arc::new(Lines::default()));
        let mut readers = Vec::new();
        if let Some(stream) = child.stdout.take() {
            readers.push(collect(stream, Arc::clone(&out)));
        }
        if let Some(stream) = child.stderr.take() {
            readers.push(collect(stream, Arc::clone(&err)));
        }
        let stdin = child.stdin.take();
        Self { child, stdin, out, err, readers }
    }

    /// Starts a fixture with `-wait` before `args` and returns when it is ready: it stands
    /// before its work, and [`Running::go`] lets it begin.
    ///
    /// # Panics
    /// When it is not ready within ten seconds.
    #[must_use]
    pub fn held(fixture: &Path, args: &[&str]) -> Self {
        let all: Vec<&str> = std::iter::once("-wait").chain(args.iter().copied()).collect();
        let running = Self::start(fixture, &all);
        running.wait_for("ready", Duration::from_secs(10));
        running
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a newline: lets a fixture go on that waits (`-wait`, `-linger`).
    ///
    /// # Panics
    /// When it reads no more.
    pub fn go(&mut self) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        stdin.write_all(b"\n").and_then(|()| stdin.flush()).expect("the fixture reads its stdin");
    }

    /// Ends its standard input.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// The first JSON line of `"type": kind`, waiting for it.
    ///
    /// # Panics
    /// When it does not come within `limit`, with what came instead.
    pub fn wait_for(&self, kind: &str, limit: Duration) -> Value {
        let found = self.wait_line(limit, |line| {
            serde_json::from_str::<Value>(line).is_ok_and(|value| value["type"] == kind)
        });
        serde_json::from_str(&found).expect("it parsed a moment ago")
    }

    /// The first line of standard output that `wanted` accepts, waiting for it.
    ///
    /// # Panics
    /// When it does not come within `limit`, with what came instead.
    pub fn wait_line(&self, limit: Duration, wanted: impl Fn(&str) -> bool) -> String {
        wait_in(&self.out, limit, wanted).unwrap_or_else(|seen| {
            let errors = self.stderr();
            panic!("no such line within {limit:?}; stdout:\n{seen}\nstderr:\n{errors}")
        })
    }

    /// The first line of standard error that `wanted` accepts, waiting for it.
    ///
    /// # Panics
    /// When it does not come within `limit`.
    pub fn wait_error_line(&self, limit: Duration, wanted: impl Fn(&str) -> bool) -> String {
        wait_in(&self.err, limit, wanted)
            .unwrap_or_else(|seen| panic!("no such line within {limit:?}; stderr:\n{seen}"))
    }

    /// Standard output so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        text_of(&self.out)
    }

    /// Standard error so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        text_of(&self.err)
    }

    /// Sends a signal by name, as [`signal_process`] does, to this child.
    ///
    /// # Panics
    /// When there is no such signal name or the child is gone.
    pub fn signal(&self, name: &str) {
        signal_process(self.child.id(), name);
    }

    /// Sends a signal to the process group that this child leads, as a terminal does.
    ///
    /// # Panics
    /// When there is no such signal name, or the child leads no group.
    pub fn signal_group(&self, name: &str) {
        use rustix::process::{Pid, kill_process_group};
        let pid = Pid::from_child(&self.child);
        kill_process_group(pid, signal_of(name))
            .unwrap_or_else(|error| panic!("SIG{name} to group {pid:?}: {error}"));
    }

    /// Whether it still runs.
    ///
    /// # Panics
    /// When the kernel does not know the child.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("our own child can be asked for").is_none()
    }

    /// Waits for its end and for the end of its output.
    ///
    /// # Panics
    /// When it does not end within `limit`; it is killed then.
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("our own child can be asked for") {
                // The output may be held open by a child of the child: bounded too.
                let left = limit.saturating_sub(start.elapsed()).max(Duration::from_secs(1));
                for lines in [&self.out, &self.err] {
                    let _ = wait_in(lines, left, |_| false);
                }
                return status;
            }
            if start.elapsed() > limit {
                let _ = self.child.kill();
                let _ = self.child.wait();
                let (out, err) = (self.stdout(), self.stderr());
                panic!("still running after {limit:?}; stdout:\n{out}\nstderr:\n{err}");
            }
            std::thread::sleep(POLL);
        }
    }
}

/// Sends a signal by name (`INT`, `TERM`, `KILL`, ...) to the process `pid`.
///
/// # Panics
/// When there is no such signal name or no such process.
pub fn signal_process(pid: u32, name: &str) {
    use rustix::process::{Pid, kill_process};
    let raw = i32::try_from(pid).expect("a pid");
    kill_process(Pid::from_raw(raw).expect("a pid"), signal_of(name))
        .unwrap_or_else(|error| panic!("SIG{name} to {pid}: {error}"));
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        self.stdin = None;
        // Readers end with the pipe; one that a grandchild holds open is left behind.
        for reader in self.readers.drain(..) {
            if reader.is_finished() {
                let _ = reader.join();
            }
        }
    }
}

fn signal_of(name: &str) -> rustix::process::Signal {
    use rustix::process::Signal;
    match name {
        "INT" => Signal::INT,
        "TERM" => Signal::TERM,
        "HUP" => Signal::HUP,
        "KILL" => Signal::KILL,
        "STOP" => Signal::STOP,
        "CONT" => Signal::CONT,
        "USR1" => Signal::USR1,
        other => panic!("no signal {other} here"),
    }
}

fn collect(stream: impl Read + Send + 'static, into: Arc<Lines>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut reader = BufReader::with_capacity(1 << 16, stream);
        let mut total = 0;
        loop {
            let mut line = Vec::new();
            let read = reader.read_until(b'\n', &mut line).unwrap_or(0);
            total += read;
            let ended = read == 0 || total > MAX_OUTPUT;
            let mut state = into.lines.lock().unwrap_or_else(PoisonError::into_inner);
            if ended {
                state.1 = true;
            } else {
                state.0.push(String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned());
            }
            into.changed.notify_all();
            if ended {
                return;
            }
        }
    })
}

/// The first accepted line, or everything seen when time is up or the stream has ended.
fn wait_in(
    lines: &Lines,
    limit: Duration,
    wanted: impl Fn(&str) -> bool,
) -> Result<String, String> {
    let start = Instant::now();
    let mut seen = 0;
    let mut state = lines.lines.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(line) = state.0[seen..].iter().find(|line| wanted(line)) {
            return Ok(line.clone());
        }
        seen = state.0.len();
        let left = limit.saturating_sub(start.elapsed());
        if state.1 || left.is_zero() {
            return Err(state.0.join("\n"));
        }
        state = lines.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

fn text_of(lines: &Lines) -> String {
    let state = lines.lines.lock().unwrap_or_else(PoisonError::into_inner);
    let mut text = state.0.join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    text
}
