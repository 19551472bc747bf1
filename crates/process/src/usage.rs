//! What a process uses, as the kernel counts it.

use crate::error::Error;
use crate::{Process, network};
use procfs::FromRead as _;
use procfs::process::{LimitValue, Limits, Stat};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

/// Network namespaces remembered between two calls of [`UsageReader::begin`].
const MAX_NAMESPACES: usize = 4096;

/// Bytes over the network since the network namespace exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkBytes {
    /// Received.
    pub received: u64,
    /// Sent.
    pub sent: u64,
}

/// Which program image a process runs: another one after an execve, also of the same file.
///
/// Made of the places that the kernel chooses anew then (`startcode`, `startstack` and
/// `arg_start` of `/proc/PID/stat`); it tells nothing where these are not shown to us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageStamp([u64; 3]);

/// What a process uses at one moment. What the kernel would not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// CPU time in the process's own code, seconds.
    pub user_seconds: f64,
    /// CPU time in the kernel, seconds.
    pub system_seconds: f64,
    /// Both together, seconds; rounded once, as others do.
    pub cpu_seconds: f64,
    /// Size of the address space, bytes.
    pub virtual_bytes: u64,
    /// Memory in RAM, bytes; the kernel's own quick count, some pages off.
    pub resident_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// Start, seconds of Unix time.
    pub start_unix_seconds: f64,
    /// Open file descriptors.
    pub open_fds: Option<u64>,
    /// Most file descriptors it may open; `u64::MAX` for no limit.
    pub max_fds: Option<u64>,
    /// Largest address space it may have, bytes; `u64::MAX` for no limit.
    pub max_virtual_bytes: Option<u64>,
    /// Traffic of its network namespace.
    pub network: Option<NetworkBytes>,
    /// Which image it runs.
    pub image: ImageStamp,
}

/// Reads [`Usage`], for many processes with as little of `/proc` as will do.
#[derive(Debug)]
pub struct UsageReader {
    /// Boot, seconds of Unix time.
    boot: f64,
    ticks_per_second: f64,
    page: u64,
    /// By inode of the namespace; what is counted there is the same for all in it.
    networks: HashMap<u64, Option<NetworkBytes>>,
}

impl Default for UsageReader {
    fn default() -> Self {
        Self::new()
    }
}

impl UsageReader {
    /// A reader at the beginning of a round.
    pub fn new() -> Self {
        Self {
            boot: boot_unix_seconds(),
            ticks_per_second: rustix::param::clock_ticks_per_second() as f64,
            page: rustix::param::page_size() as u64,
            networks: HashMap::new(),
        }
    }

    /// Begins a new round: what processes share is read again, once.
    pub fn begin(&mut self) {
        self.boot = boot_unix_seconds();
        self.networks.clear();
    }

    /// What `process` uses now.
    ///
    /// Errors: [`Error::Gone`] when it has ended.
    pub fn read(&mut self, process: &Process) -> Result<Usage, Error> {
        let pid = process.pid();
        let stat = stat_of(pid)?;
        let limits = limits_of(pid);
        let usage = Usage {
            user_seconds: stat.utime as f64 / self.ticks_per_second,
            system_seconds: stat.stime as f64 / self.ticks_per_second,
            cpu_seconds: stat.utime.saturating_add(stat.stime) as f64 / self.ticks_per_second,
            virtual_bytes: stat.vsize,
            resident_bytes: stat.rss.saturating_mul(self.page),
            threads: u64::try_from(stat.num_threads).unwrap_or_default(),
            start_unix_seconds: self.boot + stat.starttime as f64 / self.ticks_per_second,
            open_fds: open_fds(pid),
            max_fds: limits.as_ref().map(|limits| soft(limits.max_open_files.soft_limit)),
            max_virtual_bytes: limits
                .as_ref()
                .map(|limits| soft(limits.max_address_space.soft_limit)),
            network: self.network(pid),
            image: stamp(&stat),
        };
        // All of it was read by the id: it is the process's when that still lives.
        if process.is_alive() { Ok(usage) } else { Err(Error::Gone(pid)) }
    }

    fn network(&mut self, pid: u32) -> Option<NetworkBytes> {
        let read = || network::parse(&fs::read(format!("/proc/{pid}/net/netstat")).ok()?);
        let Ok(namespace) = fs::metadata(format!("/proc/{pid}/ns/net")) else { return read() };
        if self.networks.len() >= MAX_NAMESPACES {
            self.networks.clear();
        }
        *self.networks.entry(namespace.ino()).or_insert_with(read)
    }
}

impl Process {
    /// Which image it runs now.
    pub fn image_stamp(&self) -> Result<ImageStamp, Error> {
        let stat = stat_of(self.pid())?;
        if self.is_alive() { Ok(stamp(&stat)) } else { Err(Error::Gone(self.pid())) }
    }
}

fn stat_of(pid: u32) -> Result<Stat, Error> {
    let path = PathBuf::from(format!("/proc/{pid}/stat"));
    let text = fs::read(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::Gone(pid),
        _ => Error::of_process(pid, &path, error),
    })?;
    Stat::from_read(text.as_slice())
        .map_err(|error| Error::Format { path, reason: error.to_string() })
}

fn stamp(stat: &Stat) -> ImageStamp {
    ImageStamp([stat.startcode, stat.startstack, stat.arg_start.unwrap_or_default()])
}

fn limits_of(pid: u32) -> Option<Limits> {
    Limits::from_read(fs::read(format!("/proc/{pid}/limits")).ok()?.as_slice()).ok()
}

fn soft(limit: LimitValue) -> u64 {
    match limit {
        LimitValue::Unlimited => u64::MAX,
        LimitValue::Value(value) => value,
    }
}

/// The size of `/proc/PID/fd` is the number of descriptors since Linux 6.2; before it is 0.
fn open_fds(pid: u32) -> Option<u64> {
    let path = format!("/proc/{pid}/fd");
    let mut entries = fs::read_dir(&path).ok()?;
    match fs::metadata(&path).map(|meta| meta.size()) {
        Ok(0) | Err(_) => Some(entries.try_fold(0, |count, entry| entry.ok().map(|_| count + 1))?),
        Ok(count) => Some(count),
    }
}

/// `btime` of `/proc/stat`; 0 when the kernel does not say.
fn boot_unix_seconds() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("btime "));
    line.and_then(|seconds| seconds.trim().parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    #[test]
    fn what_a_process_of_ours_uses_is_as_it_was_started() {
        let mut child =
            Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("sleep");
        let process = Process::open(child.id()).unwrap();
        let mut reader = UsageReader::new();
        let usage = reader.read(&process).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        assert!((now - usage.start_unix_seconds).abs() < 30.0, "{usage:?} {now}");
        assert_eq!(usage.threads, 1);
        assert!(usage.virtual_bytes >= usage.resident_bytes && usage.virtual_bytes > 0);
        assert!(usage.user_seconds + usage.system_seconds < 30.0);
        assert!(usage.open_fds.unwrap() >= 3);
        assert!(usage.max_fds.unwrap() >= usage.open_fds.unwrap());
        assert!(usage.max_virtual_bytes.unwrap() >= usage.virtual_bytes);
        // It is in our own namespace: what it has seen, we have.
        let own = reader.read(&Process::open(std::process::id()).unwrap()).unwrap();
        assert_eq!(usage.network, own.network);
        assert!(usage.network.is_some());
        child.kill().unwrap();
        assert!(process.wait_exit(Duration::from_secs(20)));
        assert!(matches!(reader.read(&process), Err(Error::Gone(_))));
        child.wait().unwrap();
        assert!(matches!(reader.read(&process), Err(Error::Gone(_))));
    }

    #[test]
    fn an_execve_of_the_same_file_is_another_image() {
        let script = "read go; exec /bin/sh -c 'read end'";
        let mut child = Command::new("/bin/sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .spawn()
            .expect("a shell");
        let process = Process::open(child.id()).unwrap();
        let command = |process: &Process| process.command_line().unwrap_or_default().join(" ");
        // The shell's own start is an execve too, and has ended some moments after this.
        while !command(&process).contains("exec") {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(100));
        let before = process.image_stamp().unwrap();
        assert_eq!(before, process.image_stamp().unwrap());
        let mut stdin = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, b"go\n").unwrap();
        while command(&process).contains("exec") {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_ne!(process.image_stamp().unwrap(), before);
        drop(stdin);
        child.wait().unwrap();
    }
}
