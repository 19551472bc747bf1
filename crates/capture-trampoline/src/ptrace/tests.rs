//! Processes that cannot be stopped, or should not be.

use super::*;
use crate::Error;
use rustix::process::{Signal, kill_process};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A process whose main thread waits in vfork: its child opens a FIFO that nobody writes.
pub(super) struct Blocked {
    parent: Child,
    fifo: PathBuf,
}

impl Blocked {
    pub(super) fn start() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let fifo = std::env::temp_dir().join(format!("vfork-{}-{next}", std::process::id()));
        let _ = std::fs::remove_file(&fifo);
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let script = format!(
            "import os\n\
             actions = [(os.POSIX_SPAWN_OPEN, 0, '{}', os.O_RDONLY, 0)]\n\
             pid = os.posix_spawn('/bin/cat', ['cat'], {{}}, file_actions=actions)\n\
             os._exit(os.waitpid(pid, 0)[1])",
            fifo.display()
        );
        let parent =
            Command::new("python3").args(["-c", &script]).stdout(Stdio::null()).spawn().unwrap();
        let blocked = Self { parent, fifo };
        let start = Instant::now();
        while !blocked.waits() {
            assert!(start.elapsed() < Duration::from_secs(10), "no vfork");
            std::thread::sleep(Duration::from_millis(5));
        }
        blocked
    }

    /// Whether it stands in clone, vfork or clone3.
    fn waits(&self) -> bool {
        let call = std::fs::read_to_string(format!("/proc/{}/syscall", self.parent.id()));
        let call = call.unwrap_or_default();
        ["56", "58", "435"].contains(&call.split(' ').next().unwrap_or_default())
    }

    pub(super) fn pid(&self) -> u32 {
        self.parent.id()
    }

    /// Lets the child become `cat`, which reads nothing and ends.
    pub(super) fn finish(mut self) {
        drop(OpenOptions::new().write(true).open(&self.fifo).unwrap());
        assert!(self.parent.wait().unwrap().success());
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // Also when the test failed, nobody is left waiting.
        let _ = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&self.fifo);
        let _ = std::fs::remove_file(&self.fifo);
    }
}

fn tracer_of(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:\t"));
    line.unwrap().to_owned()
}

#[test]
fn root_a_thread_in_vfork_is_given_up_in_time() {
    let blocked = Blocked::start();
    let pid = blocked.parent.id();
    let start = Instant::now();
    let limit = Duration::from_millis(100);
    let error = on_own_thread(|| Stopped::stop(pid, limit).map(|_| ())).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(2));
    assert_eq!(
        error.to_string(),
        format!(
            "thread {pid} of process {pid} did not stop within 100 ms \
             (it waits for a child made by vfork): try again, or use --backend uprobe"
        )
    );
    // The end of the tracing thread has let it go.
    assert_eq!(tracer_of(pid), "0");
    blocked.finish();
}

#[test]
fn root_a_stop_ends_with_its_owner() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = child.id();
    // Its execve may not be over when the child is known.
    let start = Instant::now();
    let sleeps = || {
        let call = std::fs::read_to_string(format!("/proc/{pid}/syscall"));
        call.is_ok_and(|call| call.starts_with(&format!("{} ", libc::SYS_clock_nanosleep)))
    };
    while !sleeps() {
        assert!(start.elapsed() < Duration::from_secs(10), "it does not sleep");
        std::thread::sleep(Duration::from_millis(1));
    }
    on_own_thread(|| {
        let stopped = Stopped::stop(pid, Duration::from_secs(5))?;
        assert_ne!(tracer_of(pid), "0");
        assert_eq!(stopped.threads().count(), 1);
        // Not dropped: as when we die.
        std::mem::forget(stopped);
        Ok(())
    })
    .unwrap();
    assert_eq!(tracer_of(pid), "0");
    kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(!child.wait().unwrap().success());
    let gone = on_own_thread(|| Stopped::stop(pid, Duration::from_secs(5)).map(|_| ()));
    assert!(matches!(gone, Err(Error::Gone(_))), "{gone:?}");
}
