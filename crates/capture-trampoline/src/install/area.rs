//! The areas in the target: made by system calls in its name, shared with us by memfds.

use super::gap::{Layout, PAGE};
use super::remote::Remote;
use crate::Error;
use crate::clock;
use crate::layout::{CONTROL_MARK, ENABLED, MARK, OWNER};
use crate::memory::TargetMemory;
use crate::rings::Ring;
use crate::step;
use crate::view::View;
use address::{Avma, ReadMemory as _};
use process::Process;
use rustix::fs::{FlockOperation, SealFlags, fcntl_add_seals, flock, ftruncate};
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;

/// Names of the memfds, by which what a killed tracer left is found.
pub(crate) const CODE_NAME: &str = "gospect-code";
/// The other one.
pub(crate) const RINGS_NAME: &str = "gospect-rings";

/// Where in the control page a name is put while a memfd is made.
const NAME_OFFSET: u64 = 64;

/// Allows execution where the default forbids it (Linux 6.3).
pub(crate) const MFD_EXEC: u64 = 0x10;

/// The areas of one target.
#[derive(Debug)]
pub(crate) struct Area {
    /// Where they lie.
    pub(crate) layout: Layout,
    /// Bytes of code, whole pages.
    pub(crate) code_len: u64,
    /// The rings, seen from here.
    pub(crate) rings: View,
    /// The counter before any record.
    pub(crate) opened: u64,
    /// Locked as long as we live: so others know that the areas are in use.
    lock: File,
}

impl Area {
    /// Maps the areas. What was mapped is unmapped again when a later step fails.
    pub(crate) fn map(
        remote: &mut Remote<'_>,
        memory: &TargetMemory,
        layout: Layout,
        code: &[u8],
    ) -> Result<Self, Error> {
        let code_len = (code.len().max(1) as u64).next_multiple_of(PAGE);
        let mut done = Vec::new();
        let result = map_all(remote, memory, layout, code, code_len, &mut done);
        if result.is_err() {
            for (start, len) in done {
                // The error of the failed step is the one to tell.
                let _ = remote.call(libc::SYS_munmap, [start, len, 0, 0, 0, 0]);
            }
        }
        let (rings, lock) = result?;
        Ok(Self { layout, code_len, rings, opened: clock::tsc(), lock })
    }

    /// Areas that the target has mapped itself; `lock` opens the memfd of the rings, which nobody else
    /// holds by that description.
    pub(crate) fn given(layout: Layout, code_len: u64, lock: File) -> Result<Self, Error> {
        let len = usize::try_from(layout.rings_len()).unwrap_or(usize::MAX);
        let rings = View::new(lock.as_fd(), len).map_err(|e| Error::io("map the rings", e))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|e| Error::io("lock the rings", e))?;
        Ok(Self { layout, code_len, rings, opened: clock::tsc(), lock })
    }

    /// Says that the areas are nobody's any more, and lets nothing be recorded.
    pub(crate) fn abandon(&self) {
        for index in 0..self.layout.rings.count {
            Ring::of(&self.rings, &self.layout.rings, index).close();
        }
        // Our end would do the same.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }

    /// Whether a process has the rings in its memory; `None` where that cannot be told.
    pub(crate) fn is_mapped_by(&self, process: &Process) -> Option<bool> {
        let inode = self.lock.metadata().ok()?.ino();
        let maps = process.maps().ok()?;
        let mut rings = maps.mappings.iter().filter(|mapping| mapping.inode == inode);
        Some(rings.any(|mapping| mapping.start == self.layout.rings.base))
    }

    /// Takes all memory of the rings now, charged to us and not to the target, and lets the target
    /// write into them.
    pub(crate) fn open_rings(&self) -> Result<(), Error> {
        self.rings.populate().map_err(|e| Error::io("reserve memory for the rings", e))?;
        for index in 0..self.layout.rings.count {
            Ring::of(&self.rings, &self.layout.rings, index).release(0);
        }
        Ok(())
    }

    /// Lets hits be recorded, or not.
    pub(crate) fn enable(&self, memory: &TargetMemory, on: bool) -> Result<(), Error> {
        let word = u32::from(on).to_le_bytes();
        memory.write(self.layout.control.add(u64::from(ENABLED)), &word)
    }

    /// Whether the handler that the kernel calls for faults lies in one of `handlers`.
    pub(crate) fn handles(
        &self,
        remote: &mut Remote<'_>,
        memory: &TargetMemory,
        handlers: &[Range<Avma>],
    ) -> Result<bool, Error> {
        let place = self.layout.control.add(NAME_OFFSET);
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            let arguments = [signal as u64, 0, place.0, 8, 0, 0];
            remote.require("rt_sigaction", libc::SYS_rt_sigaction, arguments)?;
            // The handler is the first word of the kernel's struct sigaction.
            let handler = memory.read_word(place).map(Avma);
            if !handler.is_ok_and(|handler| handlers.iter().any(|r| r.contains(&handler))) {
                return Ok(false);
            }
        }
        memory.write(place, &[0; 32])?;
        Ok(true)
    }

    /// Unmaps everything; to be called while nothing leads here.
    pub(crate) fn unmap(&self, remote: &mut Remote<'_>) -> Result<(), Error> {
        for (start, len) in self.ranges() {
            remote.require("munmap", libc::SYS_munmap, [start, len, 0, 0, 0, 0])?;
        }
        Ok(())
    }

    /// All ranges: start and length.
    pub(crate) fn ranges(&self) -> [(u64, u64); 3] {
        ranges(&self.layout, self.code_len)
    }
}

fn ranges(layout: &Layout, code_len: u64) -> [(u64, u64); 3] {
    [(layout.code.0, code_len), (layout.rings.base.0, layout.rings_len()), (layout.control.0, PAGE)]
}

fn map_all(
    remote: &mut Remote<'_>,
    memory: &TargetMemory,
    layout: Layout,
    code: &[u8],
    code_len: u64,
    done: &mut Vec<(u64, u64)>,
) -> Result<(View, File), Error> {
    let [code_range, rings_range, control_range] = ranges(&layout, code_len);
    let read_write = libc::PROT_READ | libc::PROT_WRITE;
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    remote.map(layout.control, PAGE, read_write, anonymous, None)?;
    done.push(control_range);
    // At once: until then nobody knows whose page it is when we die.
    memory.write(layout.control.add(u64::from(MARK)), &CONTROL_MARK)?;
    step::at("control mapped");
    // A forked child finds the page zeroed, which turns its hits off.
    let wipe = libc::MADV_WIPEONFORK as u64;
    remote.require("madvise", libc::SYS_madvise, [layout.control.0, PAGE, wipe, 0, 0, 0])?;
    memory.write(layout.control.add(u64::from(OWNER)), &memory.pid().to_le_bytes())?;

    let shared = libc::MAP_SHARED;
    let file = with_memfd(remote, memory, layout, CODE_NAME, code_len, |remote, fd| {
        let protection = libc::PROT_READ | libc::PROT_EXEC;
        remote.map(layout.code, code_len, protection, shared, Some(fd))?;
        done.push(code_range);
        Ok(())
    })?;
    step::at("code mapped");
    write_code(&file, code, code_len)?;

    let file = with_memfd(remote, memory, layout, RINGS_NAME, rings_range.1, |remote, fd| {
        remote.map(layout.rings.base, rings_range.1, read_write, shared, Some(fd))?;
        done.push(rings_range);
        Ok(())
    })?;
    step::at("rings mapped");
    let dont_dump = libc::MADV_DONTDUMP as u64;
    let arguments = [rings_range.0, rings_range.1, dont_dump, 0, 0, 0];
    remote.require("madvise", libc::SYS_madvise, arguments)?;
    let len = usize::try_from(rings_range.1).unwrap_or(usize::MAX);
    let view = View::new(file.as_fd(), len).map_err(|e| Error::io("map the rings", e))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|e| Error::io("lock the rings", e))?;
    Ok((view, file))
}

/// Makes a memfd of `len` bytes in the target, lets `map` map it there, closes it there and gives
/// it open here.
fn with_memfd(
    remote: &mut Remote<'_>,
    memory: &TargetMemory,
    layout: Layout,
    name: &'static str,
    len: u64,
    map: impl FnOnce(&mut Remote<'_>, u64) -> Result<(), Error>,
) -> Result<File, Error> {
    let place = layout.control.add(NAME_OFFSET);
    let mut text = [0; 32];
    text[..name.len()].copy_from_slice(name.as_bytes());
    memory.write(place, &text)?;
    let flags = u64::from(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
    let fd = match remote.call(libc::SYS_memfd_create, [place.0, flags | MFD_EXEC, 0, 0, 0, 0])? {
        Ok(fd) => fd,
        Err(_) => {
            let arguments = [place.0, flags, 0, 0, 0, 0];
            remote.require("memfd_create", libc::SYS_memfd_create, arguments)?
        }
    };
    step::at("memfd made");
    let result = open_sealed(memory.pid(), remote.tid(), fd, name, len)
        .and_then(|file| map(remote, fd).map(|()| file));
    let closed = remote.require("close", libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
    memory.write(place, &[0; 32])?;
    let file = result?;
    closed?;
    Ok(file)
}

/// Opens a thread's descriptor from here, after a look at whether it is what we made.
fn open_sealed(pid: u32, tid: u32, fd: u64, name: &str, len: u64) -> Result<File, Error> {
    let failed = |e: std::io::Error| Error::io(format!("open {name} of process {pid}"), e);
    let path = format!("/proc/{pid}/task/{tid}/fd/{fd}");
    let link = std::fs::read_link(&path).map_err(failed)?;
    if !link.to_string_lossy().starts_with(&format!("/memfd:{name}")) {
        return Err(failed(std::io::ErrorKind::InvalidData.into()));
    }
    let file = OpenOptions::new().read(true).write(true).open(&path).map_err(failed)?;
    ftruncate(&file, len).map_err(|e| failed(e.into()))?;
    let seals = SealFlags::SHRINK | SealFlags::GROW;
    fcntl_add_seals(&file, seals).map_err(|e| failed(e.into()))?;
    Ok(file)
}

/// Descriptors of memfds of ours that the target holds.
pub(crate) fn open_memfds(pid: u32) -> Vec<u64> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| {
        let link = std::fs::read_link(entry.path()).unwrap_or_default();
        let link = link.to_string_lossy();
        let name = link.strip_prefix("/memfd:").unwrap_or_default();
        name.starts_with(CODE_NAME) || name.starts_with(RINGS_NAME)
    });
    ours.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Fills in the code, and lets nobody write it from then on.
pub(crate) fn write_code(file: &File, code: &[u8], len: u64) -> Result<(), Error> {
    let failed = |e: std::io::Error| Error::io("write the code area", e);
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let view = View::new(file.as_fd(), len).map_err(failed)?;
    view.fill(0, code);
    drop(view);
    fcntl_add_seals(file, SealFlags::FUTURE_WRITE | SealFlags::SEAL).map_err(|e| failed(e.into()))
}

#[cfg(test)]
mod name_tests {
    use super::*;

    #[test]
    fn mappings_are_known_by_the_beginning_of_their_names() {
        for name in [CODE_NAME, RINGS_NAME] {
            assert!(name.starts_with(crate::MAPPING_NAME), "{name}");
        }
    }
}
