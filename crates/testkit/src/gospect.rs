//! The `gospect` binary as a test sees it: arguments in, output and exit code out.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::running::Running;

/// A built `gospect`; tests hand in `env!("CARGO_BIN_EXE_gospect")`.
#[derive(Clone, Debug)]
pub struct Gospect {
    path: PathBuf,
    limit: Duration,
    /// A subcommand, and what is put behind it.
    default: Option<(String, Vec<String>)>,
}

/// What one run of it gave.
#[derive(Clone, Debug)]
pub struct Output {
    /// Exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Gospect {
    /// The binary at `path`, runs of it limited to a minute each.
    #[must_use]
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_owned(), limit: Duration::from_secs(60), default: None }
    }

    /// Another time limit for one run.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Puts an option and its value behind the subcommand `command`, unless a test gives the option.
    #[must_use]
    pub fn default(mut self, command: &str, option: &[&str]) -> Self {
        self.default = Some((command.to_owned(), option.iter().map(|&s| s.to_owned()).collect()));
        self
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// When it does not end in time.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Output {
        let mut running = self.start(args);
        running.close_stdin();
        self.finish(&mut running)
    }

    /// Starts it in the background.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start<S: AsRef<OsStr>>(&self, args: &[S]) -> Running {
        Running::spawn(self.command(args))
    }

    /// The command that [`Gospect::start`] starts, for tests that change its surroundings.
    #[must_use]
    pub fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(&self.path);
        // Colours and terminal width must not depend on where tests run.
        command.args(self.line(args)).env("NO_COLOR", "1").env_remove("COLUMNS");
        command
    }

    /// The arguments, with the default where it belongs.
    #[must_use]
    pub fn line<S: AsRef<OsStr>>(&self, args: &[S]) -> Vec<OsString> {
        let mut line: Vec<OsString> = args.iter().map(|arg| arg.as_ref().to_owned()).collect();
        let Some((command, option)) = &self.default else { return line };
        let own = line.iter().take_while(|arg| *arg != "--");
        let is_given = own.clone().any(|arg| option.first().is_some_and(|name| arg == &**name));
        if !is_given && line.first().is_some_and(|first| first == &**command) {
            line.splice(1..1, option.iter().map(OsString::from));
        }
        line
    }

    /// Waits for the end of a started one.
    ///
    /// # Panics
    /// When it does not end in time.
    pub fn finish(&self, running: &mut Running) -> Output {
        let status = running.wait(self.limit);
        Output {
            code: status.code(),
            signal: status.signal(),
            stdout: running.stdout(),
            stderr: running.stderr(),
        }
    }
}

impl Output {
    /// Panics with the whole output unless the exit code is `code`.
    ///
    /// # Panics
    /// When it is another.
    #[track_caller]
    pub fn expect_code(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "exit code of:\n{}", self.story());
        self
    }

    /// Standard output as JSON Lines. Lines of a launched program that are no JSON objects
    /// are left out; a line that begins like one and is not fails the test.
    ///
    /// # Panics
    /// When a line that begins with `{` is not JSON.
    #[track_caller]
    #[must_use]
    pub fn json(&self) -> Vec<Value> {
        self.stdout
            .lines()
            .filter(|line| line.starts_with('{'))
            .map(|line| {
                serde_json::from_str(line)
                    .unwrap_or_else(|error| panic!("{error} in {line:?} of:\n{}", self.story()))
            })
            .collect()
    }

    /// The objects of one `type`.
    #[track_caller]
    #[must_use]
    pub fn of_type(&self, kind: &str) -> Vec<Value> {
        self.json().into_iter().filter(|value| value["type"] == kind).collect()
    }

    /// The calls of one function, by its whole name.
    #[track_caller]
    #[must_use]
    pub fn calls_of(&self, func: &str) -> Vec<Value> {
        self.of_type("call").into_iter().filter(|call| call["func"] == func).collect()
    }

    /// The one object of type `summary`.
    ///
    /// # Panics
    /// When there is none, or more than one.
    #[track_caller]
    #[must_use]
    pub fn summary(&self) -> Value {
        let mut all = self.of_type("summary");
        assert_eq!(all.len(), 1, "summaries in:\n{}", self.story());
        all.remove(0)
    }

    /// Everything, for a failure message.
    #[must_use]
    pub fn story(&self) -> String {
        format!(
            "code {:?} signal {:?}\n--- stdout\n{}--- stderr\n{}",
            self.code, self.signal, self.stdout, self.stderr
        )
    }
}
