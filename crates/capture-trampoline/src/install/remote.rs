//! The system calls made in a target's name.

use crate::Error;
use crate::memory::TargetMemory;
use crate::ptrace::{Borrowed, Called, Stopped, find_syscall};
use crate::step;
use address::{Avma, Bias};
use binary::Executable;
use process::Maps;
use std::io;
use std::ops::Range;
use std::time::Duration;

/// Signals that may get in between before we give up.
const MAX_DISTURBED: usize = 32;

/// Where calls can be made from.
#[derive(Clone, Debug)]
pub(crate) struct CallSites {
    /// The executable's code.
    pub text: Range<Avma>,
    /// Where threads sleep that may be borrowed, see [`sleepers`].
    pub sleepers: Vec<Range<Avma>>,
    /// Any `syscall` instruction.
    pub anywhere: Avma,
}

impl CallSites {
    /// Looks for them: in the vdso, else in the executable.
    pub(crate) fn find(
        maps: &Maps,
        text: &Range<Avma>,
        sleepers: Vec<Range<Avma>>,
        memory: &TargetMemory,
    ) -> Result<Self, Error> {
        let vdso = maps
            .mappings
            .iter()
            .find(|m| m.executable && m.label.as_deref().is_some_and(is_vdso))
            .map(|m| m.start..m.end);
        let anywhere = vdso
            .and_then(|range| find_syscall(&range, memory))
            .or_else(|| find_syscall(text, memory))
            .ok_or_else(|| Error::Unsuitable {
                pid: memory.pid(),
                reason: "its code has no system call instruction".to_owned(),
            })?;
        Ok(Self { text: text.clone(), sleepers, anywhere })
    }
}

/// Go's wrappers of the calls that sleep.
pub(crate) fn sleepers(executable: &Executable, bias: Bias) -> Vec<Range<Avma>> {
    const NAMES: [&str; 2] = ["runtime.futex", "runtime.usleep"];
    let functions = executable.functions().ok();
    let found = functions.iter().flat_map(|table| table.iter());
    let found = found.filter(|function| NAMES.contains(&function.name.as_str()));
    found.map(|function| bias.to_avma(function.entry)..bias.to_avma(function.end)).collect()
}

fn is_vdso(label: &str) -> bool {
    label.eq_ignore_ascii_case("[vdso]") || label.eq_ignore_ascii_case("vdso")
}

/// Makes calls in a stopped process.
pub(crate) struct Remote<'a> {
    borrowed: Borrowed<'a>,
    pid: u32,
}

impl<'a> Remote<'a> {
    /// Borrows a thread: one that can be left alone at any moment if there is one or
    /// `unsafe_too` is false.
    pub(crate) fn borrow(
        stopped: &'a mut Stopped,
        sites: &CallSites,
        memory: &TargetMemory,
        unsafe_too: bool,
    ) -> Result<Option<Self>, Error> {
        let pid = stopped.pid();
        // Asked twice, since a borrow that is returned from one branch only would block the other.
        let safe = Borrowed::sleeping(stopped, &sites.sleepers, memory)?.is_some();
        let borrowed = match (safe, unsafe_too) {
            (true, _) => Borrowed::sleeping(stopped, &sites.sleepers, memory)?,
            (false, true) => Borrowed::any(stopped, sites.anywhere)?,
            (false, false) => None,
        };
        step::at("borrowed");
        Ok(borrowed.map(|borrowed| Self { borrowed, pid }))
    }

    /// Borrows the one thread of a program that has not run yet.
    pub(crate) fn at_start(
        stopped: &'a mut Stopped,
        sites: &CallSites,
        memory: &TargetMemory,
    ) -> Result<Option<Self>, Error> {
        let pid = stopped.pid();
        let safe = Borrowed::at_start(stopped, &sites.text, memory)?.is_some();
        let borrowed = match safe {
            true => Borrowed::at_start(stopped, &sites.text, memory)?,
            false => Borrowed::any(stopped, sites.anywhere)?,
        };
        step::at("borrowed");
        Ok(borrowed.map(|borrowed| Self { borrowed, pid }))
    }

    /// Whether our death at any moment leaves the target well.
    pub(crate) fn is_safe(&self) -> bool {
        self.borrowed.is_safe
    }

    /// The borrowed thread.
    pub(crate) fn tid(&self) -> u32 {
        self.borrowed.tid()
    }

    /// One call; `Ok(Err(errno))` when the kernel refused it.
    pub(crate) fn call(
        &mut self,
        number: i64,
        arguments: [u64; 6],
    ) -> Result<Result<u64, i32>, Error> {
        for _ in 0..MAX_DISTURBED {
            match self.borrowed.call(number, arguments)? {
                Called::Returned(value @ -4095..0) => return Ok(Err(-(value as i32))),
                Called::Returned(value) => return Ok(Ok(value as u64)),
                // The thread stands in a signal handler now; any code may do its call.
                Called::Disturbed => {}
            }
        }
        Err(Error::Unstoppable {
            pid: self.pid,
            tid: 0,
            millis: Duration::ZERO.as_millis(),
            state: "signals arrive without end".to_owned(),
        })
    }

    /// One call that has to succeed.
    pub(crate) fn require(
        &mut self,
        name: &'static str,
        number: i64,
        arguments: [u64; 6],
    ) -> Result<u64, Error> {
        self.call(number, arguments)?.map_err(|errno| Error::RemoteCall {
            pid: self.pid,
            call: name,
            error: io::Error::from_raw_os_error(errno),
            hint: hint(errno),
        })
    }

    /// `mmap` at an exact place that must be free.
    pub(crate) fn map(
        &mut self,
        at: Avma,
        len: u64,
        protection: i32,
        flags: i32,
        fd: Option<u64>,
    ) -> Result<(), Error> {
        let flags = flags | libc::MAP_FIXED_NOREPLACE;
        let arguments = [at.0, len, protection as u64, flags as u64, fd.unwrap_or(u64::MAX), 0];
        let got = self.require("mmap", libc::SYS_mmap, arguments)?;
        if got == at.0 {
            return Ok(());
        }
        // A kernel before 4.17 takes the address for a wish.
        let _ = self.call(libc::SYS_munmap, [got, len, 0, 0, 0, 0])?;
        Err(Error::Unsuitable {
            pid: self.pid,
            reason: "the kernel does not know MAP_FIXED_NOREPLACE (Linux 4.17)".to_owned(),
        })
    }

    /// Gives the thread back.
    pub(crate) fn finish(self) -> Result<(), Error> {
        self.borrowed.give_back()
    }
}

fn hint(errno: i32) -> &'static str {
    match errno {
        libc::ENOMEM => {
            "; its address space or memory limits (RLIMIT_AS, max_map_count) are reached"
        }
        libc::EAGAIN => "; it locks its memory (mlockall) and RLIMIT_MEMLOCK is reached",
        libc::EACCES | libc::EPERM => {
            "; executable memory is forbidden to it (SELinux, vm.memfd_noexec, PR_SET_MDWE)"
        }
        libc::EMFILE | libc::ENFILE => "; it has too many open files",
        libc::EEXIST => "; the place was taken meanwhile, try again",
        libc::ENOSYS => "; a sandbox or an old kernel does not offer it",
        _ => "",
    }
}
