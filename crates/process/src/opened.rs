//! A process that stays the same one.

use crate::error::Error;
use crate::{FileIdentity, FileSource, Maps, ProcessMemory};
use address::{Bias, Svma};
use procfs::FromRead as _;
use procfs::process::{Stat, Status};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

/// A process (thread group), held by a pidfd and its start time: a recycled id is noticed.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    pidfd: OwnedFd,
    start_ticks: u64,
}

impl Process {
    /// Opens the process `pid`, in our own pid namespace.
    pub fn open(pid: u32) -> Result<Self, Error> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Error::NoProcess(pid))?;
        let pidfd = pidfd_open(raw, PidfdFlags::empty()).map_err(|errno| match errno {
            rustix::io::Errno::SRCH | rustix::io::Errno::INVAL => Error::NoProcess(pid),
            other => Error::of_process(pid, format!("/proc/{pid}"), other.into()),
        })?;
        let start_ticks = start_ticks(pid)?;
        let process = Self { pid, pidfd, start_ticks };
        // The pidfd came first: if it is alive now, the start time was its own.
        if process.is_alive() { Ok(process) } else { Err(Error::Gone(pid)) }
    }

    /// Its id in our own pid namespace.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its start, in clock ticks since boot: with the id, who it is.
    pub fn start_ticks(&self) -> u64 {
        self.start_ticks
    }

    /// How long ago it started, to a hundredth of a second; `None` when /proc does not say how long the
    /// machine is up.
    pub fn age(&self) -> Option<Duration> {
        let text = std::fs::read_to_string("/proc/uptime").ok()?;
        let up: f64 = text.split(' ').next()?.parse().ok()?;
        let started = self.start_ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        Duration::try_from_secs_f64((up - started).max(0.0)).ok()
    }

    /// Whether any thread of it still lives.
    pub fn is_alive(&self) -> bool {
        !self.wait_exit(Duration::ZERO)
    }

    /// Waits up to `timeout` for its end; true when it came.
    pub fn wait_exit(&self, timeout: Duration) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let timeout = Timespec::try_from(timeout).ok();
        matches!(poll(&mut fds, timeout.as_ref()), Ok(n) if n > 0)
    }

    /// How it ended; `None` while it runs, and when the kernel (before 6.15) does not tell it of
    /// a process that its parent has waited for.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        if self.is_alive() {
            return None;
        }
        crate::ended::exit_status(self.pid, self.pidfd.as_fd())
    }

    /// Its directory in `/proc`, or that of a thread when the leader has left: a leader without
    /// memory has no executable and no maps, while the process lives on.
    fn directory(&self) -> PathBuf {
        let own = PathBuf::from(format!("/proc/{}", self.pid));
        if fs::read_link(own.join("exe")).is_ok() {
            return own;
        }
        let threads = fs::read_dir(own.join("task")).into_iter().flatten();
        threads
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|dir| fs::read_link(dir.join("exe")).is_ok())
            .unwrap_or(own)
    }

    fn read(&self, name: &str) -> Result<(PathBuf, Vec<u8>), Error> {
        let path = self.directory().join(name);
        match fs::read(&path) {
            Ok(_) if !self.is_alive() => Err(Error::Gone(self.pid)),
            Ok(bytes) => Ok((path, bytes)),
            Err(_) if !self.is_alive() => Err(Error::Gone(self.pid)),
            Err(error) => Err(Error::of_process(self.pid, path, error)),
        }
    }

    /// A path that opens its executable from here, also when it is deleted or in another mount
    /// namespace: `/proc/PID/exe`.
    fn exe_link(&self) -> PathBuf {
        self.directory().join("exe")
    }

    /// Its executable's name, as the kernel gives it: for people.
    pub fn exe_path(&self) -> Result<PathBuf, Error> {
        let link = self.exe_link();
        fs::read_link(&link).map_err(|e| Error::of_process(self.pid, link, e))
    }

    /// Its executable's bytes.
    pub fn executable(&self) -> Result<FileSource, Error> {
        let link = self.exe_link();
        FileSource::open_io(&link).map_err(|e| Error::of_process(self.pid, link, e))
    }

    /// Which file its executable is; another one than before after an execve.
    pub fn exe_identity(&self) -> Result<FileIdentity, Error> {
        let link = self.exe_link();
        let meta = fs::metadata(&link).map_err(|e| Error::of_process(self.pid, link, e))?;
        Ok(FileIdentity::from(&meta))
    }

    /// `path` as the process sees it, opened from here.
    pub fn path_in_its_root(&self, path: &Path) -> PathBuf {
        let root = self.directory().join("root");
        root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Its mappings now.
    pub fn maps(&self) -> Result<Maps, Error> {
        let (path, text) = self.read("maps")?;
        Maps::parse(&text, &path)
    }

    /// What to add to its executable's stated addresses; `first_load` is the `p_vaddr` of the
    /// first PT_LOAD.
    pub fn bias(&self, first_load: Svma) -> Result<Bias, Error> {
        let exe = self.exe_path()?;
        self.maps()?.bias(&exe, first_load).ok_or(Error::NotMapped(self.pid))
    }

    /// Its memory.
    pub fn memory(&self) -> Result<ProcessMemory, Error> {
        ProcessMemory::open(self.pid, &self.directory())
    }

    /// Ids of its threads, ascending.
    pub fn threads(&self) -> Result<Vec<u32>, Error> {
        let path = PathBuf::from(format!("/proc/{}/task", self.pid));
        let entries = fs::read_dir(&path).map_err(|e| Error::of_process(self.pid, path, e))?;
        let mut tids: Vec<u32> =
            entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
        tids.sort_unstable();
        Ok(tids)
    }

    /// Its ids from our pid namespace inwards; the last is how it knows itself.
    pub fn namespaced_pids(&self) -> Result<Vec<u32>, Error> {
        let path = PathBuf::from(format!("/proc/{}/status", self.pid));
        let text = fs::read(&path).map_err(|e| Error::of_process(self.pid, &path, e))?;
        let status = Status::from_read(text.as_slice())
            .map_err(|e| Error::Format { path, reason: e.to_string() })?;
        let pids = status.nspid.unwrap_or_default();
        Ok(pids.into_iter().filter_map(|pid| u32::try_from(pid).ok()).collect())
    }

    /// The value of a variable of its environment, as it was at its start.
    pub fn variable(&self, name: &str) -> Result<Option<String>, Error> {
        let (_, bytes) = self.read("environ")?;
        let mut all = bytes.split(|&b| b == 0);
        let value = all.find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        Ok(value.map(|value| String::from_utf8_lossy(value).into_owned()))
    }

    /// Its command line, for people; empty for kernel threads.
    pub fn command_line(&self) -> Result<Vec<String>, Error> {
        let (_, bytes) = self.read("cmdline")?;
        let args = bytes.split(|&b| b == 0).filter(|arg| !arg.is_empty());
        Ok(args.map(|arg| String::from_utf8_lossy(arg).into_owned()).collect())
    }
}

impl AsFd for Process {
    /// The pidfd: readable when the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// Field 22 of `/proc/PID/stat`.
fn start_ticks(pid: u32) -> Result<u64, Error> {
    let path = PathBuf::from(format!("/proc/{pid}/stat"));
    let text = fs::read(&path).map_err(|e| Error::of_process(pid, &path, e))?;
    let stat = Stat::from_read(text.as_slice())
        .map_err(|e| Error::of_process(pid, path, io::Error::other(e.to_string())))?;
    Ok(stat.starttime)
}
