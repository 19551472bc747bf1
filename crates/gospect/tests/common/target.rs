//! A program that is changed while it runs, and whose code is looked at afterwards.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use super::common::LIMIT;
use address::ReadMemory as _;
use binary::Executable;
use process::{FileSource, Process};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use testkit::Running;

/// A running program.
pub struct Target {
    pub running: Running,
    /// Its process, which need not be the one that was started.
    pub pid: u32,
    path: PathBuf,
    executable: Executable,
}

impl Target {
    /// Starts a fixture and lets it go.
    pub fn start(path: &Path, args: &[&str]) -> Self {
        let mut command = Command::new(path);
        command.arg("-wait").args(args);
        let mut target = Self::spawn(command, path);
        target.running.go();
        target
    }

    /// Starts `command`, which becomes the program at `path` and says so.
    pub fn spawn(command: Command, path: &Path) -> Self {
        let running = Running::spawn(command);
        running.wait_for("ready", LIMIT);
        let source = FileSource::open(path).expect("the program is there");
        let executable = Executable::open(Arc::new(source)).expect("a Go program");
        Self { pid: running.pid(), running, path: path.to_owned(), executable }
    }

    /// The code in memory is the file's, and nothing of ours is mapped. `when` is for the message.
    pub fn assert_clean(&self, when: &str) {
        self.assert_unmapped(when);
        let different = self.different();
        assert!(different.is_empty(), "{when}: {} differs at {different:x?}", self.path.display());
    }

    /// Nothing of ours is mapped.
    pub fn assert_unmapped(&self, when: &str) {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid)).expect("maps");
        assert!(!maps.contains("memfd:gospect"), "{when}: {maps}");
    }

    /// Addresses (in the image) where the code in memory is not the file's.
    pub fn different(&self) -> Vec<u64> {
        let process = Process::open(self.pid).expect("it runs");
        let image = self.executable.image();
        let bias = process.bias(image.base()).expect("its place");
        let code = image.segments().iter().find(|s| s.kind == 1 && s.flags & 1 != 0);
        let code = code.expect("a segment of code");
        let file = image.read_vec(code.address, code.file_size).expect("its bytes");
        let mut live = vec![0; file.len()];
        let memory = process.memory().expect("we are root");
        memory.read_memory(bias.to_avma(code.address), &mut live).expect("its memory");
        let pairs = file.iter().zip(&live).enumerate();
        pairs.filter(|(_, (a, b))| a != b).map(|(at, _)| code.address.0 + at as u64).collect()
    }

    /// Tells it to end; it must have computed nothing wrong. Gives what it says.
    pub fn finish(mut self) -> Value {
        self.running.close_stdin();
        let done = self.running.wait_for("done", LIMIT);
        assert!(self.running.wait(LIMIT).success(), "{}", self.running.stderr());
        assert_eq!(done["wrong"], 0, "{done}");
        done
    }
}
