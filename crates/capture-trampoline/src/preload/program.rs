//! A program that asks.

use process::{FileSource, FileStamp, Process};
use std::sync::Arc;

/// Who asks, as the kernel says.
#[derive(Debug)]
pub struct Program {
    pub(super) process: Process,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) executable: Arc<FileSource>,
    pub(super) stamp: FileStamp,
}

impl Program {
    /// Its process id, in our own pid namespace.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The process, held so that another one is noticed.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Effective user when it connected.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Effective group when it connected.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// The file that it runs. It has opened it for us; where `/proc` lets us look, it is the same one.
    pub fn executable(&self) -> &Arc<FileSource> {
        &self.executable
    }

    /// Which file that is, in which state: what a decision can be remembered under.
    pub fn stamp(&self) -> FileStamp {
        self.stamp
    }

    /// Its arguments; empty when they cannot be read.
    pub fn command_line(&self) -> Vec<String> {
        self.process.command_line().unwrap_or_default()
    }
}
