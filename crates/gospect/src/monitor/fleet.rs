//! The processes that are watched.

use super::image::Images;
use super::watched::{Read, Seen, Wants, Watched};
use process::{FileIdentity, Process, UsageReader};
use std::collections::{BTreeMap, HashMap};

/// Which processes to watch.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// These.
    pub pids: Vec<u32>,
    /// All that run this file.
    pub file: Option<FileIdentity>,
    /// All Go programs.
    pub all: bool,
}

/// The processes that are watched.
pub struct Fleet {
    chosen: Chosen,
    watched: BTreeMap<u32, Watched>,
    images: Images,
    usages: UsageReader,
    /// What processes ran that are not Go programs; they are looked at again when they run another
    /// file.
    others: HashMap<u32, FileIdentity>,
}

/// What one reading of all processes met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Processes read.
    pub read: u64,
    /// Processes seen for the first time.
    pub new: u64,
    /// Processes that have ended since the last round.
    pub ended: u64,
    /// Processes that run another program image than in the last round.
    pub replaced: u64,
}

impl Fleet {
    /// Finds the processes chosen.
    ///
    /// Fails when one that was named is not there.
    pub fn open(chosen: Chosen) -> anyhow::Result<Self> {
        let mut fleet = Self {
            chosen,
            watched: BTreeMap::new(),
            images: Images::default(),
            usages: UsageReader::new(),
            others: HashMap::new(),
        };
        for pid in fleet.chosen.pids.clone() {
            let watched = Watched::open(Process::open(pid)?, &mut fleet.images)?;
            fleet.watched.insert(pid, watched);
        }
        // What is found later is found when all are read.
        fleet.discover();
        Ok(fleet)
    }

    /// How many are watched.
    pub fn len(&self) -> usize {
        self.watched.len()
    }

    /// Whether no process is left that could be watched: those named have ended, and no others
    /// are looked for.
    pub fn is_done(&self) -> bool {
        self.watched.is_empty() && !self.chosen.all && self.chosen.file.is_none()
    }

    /// Reads all processes, and hands each to `out` by ascending id.
    pub fn round(&mut self, wants: Wants, out: &mut dyn FnMut(&Watched, Read)) -> Round {
        let mut round = Round { new: self.discover(), ..Round::default() };
        self.usages.begin();
        let mut ended = Vec::new();
        for (pid, watched) in &mut self.watched {
            match watched.read(wants, &mut self.images, &mut self.usages) {
                Seen::Read { read, replaced } => {
                    round.replaced += u64::from(replaced);
                    // What was chosen by its file, or as a Go program, and is neither now.
                    if replaced && !is_chosen(&self.chosen, watched) {
                        ended.push(*pid);
                        continue;
                    }
                    round.read += 1;
                    out(watched, *read);
                }
                Seen::Ended => ended.push(*pid),
            }
        }
        round.ended = ended.len() as u64;
        for pid in ended {
            self.watched.remove(&pid);
        }
        round
    }

    /// Takes in processes that were not there before; says how many.
    fn discover(&mut self) -> u64 {
        let found = match (self.chosen.all, self.chosen.file) {
            (true, _) => self.unknown_pids(),
            (false, Some(file)) => process::find_by_exe(file),
            (false, None) => return 0,
        };
        let mut new = 0;
        for pid in found {
            if self.watched.contains_key(&pid) {
                continue;
            }
            let Ok(process) = Process::open(pid) else { continue };
            let Ok(watched) = Watched::open(process, &mut self.images) else { continue };
            if is_chosen(&self.chosen, &watched) {
                self.watched.insert(pid, watched);
                new += 1;
            } else if let Some(file) = watched.file {
                self.others.insert(pid, file);
            }
        }
        new
    }

    /// Processes that may have become Go programs since the last look.
    fn unknown_pids(&mut self) -> Vec<u32> {
        let own = std::process::id();
        let pids: Vec<u32> = std::fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|&pid| pid != own)
            .collect();
        let mut files = HashMap::with_capacity(pids.len());
        let mut unknown = Vec::new();
        for pid in pids {
            let link = format!("/proc/{pid}/exe");
            // Kernel threads and those out of reach have none.
            let Ok(file) = FileIdentity::of(std::path::Path::new(&link)) else { continue };
            if self.others.get(&pid) == Some(&file) {
                files.insert(pid, file);
            } else if !self.watched.contains_key(&pid) {
                unknown.push(pid);
            }
        }
        self.others = files;
        unknown
    }
}

fn is_chosen(chosen: &Chosen, watched: &Watched) -> bool {
    chosen.pids.contains(&watched.process.pid())
        || chosen.all && watched.is_go
        || chosen.file.is_some() && watched.file == chosen.file
}
