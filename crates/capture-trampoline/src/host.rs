//! A process that has code of ours, however it came there.

use crate::Error;
use crate::install::{Area, Removal, Report, Resting, Target, remove_leftovers};
use crate::memory::TargetMemory;
use address::Svma;
use process::Process;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The process, and what is known about it.
pub(crate) enum Host {
    /// We have put the code there, by ptrace.
    Traced(Target),
    /// It has done so itself, and may be out of our reach.
    Given(Given),
}

/// A process that put the code into itself.
pub(crate) struct Given {
    pub(crate) process: Process,
    pub(crate) area: Area,
    pub(crate) report: Report,
    pub(crate) witness: Witness,
    pub(crate) resting: Resting,
}

/// What tells that a process has become another program.
pub(crate) enum Witness {
    /// Its memory, where that may be opened.
    Memory(TargetMemory),
    /// Its maps, which some may read who may not do that: they belong to the address space that they were
    /// opened on. Each look makes the kernel write a page of text, so there are few.
    Maps(File, Mutex<Instant>),
    /// Nobody: its end tells.
    None,
}

/// Between two looks at maps.
const MAPS_PAUSE: Duration = Duration::from_millis(100);

impl Witness {
    /// The best there is.
    pub(crate) fn of(pid: u32) -> Self {
        if let Ok(memory) = TargetMemory::open(pid) {
            return Self::Memory(memory);
        }
        match File::open(format!("/proc/{pid}/maps")) {
            Ok(maps) => Self::Maps(maps, Mutex::new(Instant::now())),
            Err(_) => Self::None,
        }
    }

    fn is_current(&self) -> bool {
        match self {
            Self::Memory(memory) => memory.is_current(),
            Self::Maps(maps, last) => {
                let mut last = last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if last.elapsed() < MAPS_PAUSE {
                    return true;
                }
                *last = Instant::now();
                !matches!(maps.read_at(&mut [0; 64], 0), Ok(0))
            }
            Self::None => true,
        }
    }
}

impl Host {
    pub(crate) fn process(&self) -> &Process {
        match self {
            Self::Traced(target) => &target.process,
            Self::Given(given) => &given.process,
        }
    }

    pub(crate) fn area(&self) -> &Area {
        match self {
            Self::Traced(target) => &target.area,
            Self::Given(given) => &given.area,
        }
    }

    pub(crate) fn report(&self) -> &Report {
        match self {
            Self::Traced(target) => &target.report,
            Self::Given(given) => &given.report,
        }
    }

    /// Whether it has the memory that our code is in.
    pub(crate) fn is_current(&self) -> bool {
        match self {
            Self::Traced(target) => target.memory.is_current(),
            Self::Given(given) => given.witness.is_current(),
        }
    }

    /// Nobody will look at the rings again: code that had to stay is to drop what it would record.
    pub(crate) fn close(&self) {
        if let Self::Given(given) = self {
            given.area.abandon();
        }
    }

    /// Takes the patches of some functions, by where they begin, out, or puts back those that were. False when that
    /// cannot be.
    pub(crate) fn set_watched(
        &mut self,
        functions: &BTreeMap<Svma, u32>,
        watched: bool,
    ) -> Result<bool, Error> {
        match self {
            Self::Traced(target) => {
                target.set_watched(&functions.values().copied().collect(), watched)
            }
            Self::Given(given) if !given.witness.is_current() => Ok(false),
            Self::Given(given) => {
                let pid = given.process.pid();
                match given.resting.set(pid, functions, watched) {
                    Err(
                        Error::Permission { .. }
                        | Error::Process(process::Error::Permission { .. }),
                    ) => Ok(false),
                    result => result,
                }
            }
        }
    }

    /// Takes everything out that can be.
    pub(crate) fn remove(&mut self) -> Result<Removal, Error> {
        match self {
            Self::Traced(target) => target.remove(),
            Self::Given(given) => given.remove(),
        }
    }
}

impl Given {
    /// Where we may not trace the process its code stays, and drops whatever it would record.
    fn remove(&self) -> Result<Removal, Error> {
        let stays = || Removal {
            left_bytes: self.area.ranges().iter().map(|range| range.1).sum(),
            ..Removal::default()
        };
        if !self.witness.is_current() {
            return Ok(Removal::default());
        }
        self.area.abandon();
        match remove_leftovers(self.process.pid()) {
            Ok(removal) => Ok(removal.unwrap_or_default()),
            Err(Error::Permission { .. } | Error::Process(process::Error::Permission { .. })) => {
                Ok(stays())
            }
            Err(error) => Err(error),
        }
    }
}
